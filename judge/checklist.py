"""A checklist with points: what was found of an answer, and what it comes to.

    score = (sum of the points of items that are met) / (sum of the points above 0)

with points from -10 to 10, those below 0 for flaws; so a score is at most 1, and may be below 0.
An item of which no verdict could be had is unparsed: it is in neither sum, since "not met" would
excuse flaws. Sources: RuscaRL (arXiv:2508.16949), HealthBench (arXiv:2505.08775).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from memory.schema import NO_USAGE, Criterion, Usage, Value, Verdict

TITLE_CHARACTERS = 60
Outcome = Literal["met", "not met", "unparsed"]


class ChecklistItem(Value):
    """One thing an answer should do (points above 0) or should not do (below 0)."""

    criterion: str = Field(min_length=1)
    points: float = Field(ge=-10, le=10, allow_inf_nan=False)
    tags: tuple[str, ...] = ()
    """as published: level:..., axis:..., cluster:..."""

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


class Finding(Value):
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


def points_share(findings: Sequence[Finding]) -> float | None:
    """The score by the formula; None where no item above 0 was parsed, for want of a scale."""
    parsed = [finding for finding in findings if finding.met is not None]
    possible = sum(f.item.points for f in parsed if f.item.points > 0)
    if not possible:
        return None
    return sum(f.item.points for f in parsed if f.met) / possible


def checklist_score(findings: Sequence[Finding]) -> float | None:
    """The formula's score; of a list of flaws alone, the share of their points that was avoided.

    None where nothing that scores was parsed.
    """
    if any(f.item.points > 0 for f in findings):
        return points_share(findings)
    flaws = [f for f in findings if f.met is not None and f.item.points < 0]
    worst = sum(f.item.points for f in flaws)
    return 1 - sum(f.item.points for f in flaws if f.met) / worst if worst else None


def tag_scores(findings: Sequence[Finding]) -> dict[str, float]:
    """The formula's score over each tag's items; tags without parsed points above 0 left out."""
    tagged: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        for tag in dict.fromkeys(finding.item.tags):
            tagged[tag].append(finding)
    shares = {tag: points_share(found) for tag, found in tagged.items()}
    return {tag: share for tag, share in shares.items() if share is not None}


@dataclass(frozen=True, slots=True)
class Checked:
    """One finding for each item of a checklist, in order."""

    findings: tuple[Finding, ...]
    fault: str = ""
    """why some are unparsed"""
    usage: Usage = NO_USAGE


class Checker(Protocol):
    """Checks one answer. A model that fails leaves items unparsed, with the reason."""

    @property
    def name(self) -> str: ...

    async def check(
        self, question: str, answer: str, items: Sequence[ChecklistItem]
    ) -> Checked: ...
