"""Rows laid side by side: alignment, padding, weights, and the rows that are refused."""

import pytest
import torch

from memory.errors import SettingsError
from training.rows import Objective, TrainRow
from training.tensors import collate, objective_scales, trained_tokens


def row(
    ids: tuple[int, ...] = (5, 6, 7, 8),
    mask: tuple[int, ...] = (0, 1, 0, 1),
    advantages: tuple[float, ...] = (0.0, 2.0, 0.0, -1.0),
    objective: Objective = "policy",
    weight: float = 1.0,
    ratio_allowed: bool = True,
) -> TrainRow:
    return TrainRow(
        id="r1",
        group="g",
        trajectory="t",
        objective=objective,
        policy_version="v",
        ids=ids,
        prompt_tokens=min(1, len(ids)),
        loss_mask=mask,
        advantages=advantages,
        behaviour_logprobs=tuple(-0.5 * m for m in mask),
        stages=tuple(0 if m else -1 for m in mask),
        weight=weight,
        ratio_allowed=ratio_allowed,
    )


SHORT = row(ids=(3, 4), mask=(0, 1), advantages=(0.0, 3.0))


def test_shorter_row_is_padded_on_the_right() -> None:
    batch = collate([row(), SHORT], pad=99)
    assert batch.ids.tolist() == [[5, 6, 7, 8], [3, 4, 99, 99]]
    assert batch.mask.tolist() == [[False, True, False, True], [False, True, False, False]]
    assert batch.advantages.tolist() == [[0, 2, 0, -1], [0, 3, 0, 0]]
    assert batch.behaviour.tolist() == [[0, -0.5, 0, -0.5], [0, -0.5, 0, 0]]
    assert batch.stages.tolist() == [[-1, 0, -1, 0], [-1, 0, -1, -1]]
    assert batch.position.tolist() == [[0, 1, 2, 3]] * 2
    assert batch.lengths.tolist() == [4, 2]
    assert batch.tokens == trained_tokens([row(), SHORT]) == 3
    assert batch.advantages.dtype == torch.float32


def test_what_stands_on_an_untrained_token_is_left_behind() -> None:
    nan = float("nan")
    batch = collate([row(mask=(0, 1, 0, 0), advantages=(nan, 2.0, 7.0, nan))])
    assert batch.advantages.tolist() == [[0, 2, 0, 0]]


def test_advantages_carry_the_rows_weight_and_its_objectives_scale() -> None:
    batch = collate([row(weight=0.5), row(objective="reflect")], scales={"reflect": 4.0})
    assert batch.advantages.tolist() == [[0, 1, 0, -0.5], [0, 8, 0, -4]]


def test_scales_make_each_objective_a_mean_over_its_own_tokens() -> None:
    rows = [row(), row(), row(objective="reflect", mask=(0, 0, 0, 1))]
    # 5 trained tokens in all, 4 of the policy and 1 of reflections
    assert objective_scales(rows, {"reflect": 0.5}) == {"policy": 5 / 4, "reflect": 0.5 * 5 / 1}


def test_objective_without_a_trained_token_has_no_scale() -> None:
    rows = [row(), row(objective="reflect", mask=(0, 0, 0, 0))]
    assert objective_scales(rows) == {"policy": 1.0}


def test_row_without_its_sampled_tokens_may_imitate_but_not_form_a_ratio() -> None:
    with pytest.raises(SettingsError, match=r"r1 .* no ratio") as refused:
        collate([row(ratio_allowed=False)])
    assert "sft" in refused.value.remedy
    assert collate([row(objective="sft", ratio_allowed=False)]).tokens == 2


def test_imitation_is_not_mixed_with_ratios_and_nothing_is_not_a_batch() -> None:
    with pytest.raises(SettingsError, match="mixes"):
        collate([row(), row(objective="sft")])
    with pytest.raises(SettingsError, match="no token"):
        collate([])
