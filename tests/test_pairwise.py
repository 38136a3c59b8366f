"""Pairs in both orders or in a drawn one, and how consistent the readings are."""

from judge.pairwise import Comparison, Consistency, PairwiseJudge, Preference, Reading, consistency
from tests.chains import PAID, RuledComparer, longer, place

LONG, SHORT = "a long reply", "short"


async def test_both_orders_are_read_and_put_back():
    comparer = RuledComparer(longer)
    read = await PairwiseJudge(comparer).compare("q", SHORT, LONG)
    assert comparer.shown == [(SHORT, LONG), (LONG, SHORT)]
    assert [r.first_wins for r in read.readings] == [False, False]
    assert (read.first_wins, read.first_share, read.reason) == (False, 0, "B is better")
    assert read.usage == PAID + PAID


async def test_a_judge_of_places_prefers_neither_reply():
    read = await PairwiseJudge(RuledComparer(place)).compare("q", LONG, SHORT)
    assert (read.first_wins, read.first_share) == (None, 0.5)
    assert read.reason == "The two orders contradict each other."


async def test_one_order_without_a_winner_leaves_the_other_to_decide():
    read = await PairwiseJudge(
        RuledComparer(lambda first, second: "A" if first == LONG else None)
    ).compare("q", LONG, SHORT)
    assert (read.first_wins, read.first_share) == (True, 1)


async def test_no_winner_at_all_is_unknown_and_says_why():
    judge = PairwiseJudge(RuledComparer(lambda first, second: None))
    read = await judge.compare("q", LONG, SHORT)
    assert (read.first_wins, read.first_share) == (None, None)
    assert (read.reason, read.usage.calls) == ("it names no winner", 2)


async def test_a_flip_reads_once_in_an_order_that_its_seed_repeats():
    async def shown(seed: int) -> list[tuple[str, str]]:
        comparer = RuledComparer(longer)
        judge = PairwiseJudge(comparer, "flip", seed)
        for number in range(40):
            assert (await judge.compare(f"question {number}", LONG, SHORT)).first_wins
        return comparer.shown

    first = await shown(3)
    assert first == await shown(3) != await shown(4)
    assert len(first) == 40 and 8 < first.count((LONG, SHORT)) < 32, "both orders are drawn"


def test_probabilities_of_both_orders_cancel_the_place_out():
    readings = (
        Reading(False, Preference("A", "", first_share=0.9)),
        Reading(True, Preference("A", "", first_share=0.7)),
    )
    read = Comparison(readings)
    assert read.first_wins is None, "the verdicts contradict each other"
    assert read.first_share == (0.9 + (1 - 0.7)) / 2


async def test_the_report_counts_places_and_contradictions():
    fair, biased = PairwiseJudge(RuledComparer(longer)), PairwiseJudge(RuledComparer(place))
    mute = PairwiseJudge(RuledComparer(lambda first, second: None))
    once = PairwiseJudge(RuledComparer(place), "flip")
    report = consistency([await j.compare("q", LONG, SHORT) for j in (fair, biased, mute, once)])
    assert report == Consistency(
        pairs=4, readings=7, unparsed=2, shown_first_won=4, in_both_orders=2, consistent=1
    )
    assert "1 of 2 pairs had the same winner in both orders" in report.sentence()
    assert "4 of 5 readings" in report.sentence()
