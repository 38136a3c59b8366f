"""One optimizer step of a model: imitation (SFT) or the stage-wise policy gradient.

The rows of a window go through the model in parts, so that memory is that of one part. The weight
of every token is its share of the whole window, so gradients add up to the window's, however it is
split and over however many ranks.

The old policy of the clipped ratio is the policy before the update, so its log-probabilities are
those of the update's own pass, held constant. The reference is the model as it was when training
began; if a divergence from it is wanted, each part has one more pass, through the reference.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rubricem.memory.errors import PolicyError
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.logprobs import Score, batch_logprobs
from rubricem.training.local.ranks import ALONE, Ranks, put, whole
from rubricem.training.local.weights import Trainable
from rubricem.training.objective.batch import Batch, cut, window_weights
from rubricem.training.objective.objective import (
    LossMetrics,
    ObjectiveResult,
    clipped_objective,
    imitation_objective,
)
from rubricem.training.rows.row import TrainRow

MAX_GRAD_NORM = 1.0
"""a larger gradient is scaled down to this norm"""
Metrics = dict[str, float]
OnRow = Callable[[int, int], None]
"""Called with parts of the window done, and parts in all, of this rank."""
Loss = Callable[[Batch, Tensor, Tensor | None], ObjectiveResult]
"""of a batch, its log-probabilities, and those of the reference if there is one"""


class NotFinite(PolicyError):
    """A window's loss or gradient is not a finite number."""


class Learner:
    """A model in training, and its optimizer."""

    def __init__(
        self, model: Any, weights: Trainable, config: EngineConfig, ranks: Ranks = ALONE,
        score: Score | None = None, most_gap: float = math.inf,
    ) -> None:  # fmt: skip
        """`score`: of sharded weights; they are gathered on the way through it.

        `most_gap`: mean nats a token between sampler and trainer beyond which rows are another
        model's.
        """
        self._most_gap = most_gap
        self.model, self.weights, self.config, self.ranks = model, weights, config, ranks
        self.on_row: OnRow = lambda done, total: None
        self.room: int | None = None
        """tokens of a part, at most, with its padding; None: `micro_batch` rows, or one"""
        self._rows_at_once, self._widest = 1, 0
        self._score = score or partial(batch_logprobs, model)
        self._reference = weights.snapshot() if config.objective.beta else {}
        self.optimizer = torch.optim.AdamW(
            weights.parameters(), lr=0.0, weight_decay=0.0, fused=True
        )

    def sft_step(self, rows: Sequence[TrainRow], rate: float) -> Metrics:
        """One update that makes the rows' trained tokens likelier."""
        return self._step(rows, rows, rate, lambda batch, own, _: imitation_objective(batch, own))

    def ss_grpo_step(self, rows: Sequence[TrainRow], rate: float) -> Metrics:
        """The update of one window of whole groups.

        A row without any advantage, where no divergence is asked for, has no gradient: it is
        counted, and in the window's weights, but not computed.
        """
        objective = self.config.objective
        moving = objective.with_gradient(rows)
        metrics: Metrics = {"loss": 0.0, "tokens": 0.0}
        if moving:
            metrics = self._step(
                rows, moving, rate,
                lambda batch, found, start: clipped_objective(batch, found, None, start, objective),
            )  # fmt: skip
        return metrics | {"rows_without_gradient": float(len(rows) - len(moving))}

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """Begin with trained weights, which become the reference too."""
        self.weights.load(state)
        if self._reference:
            self._reference = self.weights.snapshot()

    def state(self) -> dict[str, Any]:
        """What it needs besides its weights to go on as if it had not stopped.

        The optimizer's moments, whole, so that a run may go on with other ranks than it had, and
        the random generators' states, in the processor's memory.
        """
        optimizer, keep = self.optimizer.state_dict(), self.ranks.first
        moments = {
            number: {name: whole(value, keep) for name, value in state.items()}
            for number, state in optimizer["state"].items()
        }
        random = {"cpu": torch.get_rng_state()}
        if self.ranks.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.ranks.device)
        return {"optimizer": {**optimizer, "state": moments}, "random": random}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave, on these ranks."""
        optimizer, parameters = state["optimizer"], self.weights.parameters()
        moments: dict[int, dict[str, Tensor]] = {}
        for number, held in optimizer["state"].items():
            own = moments[number] = dict(held)
            for name, value in held.items():
                if value.shape == parameters[number].shape:  # the number of steps is a scalar
                    put(moment := torch.zeros_like(parameters[number]), value)
                    own[name] = moment
        self.optimizer.load_state_dict({**optimizer, "state": moments})
        torch.set_rng_state(state["random"]["cpu"])
        if self.ranks.device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"], self.ranks.device)

    def _step(
        self, rows: Sequence[TrainRow], moving: Sequence[TrainRow], rate: float, loss: Loss
    ) -> Metrics:
        """The update of a window; in parts of half as many tokens where the GPU does not hold it.

        `moving`: those of its rows that have a gradient.
        Raises OutOfMemoryError for a single row, and with other ranks, which would wait.
        """
        while True:
            try:
                batches = self._batches(rows, moving)
                references, seconds = self._references(batches)
                return self._update(batches, references, rate, loss) | seconds
            except torch.OutOfMemoryError:
                self.optimizer.zero_grad(set_to_none=True)
                if self._rows_at_once == 1 or self.ranks.world > 1:
                    raise
                self.room = self._widest // 2
            if self.ranks.device.type == "cuda":  # outside of the error, which holds its tensors
                torch.cuda.empty_cache()

    def _batches(self, rows: Sequence[TrainRow], moving: Sequence[TrainRow]) -> list[Batch]:
        """This rank's parts of those rows of a window that have a gradient."""
        window = window_weights(rows, self.config.objective)
        parts = self.ranks.share(cut(moving, self.config.micro_batch, self.room))
        self._rows_at_once = max(map(len, parts))
        self._widest = max(len(part) * max(len(row.ids) for row in part) for part in parts)
        return [Batch.collate(part, window) for part in parts]

    def _references(self, batches: Sequence[Batch]) -> tuple[dict[int, Tensor], Metrics]:
        """By the number of each batch the reference's log-probabilities, if they are needed.

        With them the seconds that they took.
        """
        if not self._reference:
            return {}, {}
        began, device = time.perf_counter(), self.ranks.device
        with torch.no_grad(), self.weights.as_in(self._reference):
            found = {n: self._score(batch.to(device)) for n, batch in enumerate(batches)}
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return found, {"reference_seconds": time.perf_counter() - began}

    def _update(
        self, batches: Sequence[Batch], references: Mapping[int, Tensor], rate: float, loss: Loss
    ) -> Metrics:
        began = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        mine, total, tokens, places = LossMetrics(), 0.0, 0, 0
        for number, batch in enumerate(batches):
            tokens, places = tokens + int(batch.lengths.sum()), places + batch.ids.numel()
            there = batch.to(self.ranks.device)
            one = loss(there, self._score(there), references.get(number))
            one.loss.backward()  # type: ignore[no-untyped-call]
            total += float(one.loss.detach())
            mine += one.metrics
            self.on_row(number + 1, len(batches))
        report = self._together(mine, total, tokens, places)
        parameters = self.weights.parameters()
        self.ranks.sum_gradients(parameters)
        norm = whole(nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM))
        report["grad_norm"] = float(norm)  # before it was clipped
        check_numbers(report, self._most_gap)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.weights.settle()
        seconds = time.perf_counter() - began
        speed = {
            "seconds": seconds,
            "tokens_per_second": report["tokens_read"] / seconds,
            "trained_per_second": report["tokens"] / seconds,
        }
        return report | {"rate": rate} | speed

    def _together(self, metrics: LossMetrics, loss: float, tokens: int, places: int) -> Metrics:
        """The numbers of all ranks; `places`: tokens with padding."""
        found = self.ranks.gather((metrics, loss, tokens, places))
        _, losses, counts, widths = zip(*found, strict=True)
        report = sum((one[0] for one in found), LossMetrics()).report()
        return report | {
            "loss": sum(losses),
            "tokens_read": float(sum(counts)),
            "padding_share": 1 - sum(counts) / sum(widths) if any(widths) else 0.0,
        }


def check_numbers(report: Metrics, most_gap: float) -> None:
    """Raises NotFinite, or PolicyError for rows of another model, by a step's numbers."""
    if not (math.isfinite(report["loss"]) and math.isfinite(report["grad_norm"])):
        raise NotFinite(
            f"the loss is {report['loss']:g} and its gradient's size {report['grad_norm']:g}.",
            "Set a lower learning_rate.",
        )
    gap = report.get("sampler_gap", 0.0)
    if gap > most_gap:
        raise PolicyError(
            f"the rows were not sampled from this model: their log-probabilities differ from its "
            f"own by {gap:.1f} nats a token, as with another model or tokenizer.",
            "Train the model that the rows were collected with; the step is not saved.",
        )
