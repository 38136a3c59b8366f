"""Rows laid side by side: alignment, padding, what a batch says of itself, and what is refused."""

import pytest
import torch

from memory.errors import SettingsError
from tests.objective_rows import row
from training.packing import pack
from training.tensors import Batch, collate

pytestmark = pytest.mark.usefixtures("one_thread")
LONG = row((2.0, 7.0, -1.0), name="long", behaviour=(-0.5, -9.0, -0.25), mask=(1, 0, 1),
           stages=(0, 1, 1), ids=(5, 6, 7, 8))  # fmt: skip
SHORT = row((3.0,), name="short", behaviour=(-0.5,), objective="reflect", ids=(3, 4))
NAN, INFINITE = float("nan"), float("inf")


def test_shorter_row_is_padded_on_the_right() -> None:
    batch = collate([LONG, SHORT], pad=99)
    assert batch.ids.tolist() == [[5, 6, 7, 8], [3, 4, 99, 99]]
    assert batch.mask.tolist() == [[False, True, False, True], [False, True, False, False]]
    assert batch.advantages.tolist() == [[0, 2, 0, -1], [0, 3, 0, 0]]
    assert batch.behaviour.tolist() == [[0, -0.5, 0, -0.25], [0, -0.5, 0, 0]]
    assert batch.stages.tolist() == [[-1, 0, 1, 1], [-1, -1, -1, -1]]
    assert batch.objectives.tolist() == [[-1, 0, -1, 0], [-1, 1, -1, -1]]
    assert batch.weights.tolist() == [[0, 0.5, 0, 0.5], [0, 1, 0, 0]]
    assert batch.shares[batch.mask].tolist() == pytest.approx([1 / 3] * 3)
    assert batch.position.tolist() == [[0, 1, 2, 3]] * 2
    assert batch.lengths.tolist() == [4, 2]
    assert (batch.tokens, batch.padding) == (3, 0.25)


def test_split_gives_each_row_its_part_without_padding() -> None:
    for batch in (collate([LONG, SHORT]), pack([LONG, SHORT])):
        assert [part.tolist() for part in batch.split(batch.ids)] == [[5, 6, 7, 8], [3, 4]]


def test_only_behaviour_of_these_very_ids_is_called_sampled() -> None:
    shown = SHORT.model_copy(update={"scaffolded_prompt": (1,), "recompute_logprobs": True})
    batch = collate([LONG, shown])
    assert batch.sampled.tolist() == [[False, True, False, True], [False] * 4]


def test_every_tensor_goes_to_the_device_but_the_lengths() -> None:
    there = collate([LONG, SHORT]).to("meta")
    devices = {name: getattr(there, name).device.type for name in Batch.__dataclass_fields__}
    assert devices.pop("lengths") == "cpu"
    assert set(devices.values()) == {"meta"}


def test_what_stands_on_an_untrained_token_is_left_behind() -> None:
    batch = collate([row((NAN, 2.0, 7.0), behaviour=(NAN, -1.0, 5.0), mask=(0, 1, 0))])
    assert batch.advantages.tolist() == [[0, 0, 2, 0]]
    assert batch.behaviour.tolist() == [[0, 0, -1, 0]]


@pytest.mark.parametrize("fault", [{"advantages": (NAN,)}, {"behaviour": (-INFINITE,)}])
def test_what_is_not_finite_on_a_trained_token_is_refused(fault: dict[str, tuple[float]]) -> None:
    with pytest.raises(SettingsError, match=r"row bad has .* not finite"):
        collate([row(**{"advantages": (1.0,), **fault}, name="bad")])


def test_row_without_its_sampled_tokens_may_imitate_but_not_form_a_ratio() -> None:
    with pytest.raises(SettingsError, match=r"r .* no ratio") as refused:
        collate([row(ratio_allowed=False)])
    assert "sft" in refused.value.remedy
    assert collate([row(objective="sft", ratio_allowed=False)]).tokens == 1


def test_imitation_is_not_mixed_with_ratios_and_nothing_is_not_a_batch() -> None:
    with pytest.raises(SettingsError, match="mixes"):
        collate([row(), row(objective="sft")])
    for lay in (collate, pack):
        with pytest.raises(SettingsError, match="no token"):
            lay([])


def test_judge_rows_are_rows_and_a_weight_below_zero_is_none() -> None:
    batch = collate([row(objective="judge")])
    assert batch.objectives[batch.mask].tolist() == [2]
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        row(weight=-1.0)
    assert torch.isfinite(batch.weights).all()
