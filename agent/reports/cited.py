"""The values of a cited answer, and how its pieces are put together with their marks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.reports.exact import bare_answer, unbox
from memory.schema import CitationSupport, Source

NO_SOURCE = "[no source]"
"""the mark of a claim whose ids were all unknown"""
DOUBTS: Mapping[CitationSupport, str] = {"unsupported": "not supported", "partial": "in part"}
"""what a mark says beside its number"""
REMOVED = "[claim removed]"
"""what stands for a claim that repair took out of the middle of a text"""

_STOPS = ".!?,;:"


@dataclass(frozen=True, slots=True)
class Citation:
    """One claim standing on one source."""

    number: int
    """shown to the reader; the same for every claim on this source"""
    claim: str
    source: Source
    overlap: float
    """share of the claim's content words that occur in the passage, 0 to 1"""
    quote: str
    """the sentence of the passage closest to the claim, verbatim; "" if none shares a word"""
    verdict: CitationSupport = "unchecked"
    reason: str = ""
    """why the verdict is not better, in a phrase"""

    @property
    def id(self) -> str:
        return self.source.id

    @property
    def passage(self) -> str:
        return self.source.text


@dataclass(frozen=True, slots=True)
class Text:
    """Part of the answer that claims no source."""

    text: str


@dataclass(frozen=True, slots=True)
class Uncited:
    """A claim that named only sources which were never retrieved."""

    text: str


@dataclass(frozen=True, slots=True)
class Cited:
    """A claim and what it stands on: at least one citation, none twice."""

    text: str
    citations: tuple[Citation, ...]


Piece = Text | Uncited | Cited
Mark = Callable[[Cited | Uncited], str]


def bracketed(piece: Cited | Uncited) -> str:
    """The marks as plain text: [1][2], or [1: not supported]."""
    if isinstance(piece, Uncited):
        return NO_SOURCE
    return "".join(f"[{c.number}{doubt(c)}]" for c in piece.citations)


def doubt(citation: Citation) -> str:
    """What the mark says after its number: nothing where the source supports the claim."""
    said = DOUBTS.get(citation.verdict)
    return f": {said}" if said else ""


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """The answer in pieces; `dropped` counts ids and numbers that named no retrieved source."""

    pieces: tuple[Piece, ...] = ()
    dropped: int = 0
    bare: str = ""
    """in the format `exact`, the answer alone"""

    @property
    def citations(self) -> tuple[Citation, ...]:
        """All citations in order of appearance."""
        return tuple(c for p in self.pieces if isinstance(p, Cited) for c in p.citations)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The cited sources, in the order of their numbers from 1."""
        return tuple({c.number: c.source for c in self.citations}.values())

    def of(self, source: Source) -> tuple[Citation, ...]:
        """The citations that stand on a source."""
        return tuple(c for c in self.citations if c.id == source.id)

    def text(self, mark: Mark = bracketed) -> str:
        """The answer with its marks; in the format `exact` the last line is the bare answer."""
        return "\n\n".join(filter(None, (self.body(mark), self.bare)))

    def body(self, mark: Mark = bracketed) -> str:
        """The answer with its marks, without the line that is only the bare answer."""
        text = joined(self.pieces, mark)
        if not self.bare:
            return text
        lines = unbox(text).splitlines()
        return "\n".join(lines[:-1] if bare_answer(lines[-1]) == self.bare else lines).strip()


def joined(pieces: Sequence[Piece], mark: Mark) -> str:
    """The text of the pieces, each claim with its mark; a mark may be empty."""
    text, after_mark = "", False
    for piece in pieces:
        if after_mark and piece.text[:1].isalnum():
            text += " "
        text += piece.text if isinstance(piece, Text) else _marked(piece.text, mark(piece))
        after_mark = not isinstance(piece, Text)
    return text.strip()


def _marked(claim: str, mark: str) -> str:
    """The claim with its mark before a closing full stop: `It evicts the oldest [1].`"""
    if not mark:
        return claim
    if claim.rpartition("\n")[2].startswith("```"):
        return f"{claim}\n{mark}"
    if claim[-1] in _STOPS and claim[-2:-1] not in _STOPS:
        return f"{claim[:-1]} {mark}{claim[-1]}"
    return f"{claim} {mark}"
