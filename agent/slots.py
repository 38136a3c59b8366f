"""The slots of forced decoding: where each stands, how long it is and how it is sampled.

What they are was found by measuring; docs/progress.md says what was tried.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from memory.interfaces import Completion, Sampling
from memory.schema import Stage

PROSE = Sampling(temperature=0.2, top_p=0.9, min_p=0.05)
GREEDY = Sampling(temperature=0.0)

_TAG = re.compile(r"</?[A-Za-z_]|<\|")
_SENTENCE = re.compile(r"[.!?](?=\s|$)")


@dataclass(frozen=True, slots=True)
class Slot:
    """One place the model fills: where, how long in tokens, and how sampled."""

    name: str
    stage: Stage
    cap: int
    sampling: Sampling = PROSE
    end: str = "\n"
    """text at which the slot ends, beside anything like a tag"""


THINK = Slot("think", Stage.PLAN, 40, replace(PROSE, dry=4))
ANALYSIS = Slot("deep_analysis", Stage.PLAN, 60, replace(PROSE, dry=4))
RUBRIC = Slot("rubric", Stage.PLAN, 80, replace(PROSE, dry=4), end="\n\n")
RESEARCH_PLAN = Slot("research_plan", Stage.PLAN, 50, replace(PROSE, dry=4))
QUERY = Slot("query", Stage.RESEARCH, 20, GREEDY)
TOOL_CALL = Slot("tool_call", Stage.RESEARCH, 120, GREEDY, end="</call_tool>")
READING = Slot("reading", Stage.RESEARCH, 60, GREEDY)
MISSING = Slot("missing", Stage.RESEARCH, 20, GREEDY)
RUBRIC_REVIEW = Slot("rubric_review", Stage.REVIEW, 80, replace(PROSE, dry=12), end="\n\n")
WRITING_PLAN = Slot("writing_plan", Stage.REVIEW, 40, replace(PROSE, dry=12))
CLAIM = Slot("claim", Stage.ANSWER, 80, GREEDY, end="</cite>")
EXACT = Slot("exact", Stage.ANSWER, 24, GREEDY)

OnSlot = Callable[[Slot, str, Completion], None]
"""Told what a slot holds after trimming, and what the model wrote for it."""


def slot_end(text: str, mark: str) -> int | None:
    """Where a slot's text ends; an end mark before the first word does not count."""
    lead = len(text) - len(text.lstrip())
    tag = _TAG.search(text)
    marked = text.find(mark, lead)
    return min([at for at in (tag.start() if tag else -1, marked) if at >= 0], default=None)


def trim(text: str, *, capped: bool) -> str:
    """The text without loose ends: up to its last whole sentence or line where it was cut."""
    text = text.strip()
    if not capped:
        return text
    ends = [match.end() for match in _SENTENCE.finditer(text)]
    end = max([*ends, text.rfind("\n")])
    return text[:end].rstrip() if end > 0 else text
