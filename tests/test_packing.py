"""Rows packed by their position ids alone say the same as each by itself; nothing leaks."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import SettingsError
from tests.objective_rows import row
from training.local.logprobs import batch_logprobs
from training.objective import clipped_objective
from training.packing import bins, pack
from training.rows import TrainRow
from training.tensors import collate
from training.window_weights import window_weights

pytestmark = pytest.mark.usefixtures("one_thread")
COUNTS = (7, 3, 12, 1)


def qwen2(attention: str) -> Any:
    """Random weights, large enough that what a token sees changes what it predicts."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=16,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.4,
        attn_implementation=attention,
    )
    return Qwen2ForCausalLM(config).eval()


def rows() -> list[TrainRow]:
    made = []
    for name, count in zip("klmn", COUNTS, strict=True):
        mask = tuple(int(place % 4 != 2) for place in range(count))
        made.append(row((1.0, -0.5, 2.0, 0.3)[:1] * count, name=name, mask=mask))
    return made


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_logprobs_and_gradients_are_those_of_each_row_alone(attention: str) -> None:
    model, window = qwen2(attention), window_weights(rows())
    packed = pack(rows(), window)
    alone = [batch_logprobs(model, collate([one], window)) for one in rows()]
    together = batch_logprobs(model, packed)
    for mine, part in zip(alone, packed.split(together), strict=True):
        torch.testing.assert_close(part, mine[0], rtol=0, atol=1e-5)
    weights = list(model.parameters())
    torch.autograd.backward(clipped_objective(packed, together).loss)
    found = [weight.grad.clone() for weight in weights]
    model.zero_grad()
    for one, logprobs in zip(rows(), alone, strict=True):
        clipped_objective(collate([one], window), logprobs).loss.backward()
    for weight, gradient in zip(weights, found, strict=True):
        torch.testing.assert_close(gradient, weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padded_logprobs_are_those_of_each_row_alone(attention: str) -> None:
    model, batch = qwen2(attention), collate(rows())
    parts = batch.split(batch_logprobs(model, batch))
    for one, part in zip(rows(), parts, strict=True):
        alone = batch_logprobs(model, collate([one]))[0]
        torch.testing.assert_close(part, alone, rtol=0, atol=1e-5)


def test_a_mask_of_ones_beside_packed_positions_would_mix_the_rows() -> None:
    """What the packing must not do: should this fail, the mask has become harmless."""
    model, packed = qwen2("sdpa"), pack(rows())
    inputs = {"input_ids": packed.ids, "position_ids": packed.position, "use_cache": False}
    with torch.no_grad():
        apart = model(**inputs).logits
        mixed = model(**inputs, attention_mask=torch.ones_like(packed.ids)).logits
    first = COUNTS[0] + 1
    torch.testing.assert_close(mixed[:, :first], apart[:, :first], rtol=0, atol=1e-5)
    assert (mixed[:, first:] - apart[:, first:]).abs().max() > 0.1


def test_another_row_in_the_pack_changes_nothing_for_this_one() -> None:
    model, (first, second, *_) = qwen2("sdpa"), rows()
    other = second.model_copy(update={"ids": tuple(15 - token for token in second.ids)})
    with torch.no_grad():
        packs = [pack([one, first]) for one in (second, other)]
        mine = [batch.split(batch_logprobs(model, batch))[1] for batch in packs]
    torch.testing.assert_close(mine[0], mine[1], rtol=0, atol=1e-6)


def test_packed_batch_by_hand() -> None:
    short, long = row((3.0,), name="s", ids=(3, 4)), row((1.0, 2.0), name="l", ids=(5, 6, 7))
    batch = pack([short, long])
    assert batch.ids.tolist() == [[3, 4, 5, 6, 7]]
    assert batch.position.tolist() == [[0, 1, 0, 1, 2]]
    assert batch.mask.tolist() == [[False, True, False, True, True]]
    assert batch.advantages.tolist() == [[0, 3, 0, 1, 2]]
    assert batch.lengths.tolist() == [2, 3]
    assert (batch.tokens, batch.padding) == (3, 0.0)


def test_batch_without_a_trained_token_gives_every_weight_a_gradient_of_zero() -> None:
    model = qwen2("sdpa")
    silent = row((1.0, 1.0, 1.0), name="s", mask=(0, 0, 0))
    logprobs = batch_logprobs(model, collate([silent]))
    clipped_objective(collate([silent]), logprobs).loss.backward()
    assert logprobs.tolist() == [[0.0] * 4]
    gradients = [weight.grad for weight in model.parameters()]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


def lengths(parts: list[list[TrainRow]]) -> list[list[int]]:
    return [[len(one.ids) for one in part] for part in parts]


def of_lengths(*counts: int) -> list[TrainRow]:
    return [row((0.0,) * (n - 1), name=str(i)) for i, n in enumerate(counts)]


def test_bins_are_filled_longest_first_by_the_first_that_fits() -> None:
    found = bins(of_lengths(3, 6, 4, 7, 2, 5), 10)
    assert lengths(found) == [[7, 3], [6, 4], [5, 2]]
    assert [one.id for one in bins(of_lengths(4, 4, 4), 8)[0]] == ["0", "1"]


def test_a_row_too_long_for_any_bin_has_its_own() -> None:
    assert lengths(bins(of_lengths(12, 3), 10)) == [[12], [3]]
    assert bins([], 10) == []


def test_packing_refuses_what_padding_refuses() -> None:
    with pytest.raises(SettingsError, match="no ratio"):
        pack([row(ratio_allowed=False)])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 30), min_size=1, max_size=30))
def test_bins_hold_every_row_once_within_the_bound(counts: list[int]) -> None:
    found = bins(of_lengths(*counts), 30)
    names = sorted(int(one.id) for part in found for one in part)
    assert names == list(range(len(counts)))
    assert all(sum(part) <= 30 for part in lengths(found))
    # two bins that are half empty would have been one
    assert sum(2 * sum(part) <= 30 for part in lengths(found)) <= 1
