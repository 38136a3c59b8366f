"""What a token counts in its window: by hand, and however the window is cut."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.objective_rows import Bigrams, row
from training.advantages import stage_advantages
from training.loss_metrics import LossMetrics
from training.objective import clipped_objective
from training.objective_config import Aggregation, ObjectiveConfig
from training.packing import bins, pack
from training.returns import PAPER, stage_returns
from training.rows import Objective, TrainRow
from training.tensors import Batch, collate
from training.window_weights import WindowWeights, window_weights

pytestmark = pytest.mark.usefixtures("one_thread")
# Trained tokens: a: plan, research, research, research; b: plan, answer; c: a lone one.
A = row((1.0, 1.0, 1.0, 1.0), name="a", stages=(0, 1, 1, 1))
B = row((1.0, 9.0, 1.0), name="b", stages=(0, 1, 3), mask=(1, 0, 1))
C = row((1.0,), name="c", objective="reflect")
CONFIGS = {
    "token-mean": ObjectiveConfig(),
    "stage-mean": ObjectiveConfig(aggregation="stage-mean"),
    "sequence-mean": ObjectiveConfig(aggregation="sequence-mean"),
    "token-sum": ObjectiveConfig(aggregation="token-sum", token_budget=10),
}


def trained(values: Tensor, of: TrainRow) -> list[float]:
    assert not values[torch.tensor(of.loss_mask) == 0].any()
    return values[torch.tensor(of.loss_mask) == 1].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("aggregation", "of_a", "of_b"),
    [
        ("token-mean", [1 / 6] * 4, [1 / 6] * 2),
        # plan has two tokens, research three, answer one; each stage counts a third
        ("stage-mean", [1 / 6, 1 / 9, 1 / 9, 1 / 9], [1 / 6, 1 / 3]),
        ("sequence-mean", [1 / 8] * 4, [1 / 4] * 2),
        ("token-sum", [1 / 20] * 4, [1 / 20] * 2),
    ],
)
def test_weights_by_hand(aggregation: Aggregation, of_a: list[float], of_b: list[float]) -> None:
    window = window_weights([A, B], CONFIGS[aggregation])
    assert trained(window.weights(A), A) == pytest.approx(of_a)
    assert trained(window.weights(B), B) == pytest.approx(of_b)
    assert window.shares(A).equal(window.weights(A)), "one objective is the whole window"


def test_each_objective_has_its_own_normaliser_and_the_divergence_one_for_all() -> None:
    judged = row((1.0, 1.0), name="d", objective="judge", weight=0.5)
    config = ObjectiveConfig(reflect_weight=3.0, judge_weight=4.0)
    window = window_weights([A, B, C, judged], config)
    assert trained(window.weights(A), A) == pytest.approx([1 / 6] * 4)
    assert trained(window.weights(C), C) == pytest.approx([3.0])
    assert trained(window.weights(judged), judged) == pytest.approx([4.0 * 0.5 / 2] * 2)
    for one in (A, B, C, judged):
        assert trained(window.shares(one), one) == pytest.approx([1 / 9] * sum(one.loss_mask))


def test_divergence_is_one_mean_over_the_tokens_of_all_objectives() -> None:
    rows = [row((0.0,), name="p"), row((0.0, 0.0, 0.0), name="q", objective="reflect")]
    config = ObjectiveConfig(beta=0.1, reflect_weight=5.0)
    batch = collate(rows, window_weights(rows, config))
    new = torch.zeros(2, 4)
    half = new + math.log(0.5)
    half[0] = 0.0  # the policy's one token has not moved; the reflection's three have
    k3 = 0.5 - math.log(0.5) - 1
    loss = clipped_objective(batch, new, new, half, config).loss
    assert loss.item() == pytest.approx(0.1 * 3 * k3 / 4)


def test_token_mean_is_what_engines_with_one_normaliser_make_of_scaled_advantages() -> None:
    window = window_weights([A, B, C], ObjectiveConfig(reflect_weight=2.0))
    # 7 tokens, 6 of the policy and 1 of reflections: 7/6 and 2 * 7/1
    assert (window.weights(A) * 7)[1].item() == pytest.approx(7 / 6)
    assert (window.weights(C) * 7)[1].item() == pytest.approx(14.0)


def test_rows_without_a_trained_token_count_nowhere() -> None:
    silent = A.model_copy(update={"id": "s", "loss_mask": (0,) * 5})
    for config in CONFIGS.values():
        with_it, without = window_weights([A, B, silent], config), window_weights([A, B], config)
        assert with_it.weights(A).equal(without.weights(A))
        assert not with_it.weights(silent).any() and not with_it.shares(silent).any()


def mixed() -> list[TrainRow]:
    """Eight rows of three objectives, of several lengths, with tool tokens between."""
    kinds: tuple[Objective, ...] = ("policy", "policy", "reflect", "judge")
    found = []
    for number in range(8):
        count, kind = 2 + number * 5 % 7, kinds[number % 4]
        stages = tuple(place * 4 // count for place in range(count)) if kind == "policy" else None
        found.append(
            row(
                tuple((-1.0) ** (number + place) * (0.5 + place) for place in range(count)),
                name="abcdefgh"[number],
                objective=kind,
                behaviour=tuple(-1.0 - 0.3 * place for place in range(count)),
                stages=stages,
                mask=(1, 1, *(int(place % 3 > 0) for place in range(2, count))),
                weight=1.0 + number % 2,
            )
        )
    return found


CUTS: dict[str, Callable[[Sequence[TrainRow], WindowWeights], list[Batch]]] = {
    "one by one": lambda rows, window: [collate([one], window) for one in rows],
    "padded pairs": lambda rows, window: [
        collate([rows[i], rows[-1 - i]], window) for i in range(4)
    ],
    "packed": lambda rows, window: [pack(part, window) for part in bins(rows, 14)],
}


def computed(
    batches: list[Batch], config: ObjectiveConfig
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """The loss, the gradient and the metrics of a window that was cut so."""
    policy, old, reference = Bigrams(1), Bigrams(2), Bigrams(3)
    losses, metrics = torch.zeros(()), LossMetrics()
    for batch in batches:
        result = clipped_objective(batch, policy(batch), old(batch), reference(batch), config)
        losses, metrics = losses + result.loss, metrics + result.metrics
    (gradient,) = torch.autograd.grad(losses, policy.table)
    return losses.detach(), gradient, metrics.report()


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("aggregation", CONFIGS)
def test_how_a_window_is_cut_changes_neither_loss_nor_gradient_nor_metrics(
    aggregation: Aggregation, cut: str
) -> None:
    config = CONFIGS[aggregation].model_copy(update={"beta": 0.1, "dual_clip": 3.0})
    rows = mixed()
    window = window_weights(rows, config)
    loss, gradient, metrics = computed([collate(rows, window)], config)
    parts = CUTS[cut](rows, window)
    assert len(parts) > 2
    loss_cut, gradient_cut, metrics_cut = computed(parts, config)
    torch.testing.assert_close(loss_cut, loss)
    torch.testing.assert_close(gradient_cut, gradient, rtol=1e-4, atol=1e-6)
    assert metrics_cut == pytest.approx(metrics, rel=1e-5)
    assert {"policy_loss", "reflect_loss", "judge_loss", "plan_loss", "answer_loss"} <= set(metrics)


def test_the_aggregations_are_four_different_losses() -> None:
    losses = {
        name: computed([collate(mixed(), window_weights(mixed(), config))], config)[0].item()
        for name, config in CONFIGS.items()
    }
    assert len({round(loss, 4) for loss in losses.values()}) == 4


def test_reflection_rows_touch_no_policy_term() -> None:
    """Whatever the reflections' advantages are, the policy rows' gradient and loss stay."""
    quiet, loud = [A, B, C], [A, B, row((50.0,), name="c", objective="reflect")]
    found = []
    for rows in (quiet, loud):
        window, policy = window_weights(rows), Bigrams(1)
        of_policy = collate(rows[:2], window)
        result = clipped_objective(of_policy, policy(of_policy))
        (gradient,) = torch.autograd.grad(result.loss, policy.table)
        whole = collate(rows, window)
        told = clipped_objective(whole, policy(whole)).metrics.report()
        found.append((result.loss.item(), gradient, told["policy_loss"], told["reflect_loss"]))
    (loss, gradient, policy_loss, reflect_loss), again = found
    assert loss == again[0] and gradient.equal(again[1]) and policy_loss == again[2]
    assert again[3] == pytest.approx(50 * reflect_loss)


def test_a_token_counts_alike_whether_or_not_reflections_are_trained_beside_it() -> None:
    alone, beside = window_weights([A, B]), window_weights([A, B, C])
    assert alone.weights(A).equal(beside.weights(A))


def test_scale_and_shift_of_the_judges_scores_change_no_gradient() -> None:
    scores = np.random.default_rng(0).random((4, 4))
    gradients = []
    for judged in (scores, 0.25 * scores + 0.5, 100 * scores - 3):
        advantages = stage_advantages(stage_returns(judged, PAPER), eps=0.0).values
        rows = [
            row(tuple(map(float, values)), name=name, stages=(0, 1, 2, 3))
            for name, values in zip("abcd", advantages, strict=True)
        ]
        gradients.append(computed([collate(rows)], ObjectiveConfig(importance="none"))[1])
    assert gradients[0].abs().max() > 1e-3
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-4, atol=1e-6)
