"""What comparisons say of a judge, by hand and against LLMBar's published statistics.

RewardBench's sections, RM-Bench's matrix and HealthBench's balanced F1, by hand.

How far the published rules read a judge's texts as our parser does.
"""

import random

import pytest

from rubricem.judge.evaluation.data import (
    LabelledComparison,
    LabelledCriterion,
    LabelledMark,
    LabelledPair,
    LabelledTurn,
    read_comparisons,
    read_labelled,
)
from rubricem.judge.evaluation.measures import (
    SECTIONS,
    Share,
    agreement,
    agreement_by_subset,
    by_subset,
    domain_scores,
    longest_wins,
    pair_measures,
    published_rules,
    rm_bench_scores,
    section_scores,
    share,
)
from rubricem.judge.evaluation.report import pair_report, shares_of
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


def test_one_verdict_and_one_failure_is_right_by_the_net_rule_but_not_in_both():
    measures = pair_measures([pair("a")], said("a", None, "first"))
    assert counts(measures.net) == (1, 1)
    assert counts(measures.both) == (0, 1)


def test_two_failures_are_not_consistent():
    assert counts(pair_measures([pair("a")], said("a", None, None)).consistent) == (0, 1)


def test_pairs_shown_in_one_order_are_left_out_of_what_needs_both():
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


def test_pairs_without_a_share_in_each_order_are_not_pooled():
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


def test_wilson_by_hand():
    """8 of 10: centre (0.8 + 1.92073 / 10) / 1.384146, as in Wilson's formula."""
    found = share(8, 10)
    assert (found.low, found.high) == pytest.approx((0.49016, 0.94332), abs=1e-5)


def test_a_share_of_none_says_nothing():
    assert share(0, 0) == Share(hits=0, n=0, value=None, low=0, high=1)


def test_a_share_of_all_is_not_certain():
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


def test_math_weighs_as_much_as_all_code():
    weights = SECTIONS["Reasoning"]
    assert weights["math-prm"] == sum(w for name, w in weights.items() if name != "math-prm")


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


def test_other_subsets_have_no_sections():
    assert section_scores([pair("a", subset="mmlu-pro")], said("a", "first")) is None


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


def test_an_empty_cell_leaves_unknown_what_needs_it():
    pairs = [pair("00", subset="math", styles=(0, 0)), pair("11", subset="math", styles=(1, 1))]
    found = rm_bench_scores(pairs, [*said("00", "first"), *said("11", "first")])
    assert found is not None
    assert found.normal is None and found.total is None
    assert found.domains["math"].matrix[1] == (None, 1.0, None)


def test_pairs_without_styles_have_no_matrix():
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


def verdicts(text: str, *, swapped: bool = False) -> LabelledComparison:
    return LabelledComparison(pair="p", swapped=swapped, text=text)


def test_texts_are_held_against_both_rules():
    texts = [
        verdicts(TAG_A),  # alike by both
        verdicts("<answer> [[A]] </answer>"),  # the reward knows no white space
        verdicts(f"<quote_B>[[B]]</quote_B>{TAG_A}"),  # a quote spoils the evaluation
        verdicts("[[B]]"),  # wrong either way for the reward; the evaluation needs no tag
    ]
    found = published_rules([PAIR], texts)
    assert found is not None
    assert (found.reward.value, found.evaluation.value) == (3 / 4, 2 / 4)


def test_the_letter_of_the_better_answer_hangs_on_the_order():
    # B is the better one here: ours rewards it, the published rule does not.
    found = published_rules([PAIR], [verdicts("<answer> [[B]] </answer>", swapped=True)])
    assert found is not None and found.reward.value == 0
    assert (found := published_rules([PAIR], [verdicts("<answer> [[B]] </answer>")])) is not None
    assert found.reward.value == 1, "wrong for both"


def test_a_judge_that_writes_nothing_is_held_against_no_rule():
    assert published_rules([PAIR], [verdicts("")]) is None


def test_a_report_tells_both_shares():
    report = pair_report("data", "judge", [PAIR], [verdicts(TAG_A)])
    shares = dict(shares_of(report))
    assert shares["read alike by the published reward"].value == 1
    assert shares["read alike by the published evaluation"].value == 1
