"""Rows laid side by side: alignment, padding, what a batch says of itself, and what is refused.

What a token counts in its window: by hand, and however the window is cut.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from rubricem.training.local.logprobs import batch_logprobs
from rubricem.training.objective.batch import Batch, WindowWeights, window_weights
from rubricem.training.objective.objective import LossMetrics, clipped_objective
from rubricem.training.objective.objective_config import Aggregation, ObjectiveConfig
from rubricem.training.rows.row import Objective, TrainRow
from tests.support.objective import Bigrams, row

pytestmark = pytest.mark.usefixtures("one_thread")
LONG = row((2.0, 7.0, -1.0), name="long", behaviour=(-0.5, -9.0, -0.25), mask=(1, 0, 1),
           stages=(0, 1, 1), ids=(5, 6, 7, 8))  # fmt: skip
SHORT = row((3.0,), name="short", behaviour=(-0.5,), objective="reflect", ids=(3, 4))
NAN, INFINITE = float("nan"), float("inf")


def test_shorter_row_is_padded_on_the_right() -> None:
    batch = Batch.collate([LONG, SHORT])
    assert batch.ids.tolist() == [[5, 6, 7, 8], [3, 4, 0, 0]]
    assert batch.mask.tolist() == [[False, True, False, True], [False, True, False, False]]
    assert batch.advantages.tolist() == [[0, 2, 0, -1], [0, 3, 0, 0]]
    assert batch.behaviour.tolist() == [[0, -0.5, 0, -0.25], [0, -0.5, 0, 0]]
    assert batch.stages.tolist() == [[-1, 0, 1, 1], [-1, -1, -1, -1]]
    assert batch.objectives.tolist() == [[-1, 0, -1, 0], [-1, 1, -1, -1]]
    assert batch.weights.tolist() == [[0, 0.5, 0, 0.5], [0, 1, 0, 0]]
    assert batch.shares[batch.mask].tolist() == pytest.approx([1 / 3] * 3)
    assert batch.lengths.tolist() == [4, 2]
    assert batch.tokens == 3


def test_only_behaviour_of_these_very_ids_is_called_sampled() -> None:
    shown = SHORT.model_copy(update={"recompute_logprobs": True})
    batch = Batch.collate([LONG, shown])
    assert batch.sampled.tolist() == [[False, True, False, True], [False] * 4]


COUNTS = (7, 3, 12, 1)


def qwen2(attention: str) -> Any:
    """Random weights, large enough that what a token sees changes what it predicts."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=16, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.4,
        attn_implementation=attention,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval()


def rows() -> list[TrainRow]:
    made = []
    for name, count in zip("klmn", COUNTS, strict=True):
        mask = tuple(int(place % 4 != 2) for place in range(count))
        made.append(row((1.0, -0.5, 2.0, 0.3)[:1] * count, name=name, mask=mask))
    return made


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padded_logprobs_are_those_of_each_row_alone(attention: str) -> None:
    model, found = qwen2(attention), batch_logprobs(qwen2(attention), Batch.collate(rows()))
    for one, part in zip(rows(), found, strict=True):
        alone = batch_logprobs(model, Batch.collate([one]))[0]
        torch.testing.assert_close(part[: len(alone)], alone, rtol=0, atol=1e-5)


def test_batch_without_a_trained_token_gives_every_weight_a_gradient_of_zero() -> None:
    model = qwen2("sdpa")
    silent = row((1.0, 1.0, 1.0), name="s", mask=(0, 0, 0))
    logprobs = batch_logprobs(model, Batch.collate([silent]))
    clipped_objective(Batch.collate([silent]), logprobs).loss.backward()
    assert logprobs.tolist() == [[0.0] * 4]
    gradients = [weight.grad for weight in model.parameters()]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


# Trained tokens: a: plan, research, research, research; b: plan, answer; c: a lone one.
A = row((1.0, 1.0, 1.0, 1.0), name="a", stages=(0, 1, 1, 1))
B = row((1.0, 9.0, 1.0), name="b", stages=(0, 1, 3), mask=(1, 0, 1))
C = row((1.0,), name="c", objective="reflect")
CONFIGS = {
    "token-mean": ObjectiveConfig(),
    "sequence-mean": ObjectiveConfig(aggregation="sequence-mean"),
}


def trained(values: Tensor, of: TrainRow) -> list[float]:
    assert not values[torch.tensor(of.loss_mask) == 0].any()
    return values[torch.tensor(of.loss_mask) == 1].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("aggregation", "of_a", "of_b"),
    [
        ("token-mean", [1 / 6] * 4, [1 / 6] * 2),
        ("sequence-mean", [1 / 8] * 4, [1 / 4] * 2),
    ],
)
def test_weights_by_hand(aggregation: Aggregation, of_a: list[float], of_b: list[float]) -> None:
    window = window_weights([A, B], CONFIGS[aggregation])
    assert trained(window.weights(A), A) == pytest.approx(of_a)
    assert trained(window.weights(B), B) == pytest.approx(of_b)
    assert window.shares(A).equal(window.weights(A)), "one objective is the whole window"


def test_each_objective_has_its_own_normaliser_and_the_divergence_one_for_all() -> None:
    judged = row((1.0, 1.0), name="d", objective="judge", weight=0.5)
    window = window_weights([A, B, C, judged])
    alone = window_weights([A, B])
    assert trained(window.weights(A), A) == pytest.approx([1 / 6] * 4)
    assert window.weights(A).equal(alone.weights(A)), "whether or not others are trained beside it"
    assert trained(window.weights(C), C) == pytest.approx([1.0])
    assert trained(window.weights(judged), judged) == pytest.approx([0.5 / 2] * 2)
    for one in (A, B, C, judged):
        assert trained(window.shares(one), one) == pytest.approx([1 / 9] * sum(one.loss_mask))


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
    "one by one": lambda rows, window: [Batch.collate([one], window) for one in rows],
    "padded pairs": lambda rows, window: [
        Batch.collate([rows[i], rows[-1 - i]], window) for i in range(4)
    ],
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
    config = CONFIGS[aggregation].model_copy(update={"beta": 0.1})
    rows = mixed()
    window = window_weights(rows, config)
    loss, gradient, metrics = computed([Batch.collate(rows, window)], config)
    parts = CUTS[cut](rows, window)
    assert len(parts) > 2
    loss_cut, gradient_cut, metrics_cut = computed(parts, config)
    torch.testing.assert_close(loss_cut, loss)
    torch.testing.assert_close(gradient_cut, gradient, rtol=1e-4, atol=1e-6)
    assert metrics_cut == pytest.approx(metrics, rel=1e-5, abs=1e-7)
    assert {"policy_loss", "reflect_loss", "judge_loss", "plan_loss", "answer_loss"} <= set(metrics)
