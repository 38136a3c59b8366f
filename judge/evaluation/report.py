"""Measures of a judge on labelled data, as reports: pairs, criteria, two public benchmarks.

A comparison is right if its winner is the better side; a tie and a missing verdict are not. Per
order: as stored (`given`) and with the second answer shown first (`swapped`). Over both: right in
both, the same winner in both (`consistent`), and JudgeBench's rule (`net`: +1 for right, -1 for
wrong, 0 for a tie or no verdict; right if the sum is positive).

A judge of single criteria is compared with people who labelled them (HealthBench's meta evaluation,
arXiv:2505.08775, section 8): each label of each person is one comparison with the judge's mark. F1
is computed for "met" and for "not met", and their mean is the balanced F1. A missing mark is a
false negative for the label's class and a false positive for neither.

RewardBench weights its subsets into four numbers and their mean. A subset's accuracy is the mean
over its comparisons, ties half right. A section is the mean of its subsets weighted by the counts
below, which make math weigh as much as all code; the overall number is the plain mean of the four
sections (arXiv:2403.13787, section 4).

RM-Bench gives accuracy by the style of the chosen (row) and of the rejected answer (column): from
concise over detailed to detailed with markdown. Hard is where the rejected answer is the fancier
one (above the diagonal), normal the same style, easy below. A domain's number is the mean of the
three, the total the mean over domains (arXiv:2410.16184, section 3.4). Every cell is the mean over
all of its own comparisons; a cell without any is unknown, and so is whatever needs it.

Many answers with checklists of their own are scored as HealthBench scores a model: the mean is
clipped to [0, 1], not the scores in it; its error is the standard deviation of the clipped means of
resampled answers (arXiv:2505.08775).

We read a chain of rubrics with one parser. The published rules, which differ for training and for
evaluation (RM-R1, arXiv:2505.02387), are reported beside it as shares of texts they read alike.

A report is one value with all results of one evaluation. It is one module, as the measures are used
by the reports alone.
"""

import math
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from statistics import fmean

import numpy as np
from pydantic import Field

from rubricem.judge.checklist import ItemFinding, checklist_score, points_share
from rubricem.judge.evaluation.data import (
    LabelledComparison,
    LabelledCriterion,
    LabelledMark,
    LabelledPair,
    ListedAnswer,
)
from rubricem.judge.evaluation.run import items_of
from rubricem.judge.pairwise import Side, reward, verdict_of
from rubricem.memory.schema import NO_USAGE, Usage, Value

Z = 1.959964
"""of a 95% interval"""


class Share(Value):
    """A number of hits among n, with Wilson's 95% interval; unknown if n is 0."""

    hits: float
    """ties count half"""
    n: int
    value: float | None
    low: float
    high: float


def share(hits: float, n: int) -> Share:
    """The share and its interval (Wilson, 1927); (0, 1) where n is 0."""
    if n == 0:
        return Share(hits=0, n=0, value=None, low=0.0, high=1.0)
    rate = hits / n
    middle = (rate + Z * Z / (2 * n)) / (1 + Z * Z / n)
    reach = Z / (1 + Z * Z / n) * math.sqrt(rate * (1 - rate) / n + Z * Z / (4 * n * n))
    return Share(
        hits=hits, n=n, value=rate, low=max(middle - reach, 0.0), high=min(middle + reach, 1.0)
    )


def share_of(values: Sequence[bool]) -> Share:
    return share(sum(values), len(values))


def mean_share(marks: Sequence[float]) -> Share:
    """The mean of marks in [0, 1], with Wilson's interval for as many hits.

    It is rather too wide than too narrow: no marks of one mean vary more than zeros and ones.
    """
    return share(math.fsum(marks), len(marks))


class PairMeasures(Value):
    """One judge on one set of pairs; only pairs that were shown count."""

    pairs: int
    comparisons: int
    accuracy: Share
    """mean over pairs of the share of its orders that were right"""
    given: Share
    swapped: Share
    both: Share
    """right in both orders, of pairs shown in both"""
    consistent: Share
    """the same verdict in both orders, of pairs shown in both; two missing ones do not count as
        same"""
    net: Share
    pooled: Share
    """the mean of both orders' shares is on the right side; of pairs with a share in each order"""
    picks_first: Share
    """the answer shown first won, of comparisons with a winner"""
    ties: Share
    unparsed: Share


Orders = Mapping[bool, LabelledComparison]
"""swapped or not -> the comparison"""


def pair_measures(
    pairs: Sequence[LabelledPair], comparisons: Sequence[LabelledComparison]
) -> PairMeasures:
    """Raises KeyError for a comparison of an unknown pair."""
    known = {pair.id: pair for pair in pairs}
    shown = by_pair(comparisons)
    judged = [(known[name], orders) for name, orders in shown.items()]
    whole = [(pair, orders) for pair, orders in judged if len(orders) == 2]
    sides = [(pair, [c.share for c in orders.values()]) for pair, orders in whole]
    pooled = [
        (pair, fmean(s for s in two if s is not None)) for pair, two in sides if None not in two
    ]
    return PairMeasures(
        pairs=len(judged),
        comparisons=len(comparisons),
        accuracy=mean_share([_mean_right(pair, orders) for pair, orders in judged]),
        given=share_of([o[False].winner == p.better for p, o in judged if False in o]),
        swapped=share_of([o[True].winner == p.better for p, o in judged if True in o]),
        both=share_of([_mean_right(pair, orders) == 1 for pair, orders in whole]),
        consistent=share_of(
            [o[False].winner is not None and o[False].winner == o[True].winner for _, o in whole]
        ),
        net=share_of([_net(pair, orders) > 0 for pair, orders in judged]),
        pooled=share_of([mean > 0.5 if p.better == "first" else mean < 0.5 for p, mean in pooled]),
        picks_first=share_of(
            [
                c.winner == ("second" if c.swapped else "first")
                for c in comparisons
                if c.winner in ("first", "second")
            ]
        ),
        ties=share_of([c.winner == "tie" for c in comparisons]),
        unparsed=share_of([c.winner is None for c in comparisons]),
    )


def by_subset(
    pairs: Sequence[LabelledPair], comparisons: Sequence[LabelledComparison]
) -> dict[str, PairMeasures]:
    """The measures of each named subset that was judged, in the data's order."""
    subset = {pair.id: pair.subset for pair in pairs}
    of: dict[str, list[LabelledComparison]] = {name: [] for name in subset.values() if name}
    for comparison in comparisons:
        if name := subset[comparison.pair]:
            of[name].append(comparison)
    return {name: pair_measures(pairs, listed) for name, listed in of.items() if listed}


def longest_wins(pairs: Sequence[LabelledPair]) -> Share:
    """How often a judge that takes the longer answer is right; equal lengths are half right."""
    return mean_share(
        [
            0.5
            if len(pair.first) == len(pair.second)
            else float((len(pair.first) > len(pair.second)) == (pair.better == "first"))
            for pair in pairs
        ]
    )


def by_pair(comparisons: Sequence[LabelledComparison]) -> dict[str, Orders]:
    shown: defaultdict[str, dict[bool, LabelledComparison]] = defaultdict(dict)
    for comparison in comparisons:
        shown[comparison.pair][comparison.swapped] = comparison
    return dict(shown)


def _mean_right(pair: LabelledPair, orders: Orders) -> float:
    return sum(c.winner == pair.better for c in orders.values()) / len(orders)


def _net(pair: LabelledPair, orders: Orders) -> int:
    decided = [c.winner for c in orders.values() if c.winner in ("first", "second")]
    return sum(1 if winner == pair.better else -1 for winner in decided)


class ClassAgreement(Value):
    """One class, met or not met; None for a ratio whose denominator is 0."""

    precision: float | None
    recall: float | None
    f1: float | None


class Agreement(Value):
    """One judge against all labels of the criteria that it was shown."""

    criteria: int
    labels: int
    accuracy: Share
    """of single labels; several of one criterion are not independent, so read it with care"""
    met: ClassAgreement
    not_met: ClassAgreement
    balanced_f1: float | None
    says_met: Share
    """of marks"""
    unparsed: Share
    """of all criteria"""


def agreement(items: Sequence[LabelledCriterion], marks: Sequence[LabelledMark]) -> Agreement:
    """Raises KeyError for a mark of an unknown criterion."""
    known = {item.id: item for item in items}
    paired = [(mark.met, label) for mark in marks for label in known[mark.item].labels]
    met, not_met = _of_class(paired, True), _of_class(paired, False)
    both = [value for value in (met.f1, not_met.f1) if value is not None]
    return Agreement(
        criteria=len(marks),
        labels=len(paired),
        accuracy=share_of([said == label for said, label in paired]),
        met=met,
        not_met=not_met,
        balanced_f1=sum(both) / 2 if len(both) == 2 else None,
        says_met=share_of([mark.met for mark in marks if mark.met is not None]),
        unparsed=share_of([mark.met is None for mark in marks]),
    )


def agreement_by_subset(
    items: Sequence[LabelledCriterion], marks: Sequence[LabelledMark]
) -> dict[str, Agreement]:
    subset = {item.id: item.subset for item in items}
    names = dict.fromkeys(subset[mark.item] for mark in marks)
    return {
        name: agreement(items, [mark for mark in marks if subset[mark.item] == name])
        for name in names
        if name
    }


def _of_class(paired: Sequence[tuple[bool | None, bool]], wanted: bool) -> ClassAgreement:
    found = sum(said is wanted and label is wanted for said, label in paired)
    said_so = sum(said is wanted for said, _ in paired)
    labelled = sum(label is wanted for _, label in paired)
    return ClassAgreement(
        precision=found / said_so if said_so else None,
        recall=found / labelled if labelled else None,
        f1=2 * found / (said_so + labelled) if said_so + labelled else None,
    )


@cache
def sections_weighed() -> Mapping[str, Mapping[str, int]]:
    """The weight of each subset, by section."""
    text = (files("rubricem.judge.evaluation") / "reward_bench.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


class SectionScores(Value):
    """RewardBench's numbers, in [0, 1]."""

    sections: dict[str, float]
    """those with at least one judged subset"""
    overall: float | None
    """None while a section is missing"""
    missing: tuple[str, ...] = ()
    """subsets that were not judged; their weight goes to the others of their section"""


def section_scores(
    pairs: Sequence[LabelledPair], comparisons: Sequence[LabelledComparison]
) -> SectionScores | None:
    """None if no subset is one of RewardBench's."""
    accuracy = subset_accuracy(pairs, comparisons)
    weighed = sections_weighed()
    known = [name for subsets in weighed.values() for name in subsets]
    if not set(known) & set(accuracy):
        return None
    sections = {
        name: float(np.average([accuracy[n] for n in judged], weights=[weights[n] for n in judged]))
        for name, weights in weighed.items()
        if (judged := [n for n in weights if n in accuracy])
    }
    whole = len(sections) == len(weighed)
    return SectionScores(
        sections=sections,
        overall=sum(sections.values()) / len(sections) if whole else None,
        missing=tuple(name for name in known if name not in accuracy),
    )


def subset_accuracy(
    pairs: Sequence[LabelledPair], comparisons: Sequence[LabelledComparison]
) -> dict[str, float]:
    """For each subset the mean over its comparisons: right 1, tie 0.5, else 0."""
    known = {pair.id: pair for pair in pairs}
    marks: defaultdict[str, list[float]] = defaultdict(list)
    for comparison in comparisons:
        pair = known[comparison.pair]
        tie = comparison.winner == "tie"
        marks[pair.subset].append(0.5 if tie else float(comparison.winner == pair.better))
    return {name: fmean(given) for name, given in marks.items()}


STYLES = 3
DOMAINS = ("chat", "math", "code", "safety")
"""prefixes of a row's domain: both kinds of safety rows are one domain"""

Matrix = tuple[tuple[float | None, ...], ...]


class DomainScores(Value):
    """One domain's 3 x 3 matrix and the numbers derived from it, in [0, 1]."""

    matrix: Matrix
    hard: float | None
    normal: float | None
    easy: float | None
    mean: float | None


class RmBenchScores(Value):
    domains: dict[str, DomainScores]
    hard: float | None
    normal: float | None
    easy: float | None
    total: float | None
    """the mean over the domains that were judged"""


def rm_bench_scores(
    pairs: Sequence[LabelledPair], comparisons: Sequence[LabelledComparison]
) -> RmBenchScores | None:
    """None if no pair states its styles."""
    known = {pair.id: pair for pair in pairs}
    marks: defaultdict[str, defaultdict[tuple[int, int], list[float]]]
    marks = defaultdict(lambda: defaultdict(list))
    for comparison in comparisons:
        pair = known[comparison.pair]
        if pair.styles is not None:
            right = float(comparison.winner == pair.better)
            domain = next((d for d in DOMAINS if pair.subset.startswith(d)), pair.subset or "all")
            marks[domain][pair.styles].append(right)
    if not marks:
        return None
    domains = {
        name: domain_scores(
            tuple(
                tuple(_mean_if_known(cells.get((row, column), [])) for column in range(STYLES))
                for row in range(STYLES)
            )
        )
        for name, cells in marks.items()
    }
    return RmBenchScores(
        domains=domains,
        hard=_mean_if_known([scores.hard for scores in domains.values()]),
        normal=_mean_if_known([scores.normal for scores in domains.values()]),
        easy=_mean_if_known([scores.easy for scores in domains.values()]),
        total=_mean_if_known([scores.mean for scores in domains.values()]),
    )


def domain_scores(matrix: Matrix) -> DomainScores:
    places = [(row, column) for row in range(STYLES) for column in range(STYLES)]
    hard = _mean_if_known([matrix[row][column] for row, column in places if row < column])
    normal = _mean_if_known([matrix[row][column] for row, column in places if row == column])
    easy = _mean_if_known([matrix[row][column] for row, column in places if row > column])
    return DomainScores(
        matrix=matrix,
        hard=hard,
        normal=normal,
        easy=easy,
        mean=_mean_if_known([hard, normal, easy]),
    )


def _mean_if_known(values: Sequence[float | None]) -> float | None:
    """None if one value is unknown, or if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


TAIL = 80
"""characters at the end of a text that the published reward reads"""


def published_reward(text: str, better: Side) -> float:
    """The published training rule: the exact tag, and only the right one, in the last characters.

    White space, case and a verdict further from the end count as wrong there.
    """
    tail = text[-TAIL:]
    said = {side for side in "AB" if f"<answer>[[{side}]]</answer>" in tail}
    return 1.0 if said == {better} else -1.0


def published_verdict(text: str) -> Side | None:
    """The published evaluation rule: one of the two letters anywhere in the text, not both.

    No tag is needed, and a letter that was only quoted invalidates the verdict.
    """
    first, second = "[[A]]" in text, "[[B]]" in text
    if first == second:
        return None
    return "A" if first else "B"


class PublishedRules(Value):
    """Shares of a judge's texts that a published rule reads as we do."""

    reward: Share
    """by the training rule"""
    evaluation: Share
    """by the evaluation rule"""


def published_rules(
    pairs: Sequence[LabelledPair], comparisons: Sequence[LabelledComparison]
) -> PublishedRules | None:
    """Over the comparisons with a known text; None if there are none."""
    by_id = {pair.id: pair for pair in pairs}
    texts: list[tuple[str, Side]] = [
        (c.text, "A" if (by_id[c.pair].better == "first") != c.swapped else "B")
        for c in comparisons
        if c.text
    ]
    if not texts:
        return None
    return PublishedRules(
        reward=share_of([reward(text, b) == published_reward(text, b) for text, b in texts]),
        evaluation=share_of([verdict_of(text) == published_verdict(text) for text, _ in texts]),
    )


RESAMPLES = 1000


class Aggregate(Value):
    """The clipped mean over answers, in [0, 1], and its bootstrap error."""

    mean: float
    error: float
    answers: int


def aggregate(scores: Sequence[float], seed: int = 0) -> Aggregate:
    """The clipped mean of at least one score. The mean is clipped, not the scores in it."""
    drawn = np.random.default_rng(seed)
    values_N = np.array(scores, dtype=np.float64)
    means_R = [
        np.clip(drawn.choice(values_N, values_N.size).mean(), 0, 1) for _ in range(RESAMPLES)
    ]
    return Aggregate(
        mean=float(np.clip(values_N.mean(), 0, 1)),
        error=float(np.std(means_R)),
        answers=values_N.size,
    )


def tag_scores(findings: Sequence[ItemFinding]) -> dict[str, float]:
    """The formula's score over each tag's items; tags without parsed points above 0 are out."""
    tagged: dict[str, list[ItemFinding]] = defaultdict(list)
    for finding in findings:
        for tag in dict.fromkeys(finding.item.tags):
            tagged[tag].append(finding)
    shares = {tag: points_share(found) for tag, found in tagged.items()}
    return {tag: share for tag, share in shares.items() if share is not None}


class PairReport(Value):
    """A judge of pairs on labelled pairs."""

    data: str
    judge: str
    measures: PairMeasures
    longest: Share
    """the score of always taking the longer answer on the same pairs; a coin scores 0.5"""
    subsets: dict[str, PairMeasures] = Field(default_factory=dict)
    rewardbench: SectionScores | None = None
    rm_bench: RmBenchScores | None = None
    published: PublishedRules | None = None
    """for a judge that writes its verdicts"""
    usage: Usage = NO_USAGE
    """of all verdicts, also failed ones"""

    @classmethod
    def of(
        cls,
        data: str,
        judge: str,
        pairs: Sequence[LabelledPair],
        comparisons: Sequence[LabelledComparison],
    ) -> "PairReport":
        judged = {comparison.pair for comparison in comparisons}
        return cls(
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


class CriteriaReport(Value):
    """A judge of single criteria against people's labels."""

    data: str
    judge: str
    agreement: Agreement
    subsets: dict[str, Agreement] = Field(default_factory=dict)
    usage: Usage = NO_USAGE

    @classmethod
    def of(
        cls,
        data: str,
        judge: str,
        items: Sequence[LabelledCriterion],
        marks: Sequence[LabelledMark],
    ) -> "CriteriaReport":
        return cls(
            data=data,
            judge=judge,
            agreement=agreement(items, marks),
            subsets=agreement_by_subset(items, marks),
            usage=sum((mark.usage for mark in marks), NO_USAGE),
        )


class ListedReport(Value):
    """Answers scored by their own checklists, as HealthBench scores a model."""

    data: str
    judge: str
    overall: Aggregate | None
    """None if no answer has a score"""
    tags: dict[str, Aggregate] = Field(default_factory=dict)
    """by tags of answers and by tags of items"""
    answers: int
    unscored: int
    met: Share
    """of items with a verdict"""
    unparsed: Share
    """of all items"""
    usage: Usage = NO_USAGE

    @classmethod
    def of(
        cls, data: str, judge: str, answers: Sequence[ListedAnswer], marks: Sequence[LabelledMark]
    ) -> "ListedReport":
        """An answer without marks for some items counts by those that have one."""
        met = {mark.item: mark.met for mark in marks}
        scores, tagged, marked = list[float](), defaultdict[str, list[float]](list), 0
        for answer in answers:
            items = list(items_of(answer))
            if not any(name in met for name, _ in items):
                continue
            marked += 1
            findings = [ItemFinding(item=item, met=met.get(name)) for name, item in items]
            score = checklist_score(findings)
            if score is None:
                continue
            scores.append(score)
            for tag in dict.fromkeys(answer.tags):
                tagged[tag].append(score)
            for tag, share in tag_scores(findings).items():
                tagged[tag].append(share)
        return cls(
            data=data,
            judge=judge,
            overall=aggregate(scores) if scores else None,
            tags={tag: aggregate(found) for tag, found in sorted(tagged.items())},
            answers=marked,
            unscored=marked - len(scores),
            met=share_of([mark.met for mark in marks if mark.met is not None]),
            unparsed=share_of([mark.met is None for mark in marks]),
            usage=sum((mark.usage for mark in marks), NO_USAGE),
        )


Report = PairReport | CriteriaReport | ListedReport


def pair_shares(measures: PairMeasures) -> list[tuple[str, Share]]:
    """The measures by their names in words; unknown ones are left out."""
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
    named = {"accuracy": found.accuracy, "says met": found.says_met, "no verdict": found.unparsed}
    return [(name, share) for name, share in named.items() if share.n]


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
