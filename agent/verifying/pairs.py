"""What a checker is asked and what it says: (claim, cited text) pairs and findings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.events import Listener, ignore
from agent.journaled import Calls
from agent.reports.cited import Cited, CitedAnswer
from memory.schema import NO_USAGE, CitationSupport, Source, Trajectory, Usage, Verification


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim and one of the sources it cites; `beside` are the others that it cites."""

    claim: str
    source: Source
    beside: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """How far the source holds the claim, and why not wholly."""

    verdict: CitationSupport
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """One finding for each pair, in order, and what they cost."""

    each: tuple[Finding, ...]
    usage: Usage = NO_USAGE


class Checker(Protocol):
    """Says of each pair whether the source's text as fetched holds the claim.

    Raises PolicyError where its model cannot be asked.
    """

    @property
    def name(self) -> str: ...

    async def check(self, pairs: Sequence[Pair]) -> Findings: ...


class Verifier(Protocol):
    """Checks an answer's citations; raises nothing where its model fails."""

    async def verify(
        self, trajectory: Trajectory, calls: Calls, listener: Listener = ignore
    ) -> tuple[Verification, Usage]: ...

    def by_rules(self, trajectory: Trajectory, why: str) -> Verification:
        """The same without any call, and why it is without."""
        ...


@dataclass
class Verifying:
    """A run's verification: who does it, if anybody, and what it came to once it is done."""

    verifier: Verifier | None = None
    result: Verification | None = None


def pairs_of(answer: CitedAnswer) -> tuple[Pair, ...]:
    """The pairs of an answer, each once: the same claim on the same source is one question."""
    return tuple(dict.fromkeys(_pairs(answer)))


def _pairs(answer: CitedAnswer) -> Iterator[Pair]:
    for piece in answer.pieces:
        if isinstance(piece, Cited):
            for citation in piece.citations:
                others = (c.source for c in piece.citations if c is not citation)
                yield Pair(citation.claim, citation.source, tuple(others))
