"""One optimizer step on a LoRA adapter: by imitation (SFT) or by the stage-wise policy gradient.

Rows go through the model one by one, so that nothing is padded and memory is that of one row;
gradients add up over the window, and every row's loss is divided by the trained tokens of the
whole window, so that how a window is cut changes nothing.

The old policy of the clipped ratio is the one before the window's first update. The first pass
over a window therefore needs no extra forward: its own log-probabilities, held constant, are
the old ones; further passes use those. The reference of the divergence is the adapter as the
training began, which is the base model where it began with none.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from training.local.logprobs import batch_logprobs
from training.local.lora import Adapter
from training.loss_metrics import LossMetrics
from training.objective import ObjectiveResult, clipped_objective, imitation_objective
from training.objective_config import ObjectiveConfig
from training.rows import TrainRow
from training.tensors import Batch, collate
from training.window_weights import window_weights

Metrics = dict[str, float]
OnRow = Callable[[int, int], None]
"""Called with rows done and rows in all."""


@dataclass(frozen=True, slots=True)
class StepConfig:
    """How one window becomes one update, or `passes` of them."""

    clip: tuple[float, float] = (0.2, 0.2)
    truncation: float = 2.0
    beta: float = 0.0
    passes: int = 1
    """updates made of one window"""
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    reflection_weight: float = 1.0
    """of the reflection rows' own token-mean beside the stage rows'"""


def unseen(done: int, total: int) -> None:
    """The `OnRow` of a caller that shows none."""


class Learner:
    """A model with an adapter in training, and its optimizer."""

    def __init__(
        self, model: Any, adapter: Adapter, config: StepConfig, on_row: OnRow = unseen
    ) -> None:
        self.model = model
        self.adapter = adapter
        self.config = config
        self.on_row = on_row
        self.reference = adapter.state()
        self.optimizer = torch.optim.AdamW(
            adapter.parameters(), lr=0.0, weight_decay=config.weight_decay
        )

    def sft_step(self, rows: Sequence[TrainRow], rate: float) -> Metrics:
        """One update that makes the rows' trained tokens likelier."""
        weights = window_weights(rows)

        def result(row: TrainRow) -> ObjectiveResult:
            batch = collate([row], weights)
            return imitation_objective(batch, batch_logprobs(self.model, batch))

        return self._update(rows, rate, result)

    def ss_grpo_step(self, rows: Sequence[TrainRow], rate: float) -> Metrics:
        """The updates of one window of whole groups; metrics of its last pass.

        A row without any advantage, where no divergence is asked for, has no gradient: it is
        counted, and in the normaliser, but not computed.
        """
        config = self.config
        objective = ObjectiveConfig(
            clip=config.clip,
            cap=config.truncation,
            beta=config.beta,
            reflect_weight=config.reflection_weight,
        )
        weights = window_weights(rows, objective)
        batches = {row.id: collate([row], weights) for row in rows}
        moving = [r for r in rows if config.beta or batches[r.id].advantages.any()]
        old: dict[str, Tensor] = {}
        reference = {row.id: self._reference(batches[row.id]) for row in moving}

        def result(row: TrainRow) -> ObjectiveResult:
            batch = batches[row.id]
            logprobs = batch_logprobs(self.model, batch)
            before = old.setdefault(row.id, logprobs.detach())
            return clipped_objective(batch, logprobs, before, reference[row.id], objective)

        metrics: Metrics = {"loss": 0.0, "tokens": 0.0}
        for _ in range(config.passes if moving else 0):
            metrics = self._update(moving, rate, result)
        return metrics | {
            "rows": float(len(rows)),
            "rows_without_gradient": len(rows) - len(moving),
        }

    def start_from(self, adapter: dict[str, Tensor]) -> None:
        """Begin with a trained adapter, which becomes the reference too."""
        self.adapter.load(adapter)
        self.reference = self.adapter.state()

    def _reference(self, batch: Batch) -> Tensor | None:
        if not self.config.beta:
            return None
        with torch.no_grad(), self.adapter.as_in(self.reference):
            return batch_logprobs(self.model, batch)

    def _update(
        self, rows: Sequence[TrainRow], rate: float, result: Callable[[TrainRow], ObjectiveResult]
    ) -> Metrics:
        began = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        parts, loss = LossMetrics(), 0.0
        for done, row in enumerate(rows, start=1):
            one = result(row)
            one.loss.backward()  # type: ignore[no-untyped-call]
            loss += float(one.loss.detach())
            parts += one.metrics
            self.on_row(done, len(rows))
        norm = torch.nn.utils.clip_grad_norm_(
            self.adapter.parameters(), self.config.max_grad_norm, error_if_nonfinite=True
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        seconds = time.perf_counter() - began
        read = sum(len(row.ids) for row in rows)
        speed = {
            "seconds": seconds,
            "tokens_read": float(read),
            "tokens_per_second": read / seconds,
        }
        return parts.report() | {"loss": loss, "grad_norm": float(norm), "rate": rate} | speed
