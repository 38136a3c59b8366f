"""All that one evaluation found, as one value, and its shares as one figure.

The figure has a bar for each share, with its 95% interval: plain SVG, without a library.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from pydantic import Field

from rubricem.judge.checklist import Aggregate, ItemFinding, Marked
from rubricem.judge.checklist import report as checklist_report
from rubricem.judge.evaluation.data import (
    LabelledComparison,
    LabelledCriterion,
    LabelledMark,
    LabelledPair,
    ListedAnswer,
)
from rubricem.judge.evaluation.measures import (
    Agreement,
    PairMeasures,
    PublishedRules,
    RmBenchScores,
    SectionScores,
    Share,
    agreement,
    agreement_by_subset,
    by_subset,
    longest_wins,
    pair_measures,
    published_rules,
    rm_bench_scores,
    section_scores,
    share_of,
)
from rubricem.judge.evaluation.run import items_of
from rubricem.memory.schema import NO_USAGE, Usage, Value


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
    published: PublishedRules | None = None
    """of a judge that writes its verdicts"""
    usage: Usage = NO_USAGE
    """of the verdicts that were had, failed ones among them"""


class CriteriaReport(Value):
    """A judge of single criteria against people's labels."""

    data: str
    judge: str
    agreement: Agreement
    subsets: dict[str, Agreement] = Field(default_factory=dict)
    usage: Usage = NO_USAGE


class ListedReport(Value):
    """Answers scored by their own checklists, as HealthBench scores a model."""

    data: str
    judge: str
    overall: Aggregate | None
    """None where no answer has a score"""
    tags: dict[str, Aggregate] = Field(default_factory=dict)
    answers: int
    unscored: int
    met: Share
    """of items with a verdict"""
    unparsed: Share
    """of all items"""
    usage: Usage = NO_USAGE


Report = PairReport | CriteriaReport | ListedReport


def pair_report(
    data: str, judge: str, pairs: Sequence[LabelledPair], comparisons: Sequence[LabelledComparison]
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
        published=published_rules(pairs, comparisons),
        usage=sum((comparison.usage for comparison in comparisons), NO_USAGE),
    )


def criteria_report(
    data: str, judge: str, items: Sequence[LabelledCriterion], marks: Sequence[LabelledMark]
) -> CriteriaReport:
    return CriteriaReport(
        data=data,
        judge=judge,
        agreement=agreement(items, marks),
        subsets=agreement_by_subset(items, marks),
        usage=sum((mark.usage for mark in marks), NO_USAGE),
    )


def listed_report(
    data: str, judge: str, answers: Sequence[ListedAnswer], marks: Sequence[LabelledMark]
) -> ListedReport:
    """Answers of which not every item has a mark count by those that have one."""
    met = {mark.item: mark.met for mark in marks}
    marked = [
        Marked(
            tuple(ItemFinding(item=item, met=met.get(name)) for name, item in items_of(answer)),
            answer.tags,
        )
        for answer in answers
        if any(name in met for name, _ in items_of(answer))
    ]
    found = checklist_report(marked)
    return ListedReport(
        data=data,
        judge=judge,
        overall=found.overall,
        tags=dict(found.by_tag),
        answers=len(marked),
        unscored=found.unscored,
        met=share_of([mark.met for mark in marks if mark.met is not None]),
        unparsed=share_of([mark.met is None for mark in marks]),
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
        if report.published:
            shares.append(("read alike by the published reward", report.published.reward))
            shares.append(("read alike by the published evaluation", report.published.evaluation))
        return shares + [(name, found.accuracy) for name, found in report.subsets.items()]
    if isinstance(report, ListedReport):
        return [("items met", report.met), ("no verdict", report.unparsed)]
    shares = criteria_shares(report.agreement)
    return shares + [(name, found.accuracy) for name, found in report.subsets.items()]


LABELS, WIDTH, LINE, TOP = 230, 400, 24, 50
"""pixels: the column of names, the bars' whole width, the height of a row, the room above"""
BAR, WHISKER, GRID, TEXT = "#7aa6c2", "#1f3b4d", "#d8d8d8", "#222222"


def figure(title: str, rows: Sequence[tuple[str, Share]]) -> str:
    """The text of an SVG file; the same rows give the same text."""
    height = TOP + LINE * len(rows) + 30
    bottom = TOP + LINE * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABELS + WIDTH + 80}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="{TEXT}">',
        f'<rect width="100%" height="100%" fill="white"/>\n<text x="10" y="22" font-size="14">'
        f"{escape(title)}</text>",
    ]
    for tenths in range(0, 11, 2):
        x = LABELS + WIDTH * tenths / 10
        parts.append(f'<path d="M{x:g} {TOP - 6}V{bottom}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x:g}" y="{bottom + 16}" text-anchor="middle">{tenths / 10}</text>')
    parts += [_row(TOP + LINE * place, name, share) for place, (name, share) in enumerate(rows)]
    return "\n".join([*parts, "</svg>\n"])


def _row(top: float, name: str, share: Share) -> str:
    value = share.value or 0.0
    middle = top + LINE / 2 - 3
    low, high = LABELS + WIDTH * share.low, LABELS + WIDTH * share.high
    return (
        f'<text x="{LABELS - 8}" y="{middle + 4:g}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{LABELS}" y="{top:g}" width="{WIDTH * value:.1f}" height="{LINE - 7}" '
        f'fill="{BAR}"/><path d="M{low:.1f} {middle:g}H{high:.1f}" stroke="{WHISKER}" '
        f'stroke-width="2"/><text x="{LABELS + WIDTH + 8}" y="{middle + 4:g}">'
        f"{'' if share.value is None else f'{share.value:.3f}'}</text>"
    )
