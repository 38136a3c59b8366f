"""A checklist with points: which of its items an answer meets, and the resulting score.

    score = (sum of the points of items that are met) / (sum of the points above 0)

with points from -10 to 10, negative ones for flaws; so a score is at most 1, and may be below 0. It
is used as a reward unclipped, as in RuscaRL: clipped at 0, the worst answers of a group would all
be equally good. The report on HealthBench's data clips its means, as that benchmark does. An item
without a usable verdict is unparsed: it is in neither sum, since "not met" would excuse flaws.
Sources: RuscaRL (arXiv:2508.16949), HealthBench (arXiv:2505.08775).

The items are the persistent answer criteria of the question's buffer: imported ones, or else a
checklist made from the question, which then is persistent there; so whatever scored an answer can
be looked up. What a stage judge found by comparing runs tells these apart, and is no item. A model
that has seen one good answer writes criteria that fit it, while the request alone leaves it
guessing (RuscaRL, appendix E.3): so it writes an answer first.

Each answer is checked by itself. On a chat server one call checks all items. On a local
model an item is met if "Yes" is likelier than "No": each item is one short question after request
and answer, with the sentence of the answer that shares most words with it.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator, model_validator

from rubricem.judge.base import (
    CHARACTERS,
    QUESTION_CHARACTERS,
    answer_judgement,
    answer_text,
    failed_score,
    failure_notes,
    instruct,
    outcome,
    sight_of,
    unread,
)
from rubricem.judge.buffers import add, persistent_criteria
from rubricem.judge.evidence import ALL, evidence_of, found_in, found_text
from rubricem.judge.stage import Maker, Proposed, Runs, Scored, Scorer, Standard, scored_by
from rubricem.judge.stage_readers import ChoiceScorer, quoted
from rubricem.memory.asking import (
    TRIES,
    Bill,
    Numbered,
    ReplyForm,
    Valid,
    Verdicts,
    ask_entries,
    ask_json,
    ask_until,
    usage_of_error,
)
from rubricem.memory.errors import JudgeError
from rubricem.memory.schema import (
    NO_USAGE,
    ChatModel,
    Completion,
    Criterion,
    GroupJudgement,
    Judgement,
    RubricBuffer,
    Source,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Value,
    Verdict,
)
from rubricem.memory.text import cut, fence, without_markers


class ChecklistItem(Value):
    """One thing an answer should do (points above 0) or should not do (below 0)."""

    criterion: str = Field(min_length=1)
    points: float = Field(ge=-10, le=10, allow_inf_nan=False)


def worth(criterion: Criterion) -> float:
    """The points of an item: its weight, below 0 for a flaw."""
    points = min(criterion.weight, 10.0)
    return points if criterion.positive else -points


def checklist_score(criteria: Sequence[Criterion], verdicts: Sequence[Verdict]) -> float | None:
    """The formula's score; of a list of flaws alone, the share of their points that was avoided.

    None where nothing that scores was parsed.
    """
    flaws_alone = not any(criterion.positive for criterion in criteria)
    counted = (v.criterion for v in verdicts if flaws_alone or v.criterion.positive)
    if not (possible := sum(map(worth, counted))):
        return None
    share = sum(worth(v.criterion) for v in verdicts if v.points) / possible
    return 1 - share if flaws_alone else share


LEAST_ITEMS, MOST_ITEMS = 5, 15


class MadeItem(ReplyForm):
    """One item as the model writes it; its points are clipped to those that there are."""

    criterion: str = Field(min_length=1)
    points: float = Field(allow_inf_nan=False)

    @field_validator("points")
    @classmethod
    def _worth(cls, points: float) -> float:
        if points == 0:
            raise ValueError("an item is worth at least one point, or minus one")
        return min(max(points, -10.0), 10.0)


class MadeChecklist(ReplyForm):
    """The reply to a request for a checklist: each item once, and the first of too many."""

    rubrics: Valid[MadeItem]

    @model_validator(mode="after")
    def _usable(self) -> "MadeChecklist":
        once: dict[str, MadeItem] = {}
        for item in self.rubrics:
            once.setdefault(" ".join(item.criterion.casefold().split()), item)
        self.rubrics = list(once.values())[:MOST_ITEMS]
        if len(self.rubrics) < LEAST_ITEMS:
            raise ValueError(f"it needs at least {LEAST_ITEMS} different items worth some points")
        if not any(item.points > 0 for item in self.rubrics):
            raise ValueError("some item must have points above 0")
        return self


class ChatChecklistMaker:
    """Writes checklists by a chat server. Raises JudgeError or PolicyError if it cannot."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def from_question(
        self, question: str, stages: Sequence[Stage] = ALL, found: Sequence[Source] = ()
    ) -> Proposed:
        """Items of the answer, whatever the stages."""
        request = cut(question, min(QUESTION_CHARACTERS, sight_of(self._model) // QUESTION_SHARE))
        room = (sight_of(self._model) - len(request)) // 2
        asked = fence({"request": request}), found_text(found, room)
        with Bill() as bill:
            answer, bill.usage = await self._write_answer(asked)
            good = fence({"a good reply": cut(answer, room)})
            messages = instruct("checklist_make", *asked, good)
            made, used = await ask_json(self._model, messages, MadeChecklist)
            bill.usage += used
        items = persistent_criteria([("", i.criterion, i.points) for i in made.rubrics])
        return Proposed({Stage.ANSWER: items}, bill.usage)

    async def _write_answer(self, asked: Sequence[str]) -> tuple[str, Usage]:
        messages = instruct("checklist_answer", *asked)

        def some_text(reply: Completion) -> str:
            if not reply.text.strip():
                raise ValueError("there is no text in it")
            return reply.text

        answer, _, used = await ask_until(self._model, messages, some_text, lambda *_: messages)
        if answer is None:
            raise JudgeError(
                f"{self._model.name} wrote no answer in {TRIES} tries",
                "Use a stronger judge model.",
                used,
            )
        return answer, used


class ChecklistJudge:
    """Judges groups as the stage judge does, with one maker of checklists and one scorer.

    What the scorer gives no verdict on is unparsed.
    """

    def __init__(self, maker: Maker, scorer: Scorer) -> None:
        self._maker = maker
        self._scorer = scorer
        self.name = scorer.name

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory, and the buffer with the checklist in it.

        A judge that fails leaves answers unscored with the reason; it raises nothing.
        """
        to_read = any(unread(t, Stage.ANSWER) is None for t in group.trajectories)
        found = found_in(group.trajectories) if to_read else []
        buffer, fault, usage = await self._supply_items(buffer, step, found, wanted=to_read)
        judgements = await asyncio.gather(
            *(self._judgement(t, buffer, fault) for t in group.trajectories)
        )
        notes = [f"No checklist: {fault}"] if fault else failure_notes(judgements)
        return GroupJudgement(
            judgements=tuple(judgements), buffer=buffer, notes=tuple(notes), usage=usage
        )

    async def _supply_items(
        self, buffer: RubricBuffer, step: int, found: Sequence[Source], *, wanted: bool
    ) -> tuple[RubricBuffer, str, Usage]:
        """The buffer with answer criteria, why it has none, and what making them cost."""
        if _items(buffer) or not wanted:
            return buffer, "", NO_USAGE
        made = await outcome(self._maker.from_question(buffer.question, (Stage.ANSWER,), found))
        if not isinstance(made, Proposed):
            return buffer, made.told(), usage_of_error(made)
        if not (criteria := made.criteria.get(Stage.ANSWER)):
            return buffer, "no criteria came for the answer", made.usage
        asked = {Stage.ANSWER: criteria}
        return add(buffer, asked, step, "a checklist from the question"), "", made.usage

    async def _judgement(
        self, trajectory: Trajectory, buffer: RubricBuffer, fault: str
    ) -> Judgement:
        answer, usage = unread(trajectory, Stage.ANSWER), NO_USAGE
        if answer is None and fault:
            answer = failed_score(fault)
        if answer is None:
            criteria = _items(buffer)
            scored = await scored_by(self._scorer, trajectory, {Stage.ANSWER: criteria})
            answer, usage = stage_score(criteria, scored), scored.usage
        return answer_judgement(trajectory, self.name, answer, buffer.label, usage)


def _items(buffer: RubricBuffer) -> tuple[Criterion, ...]:
    return buffer.persistent.get(Stage.ANSWER, ())


def stage_score(criteria: Sequence[Criterion], scored: Scored) -> StageScore:
    """What a checked list makes of the answer."""
    verdicts = scored.verdicts.get(Stage.ANSWER, ())
    score = checklist_score(criteria, verdicts)
    if score is None:
        return failed_score(scored.fault or "no item has a verdict")
    given = {c.key: c.given for c in criteria if c.given is not None}
    points = given if len(given) == len(criteria) else {c.key: worth(c) for c in criteria}
    met = [points[v.criterion.key] for v in verdicts if v.points]
    counts = {"met": len(met), "not met": len(verdicts) - len(met)}
    counts["unparsed"] = len(criteria) - len(verdicts)
    listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    said = f"Of {len(criteria)} items {listed}: {sum(met):g} points, a score of {score:.3g}."
    return StageScore(stage=Stage.ANSWER, score=score, justification=said, verdicts=verdicts)


MET = {"met": True, "pass": True, "not met": False, "unmet": False, "fail": False}
Met = Annotated[bool, BeforeValidator(lambda said: MET.get(str(said).casefold(), said))]


class GivenMark(Numbered):
    explanation: str = ""
    criteria_met: Met


class ChatItemScorer:
    """A `Scorer` of answers over a chat server."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name = model.name

    async def score(self, trajectory: Trajectory, standard: Standard, group: Runs = ()) -> Scored:
        """One call for all items; those without a usable verdict have none."""
        if not (items := standard[Stage.ANSWER]):
            return Scored({})
        request, reply = cut(trajectory.question, QUESTION_CHARACTERS), answer_text(trajectory)
        said = [" ".join((item.description or item.title).split()) for item in items]
        listed = "\n".join(f"{number}. {text}" for number, text in enumerate(said, start=1))
        # What all runs of the question share comes first: servers keep a common beginning.
        asked = (fence({"request": request}), f"Items:\n{without_markers(listed)}")
        room = max(sight_of(self._model, reply) - len(request + listed), 1)
        shown = (fence({"reply": cut(reply, room)}), evidence_of(trajectory, room))
        last = f"Now say of items 1 to {len(items)} whether they hold of the reply."
        messages = instruct("checklist_check", *asked, *shown, last)
        names = [str(number) for number in range(1, len(items) + 1)]
        marks = await ask_entries(self._model, messages, Verdicts[GivenMark], names)
        verdicts = tuple(
            Verdict(criterion=c, points=2 * m.criteria_met, justification=m.explanation)
            for c, m in zip(items, marks.found, strict=True)
            if m
        )
        return Scored({Stage.ANSWER: verdicts}, marks.usage, marks.fault)


QUESTION_SHARE = 4
"""the request gets one part in so many"""


class ChoiceItemScorer(ChoiceScorer):
    """The same of answers alone, by Yes or No."""

    prompt = "checklist_choice"

    def shown(self, trajectory: Trajectory, characters: int) -> str:
        request = cut(trajectory.question, characters // QUESTION_SHARE)
        room = max(characters - len(request), 1)
        said = fence({"request": request, "reply": cut(answer_text(trajectory), room)})
        return f"{said}\n{cut(evidence_of(trajectory, CHARACTERS), room // 2)}".rstrip()

    def question(self, trajectory: Trajectory, stage: Stage, said: str, span: str) -> str:
        return without_markers(
            f"Statement: {said}\n"
            f"The closest sentence of the reply: {quoted(span)}\n"
            "Does the statement hold of the reply? Yes or No?"
        )

    def points(self, yes: float) -> float | None:
        return None if yes == 0.5 else 2.0 * (yes > 0.5)
