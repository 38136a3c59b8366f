"""A group of runs judged by a checklist: each answer by itself, all on the same items.

The items are the answer criteria of the question's buffer: imported ones, those of other judges,
or else a checklist made from the question, which then stands in the buffer as persistent. So
whatever scored an answer can be looked up there.
"""

import asyncio
from collections.abc import Sequence

from judge.answers import answer_judgement, answer_text, scored, settled_answer, unscored
from judge.buffer import add
from judge.checklist import Checked, Checker, ChecklistItem, Finding, checklist_score, item_of
from judge.checklist_making import ChecklistMaker
from judge.curating import bring_in
from judge.stage_judge import GroupJudgement
from memory.asking import spent
from memory.errors import JudgeError, PolicyError
from memory.rubrics import RubricBuffer
from memory.schema import (
    NO_USAGE,
    Criterion,
    Judgement,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
    Usage,
)


class ChecklistJudge:
    """Judges groups as the stage judge does, with one maker of checklists and one checker."""

    def __init__(self, maker: ChecklistMaker, checker: Checker) -> None:
        self._maker = maker
        self._checker = checker

    @property
    def name(self) -> str:
        return self._checker.name

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory, and the buffer with the checklist in it.

        A judge that fails leaves answers unscored with the reason; it raises nothing.
        """
        to_read = any(settled_answer(t) is None for t in group.trajectories)
        buffer, fault, usage = await self._supplied(buffer, step, wanted=to_read)
        judgements = await asyncio.gather(
            *(self._judgement(t, buffer, fault) for t in group.trajectories)
        )
        notes = [f"No checklist: {fault}"] if fault else _unread(judgements)
        return GroupJudgement(
            judgements=tuple(judgements), buffer=buffer, notes=tuple(notes), usage=usage
        )

    async def _supplied(
        self, buffer: RubricBuffer, step: int, *, wanted: bool
    ) -> tuple[RubricBuffer, str, Usage]:
        """The buffer with answer criteria, why it has none, and what making them cost."""
        if buffer.criteria(Stage.ANSWER) or not wanted:
            return buffer, "", NO_USAGE
        try:
            made = await self._maker.make(buffer.question)
        except (JudgeError, PolicyError) as error:
            return buffer, f"{error} {error.remedy}".strip(), spent(error)
        grown = with_items(buffer, made.items, "a checklist from the question", step)
        return grown, "", made.usage

    async def _judgement(
        self, trajectory: Trajectory, buffer: RubricBuffer, fault: str
    ) -> Judgement:
        answer, usage = settled_answer(trajectory), NO_USAGE
        if answer is None and fault:
            answer = unscored(f"the judge failed: {fault}")
        if answer is None:
            criteria = buffer.criteria(Stage.ANSWER)
            items = [item_of(criterion) for criterion in criteria]
            checked = await self._checker.check(trajectory.question, answer_text(trajectory), items)
            answer, usage = stage_score(criteria, checked), checked.usage
        return answer_judgement(trajectory, self.name, answer, buffer.label, usage)


def with_items(
    buffer: RubricBuffer, items: Sequence[ChecklistItem], reason: str, step: int | None = None
) -> RubricBuffer:
    """The buffer with the items as answer criteria that are never pruned; those worth 0 left out.

    Without a step the change belongs to the last one.
    """
    criteria = {Stage.ANSWER: [item.as_criterion() for item in items if item.points]}
    return (
        bring_in(buffer, criteria, reason) if step is None else add(buffer, criteria, step, reason)
    )


def stage_score(criteria: Sequence[Criterion], checked: Checked) -> StageScore:
    """What a checked list makes of the answer, no less than 0; the explanation has it whole."""
    score = checklist_score(checked.findings)
    if score is None:
        return unscored(f"the judge failed: {checked.fault or 'no item has a verdict'}")
    pairs = zip(checked.findings, criteria, strict=True)
    verdicts = [v for found, criterion in pairs if (v := found.as_verdict(criterion))]
    return scored(max(score, 0.0), _told(checked.findings, score), verdicts)


def _told(findings: Sequence[Finding], score: float) -> str:
    met = sum(f.item.points for f in findings if f.met)
    counts = {o: sum(f.outcome == o for f in findings) for o in ("met", "not met", "unparsed")}
    listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"Of {len(findings)} items {listed}: {met:g} points, a score of {score:.3g}."


def _unread(judgements: Sequence[Judgement]) -> list[str]:
    """A sentence for each answer that the judge failed on."""
    return [
        f"{judgement.trajectory_id}: {answer.unscored_reason}"
        for judgement in judgements
        for answer in judgement.stages
        if answer.unscored_reason.startswith("the judge failed")
    ]
