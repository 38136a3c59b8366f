"""The objective worked by hand; what masked positions hold reaches neither loss nor gradient."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from memory.errors import SettingsError
from tests.objective_rows import Bigrams, logs, row
from training.objective import (
    ObjectiveResult,
    clipped_objective,
    imitation_objective,
    token_logprobs,
)
from training.objective_config import ObjectiveConfig
from training.rows import TrainRow
from training.tensors import collate
from training.window_weights import window_weights

pytestmark = pytest.mark.usefixtures("one_thread")
NAN = float("nan")


def objective(
    of: TrainRow, new: Tensor, old: Tensor | None, ref: Tensor | None = None, **settings: Any
) -> ObjectiveResult:
    config = ObjectiveConfig(**settings)
    return clipped_objective(collate([of], window_weights([of], config)), new, old, ref, config)


def alike(*advantages: float, p: tuple[float, ...]) -> TrainRow:
    """A row whose sampler had the probabilities p."""
    return row(advantages, behaviour=tuple(map(math.log, p)))


def gradient(result: ObjectiveResult, of: Tensor) -> list[float]:
    result.loss.backward()
    assert of.grad is not None and of.grad[0, 0] == 0.0
    return of.grad[0, 1:].tolist()  # type: ignore[no-any-return]


def test_clipped_objective_by_hand() -> None:
    p = (0.5, 0.5, 0.4, 0.4)
    # ratios 1, 1.8, 0.5, 0.5; a rise is clipped at 1.2, a fall only for a negative advantage
    result = objective(alike(1, 2, 1, -1, p=p), logs(0.5, 0.9, 0.2, 0.2), logs(*p))
    assert result.loss.item() == pytest.approx(-(1.0 + 1.2 * 2.0 + 0.5 * 1.0 - 0.8) / 4)
    told = result.metrics.report()
    assert (told["clipped_high"], told["clipped_low"], told["tokens"]) == (0.25, 0.25, 4)
    assert told["ratio"] == pytest.approx((1 + 1.8 + 0.5 + 0.5) / 4)
    assert told["ratio_max"] == pytest.approx(1.8)
    assert told["policy_loss"] == pytest.approx(result.loss.item())


def test_clip_bounds_are_not_bound_to_be_alike() -> None:
    p = (0.5, 0.5)
    result = objective(alike(1, -1, p=p), logs(0.9, 0.1), logs(*p), clip=(0.5, 0.3))
    assert result.loss.item() == pytest.approx(-(1.3 - 0.5) / 2)


def test_gradient_at_the_old_policy_is_the_advantage_and_clipped_tokens_have_none() -> None:
    new, p = logs(0.5, 0.9, 0.2).requires_grad_(), (0.5, 0.5, 0.4)
    result = objective(alike(3, 2, -1, p=p), new, logs(*p))
    assert gradient(result, new) == pytest.approx([-3.0 / 3, 0.0, 0.0])


def test_first_pass_needs_no_old_policy() -> None:
    new = logs(0.5, 0.9).requires_grad_()
    result = objective(alike(3, 2, p=(0.5, 0.9)), new, None)
    assert result.loss.item() == pytest.approx(-2.5)
    assert gradient(result, new) == pytest.approx([-1.5, -1.0])


def test_dual_clip_bounds_what_a_bad_token_that_grew_likely_costs() -> None:
    # ratios 4 and 2, advantages below 0: -4 without it; held at 3 * A with it, and then flat
    p = (0.2, 0.4)
    without = objective(alike(-1, -1, p=p), logs(0.8, 0.8), logs(*p))
    assert without.loss.item() == pytest.approx((4.0 + 2.0) / 2)
    new = logs(0.8, 0.8).requires_grad_()
    held = objective(alike(-1, -1, p=p), new, logs(*p), dual_clip=3.0)
    assert held.loss.item() == pytest.approx((3.0 + 2.0) / 2)
    assert held.metrics.report()["clipped_dual"] == 0.5
    assert gradient(held, new) == pytest.approx([0.0, 2.0 / 2])
    good = objective(alike(1, 1, p=p), logs(0.8, 0.8), logs(*p), dual_clip=3.0)
    assert good.loss.item() == pytest.approx(-1.2), "a positive advantage is clipped as ever"


def test_truncated_importance_is_held_at_its_cap_and_constant() -> None:
    new = logs(0.4, 0.4).requires_grad_()
    # old / behaviour = 0.5 and 4, of which the second is held at 2
    result = objective(alike(1, 1, p=(0.8, 0.1)), new, logs(0.4, 0.4))
    told = result.metrics.report()
    assert result.loss.item() == pytest.approx(-(0.5 + 2.0) / 2)
    assert told["importance_truncated"] == 0.5
    assert told["sampler_gap_max"] == pytest.approx(math.log(4))
    assert told["ess"] == pytest.approx(2.5**2 / (2 * (0.25 + 4)))
    assert gradient(result, new) == pytest.approx([-0.25, -1.0])


def test_masked_importance_drops_what_lies_outside_its_band_and_keeps_the_rest_whole() -> None:
    new = logs(0.4, 0.4, 0.4).requires_grad_()
    # old / behaviour = 0.5, 4 and 0.4; the normaliser stays at three tokens
    of = alike(1, 1, 1, p=(0.8, 0.1, 1.0))
    result = objective(of, new, logs(0.4, 0.4, 0.4), importance="mask", band=(0.45, 5.0))
    told = result.metrics.report()
    assert result.loss.item() == pytest.approx(-(0.5 + 4.0 + 0.0) / 3)
    assert told["importance_masked"] == pytest.approx(1 / 3)
    assert "importance_truncated" not in told
    assert gradient(result, new) == pytest.approx([-0.5 / 3, -4.0 / 3, 0.0])


def test_without_importance_the_sampler_is_measured_and_not_corrected() -> None:
    result = objective(alike(1, 1, p=(0.8, 0.1)), logs(0.4, 0.4), None, importance="none")
    told = result.metrics.report()
    assert result.loss.item() == pytest.approx(-1.0)
    assert (told["importance"], told["ess"]) == (1.0, 1.0)
    assert told["sampler_gap"] == pytest.approx((math.log(2) + math.log(4)) / 2)


def test_bypass_forms_the_ratio_to_the_sampler_and_clips_there() -> None:
    new = logs(0.44, 0.9).requires_grad_()
    result = objective(
        alike(1, 1, p=(0.4, 0.5)), new, logs(0.9, 0.9), correction="bypass", importance="none"
    )
    assert result.loss.item() == pytest.approx(-(1.1 + 1.2) / 2)
    assert gradient(result, new) == pytest.approx([-1.1 / 2, 0.0])


def test_row_sampled_under_another_prompt_is_corrected_for_no_gap() -> None:
    of = alike(1, 1, p=(0.8, 0.1)).model_copy(
        update={"scaffolded_prompt": (1,), "recompute_logprobs": True}
    )
    result = objective(of, logs(0.4, 0.4), logs(0.4, 0.2))
    told = result.metrics.report()
    assert result.loss.item() == pytest.approx(-(1.0 + 1.2) / 2)
    assert told["importance"] == 1.0
    assert told["scaffold_gap"] == pytest.approx((math.log(2) + math.log(2)) / 2)
    assert "sampler_gap" not in told and "kl_behaviour" not in told
    with pytest.raises(SettingsError, match=r"row r was sampled under another prompt"):
        objective(of, logs(0.4, 0.4), None, correction="bypass", importance="none")


def test_divergence_from_the_reference_by_hand() -> None:
    p, new = (0.5, 0.25), logs(0.5, 0.25).requires_grad_()
    result = objective(alike(0, 0, p=p), new, logs(*p), logs(0.25, 0.25), beta=0.1)
    k3 = 0.5 - math.log(0.5) - 1
    assert result.loss.item() == pytest.approx(0.1 * k3 / 2)
    assert result.metrics.report()["kl_reference"] == pytest.approx(k3 / 2)
    # d k3 / d logprob = 1 - ref / new
    assert gradient(result, new) == pytest.approx([0.1 * 0.5 / 2, 0.0])


def test_beta_needs_a_reference() -> None:
    with pytest.raises(SettingsError, match="no reference") as refused:
        objective(alike(1, p=(0.5,)), logs(0.5), None, beta=0.1)
    assert "set beta to 0" in refused.value.remedy


def test_untrained_tokens_get_a_gradient_of_exactly_zero_whatever_stands_there() -> None:
    of = row((NAN, 2.0, 5.0), behaviour=(NAN, -0.5, -NAN), mask=(0, 1, 0))
    new = torch.tensor([[NAN, NAN, -0.5, 1e9]], requires_grad=True)
    junk = torch.tensor([[-NAN, 1e9, -0.5, -1e9]])
    result = objective(of, new, junk, junk, beta=0.5)
    assert gradient(result, new) == [0.0, -2.0, 0.0]
    assert result.loss.item() == -2.0
    assert all(math.isfinite(value) for value in result.metrics.report().values())


def test_tool_tokens_move_no_weight_of_a_policy() -> None:
    """The ids are 6, 2, 7, 3, of which 7 alone is trained: it is predicted from the 2 before."""
    of, policy = row((9.0, 1.0, 9.0), mask=(0, 1, 0)), Bigrams(0)
    batch = collate([of])
    assert batch.ids.tolist() == [[6, 2, 7, 3]]
    clipped_objective(batch, policy(batch)).loss.backward()
    assert policy.table.grad is not None
    assert policy.table.grad.abs().sum(dim=1).nonzero().flatten().tolist() == [2]


def test_far_off_token_stays_finite() -> None:
    new = torch.tensor([[0.0, -1.0, -900.0]], requires_grad=True)
    old = torch.tensor([[0.0, -900.0, -1.0]])
    result = objective(row((-1.0, 1.0)), new, old, old, beta=0.1)
    assert all(map(math.isfinite, gradient(result, new))) and result.loss.isfinite()


def test_imitation_is_the_mean_negative_log_likelihood() -> None:
    new = logs(0.5, 0.25).requires_grad_()
    result = imitation_objective(collate([row((1.0, 1.0), objective="sft")]), new)
    assert result.loss.item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert gradient(result, new) == [-0.5, -0.5]
    half = collate([row((1.0, 1.0), objective="sft", weight=0.5)])
    assert imitation_objective(half, logs(0.5, 0.5)).loss.item() == pytest.approx(math.log(2) / 2)


def test_token_logprobs_equal_the_log_softmax_in_value_and_gradient() -> None:
    torch.manual_seed(2)
    logits = torch.randn(2, 5, 11, requires_grad=True)
    ids = torch.randint(0, 11, (2, 5))
    expected = torch.log_softmax(logits, dim=-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    found = token_logprobs(logits, ids, rows=3)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(2, 5)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), logits)
    (got,) = torch.autograd.grad((found * weights).sum(), logits)
    torch.testing.assert_close(got, wanted)


def test_token_logprobs_of_nothing_are_nothing() -> None:
    assert token_logprobs(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64)).shape == (0,)
