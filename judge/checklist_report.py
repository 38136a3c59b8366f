"""Checklists over many answers: the mean score with its error, as a whole and for each tag.

The mean is clipped to [0, 1], not the scores in it. Its error is the standard deviation of the
clipped means of resampled answers. Source: HealthBench (arXiv:2505.08775).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judge.checklist import Finding, checklist_score, tag_scores

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Marked:
    """One answer's findings; `tags` are those of the row, not of its items."""

    findings: tuple[Finding, ...]
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The clipped mean over answers, in [0, 1], and its bootstrap error."""

    mean: float
    error: float
    answers: int


@dataclass(frozen=True, slots=True)
class ChecklistReport:
    """A judge's findings over many answers."""

    overall: Aggregate | None
    """None where no answer has a score"""
    by_tag: Mapping[str, Aggregate]
    """by tags of rows and by tags of items"""
    unscored: int
    """answers without a score"""
    items: int
    unparsed: int


def report(answers: Sequence[Marked], seed: int = 0) -> ChecklistReport:
    """Everything that is told of many answers; the resampling is drawn from the seed."""
    scores, tagged = list[float](), defaultdict[str, list[float]](list)
    for marked in answers:
        score = checklist_score(marked.findings)
        if score is None:
            continue
        scores.append(score)
        for tag in dict.fromkeys(marked.tags):
            tagged[tag].append(score)
        for tag, share in tag_scores(marked.findings).items():
            tagged[tag].append(share)
    findings = [finding for marked in answers for finding in marked.findings]
    return ChecklistReport(
        overall=aggregate(scores, seed) if scores else None,
        by_tag={tag: aggregate(found, seed) for tag, found in sorted(tagged.items())},
        unscored=len(answers) - len(scores),
        items=len(findings),
        unparsed=sum(finding.met is None for finding in findings),
    )


def aggregate(scores: Sequence[float], seed: int = 0, resamples: int = RESAMPLES) -> Aggregate:
    """The clipped mean of at least one score. The mean is clipped, not the scores in it."""
    drawn = np.random.default_rng(seed)
    values_N = np.array(scores, dtype=np.float64)
    means_R = [
        np.clip(drawn.choice(values_N, values_N.size).mean(), 0, 1) for _ in range(resamples)
    ]
    return Aggregate(
        mean=float(np.clip(values_N.mean(), 0, 1)),
        error=float(np.std(means_R)),
        answers=values_N.size,
    )
