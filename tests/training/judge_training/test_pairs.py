"""What a judge in training is shown, how it is rewarded, and the rows that follow from it."""

import math
from collections.abc import Sequence

import pytest

from rubricem.judge.build import Wanted, build_judge
from rubricem.judge.evaluation.data import LabelledPair
from rubricem.judge.evaluation.run import answers_alone
from rubricem.judge.pairwise import ChainComparer, ask_preference, verdict_end
from rubricem.memory.schema import (
    Completion,
    OnText,
    RubricBuffer,
    Sampling,
    StopPredicate,
    StopReason,
    TrajectoryGroup,
)
from rubricem.training.collect.questions import apart_from
from rubricem.training.judge_training.grpo import CUT_OFF, SampledPair, batch_of
from rubricem.training.judge_training.pairs import ShownPair, show_once
from tests.support.rows import quiet
from tests.support.values import ByCharacter, pair

SHOWN = ShownPair("p", "Which?", "one", "two", "A")
BARE = "<eval>The first.</eval>\n<answer>[[A]]</answer>"


class WritingModel(ByCharacter):
    """A local model of one token for each character that writes by list."""

    name, version = "writing", "v1"

    def __init__(self, texts: Sequence[str], context_tokens: int = 16_384) -> None:
        self.texts = list(texts)
        self.context_tokens = context_tokens
        self.asked: list[str] = []

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        raise AssertionError("a judge that was trained to write is not weighed")

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.asked.append("".join(map(chr, prefix)))
        text = self.texts[len(self.asked) - 1]
        end = stop(text) if stop else None
        text = text[: end or sampling.max_tokens]
        return Completion(
            text, "stop" if end else "length", tuple(map(ord, text)), (-0.5,) * len(text)
        )


def test_a_text_ends_behind_its_verdict_but_not_behind_a_quoted_one():
    quoted = "<eval><quote_A><answer>[[A]]</answer>"
    assert verdict_end(quoted) is None and verdict_end("</answer>") is None
    assert verdict_end(f"{BARE} And more.") == len(BARE)


def said(text: str, reason: StopReason = "stop", retokenised: bool = False) -> Completion:
    ids = tuple(map(ord, text))
    return Completion(text, reason, ids, (-0.5,) * len(ids), retokenised=retokenised)


def test_samples_of_a_pair_are_normalised_together_and_one_cut_off_is_in_no_baseline():
    samples = (said(BARE), said(BARE), said("no verdict"), said(BARE, "length"))
    found = SampledPair(SHOWN, (1, 2, 3), samples, "v1").rows("g")
    # Rewards 1, 1, -1: the mean is 1/3, the population's standard deviation sqrt(8)/3.
    expected = [2 / math.sqrt(8), 2 / math.sqrt(8), -4 / math.sqrt(8)]
    assert [row.advantages[-1] for row in found.rows] == pytest.approx(expected, abs=1e-5)
    assert dict(found.dropped) == {CUT_OFF: 1}
    row = found.rows[2]
    assert row.ids == (1, 2, 3, *map(ord, "no verdict")) and row.prompt_tokens == 3
    assert row.loss_mask == (0,) * 3 + (1,) * 10 and row.objective == "judge"
    assert row.behaviour_logprobs[:4] == (0, 0, 0, -0.5) and {r.group for r in found.rows} == {"g"}


def test_a_sample_whose_ids_are_not_its_own_forms_no_row_but_is_in_the_baseline():
    samples = (said(BARE, retokenised=True), said("no verdict"))
    found = SampledPair(SHOWN, (1,), samples, "v1").rows("g")
    assert [row.advantages[-1] for row in found.rows] == pytest.approx([-1], abs=1e-5)
    assert sum(found.dropped.values()) == 1


def test_orders_are_drawn_by_the_seed_and_the_better_reply_goes_along():
    pairs = [pair(f"{n}", "second", first="bad", second="good") for n in range(40)]
    shown = show_once(pairs, seed=3)
    assert all((s.first if s.better == "A" else s.second) == "good" for s in shown)
    assert 8 < sum(s.better == "A" for s in shown) < 32
    assert shown == show_once(pairs, seed=3) != show_once(pairs, seed=4)


def apart(pairs: list[LabelledPair], held_out: list[LabelledPair]) -> list[LabelledPair]:
    return apart_from(pairs, held_out, lambda pair: pair.prompt, "pairs", quiet)


def test_rounds_go_through_all_pairs_before_any_comes_again():
    pairs = [pair(f"{n}") for n in range(6)]
    rounds = [batch_of(pairs, 2, number, seed=1) for number in range(6)]
    first = [p.id for batch in rounds[:3] for p in batch]
    again = [p.id for batch in rounds[3:] for p in batch]
    assert sorted(first) == sorted(again) == [p.id for p in pairs] and first != again
    assert len(batch_of(pairs, 100, 0, seed=1)) == 6
    assert [p.id for p in apart(pairs, pairs[:4])] == ["4", "5"]


async def test_a_trained_judge_writes_a_chain_that_is_read():
    model = WritingModel([f"{BARE} And more.", "No end is in sight."])
    comparer = ChainComparer(model, max_tokens=64)
    read = await comparer.prefer("Which?", "one", "two")
    assert (read.winner, read.text, read.reason) == ("A", BARE, "The first.")
    nothing = await comparer.prefer("Which?", "one", "two")
    assert nothing.winner is None and "cut off without a verdict" in nothing.reason
    long = await ask_preference(ChainComparer(WritingModel([], 100), max_tokens=64), "q", "x", "y")
    assert long.winner is None and "fills the judge's context" in long.reason


async def test_a_trained_judge_scores_a_group_by_what_it_writes_of_each_pair():
    judge = build_judge("pairwise", WritingModel([BARE, BARE.replace("[[A]]", "[[B]]")]),
                             Wanted(chain=True))  # fmt: skip
    group = TrajectoryGroup(question="Which?", trajectories=answers_alone("Which?", "one", "two"))
    judged = await judge.judge(group, RubricBuffer(question="Which?"))
    scores = [judgement.stages[-1].score for judgement in judged.judgements]
    assert scores == [1.0, 0.0], "A in the given order and B in the other are the first answer"
