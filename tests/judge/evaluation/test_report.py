"""What verdicts say of a judge, by hand and against LLMBar's published statistics."""

import math
import random

import pytest

from rubricem.judge.checklist import ChecklistItem, ItemFinding
from rubricem.judge.evaluation.data import (
    LabelledComparison,
    LabelledCriterion,
    LabelledMark,
    LabelledPair,
    LabelledTurn,
    ListedAnswer,
    read_comparisons,
    read_labelled,
)
from rubricem.judge.evaluation.report import (
    Aggregate,
    ListedReport,
    PairReport,
    Share,
    aggregate,
    agreement,
    agreement_by_subset,
    by_subset,
    domain_scores,
    longest_wins,
    pair_measures,
    published_reward,
    published_rules,
    published_verdict,
    rm_bench_scores,
    section_scores,
    sections_weighed,
    share,
    shares_of,
    tag_scores,
)
from rubricem.judge.pairwise import reward
from tests.conftest import ROOT
from tests.support.values import pair, said

LLMBAR = ROOT / "benchmarks" / "data" / "llmbar_natural"

PUBLISHED = {
    "ChatGPT_Rating": (74, 63, 45, 53),
    "ChatGPT_Vanilla": (80, 83, 67, 71),
    "GPT-4_Metrics_Reference": (95, 97, 94, 96),
    "GPT-4_Vanilla": (95, 96, 93, 95),
    "LLaMA2_Vanilla": (79, 82, 70, 79),
}


"""right as given, right swapped, right in both, equal in both; of 100 pairs"""


def counts(share: Share) -> tuple[float, int]:
    return share.hits, share.n


@pytest.mark.parametrize("name", PUBLISHED)
def test_recorded_verdicts_give_the_statistics_that_were_published(name: str):
    pairs = read_labelled(LLMBAR / "pairs.jsonl").pairs
    measures = pair_measures(pairs, read_comparisons(LLMBAR / f"recorded_{name}.jsonl", pairs))
    shares = (measures.given, measures.swapped, measures.both, measures.consistent)
    assert tuple(share.hits for share in shares) == PUBLISHED[name]
    assert {share.n for share in shares} == {100}


def test_each_measure_by_hand():
    pairs = [pair("a"), pair("b", "second"), pair("c"), pair("d")]
    comparisons = [
        *said("a", "first", "first"),  # right in both
        *said("b", "first", "second"),  # always what is shown first
        *said("c", "tie", "first"),
        *said("d", None, "second"),
    ]
    measures = pair_measures(pairs, comparisons)
    assert counts(measures.accuracy) == (1 + 0.5 + 0.5 + 0, 4)
    assert counts(measures.given) == (1, 4)
    assert counts(measures.swapped) == (3, 4)
    assert counts(measures.both) == (1, 4)
    assert counts(measures.consistent) == (1, 4)
    assert counts(measures.net) == (2, 4), "a and c; b is one against one"
    assert counts(measures.picks_first) == (4, 6), "a given, b twice, d swapped"
    assert counts(measures.ties) == (1, 8)
    assert counts(measures.unparsed) == (1, 8)


def test_a_failure_is_in_no_both_and_a_pair_shown_once_in_nothing_that_needs_both():
    measures = pair_measures([pair("a")], said("a", None, "first"))
    assert counts(measures.net) == (1, 1)
    assert counts(measures.both) == (0, 1)
    assert counts(pair_measures([pair("a")], said("a", None, None)).consistent) == (0, 1)
    pairs = [pair("a"), pair("b")]
    only_swapped = LabelledComparison(pair="b", swapped=True, winner="first")
    measures = pair_measures(pairs, [*said("a", "first"), only_swapped])
    assert counts(measures.given) == counts(measures.swapped) == (1, 1)
    assert counts(measures.both) == counts(measures.consistent) == (0, 0)
    assert measures.both.value is None


def test_the_mean_share_of_both_orders_outvotes_a_love_of_the_first_place():
    pairs = [pair("a"), pair("b", "second")]
    comparisons = [
        *said("a", "first", "second", shares=(0.9, 0.4)),
        *said("b", "first", "second", shares=(0.9, 0.4)),
    ]
    measures = pair_measures(pairs, comparisons)
    assert counts(measures.pooled) == (1, 2)
    assert measures.accuracy.value == 0.5
    comparisons = [c for c in said("a", "first", "first", shares=(0.9, 0.8)) if not c.swapped]
    comparisons += [LabelledComparison(pair="a", swapped=True, winner="first")]
    assert pair_measures([pair("a")], comparisons).pooled.n == 0


def test_subsets_are_measured_apart_and_unnamed_pairs_belong_to_none():
    pairs = [pair("a", subset="x"), pair("b", subset="y"), pair("c")]
    found = by_subset(pairs, [*said("a", "first"), *said("c", "first")])
    assert list(found) == ["x"]
    assert found["x"].pairs == 1


def test_the_longest_answer_is_right_by_length_and_half_right_when_equal():
    pairs = [
        pair("a", first="longer", second="no"),
        pair("b", first="longer", second="no", better="second"),
        pair("c", first="same", second="four"),
    ]
    assert counts(longest_wins(pairs)) == (1.5, 3)


def test_wilson_by_hand_for_some_for_none_and_for_all():
    """8 of 10: centre (0.8 + 1.92073 / 10) / 1.384146, as in Wilson's formula."""
    found = share(8, 10)
    assert (found.low, found.high) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    assert share(0, 0) == Share(hits=0, n=0, value=None, low=0, high=1)
    found = share(10, 10)
    assert found.high == pytest.approx(1.0) and found.low == pytest.approx(0.72247, abs=1e-5)


STYLES = (0, 1, 2)


def test_a_section_weighs_its_subsets_by_their_published_counts():
    pairs = [pair("m", subset="math-prm"), pair("p", subset="hep-python")]
    found = section_scores(pairs, [*said("m", "first"), *said("p", "second")])
    assert found is not None
    assert found.sections == {"Reasoning": pytest.approx(984 / (984 + 164))}
    assert found.overall is None, "three sections are missing"
    assert "hep-cpp" in found.missing and "math-prm" not in found.missing
    weights = sections_weighed()["Reasoning"]
    assert weights["math-prm"] == sum(w for name, w in weights.items() if name != "math-prm")
    assert section_scores([pair("a", subset="mmlu-pro")], said("a", "first")) is None


def test_the_overall_number_is_the_plain_mean_of_sections_and_a_tie_is_half():
    names = ("mt-bench-easy", "llmbar-natural", "donotanswer", "math-prm")
    pairs = [pair(name, subset=name) for name in names]
    winners = ("first", "tie", "second", None)
    comparisons = [
        c for name, winner in zip(names, winners, strict=True) for c in said(name, winner)
    ]
    found = section_scores(pairs, comparisons)
    assert found is not None
    assert found.sections == {"Chat": 1, "Chat Hard": 0.5, "Safety": 0, "Reasoning": 0}
    assert found.overall == pytest.approx(1.5 / 4)


def test_hard_is_above_the_diagonal_and_easy_below():
    found = domain_scores(((0.9, 0.2, 0.1), (1.0, 0.8, 0.3), (1.0, 0.7, 0.4)))
    assert found.hard == pytest.approx(0.2)
    assert found.normal == pytest.approx(0.7)
    assert found.easy == pytest.approx(0.9)
    assert found.mean == pytest.approx(0.6)


def test_a_judge_that_takes_the_fancier_answer_is_wrong_where_it_is_hard():
    pairs = [pair(f"{r}{c}", subset="chat", styles=(r, c)) for r in STYLES for c in STYLES]
    comparisons = [
        verdict
        for one in pairs
        for verdict in said(
            one.id, "first" if one.styles and one.styles[0] > one.styles[1] else "second"
        )
    ]
    found = rm_bench_scores(pairs, comparisons)
    assert found is not None
    chat = found.domains["chat"]
    assert (chat.hard, chat.normal, chat.easy) == (0, 0, 1)
    assert found.total == pytest.approx(1 / 3)


def test_total_is_the_mean_of_domains_and_of_the_three_levels_alike():
    draw = random.Random(0)
    pairs = [
        pair(f"{domain}{item}{r}{c}", subset=domain, styles=(r, c))
        for domain in ("chat", "math", "code", "safety-refuse", "safety-response")
        for item in range(3)
        for r in STYLES
        for c in STYLES
    ]
    comparisons = [v for one in pairs for v in said(one.id, draw.choice(("first", "second")))]
    found = rm_bench_scores(pairs, comparisons)
    assert found is not None and found.hard is not None
    assert set(found.domains) == {"chat", "math", "code", "safety"}
    levels = (found.hard, found.normal, found.easy)
    assert found.total == pytest.approx(sum(filter(None, levels)) / 3)


def test_every_cell_counts_all_of_its_own_comparisons():
    """Upstream reads the third rejected style for the second too, so half of them are lost."""
    pairs = [pair(f"{r}{c}", subset="math", styles=(r, c)) for r in STYLES for c in STYLES]
    wrong = {"01"}
    comparisons = [v for p in pairs for v in said(p.id, "second" if p.id in wrong else "first")]
    found = rm_bench_scores(pairs, comparisons)
    assert found is not None
    assert found.domains["math"].matrix == ((1, 0, 1), (1, 1, 1), (1, 1, 1))
    assert found.hard == pytest.approx(2 / 3)


def test_an_empty_cell_leaves_unknown_what_needs_it_and_no_styles_no_matrix():
    pairs = [pair("00", subset="math", styles=(0, 0)), pair("11", subset="math", styles=(1, 1))]
    found = rm_bench_scores(pairs, [*said("00", "first"), *said("11", "first")])
    assert found is not None
    assert found.normal is None and found.total is None
    assert found.domains["math"].matrix[1] == (None, 1.0, None)
    assert rm_bench_scores([pair("a")], said("a", "first")) is None


def criterion(name: str, *labels: bool, subset: str = "") -> LabelledCriterion:
    turns = (LabelledTurn(role="user", content="q"),)
    return LabelledCriterion(
        id=name, conversation=turns, completion="a", criterion="c", labels=labels, subset=subset
    )


def test_balanced_f1_by_hand():
    items = [
        criterion("a", True, True, subset="x"),
        criterion("b", True, False, subset="x"),
        criterion("c", False, subset="y"),
        criterion("d", False, subset="y"),
    ]
    marks = [
        LabelledMark(item="a", met=True),
        LabelledMark(item="b", met=True),
        LabelledMark(item="c", met=False),
        LabelledMark(item="d", met=None),
    ]
    found = agreement(items, marks)
    assert (found.met.precision, found.met.recall) == (3 / 4, 1)
    assert found.met.f1 == pytest.approx(6 / 7)
    assert (found.not_met.precision, found.not_met.recall) == (1, 1 / 3)
    assert found.not_met.f1 == pytest.approx(0.5), "the missing mark is a miss"
    assert found.balanced_f1 == pytest.approx((6 / 7 + 0.5) / 2)
    assert (found.unparsed.hits, found.unparsed.n) == (1, 4)
    assert (found.says_met.hits, found.says_met.n) == (2, 3)
    assert {name: one.labels for name, one in agreement_by_subset(items, marks).items()} == {
        "x": 4,
        "y": 2,
    }


def test_a_class_that_nobody_speaks_of_has_no_f1_and_there_is_no_balance():
    found = agreement([criterion("a", True)], [LabelledMark(item="a", met=True)])
    assert found.met.f1 == 1
    assert found.not_met.f1 is None and found.balanced_f1 is None


PAIR = LabelledPair(id="p", prompt="q", first="x", second="y", better="first")
TAG_A = "<answer>[[A]]</answer>"
TAG_B = "<answer>[[B]]</answer>"


def verdicts(text: str, *, swapped: bool = False) -> LabelledComparison:
    return LabelledComparison(pair="p", swapped=swapped, text=text)


def test_rewards_and_verdicts_are_read_by_our_rule_and_by_the_published_ones():
    assert [reward(t, "A") for t in (TAG_A, TAG_B, "neither")] == [1, -1, -1]
    assert reward("<answer> [[B]] </answer>", "B") == 1
    assert published_reward(TAG_A + " " * 58, "A") == 1
    assert published_reward(TAG_A + " " * 59, "A") == -1
    assert published_reward(TAG_B + " " * 80 + TAG_A, "A") == 1
    assert published_reward(TAG_B + TAG_A, "A") == -1, "both are there"
    assert published_reward("<answer> [[A]] </answer>", "A") == -1
    assert [published_verdict(t) for t in ("so [[A]]", f"[[A]] {TAG_B}", "A", "[[B]")] == [
        "A", None, None, None,
    ]  # fmt: skip


def test_texts_are_held_against_both_rules_by_the_order_they_were_written_in():
    texts = [
        verdicts(TAG_A),  # alike by both
        verdicts("<answer> [[A]] </answer>"),  # the reward knows no white space
        verdicts(f"<quote_B>[[B]]</quote_B>{TAG_A}"),  # a quote spoils the evaluation
        verdicts("[[B]]"),  # wrong either way for the reward; the evaluation needs no tag
    ]
    found = published_rules([PAIR], texts)
    assert found is not None
    assert (found.reward.value, found.evaluation.value) == (3 / 4, 2 / 4)
    # B is the better one here: ours rewards it, the published rule does not.
    found = published_rules([PAIR], [verdicts("<answer> [[B]] </answer>", swapped=True)])
    assert found is not None and found.reward.value == 0
    assert (found := published_rules([PAIR], [verdicts("<answer> [[B]] </answer>")])) is not None
    assert found.reward.value == 1, "wrong for both"
    assert published_rules([PAIR], [verdicts("")]) is None


def test_a_report_tells_both_shares():
    report = PairReport.of("data", "judge", [PAIR], [verdicts(TAG_A)])
    shares = dict(shares_of(report))
    assert shares["read alike by the published reward"].value == 1
    assert shares["read alike by the published evaluation"].value == 1


def test_a_tag_is_scored_over_its_own_items_and_left_out_without_points_above_zero():
    tags = [("axis:accuracy", "axis:accuracy"), ("axis:accuracy", "level:cluster"), ("only",)]
    given = zip([(6, True), (4, False), (-3, True)], tags, strict=True)
    findings = [
        ItemFinding(item=ChecklistItem(criterion="x", points=points, tags=own), met=met)
        for (points, met), own in given
    ]
    assert tag_scores(findings) == {"axis:accuracy": 0.6, "level:cluster": 0}


def test_the_mean_is_clipped_and_not_the_scores():
    assert aggregate([-1.0, 0.5]).mean == 0
    assert aggregate([-0.2, 1.0]).mean == pytest.approx(0.4)
    assert aggregate([0.25] * 9) == Aggregate(mean=0.25, error=0, answers=9)


def test_the_error_is_the_spread_of_clipped_means_of_resampled_answers():
    # Two answers of 0 and 1 give means 0, 0.5 and 1 with chances 1/4, 1/2 and 1/4.
    assert aggregate([0.0, 1.0]).error == pytest.approx(math.sqrt(1 / 8), abs=0.02)
    # Of -3 and 1 the means are -3, -1 and 1, which are clipped to 0, 0 and 1.
    assert aggregate([-3.0, 1.0]).error == pytest.approx(math.sqrt(3 / 16), abs=0.02)
    assert aggregate([0.0, 0.3, 1.0], 5) == aggregate([0.0, 0.3, 1.0], 5)


def test_a_report_counts_what_it_leaves_out():
    def answer(name: str, tags: tuple[str, ...], *items: tuple[float, tuple[str, ...]]):
        listed = tuple(ChecklistItem(criterion="x", points=p, tags=t) for p, t in items)
        return ListedAnswer(id=name, conversation=(), completion="y", items=listed, tags=tags)

    answers = [
        answer("a", ("theme:x",), (4, ("axis:a",)), (6, ())),
        answer("b", ("theme:x", "theme:y"), (5, ()), (-5, ())),
        answer("c", ("theme:y",), (5, ())),
        answer("nobody marked it", (), (5, ())),
    ]
    met = {"a/1": True, "a/2": False, "b/1": True, "b/2": None, "c/1": None}
    told = ListedReport.of("d", "j", answers, [LabelledMark(item=i, met=m) for i, m in met.items()])
    assert told.overall is not None
    assert (told.overall.mean, told.overall.answers, told.answers) == (0.7, 2, 3)
    means = {tag: (found.mean, found.answers) for tag, found in told.tags.items()}
    assert means == {"axis:a": (1, 1), "theme:x": (0.7, 2), "theme:y": (1, 1)}
    assert (told.unscored, counts(told.met), counts(told.unparsed)) == (1, (2, 3), (2, 5))
    assert ListedReport.of("d", "j", [], []).overall is None
