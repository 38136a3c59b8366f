"""Criteria of a question that are kept for good, made once before any run of it is seen.

They come from the question and from what a search for it brings, which makes them more often
true and concrete than those of a model that reads the question alone (DR Tulu,
arXiv:2511.19399, table 6: 56.7 against 55.2 on average).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from judge.buffer import add
from judge.loopholes import without_loopholes
from judge.stage_judge import Proposer
from memory.errors import SettingsError
from memory.interfaces import Passage, SearchTool
from memory.rubrics import RubricBuffer
from memory.schema import NO_USAGE, Usage

PASSAGES = 6


@dataclass(frozen=True, slots=True)
class FirstRubrics:
    """The buffer with the new criteria in it, and what making them cost."""

    buffer: RubricBuffer
    passages: int
    notes: tuple[str, ...] = ()
    usage: Usage = NO_USAGE


async def first_rubrics(
    buffer: RubricBuffer, proposer: Proposer, search: SearchTool | None
) -> FirstRubrics:
    """Raises SettingsError where the question has such criteria, JudgeError where none came."""
    if any(buffer.persistent.values()):
        raise SettingsError(
            "This question has criteria that are kept for good.",
            "Retire them first: rubricem judge rubrics retire",
        )
    found: Sequence[Passage] = await search.search(buffer.question, PASSAGES) if search else ()
    proposed = await proposer.from_question(buffer.question, found)
    sound, notes = without_loopholes(proposed.criteria, buffer.question)
    reason = f"from the question and {len(found)} passages" if found else "from the question"
    grown = add(buffer, sound, 0, reason)
    return FirstRubrics(grown, len(found), tuple(notes), proposed.usage)
