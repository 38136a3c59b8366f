"""What comparisons say of a judge, by hand and against LLMBar's published statistics."""

from pathlib import Path

import pytest

from judge.evaluation.labelled import Comparison
from judge.evaluation.measures import by_subset, longest_wins, pair_measures
from judge.evaluation.reading import read_labelled
from judge.evaluation.recorded import read_comparisons
from judge.evaluation.shares import Share, share
from tests.labelled import pair, said

LLMBAR = Path(__file__).parent.parent / "benchmarks" / "data" / "llmbar_natural"
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
    only_swapped = Comparison(pair="b", swapped=True, winner="first")
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
    comparisons += [Comparison(pair="a", swapped=True, winner="first")]
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
