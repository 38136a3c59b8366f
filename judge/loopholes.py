"""Criteria that could be met without doing better work; a judge's proposals of them are dropped.

They reward form (tags, headings), effort and length as such, keeping to a plan whatever the
evidence says, agreeing with oneself, or what only holds beside the other attempts (RubricEM,
arXiv:2605.10899, appendix C). Words that the question itself uses are its substance.
"""

import re
from collections.abc import Mapping

from memory.schema import Criterion, Stage

_PLAN = r"(?:its|the|their|his) (?:own |initial |original |stated |research )*plan\b"
LOOPHOLES: Mapping[str, re.Pattern[str]] = {
    "form": re.compile(
        r"\b(?:xml|tags?|tagged|headings?|headers?|markdown|markup|bullets?|bulleted|"
        r"well-formed|formatting)\b",
        re.I,
    ),
    "length": re.compile(
        r"\b(?:longer|lengthy|length|word count)\b"
        r"|\b(?:at least|more than|over) (?:\d+|two|three|four|five|ten) "
        r"(?:words|sentences|paragraphs|pages|searches|queries|steps|sources|citations)\b",
        re.I,
    ),
    "obedience to a plan": re.compile(
        rf"\b(?:follow|stick|keep|adher|execut|deviat|depart|stray|abandon)\w*"
        rf"(?: \w+)?(?: to| from)? {_PLAN}",
        re.I,
    ),
    "agreement with itself": re.compile(
        r"\bself-consisten\w+|\b(?:consistent|agrees?|in line) with (?:its|the) "
        r"(?:own )?(?:plan|rubrics?|review|earlier|previous)\b"
        r"|\b(?:its|the agent's) own (?:rubrics?|criteria)\b",
        re.I,
    ),
    "comparison": re.compile(
        r"\b(?:other|weaker|stronger|better|worse|first|last) (?:attempt|run|trajector)\w*"
        r"|\b(?:attempt|run|trajectory) \d+\b",
        re.I,
    ),
}
"""what is rewarded -> words that say so"""


def loophole(criterion: Criterion, question: str) -> str:
    """What a criterion rewards beside good work, or ""."""
    text = f"{criterion.title}\n{criterion.description}"
    asked = question.casefold()
    for name, pattern in LOOPHOLES.items():
        if any(match.group(0).casefold() not in asked for match in pattern.finditer(text)):
            return name
    return ""


def without_loopholes(
    proposed: Mapping[Stage, tuple[Criterion, ...]], question: str
) -> tuple[dict[Stage, tuple[Criterion, ...]], list[str]]:
    """The criteria that are left, and a sentence for each that is not."""
    kept: dict[Stage, tuple[Criterion, ...]] = {}
    notes: list[str] = []
    for stage, criteria in proposed.items():
        found = [(criterion, loophole(criterion, question)) for criterion in criteria]
        kept[stage] = tuple(criterion for criterion, name in found if not name)
        notes += [
            f"Dropped from {stage}, as it rewards {name}: {criterion.title}"
            for criterion, name in found
            if name
        ]
    return kept, notes
