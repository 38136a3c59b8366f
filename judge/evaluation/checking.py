"""A checklist judge shown answers: each item of each becomes a mark."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from judge.checklist import Checker, ChecklistItem
from judge.evaluation.formats import conversation_text
from judge.evaluation.labelled import LabelledCriterion, ListedAnswer, Mark
from memory.schema import NO_USAGE

Checkable = LabelledCriterion | ListedAnswer


def items_of(answer: Checkable) -> Iterator[tuple[str, ChecklistItem]]:
    """What is to be marked of it, each with the id of its mark."""
    if isinstance(answer, LabelledCriterion):
        yield answer.id, ChecklistItem(criterion=answer.criterion, points=1)
        return
    for number, item in enumerate(answer.items, start=1):
        yield f"{answer.id}/{number}", item


async def mark_all(
    checker: Checker,
    answers: Sequence[Checkable],
    at_once: int,
    on_done: Callable[[Sequence[Mark]], None],
) -> list[Mark]:
    """The marks of each answer, in order; `on_done` is told those of one as they come."""
    places = asyncio.Semaphore(at_once)

    async def check(answer: Checkable) -> list[Mark]:
        async with places:
            marks = await _marks(checker, answer)
        on_done(marks)
        return marks

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(check(answer)) for answer in answers]
    return [mark for task in running for mark in task.result()]


async def _marks(checker: Checker, answer: Checkable) -> list[Mark]:
    """One mark an item; the first carries what all of them cost."""
    named = list(items_of(answer))
    question = conversation_text(answer.conversation)
    checked = await checker.check(question, answer.completion, [item for _, item in named])
    return [
        Mark(
            item=name,
            judge=checker.name,
            met=finding.met,
            reason=finding.explanation or (checked.fault if finding.met is None else ""),
            usage=NO_USAGE if place else checked.usage,
        )
        for place, ((name, _), finding) in enumerate(zip(named, checked.findings, strict=True))
    ]
