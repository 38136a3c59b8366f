"""The verify stage: every citation of an answer checked, and in repair mode what fails repaired.

The transcript stays as it was written. What was found is a value beside it, and the reports mark,
rewrite or leave out by it. Every model call goes through the run's journal; where the model
fails, or may not be asked any more, the lexical rules check instead, and that is said.

The verifier that the settings name.

The verify node's work on a run: within its budgets, and never instead of its answer.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from rubricem.agent.models.policy import (
    ChatWriter,
    JournaledCalls,
    JournaledChat,
    JournaledPolicy,
    JournaledReader,
    Policy,
    TokenWriter,
)
from rubricem.agent.reports.cited import Cited, cited_answer
from rubricem.agent.research.events import Listener, SourceProgress, UsageCounted, ignore
from rubricem.agent.research.question import OutOfTime, reason_of
from rubricem.agent.research.run import Run
from rubricem.agent.settings import Settings
from rubricem.agent.verify.checkers import ChatChecker, ChoiceChecker, rewritten
from rubricem.agent.verify.rules import (
    NAME,
    Checker,
    Finding,
    Findings,
    LexicalChecker,
    Pair,
    lexical_finding,
    pairs_of,
)
from rubricem.agent.weights.catalogue import CATALOGUE
from rubricem.memory.errors import PolicyError
from rubricem.memory.interfaces import ChoiceReader, TokenPolicy
from rubricem.memory.schema import (
    NO_USAGE,
    AnswerFormat,
    CitationCheck,
    Repair,
    Trajectory,
    Usage,
    Verification,
)

BATCH = 8
"""claims asked of a server in one call"""

Mode = Literal["mark", "repair"]


@runtime_checkable
class _Weighing(ChoiceReader, TokenPolicy, Protocol):
    """A model in this process: its opinion can be read."""


@dataclass
class _Work:
    """One answer being verified: who checks, and what was found so far."""

    checker: Checker
    policy: Policy | None
    usage: Usage = NO_USAGE
    note: str = ""
    found: dict[Pair, Finding] = field(default_factory=dict)

    async def check(self, pairs: Sequence[Pair]) -> None:
        """Check each pair that was not, in batches whose claims share their passages."""
        new = sorted((p for p in dict.fromkeys(pairs) if p not in self.found), key=_source)
        batches = [new[i : i + BATCH] for i in range(0, len(new), BATCH)]
        for batch, said in zip(
            batches, await asyncio.gather(*map(self._batch, batches)), strict=True
        ):
            self.usage += said.usage
            self.found |= dict(zip(batch, said.each, strict=True))

    async def _batch(self, pairs: Sequence[Pair]) -> Findings:
        try:
            return await self.checker.check(pairs)
        except PolicyError as error:
            self.note = f"some citations were checked by {NAME} alone: {error}"
            return Findings(tuple(map(lexical_finding, pairs)))

    async def rewrite(self, pair: Pair) -> str:
        """The claim written anew and found in its source; "" where that cannot be had."""
        if self.policy is None:
            return ""
        try:
            text, used = await rewritten(self.policy, pair)
        except PolicyError as error:
            self.note = f"not every claim could be rewritten: {error}"
            return ""
        self.usage += used
        return text if text != pair.claim else ""


class AnswerVerifier:
    """A `Verifier` with the policy's own model, or by rules alone where it is given none."""

    def __init__(self, mode: Mode, policy: Policy | None) -> None:
        self._mode: Mode = mode
        self.policy = policy

    async def verify(
        self, trajectory: Trajectory, calls: JournaledCalls, listener: Listener = ignore
    ) -> tuple[Verification, Usage]:
        """Every pair of the answer; the calls are those of the journal's thread."""
        answer = cited_answer(trajectory)
        pairs = pairs_of(answer)
        work = _work(self.policy, calls)
        if pairs:
            listener(SourceProgress(f"checking the citations ({len(pairs)}): {work.checker.name}"))
        with calls.scope(trajectory.thread):
            await work.check(pairs)
            repairs = await self._repaired(trajectory, work)
        checks = tuple(_check(pair, found) for pair, found in work.found.items())
        return (
            Verification(
                mode=self._mode,
                checker=work.checker.name,
                note=work.note,
                checks=checks,
                repairs=repairs,
            ),
            work.usage,
        )

    def by_rules(self, trajectory: Trajectory, why: str) -> Verification:
        """By lexical rules, without any call; claims that repair cannot rewrite are removed."""
        found = {pair: lexical_finding(pair) for pair in pairs_of(cited_answer(trajectory))}
        checks = tuple(_check(pair, finding) for pair, finding in found.items())
        repairs = tuple(Repair(claim=pairs[0].claim) for pairs in _failed(trajectory, found))
        return Verification(
            mode=self._mode,
            checker=NAME,
            note=why,
            checks=checks,
            repairs=repairs if self._repairing(trajectory) else (),
        )

    def _repairing(self, trajectory: Trajectory) -> bool:
        return self._mode == "repair" and trajectory.answer_format is not AnswerFormat.EXACT

    async def _repaired(self, trajectory: Trajectory, work: _Work) -> tuple[Repair, ...]:
        """What becomes of the claims that none of their sources holds."""
        if not self._repairing(trajectory):
            return ()
        failed = list(_failed(trajectory, work.found))
        texts = await asyncio.gather(*(work.rewrite(pairs[0]) for pairs in failed))
        anew = [
            [Pair(text, pair.source, pair.beside) for pair in pairs]
            for text, pairs in zip(texts, failed, strict=True)
        ]
        await work.check([pair for pairs in anew for pair in pairs if pair.claim])
        return tuple(
            Repair(claim=old[0].claim, became=new[0].claim if _held(new, work) else "")
            for old, new in zip(failed, anew, strict=True)
        )


def _work(policy: Policy | None, calls: JournaledCalls) -> _Work:
    """The checker that goes with the policy's model; its calls and the rewriting journalled."""
    rewriter = JournaledPolicy(policy, calls) if policy else None
    if isinstance(policy, ChatWriter):
        return _Work(ChatChecker(JournaledChat(policy.model, calls)), rewriter)
    if isinstance(policy, TokenWriter) and isinstance(policy.model, _Weighing):
        model = policy.model
        return _Work(ChoiceChecker(JournaledReader(model, model, calls)), rewriter)
    return _Work(LexicalChecker(), None)


def _failed(trajectory: Trajectory, found: dict[Pair, Finding]) -> Iterator[list[Pair]]:
    """The pairs of each claim that none of its sources holds, even in part; each claim once."""
    verdicts = {(pair.source.id, pair.claim): (pair, f.verdict) for pair, f in found.items()}
    seen: set[str] = set()
    for piece in cited_answer(trajectory).pieces:
        if isinstance(piece, Cited) and piece.citations[0].claim not in seen:
            seen.add(piece.citations[0].claim)
            pairs = [verdicts[(c.id, c.claim)] for c in piece.citations]
            if all(verdict == "unsupported" for _, verdict in pairs):
                yield [pair for pair, _ in pairs]


def _held(pairs: Sequence[Pair], work: _Work) -> bool:
    return any(
        pair.claim and work.found[pair].verdict == "supported" for pair in pairs if pair.claim
    )


def _check(pair: Pair, finding: Finding) -> CitationCheck:
    return CitationCheck(
        source=pair.source.id, claim=pair.claim, verdict=finding.verdict, reason=finding.reason
    )


def _source(pair: Pair) -> tuple[int, str]:
    return len(pair.source.id), pair.source.id


def verifier_of(settings: Settings, policy: Policy) -> AnswerVerifier | None:
    """None where nothing is to be checked; `--checker lexical` asks no model.

    Nor is a model asked that is known to judge claims no better than the rules.
    """
    if settings.verify == "off":
        return None
    known = next((w for w in CATALOGUE if policy.version.startswith(w.folder)), None)
    asked = settings.checker == "auto" and (known is None or known.checks_claims)
    return AnswerVerifier(settings.verify, policy if asked else None)


async def verify_run(run: Run) -> None:
    """Check the run's citations; a run whose budget is spent is checked by rules alone."""
    verifier = run.verifying.verifier
    if verifier is None:
        return
    trajectory = run.trajectory("")
    by = run.ended_by if run.cut_in else run.spending.out()
    if by:
        run.verifying.result = verifier.by_rules(trajectory, _why(run, by))
        return
    began = run.spending.seconds
    try:
        verifying = verifier.verify(trajectory, JournaledCalls(run.journal), run.listener)
        run.verifying.result, used = await run.spending.bounded(verifying)
    except OutOfTime as end:
        run.verifying.result = verifier.by_rules(trajectory, _why(run, end.by))
        return
    run.usage += used
    run.spending.count(used, run.spending.seconds - began)
    run.listener(UsageCounted(run.usage))


def _why(run: Run, by: str) -> str:
    return f"no model checked the citations, since {reason_of(by, run.spending.budgets)}"
