"""All that one evaluation found, as one value."""

from collections.abc import Sequence

from pydantic import Field

from judge.evaluation.agreement import Agreement, agreement, agreement_by_subset
from judge.evaluation.labelled import Comparison, LabelledCriterion, Mark, Pair
from judge.evaluation.measures import PairMeasures, by_subset, longest_wins, pair_measures
from judge.evaluation.rewardbench import SectionScores, section_scores
from judge.evaluation.rm_bench import RmBenchScores, rm_bench_scores
from judge.evaluation.shares import Share
from memory.schema import NO_USAGE, Usage, Value


class PairReport(Value):
    """A judge of pairs on labelled pairs."""

    data: str
    judge: str
    measures: PairMeasures
    longest: Share
    """what taking the longer answer would have scored on the same pairs; a coin scores 0.5"""
    subsets: dict[str, PairMeasures] = Field(default_factory=dict)
    rewardbench: SectionScores | None = None
    rm_bench: RmBenchScores | None = None
    usage: Usage = NO_USAGE
    """of the verdicts that were had, failed ones among them"""


class CriteriaReport(Value):
    """A judge of single criteria against people's labels."""

    data: str
    judge: str
    agreement: Agreement
    subsets: dict[str, Agreement] = Field(default_factory=dict)
    usage: Usage = NO_USAGE


Report = PairReport | CriteriaReport


def pair_report(
    data: str, judge: str, pairs: Sequence[Pair], comparisons: Sequence[Comparison]
) -> PairReport:
    judged = {comparison.pair for comparison in comparisons}
    return PairReport(
        data=data,
        judge=judge,
        measures=pair_measures(pairs, comparisons),
        longest=longest_wins([pair for pair in pairs if pair.id in judged]),
        subsets=by_subset(pairs, comparisons),
        rewardbench=section_scores(pairs, comparisons),
        rm_bench=rm_bench_scores(pairs, comparisons),
        usage=sum((comparison.usage for comparison in comparisons), NO_USAGE),
    )


def criteria_report(
    data: str, judge: str, items: Sequence[LabelledCriterion], marks: Sequence[Mark]
) -> CriteriaReport:
    return CriteriaReport(
        data=data,
        judge=judge,
        agreement=agreement(items, marks),
        subsets=agreement_by_subset(items, marks),
        usage=sum((mark.usage for mark in marks), NO_USAGE),
    )


def pair_shares(measures: PairMeasures) -> list[tuple[str, Share]]:
    """What the measures say, each with its name in words; unknown ones are left out."""
    named = [
        ("accuracy", measures.accuracy),
        ("as given", measures.given),
        ("swapped", measures.swapped),
        ("right in both orders", measures.both),
        ("right over both orders (net)", measures.net),
        ("right by the mean share", measures.pooled),
        ("consistent", measures.consistent),
        ("picks the first shown", measures.picks_first),
        ("ties", measures.ties),
        ("no verdict", measures.unparsed),
    ]
    return [(name, share) for name, share in named if share.n]


def criteria_shares(found: Agreement) -> list[tuple[str, Share]]:
    named = [
        ("accuracy", found.accuracy),
        ("says met", found.says_met),
        ("no verdict", found.unparsed),
    ]
    return [(name, share) for name, share in named if share.n]


def shares_of(report: Report) -> list[tuple[str, Share]]:
    """The report's shares, then each subset's accuracy."""
    if isinstance(report, PairReport):
        shares = [*pair_shares(report.measures), ("longest answer wins", report.longest)]
        return shares + [(name, found.accuracy) for name, found in report.subsets.items()]
    shares = criteria_shares(report.agreement)
    return shares + [(name, found.accuracy) for name, found in report.subsets.items()]
