"""A checklist with points: which of its items an answer meets, and the resulting score.

    score = (sum of the points of items that are met) / (sum of the points above 0)

with points from -10 to 10, negative ones for flaws; so a score is at most 1, and may be below 0. It
is used as a reward unclipped, as in RuscaRL: clipped at 0, the worst answers of a group would all
be equally good. The report on HealthBench's data clips its means, as that benchmark does. An item
without a usable verdict is unparsed: it is in neither sum, since "not met" would excuse flaws.
Sources: RuscaRL (arXiv:2508.16949), HealthBench (arXiv:2505.08775).

The items are the answer criteria of the question's buffer: imported ones, those of other judges, or
else a checklist made from the question, which then is persistent in the buffer; so whatever scored
an answer can be looked up there. A model that has seen one good answer writes criteria that fit it,
while the request alone leaves it guessing (RuscaRL, appendix E.3): so it writes an answer first.

Each answer is checked by itself. On a chat server one call checks up to `BATCH` items. On a local
model an item is met if "Yes" is likelier than "No": each item is one short question after request
and answer, with the sentence of the answer that shares most words with it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from rubricem.judge.base import (
    CHARACTERS,
    QUESTION_CHARACTERS,
    answer_judgement,
    answer_text,
    closest_span,
    failed_score,
    failure_notes,
    instruct,
    outcome,
    sight_of,
    unread,
)
from rubricem.judge.buffers import add, bring_in
from rubricem.judge.evidence import evidence_of, found_in, found_text
from rubricem.judge.readers import WHOLE, ChoiceSeries, ask_entries
from rubricem.judge.stage import Proposer
from rubricem.memory.asking import (
    TRIES,
    Bill,
    ReplyForm,
    Valid,
    ask_json,
    ask_until,
    usage_of_error,
)
from rubricem.memory.errors import JudgeError, PolicyError, RubricemError
from rubricem.memory.schema import (
    NO_USAGE,
    ChatModel,
    ChoiceReader,
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

TITLE_CHARACTERS = 60
Outcome = Literal["met", "not met", "unparsed"]


class ChecklistItem(Value):
    """One thing an answer should do (points above 0) or should not do (below 0)."""

    criterion: str = Field(min_length=1)
    points: float = Field(ge=-10, le=10, allow_inf_nan=False)

    def as_criterion(self) -> Criterion:
        """The item as a buffer keeps it. Raises ValueError for one worth no points."""
        title = self.criterion
        if len(title) > TITLE_CHARACTERS:
            title = f"{title[:TITLE_CHARACTERS].rsplit(None, 1)[0]} ..."
        return Criterion(
            title=title,
            description=self.criterion,
            weight=abs(self.points),
            positive=self.points > 0,
            persistent=True,
        )


def item_of(criterion: Criterion) -> ChecklistItem:
    """A buffer's criterion as an item; its weight, with the sign, is its points."""
    points = min(criterion.weight, 10.0)
    return ChecklistItem(
        criterion=criterion.description or criterion.title,
        points=points if criterion.positive else -points,
    )


class ItemFinding(Value):
    """What a judge found of one item; `met` is None where no verdict could be had."""

    item: ChecklistItem
    met: bool | None
    explanation: str = ""
    by: Literal["judge", "code"] = "judge"
    """who wrote the explanation"""

    @property
    def outcome(self) -> Outcome:
        if self.met is None:
            return "unparsed"
        return "met" if self.met else "not met"

    def as_verdict(self, criterion: Criterion) -> Verdict | None:
        """The finding in a judgement: 2 points or none; None where it is unparsed."""
        if self.met is None:
            return None
        return Verdict(
            criterion=criterion,
            points=2.0 if self.met else 0.0,
            justification=self.explanation,
            justified_by=self.by,
        )


def points_share(findings: Sequence[ItemFinding]) -> float | None:
    """The score by the formula; None where no item above 0 was parsed, for want of a scale."""
    parsed = [finding for finding in findings if finding.met is not None]
    possible = sum(f.item.points for f in parsed if f.item.points > 0)
    if not possible:
        return None
    return sum(f.item.points for f in parsed if f.met) / possible


def checklist_score(findings: Sequence[ItemFinding]) -> float | None:
    """The formula's score; of a list of flaws alone, the share of their points that was avoided.

    None where nothing that scores was parsed.
    """
    if any(f.item.points > 0 for f in findings):
        return points_share(findings)
    flaws = [f for f in findings if f.met is not None and f.item.points < 0]
    worst = sum(f.item.points for f in flaws)
    return 1 - sum(f.item.points for f in flaws if f.met) / worst if worst else None


@dataclass(frozen=True, slots=True)
class Checked:
    """One finding for each item of a checklist, in order."""

    findings: tuple[ItemFinding, ...]
    fault: str = ""
    """why some are unparsed"""
    usage: Usage = NO_USAGE


class ItemChecker(Protocol):
    """Checks one answer. A model that fails leaves items unparsed, with the reason."""

    @property
    def name(self) -> str: ...

    async def check(
        self, question: str, answer: str, items: Sequence[ChecklistItem], evidence: str = ""
    ) -> Checked: ...


LEAST_ITEMS, MOST_ITEMS = 5, 15


@dataclass(frozen=True, slots=True)
class Made:
    """A checklist, and what it cost."""

    items: tuple[ChecklistItem, ...]
    usage: Usage = NO_USAGE


class ChecklistMaker(Protocol):
    """Writes checklists. Raises JudgeError or PolicyError when it has none to give."""

    async def make(self, question: str, found: Sequence[Source] = ()) -> Made: ...


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
    """A `ChecklistMaker` over a chat server."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def make(self, question: str, found: Sequence[Source] = ()) -> Made:
        room = CHARACTERS // 2
        asked = fence({"request": cut(question, QUESTION_CHARACTERS)}), found_text(found, room)
        with Bill() as bill:
            answer, bill.usage = await self._write_answer(asked)
            good = fence({"a good reply": cut(answer, room)})
            messages = instruct("checklist_make", *asked, good)
            made, used = await ask_json(self._model, messages, MadeChecklist)
            bill.usage += used
        items = (ChecklistItem(criterion=i.criterion, points=i.points) for i in made.rubrics)
        return Made(tuple(items), bill.usage)

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


class ProposedChecklist:
    """A `ChecklistMaker` for a model that writes no JSON: a proposer's answer criteria."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer

    async def make(self, question: str, found: Sequence[Source] = ()) -> Made:
        proposed = await self._proposer.from_question(question, stages=(Stage.ANSWER,))
        items = tuple(item_of(c) for c in proposed.criteria.get(Stage.ANSWER, ()))
        if not items:
            raise JudgeError(
                "no criteria came for the answer",
                "Import a checklist, or use a stronger judge model.",
                proposed.usage,
            )
        return Made(items, proposed.usage)


class ChecklistJudge:
    """Judges groups as the stage judge does, with one maker of checklists and one checker."""

    def __init__(self, maker: ChecklistMaker, checker: ItemChecker) -> None:
        self.maker = maker
        self.checker = checker
        self.name = checker.name

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
        if buffer.criteria(Stage.ANSWER) or not wanted:
            return buffer, "", NO_USAGE
        try:
            made = await self.maker.make(buffer.question, found)
        except (JudgeError, PolicyError) as error:
            return buffer, error.told(), usage_of_error(error)
        grown = with_items(buffer, made.items, "a checklist from the question", step)
        return grown, "", made.usage

    async def _judgement(
        self, trajectory: Trajectory, buffer: RubricBuffer, fault: str
    ) -> Judgement:
        answer, usage = unread(trajectory, Stage.ANSWER), NO_USAGE
        if answer is None and fault:
            answer = failed_score(fault)
        if answer is None:
            criteria = buffer.criteria(Stage.ANSWER)
            items = [item_of(criterion) for criterion in criteria]
            text = answer_text(trajectory)
            room = getattr(self.checker, "characters", CHARACTERS)
            evidence = evidence_of(trajectory, room)
            checked = await self.checker.check(trajectory.question, text, items, evidence)
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
    """What a checked list makes of the answer."""
    score = checklist_score(checked.findings)
    if score is None:
        return failed_score(checked.fault or "no item has a verdict")
    pairs = zip(checked.findings, criteria, strict=True)
    found = checked.findings
    as_given = [c.given for c in criteria if c.given is not None]
    points = as_given if len(as_given) == len(found) else [f.item.points for f in found]
    met = sum(worth for f, worth in zip(found, points, strict=True) if f.met)
    counts = {o: sum(f.outcome == o for f in found) for o in ("met", "not met", "unparsed")}
    listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return StageScore(
        stage=Stage.ANSWER,
        score=score,
        justification=f"Of {len(found)} items {listed}: {met:g} points, a score of {score:.3g}.",
        verdicts=tuple(v for f, criterion in pairs if (v := f.as_verdict(criterion))),
    )


BATCH = 12
"""items in one call"""


class GivenMark(ReplyForm):
    id: Annotated[str, WHOLE] = Field(alias="number")
    explanation: str = ""
    criteria_met: bool


class GivenMarks(ReplyForm):
    """The reply that is asked for."""

    verdicts: Valid[GivenMark]


class ChatItemChecker:
    """An `ItemChecker` over a chat server."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name = model.name
        self.characters = sight_of(model)

    async def check(
        self, question: str, answer: str, items: Sequence[ChecklistItem], evidence: str = ""
    ) -> Checked:
        request, reply = cut(question, QUESTION_CHARACTERS), cut(answer, self.characters)
        shown = f"{fence({'request': request, 'reply': reply})}\n\n{evidence}".rstrip()
        batches = [items[at : at + BATCH] for at in range(0, len(items), BATCH)]
        asked = (outcome(self._batch(shown, batch)) for batch in batches)
        findings, faults, used = list[ItemFinding](), list[str](), NO_USAGE
        for batch, found in zip(batches, await asyncio.gather(*asked), strict=True):
            if isinstance(found, Checked):
                findings += found.findings
                used += found.usage
                faults += [found.fault] if found.fault else []
            else:
                findings += [ItemFinding(item=item, met=None) for item in batch]
                faults.append(found.told())
                used += usage_of_error(found)
        return Checked(tuple(findings), "".join(faults[:1]), used)

    async def _batch(self, shown: str, items: Sequence[ChecklistItem]) -> Checked:
        numbered = enumerate((" ".join(item.criterion.split()) for item in items), start=1)
        listed = "\n".join(f"{number}. {criterion}" for number, criterion in numbered)
        messages = instruct("checklist_check", f"{shown}\n\nItems:\n{without_markers(listed)}")
        names = [str(number) for number in range(1, len(items) + 1)]
        marks = await ask_entries(self._model, messages, GivenMarks, names)
        findings = (
            ItemFinding(item=item, met=mark.criteria_met, explanation=mark.explanation)
            if mark
            else ItemFinding(item=item, met=None)
            for item, mark in zip(items, marks.found, strict=True)
        )
        return Checked(tuple(findings), marks.fault, marks.usage)


ITEM_CHARACTERS = 600
QUESTION_SHARE = 4
"""the request gets one part in so many"""


class ChoiceItemChecker:
    """An `ItemChecker` over a `ChoiceReader`."""

    def __init__(self, reader: ChoiceReader) -> None:
        self._series = ChoiceSeries(reader)
        self.name = reader.name

    async def check(
        self, question: str, answer: str, items: Sequence[ChecklistItem], evidence: str = ""
    ) -> Checked:
        spans = [closest_span(item.criterion, answer) for item in items]
        asked = [_item_question(item, span) for item, span in zip(items, spans, strict=True)]

        def shown(characters: int) -> str:
            request = cut(question, characters // QUESTION_SHARE)
            room = max(characters - len(request), 1)
            said = fence({"request": request, "reply": cut(answer, room)})
            return f"{said}\n{cut(evidence, room // 2)}".rstrip()

        read = await outcome(self._series.yes("checklist_choice", shown, asked))
        if isinstance(read, RubricemError):
            unparsed = tuple(ItemFinding(item=item, met=None) for item in items)
            return Checked(unparsed, read.told(), usage_of_error(read))
        findings = (
            ItemFinding(
                item=item, met=None if yes == 0.5 else yes > 0.5, explanation=span, by="code"
            )
            for item, span, yes in zip(items, spans, read[0], strict=True)
        )
        return Checked(tuple(findings), usage=read[1])


def _item_question(item: ChecklistItem, span: str) -> str:
    closest = f'"{span}"' if span else "(no sentence speaks of it)"
    return without_markers(
        f"Statement: {cut(item.criterion, ITEM_CHARACTERS)}\n"
        f"The closest sentence of the reply: {closest}\n"
        "Does the statement hold of the reply? Yes or No?"
    )
