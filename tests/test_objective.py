"""The objective worked by hand; what masked positions hold reaches neither loss nor gradient."""

import math

import pytest
import torch
from torch import Tensor

from training.objective import (
    ObjectiveResult,
    clipped_objective,
    imitation_objective,
    merged_metrics,
    token_logprobs,
)

NAN = float("nan")


def logs(*probabilities: float) -> Tensor:
    """Log-probabilities of one row, (1, T)."""
    return torch.tensor([probabilities]).log()


def objective(
    new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor | None = None, **options: object
) -> ObjectiveResult:
    kept = torch.ones_like(new, dtype=torch.bool) if mask is None else mask
    settings: dict[str, object] = {"normaliser": float(kept.sum()), **options}
    behaviour = settings.pop("behaviour", old)
    assert isinstance(behaviour, Tensor)
    return clipped_objective(new, old, behaviour, advantages, kept, **settings)  # type: ignore[arg-type]


def test_clipped_objective_by_hand() -> None:
    new = logs(0.5, 0.9, 0.2, 0.2)
    old = logs(0.5, 0.5, 0.4, 0.4)
    # ratios 1, 1.8, 0.5, 0.5; a rise is clipped at 1.2, a fall only for a negative advantage
    result = objective(new, old, torch.tensor([[1.0, 2.0, 1.0, -1.0]]))
    by_hand = -(1.0 + 1.2 * 2.0 + 0.5 * 1.0 - 0.8) / 4
    assert result.loss.item() == pytest.approx(by_hand)
    assert result.metrics["clipped_high"] == 0.25
    assert result.metrics["clipped_low"] == 0.25
    assert result.metrics["ratio"] == pytest.approx((1 + 1.8 + 0.5 + 0.5) / 4)
    assert result.metrics["ratio_max"] == pytest.approx(1.8)
    assert result.metrics["tokens"] == 4


def test_clip_bounds_are_not_bound_to_be_alike() -> None:
    new, old = logs(0.9, 0.1), logs(0.5, 0.5)
    result = objective(new, old, torch.tensor([[1.0, -1.0]]), clip=(0.5, 0.3))
    assert result.loss.item() == pytest.approx(-(1.3 - 0.5) / 2)


def test_gradient_at_the_old_policy_is_the_advantage_and_clipped_tokens_have_none() -> None:
    new = logs(0.5, 0.9, 0.2).requires_grad_()
    objective(new, logs(0.5, 0.5, 0.4), torch.tensor([[3.0, 2.0, -1.0]])).loss.backward()
    assert new.grad is not None
    torch.testing.assert_close(new.grad, torch.tensor([[-3.0 / 3, 0.0, 0.0]]))


def test_importance_is_truncated_and_constant() -> None:
    new = logs(0.4, 0.4).requires_grad_()
    # old / behaviour = 0.5 and 4, of which the second is held at 2
    result = objective(
        new, logs(0.4, 0.4), torch.ones(1, 2), behaviour=logs(0.8, 0.1), truncation=2.0
    )
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-(0.5 + 2.0) / 2)
    assert result.metrics["importance_truncated"] == 0.5
    assert result.metrics["sampler_gap_max"] == pytest.approx(math.log(4))
    assert new.grad is not None
    torch.testing.assert_close(new.grad, torch.tensor([[-0.25, -1.0]]))


def test_divergence_from_the_reference_by_hand() -> None:
    new = logs(0.5, 0.25).requires_grad_()
    result = objective(
        new, logs(0.5, 0.25), torch.zeros(1, 2), ref_logprobs=logs(0.25, 0.25), beta=0.1
    )
    k3 = 0.5 - math.log(0.5) - 1
    assert result.loss.item() == pytest.approx(0.1 * k3 / 2)
    assert result.metrics["kl_reference"] == pytest.approx(k3 / 2)
    result.loss.backward()
    assert new.grad is not None
    # d k3 / d logprob = 1 - ref / new
    torch.testing.assert_close(new.grad, torch.tensor([[0.1 * 0.5 / 2, 0.0]]))


def test_untrained_tokens_get_a_gradient_of_exactly_zero_whatever_stands_there() -> None:
    new = torch.tensor([[NAN, -0.5, NAN, 1e9]], requires_grad=True)
    junk = torch.tensor([[NAN, -0.5, -NAN, -1e9]])
    mask = torch.tensor([[False, True, False, False]])
    result = objective(
        new, junk, torch.tensor([[NAN, 2.0, 5.0, NAN]]), mask, ref_logprobs=junk, beta=0.5
    )
    result.loss.backward()
    assert new.grad is not None
    assert new.grad.tolist() == [[0.0, -2.0, 0.0, 0.0]]
    assert result.loss.item() == -2.0
    assert all(math.isfinite(value) for value in result.metrics.values())


def test_tool_tokens_move_no_weight_of_a_model() -> None:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(7, 7)
    ids = torch.tensor([[1, 2, 3, 4]])
    mask = torch.tensor([[False, True, False, False]])
    new = token_logprobs(embedding(ids[:, :-1]), ids[:, 1:])
    new = torch.cat([torch.zeros(1, 1), new], dim=1)
    objective(new, new.detach(), torch.ones(1, 4), mask).loss.backward()
    assert embedding.weight.grad is not None
    moved = embedding.weight.grad.abs().sum(dim=1)
    # only the position that predicts the one trained token: the id 1 before it
    assert moved.nonzero().flatten().tolist() == [1]


def test_rows_split_over_passes_give_the_loss_and_gradient_of_the_window() -> None:
    torch.manual_seed(1)
    new = torch.randn(4, 6).sub(3).requires_grad_()
    old, behaviour = new.detach() + 0.1 * torch.randn(4, 6), new.detach() + 0.1 * torch.randn(4, 6)
    advantages, mask = torch.randn(4, 6), torch.rand(4, 6) > 0.4
    total = float(mask.sum())

    def part(rows: slice) -> ObjectiveResult:
        return clipped_objective(
            new[rows],
            old[rows],
            behaviour[rows],
            advantages[rows],
            mask[rows],
            normaliser=total,
            ref_logprobs=behaviour[rows],
            beta=0.1,
        )

    whole = part(slice(0, 4))
    (gradient,) = torch.autograd.grad(whole.loss, new)
    pieces = [part(slice(0, 1)), part(slice(1, 4))]
    (summed,) = torch.autograd.grad(pieces[0].loss + pieces[1].loss, new)
    torch.testing.assert_close(summed, gradient)
    merged = merged_metrics([piece.metrics for piece in pieces])
    assert merged == pytest.approx(whole.metrics, rel=1e-5)


def test_window_without_a_trained_token_merges_to_zeros() -> None:
    mask = torch.zeros(1, 2, dtype=torch.bool)
    empty = objective(logs(0.5, 0.5), logs(0.5, 0.5), torch.ones(1, 2), mask, normaliser=3.0)
    assert empty.loss.item() == 0.0
    assert set(merged_metrics([empty.metrics, empty.metrics]).values()) == {0.0}


def test_far_off_token_stays_finite() -> None:
    new = torch.tensor([[-1.0, -900.0]], requires_grad=True)
    old = torch.tensor([[-900.0, -1.0]])
    result = objective(new, old, torch.tensor([[-1.0, 1.0]]), ref_logprobs=old, beta=0.1)
    result.loss.backward()
    assert new.grad is not None and torch.isfinite(new.grad).all() and result.loss.isfinite()


def test_imitation_is_the_mean_negative_log_likelihood() -> None:
    mask = torch.tensor([[False, True, True]])
    new = torch.tensor([[NAN, math.log(0.5), math.log(0.25)]], requires_grad=True)
    result = imitation_objective(new, mask, normaliser=2.0)
    assert result.loss.item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    weighted = imitation_objective(new, mask, normaliser=2.0, weights=torch.tensor([[NAN, 2, 0]]))
    assert weighted.loss.item() == pytest.approx(math.log(2))
    result.loss.backward()
    assert new.grad is not None
    assert new.grad.tolist() == [[0.0, -0.5, -0.5]]


def test_token_logprobs_equal_the_log_softmax_in_value_and_gradient() -> None:
    torch.manual_seed(2)
    logits = torch.randn(2, 5, 11, requires_grad=True)
    ids = torch.randint(0, 11, (2, 5))
    expected = torch.log_softmax(logits, dim=-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    found = token_logprobs(logits, ids, rows=3)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(2, 5)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), logits)
    (gradient,) = torch.autograd.grad((found * weights).sum(), logits)
    torch.testing.assert_close(gradient, wanted)


def test_token_logprobs_of_nothing_are_nothing() -> None:
    assert token_logprobs(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_normaliser_and_reference_must_be_there() -> None:
    new = logs(0.5, 0.5)
    with pytest.raises(ValueError, match="trained tokens"):
        objective(new, new, torch.ones(1, 2), normaliser=0.0)
    with pytest.raises(ValueError, match="reference"):
        objective(new, new, torch.ones(1, 2), beta=0.1)
