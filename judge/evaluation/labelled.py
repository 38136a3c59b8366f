"""What a judge is measured on, and what it said: pairs, single criteria, whole checklists.

A pair's `first` and `second` are its own numbering, which no order of showing changes. Where the
data names a chosen and a rejected answer, the chosen one is the first.
"""

from typing import Literal

from pydantic import Field

from judge.checklist import ChecklistItem
from memory.schema import NO_USAGE, Usage, Value

Side = Literal["first", "second"]
Winner = Literal["first", "second", "tie"]
Style = Literal[0, 1, 2]
"""of an RM-Bench answer: concise, detailed, detailed with markdown"""


class Turn(Value):
    """One message of the conversation that was answered."""

    role: str
    content: str


class Pair(Value):
    """Two answers to one prompt, and which is better."""

    id: str
    prompt: str
    first: str
    second: str
    better: Side
    subset: str = ""
    styles: tuple[Style, Style] | None = None
    """of the chosen and of the rejected answer; RM-Bench alone"""


class Comparison(Value):
    """What a judge said when it was shown a pair in one order."""

    pair: str
    judge: str = ""
    swapped: bool = False
    """the pair's second answer was shown first"""
    winner: Winner | None = None
    """in the pair's own numbering; None: no verdict could be had"""
    share: float | None = Field(default=None, ge=0, le=1)
    """how sure the judge is of the pair's first answer, 0.5 for neither; None: it did not say"""
    reason: str = ""
    text: str = ""
    """what the judge wrote, where it wrote its verdict; A in it is what was shown first"""
    usage: Usage = NO_USAGE


class LabelledCriterion(Value):
    """One criterion of one answer, and whether each physician found it met (HealthBench)."""

    id: str
    conversation: tuple[Turn, ...]
    completion: str
    criterion: str
    labels: tuple[bool, ...] = Field(min_length=1)
    subset: str = ""


class ListedAnswer(Value):
    """One answer with the checklist that its prompt came with (HealthBench); nobody labelled it."""

    id: str
    conversation: tuple[Turn, ...]
    completion: str
    items: tuple[ChecklistItem, ...] = Field(min_length=1)
    tags: tuple[str, ...] = ()


class Mark(Value):
    """Whether a judge found a criterion met; None: no verdict could be had."""

    item: str
    """the id of a labelled criterion, or that of a listed answer with the item's number: x/1"""
    judge: str = ""
    met: bool | None = None
    reason: str = ""
    usage: Usage = NO_USAGE


def mirrored(winner: Winner | None) -> Winner | None:
    """The winner in the numbering of the other order."""
    if winner == "first":
        return "second"
    return "first" if winner == "second" else winner
