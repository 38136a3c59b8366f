"""What verdicts say of a judge, by hand and against LLMBar's published statistics."""

import pytest

from rubricem.judge.buffers import read_rows
from rubricem.judge.evaluation.data import LabelledComparison, read_labelled
from rubricem.judge.evaluation.report import Share, longest_wins, pair_measures, share
from tests.conftest import ROOT
from tests.support.values import pair, said

LLMBAR = ROOT / "benchmarks" / "data" / "llmbar_natural"


def counts(share: Share) -> tuple[float, int]:
    return share.hits, share.n


@pytest.mark.parametrize(
    ("name", "both", "consistent", "right"),
    [("GPT-4_Vanilla", 93, 95, (95 + 96) / 2), ("LLaMA2_Vanilla", 70, 79, (79 + 82) / 2)],
)
def test_recorded_verdicts_give_the_statistics_that_were_published(
    name: str, both: int, consistent: int, right: float
):
    """Of 100 pairs: right in both orders, equal in both; right in either order, on average."""
    pairs = read_labelled(LLMBAR / "pairs.jsonl")
    comparisons = []
    for one, row in zip(pairs, read_rows(LLMBAR / f"recorded_{name}.jsonl", "", ""), strict=True):
        for swapped in (False, True):
            number = row["results"][-1][f"swap = {swapped}"]["winner"]
            winner = {"1": "first", "2": "second"}.get(str(number))
            comparisons.append(LabelledComparison(pair=one.id, swapped=swapped, winner=winner))
    measures = pair_measures(pairs, comparisons)
    assert (measures.both.hits, measures.consistent.hits) == (both, consistent)
    assert measures.accuracy.hits == right


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
    assert counts(measures.both) == (1, 4)
    assert counts(measures.consistent) == (1, 4)
    assert counts(measures.picks_first) == (4, 6), "a given, b twice, d swapped"
    assert counts(measures.ties) == (1, 8)
    assert counts(measures.unparsed) == (1, 8)


def test_a_failure_is_in_no_both_and_a_pair_shown_once_in_nothing_that_needs_both():
    assert counts(pair_measures([pair("a")], said("a", None, "first")).both) == (0, 1)
    assert counts(pair_measures([pair("a")], said("a", None, None)).consistent) == (0, 1)
    pairs = [pair("a"), pair("b")]
    only_swapped = LabelledComparison(pair="b", swapped=True, winner="first")
    measures = pair_measures(pairs, [*said("a", "first"), only_swapped])
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
