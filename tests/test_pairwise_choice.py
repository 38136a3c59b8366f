"""Pairs judged by the probabilities of a local model."""

import pytest

from judge.pairwise import PairwiseJudge
from judge.pairwise_choice import ChoiceComparer
from memory.errors import PolicyError
from tests.readers import FixedReader


async def test_the_likelier_letter_wins_and_its_probability_is_kept():
    reader = FixedReader(lambda text: (0.8, 0.2))
    read = await ChoiceComparer(reader).prefer("q", "x", "y")
    assert (read.winner, read.first_share, read.usage.calls) == ("A", 0.8, 1)
    assert reader.options == [("A", "B")]


async def test_both_orders_rank_replies_that_a_fond_reader_of_the_first_place_cannot():
    def rule(text: str) -> tuple[float, float]:
        return (0.9, 0.1) if text.index("right") < text.index("wrong") else (0.6, 0.4)

    read = await PairwiseJudge(ChoiceComparer(FixedReader(rule))).compare("q", "right", "wrong")
    assert read.first_wins is None
    assert read.first_share == pytest.approx((0.9 + 0.4) / 2)


async def test_even_odds_name_no_winner():
    read = await ChoiceComparer(FixedReader(lambda text: (0.5, 0.5))).prefer("q", "x", "y")
    assert (read.winner, read.first_share) == (None, 0.5)


async def test_long_replies_are_cut_to_the_context():
    reader = FixedReader(lambda text: (1.0, 0.0), context_tokens=2000)
    assert (await ChoiceComparer(reader).prefer("q", "x" * 9000, "y" * 9000)).winner == "A"
    assert len(reader.texts[0]) <= 2000 - 16
    assert reader.texts[0].count("x") > 200 and reader.texts[0].count("y") > 200


async def test_a_question_that_fills_the_context_is_a_reason():
    reader = FixedReader(lambda text: (1.0, 0.0), context_tokens=300)
    read = await ChoiceComparer(reader).prefer("q" * 5000, "x", "y")
    assert read.winner is None and "fills the judge's context" in read.reason


async def test_a_reader_that_fails_names_no_winner():
    def fail(text: str) -> tuple[float, float]:
        raise PolicyError("no option has a probability")

    read = await ChoiceComparer(FixedReader(fail)).prefer("q", "x", "y")
    assert (read.winner, read.reason) == (None, "no option has a probability")
