"""Every credit over the same judged groups, by hand; and what is no credit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from judge.relative import Attempts, Read, RelativeJudge
from judge.relative_groups import RelativeGroups
from memory.errors import SettingsError
from memory.rubrics import RubricBuffer
from memory.schema import Judgement
from tests.collected import judgement
from tests.test_compiling import ONE, TWO, group, rollout
from training.compiling import NO_SPREAD, policy_rows
from training.row_rule import CREDITS, row_rule

SCORES = ([0.0, 0.5, 0.5, 1.0], [1.0, 0.5, 0.5, 0.0])
JUDGED = [judgement(run, scores) for run, scores in zip((ONE, TWO), SCORES, strict=True)]
MATRIX = [[1, 0, 0, 1], [0, 1, 0, 0.5], [0, 0, 1, 0], [0, 0, 0, 1]]


def stages(credit: Any, judged: Sequence[Judgement] = JUDGED) -> list[float]:
    """The advantages of the first rollout's plan, research, review and answer."""
    row, _ = policy_rows(group(ONE, TWO), judged, row_rule(credit)).rows
    return [a for a, on in zip(row.advantages, row.loss_mask, strict=True) if on]


@pytest.mark.parametrize(
    ("credit", "advantages"),
    [
        # The plan's returns are 0 + 0.2 + 0.3 + 0.8 and 1 + 0.2 + 0.3 + 0.
        ("ss-grpo", [-1, 1, 1, 1]),
        ("answer-only", [1, 1, 1, 1]),
        ("dr-grpo", [0.5, 0.5, 0.5, 0.5]),
        ("identity", [-1, 0, 0, 1]),
        # The plan's are 1 and 1, the review's own are alike.
        (MATRIX, [0, 1, 0, 1]),
    ],
    ids=["ss-grpo", "answer-only", "dr-grpo", "identity", "matrix"],
)
def test_credits_of_the_same_group_by_hand(credit: Any, advantages: list[float]):
    np.testing.assert_allclose(stages(credit), advantages, atol=1e-4)


def test_unscaled_advantages_keep_the_size_of_the_difference():
    judged = [judgement(ONE, [0.0, 0.0, 0.0, 0.7]), judgement(TWO, [0.0, 0.0, 0.0, 0.5])]
    np.testing.assert_allclose(stages("dr-grpo", judged), [0.1] * 4)
    np.testing.assert_allclose(stages("answer-only", judged), [1.0] * 4, atol=1e-4)


def test_alike_members_teach_nothing_unscaled_either():
    judged = [judgement(ONE, [0.1] * 4), judgement(TWO, [0.1] * 3 + [0.1 + 5e-13])]
    assert policy_rows(group(ONE, TWO), judged, CREDITS["dr-grpo"]).dropped == {NO_SPREAD: 2}


class FixedReader:
    """Scores attempts by the order of their texts."""

    name, rubric_version, characters = "fixed", "1", 10_000

    async def read(self, attempts: Attempts, seed: int) -> Read:
        order = sorted(attempts.texts)
        scores = (0.2, 0.8)
        return Read(tuple((scores[order.index(text)], "why") for text in attempts.texts))


@pytest.mark.parametrize("credit", ["ss-grpo", "answer-only", "dr-grpo"])
async def test_scores_of_whole_trajectories_reach_every_stage(credit: str):
    first, second = rollout("one"), rollout("two")
    last = second.segments[-1].model_copy(update={"text": "e"})
    second = second.model_copy(update={"segments": (*second.segments[:-1], last)})
    runs = group(first, second)
    judged = await RelativeGroups(RelativeJudge(FixedReader())).judge(
        runs, RubricBuffer(question="q")
    )
    scores = [one.stages[-1].score for one in judged.judgements]
    assert sorted(scores) == [0.2, 0.8]  # type: ignore[type-var]
    row, _ = policy_rows(runs, judged.judgements, row_rule(credit)).rows
    trained = [a for a, on in zip(row.advantages, row.loss_mask, strict=True) if on]
    size = 0.3 if credit == "dr-grpo" else 1.0
    sign = 1 if scores[0] == 0.8 else -1
    np.testing.assert_allclose(trained, [sign * size] * 4, atol=1e-4)


def test_a_list_for_each_stage_is_credited_stage_by_stage():
    # Relative scores of each stage by itself: the first wins the plan, the second the rest.
    judged = [judgement(ONE, [0.8, 0.2, 0.2, 0.2]), judgement(TWO, [0.2, 0.8, 0.8, 0.8])]
    np.testing.assert_allclose(stages("identity", judged), [1, -1, -1, -1], atol=1e-4)


@pytest.mark.parametrize(
    ("credit", "fault"),
    [
        ("paper", "There is no credit 'paper'"),
        ([[1.0, 0.0], [0.0, 1.0]], "it has 2 rows"),
        ([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], "credits an earlier stage"),
        ([[-1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], "negative or not finite"),
        ([[1, 2], [3]], "square and not empty"),
        (3, "should be a valid tuple"),
    ],
)
def test_what_is_no_credit_is_told_with_those_that_are(credit: Any, fault: str):
    with pytest.raises(SettingsError, match=fault) as told:
        row_rule(credit)
    assert "ss-grpo, answer-only, dr-grpo, identity" in told.value.remedy


def test_what_is_no_ratio_is_told_with_those_that_are():
    with pytest.raises(SettingsError, match="no scaffold_ratio 'mixed'") as told:
        row_rule(ratio="mixed")
    assert "unscaffolded, behaviour, scaffolded" in told.value.remedy
