"""One optimizer step of a model: by imitation (SFT) or by the stage-wise policy gradient.

A window's rows go through the model part by part, packed, padded or one by one, so that memory is
that of one part; every token's weight is its share of the whole window, so gradients add up to
the window's however it is cut, and over however many ranks.

The old policy of the clipped ratio is the one before the window's first update. The first pass
over a window therefore needs no extra forward: its own log-probabilities, held constant, are
the old ones; further passes use those. The reference is the model as the training began; where a
divergence from it or the novelty is asked for, a window has one more pass, of the reference.

A row of 2,000 tokens over a vocabulary of 152,000 would hold 1.2 GB of float32 logits, and as much
again for their gradient. Logits are made for trained positions only, in pieces, and made anew for
each piece on the way back.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rubricem.memory.errors import PolicyError
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.ranks import ALONE, Ranks, put, whole
from rubricem.training.local.weights import Trainable
from rubricem.training.objective.batch import Batch, collate, cut, pack, window_weights
from rubricem.training.objective.objective import (
    LossMetrics,
    ObjectiveResult,
    clipped_objective,
    imitation_objective,
    token_logprobs,
)
from rubricem.training.rows.row import TrainRow

PIECE = 128
"""positions whose logits exist at the same time"""


def batch_logprobs(model: Any, batch: Batch) -> Tensor:
    """(B, T) float32: the log-probability (nats) of each trained token, 0 elsewhere.

    `model` is a causal language model of transformers whose logits are those of its output layer as
    they are (nothing capped or scaled); `batch` is padded or, for a model that keeps packed rows
    apart, packed, on the model's device. No attention mask is passed: what a packed row may see is
    told from where the position ids begin anew. A batch without a trained token is computed too,
    and gives every weight a gradient of 0, for the ranks that have no row of their own.
    """
    # What stands after the last trained token is never looked at by one before it.
    trained = batch.mask.any(dim=0).nonzero()
    width = int(trained.max()) + 1 if len(trained) else batch.mask.shape[1]
    hidden = model.base_model(
        input_ids=batch.ids[:, : width - 1],
        position_ids=batch.position[:, : width - 1],
        use_cache=False,
    ).last_hidden_state
    wanted = batch.mask[:, 1:width]
    chosen = _logprobs(hidden[wanted], model.get_output_embeddings(), batch.ids[:, 1:width][wanted])
    result = chosen.new_zeros(batch.mask.shape)
    return result.masked_scatter(batch.mask, chosen)


def _logprobs(hidden: Tensor, output: nn.Module, ids: Tensor) -> Tensor:
    """(N,) from (N, hidden) states, the output layer and the (N,) ids that they predict."""

    def of_piece(hidden: Tensor, ids: Tensor) -> Tensor:
        return token_logprobs(output(hidden).float(), ids)

    parts = []
    for start in range(0, max(len(ids), 1), PIECE):
        piece = slice(start, start + PIECE)
        parts.append(checkpoint(of_piece, hidden[piece], ids[piece], use_reentrant=False))
    return torch.cat(parts)


Metrics = dict[str, float]
OnRow = Callable[[int, int], None]
"""Called with parts of the window done, and parts in all, of this rank."""
Score = Callable[[Batch], Tensor]
"""From a batch to the (B, T) log-probabilities of its trained tokens."""


class NotFinite(PolicyError):
    """A window's loss or gradient is not a finite number."""


class Learner:
    """A model in training, and its optimizer."""

    def __init__(
        self,
        model: Any,
        weights: Trainable,
        config: EngineConfig,
        ranks: Ranks = ALONE,
        score: Score | None = None,
        most_gap: float = math.inf,
    ) -> None:
        """`score`: of sharded weights; they are gathered on the way through it.

        `most_gap`: mean nats a token between sampler and trainer beyond which rows are another
        model's.
        """
        self._most_gap = most_gap
        self.model, self.weights, self.config, self.ranks = model, weights, config, ranks
        self.on_row: OnRow = lambda done, total: None
        self.updates = 0
        """made of the newest window, which has `passes` when it is done"""
        self._score = score or (lambda batch: batch_logprobs(model, batch))
        self._reference = weights.held() if config.objective.beta or config.novelty else {}
        self.optimizer = torch.optim.AdamW(
            weights.parameters(), lr=0.0, weight_decay=config.weight_decay, fused=True
        )

    def sft_step(self, rows: Sequence[TrainRow], rate: float) -> Metrics:
        """One update that makes the rows' trained tokens likelier."""
        batches, self.updates = self._batches(rows, rows), 0

        def result(number: int, batch: Batch) -> ObjectiveResult:
            return imitation_objective(batch, self._score(batch))

        return self._update(batches, rate, result)

    def ss_grpo_step(self, rows: Sequence[TrainRow], rate: float) -> Metrics:
        """The updates of one window of whole groups; metrics of its last pass.

        A row without any advantage, where no divergence is asked for, has no gradient: it is
        counted, and in the window's weights, but not computed.
        """
        objective, self.updates = self.config.objective, 0
        moving = objective.with_gradient(rows)
        batches = self._batches(rows, moving)
        references, seconds = self._references(batches)
        old: dict[int, Tensor] = {}

        def result(number: int, batch: Batch) -> ObjectiveResult:
            logprobs = self._score(batch)
            before = old.setdefault(number, logprobs.detach())
            return clipped_objective(batch, logprobs, before, references.get(number), objective)

        metrics: Metrics = {"loss": 0.0, "tokens": 0.0}
        for _ in range(self.config.passes if moving else 0):
            metrics = self._update(batches, rate, result)
        return metrics | seconds | {"rows_without_gradient": float(len(rows) - len(moving))}

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """Begin with trained weights, which become the reference too."""
        self.weights.load(state)
        if self._reference:
            self._reference = self.weights.held()

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

        def divided(parameter: Tensor, value: Tensor) -> Tensor:
            """A moment, as its parameter is; the number of steps is a scalar and stays."""
            if value.shape == parameter.shape:
                put(moment := torch.zeros_like(parameter), value)
                return moment
            return value

        moments = {
            number: {name: divided(parameters[number], value) for name, value in held.items()}
            for number, held in optimizer["state"].items()
        }
        self.optimizer.load_state_dict({**optimizer, "state": moments})
        torch.set_rng_state(state["random"]["cpu"])
        if self.ranks.device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"], self.ranks.device)

    def _batches(self, rows: Sequence[TrainRow], moving: Sequence[TrainRow]) -> list[Batch]:
        """This rank's parts of those rows of a window that have a gradient."""
        window = window_weights(rows, self.config.objective)
        lay = pack if self.config.pack_tokens else collate
        parts = cut(moving, self.config.pack_tokens, self.config.micro_batch)
        return [lay(part, window) for part in self.ranks.share(parts)]

    def _references(self, batches: Sequence[Batch]) -> tuple[dict[int, Tensor], Metrics]:
        """By the number of each batch, the reference's log-probabilities, where they are needed.

        With them the seconds that they took.
        """
        if not (self._reference and batches):
            return {}, {}
        began, device = time.perf_counter(), self.ranks.device
        with torch.no_grad(), self.weights.as_in(self._reference):
            found = {n: self._score(batch.to(device)) for n, batch in enumerate(batches)}
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return found, {"reference_seconds": time.perf_counter() - began}

    def _update(
        self,
        batches: Sequence[Batch],
        rate: float,
        result: Callable[[int, Batch], ObjectiveResult],
    ) -> Metrics:
        began = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        mine, loss = LossMetrics(), 0.0
        for number, batch in enumerate(batches):
            one = result(number, batch.to(self.ranks.device))
            one.loss.backward()  # type: ignore[no-untyped-call]
            loss += float(one.loss.detach())
            mine += one.metrics
            self.on_row(number + 1, len(batches))
        read = sum(int(batch.lengths.sum()) for batch in batches)
        places = sum(batch.ids.numel() for batch in batches)
        report = self._together(mine, loss, read, places)
        parameters = self.weights.parameters()
        self.ranks.sum_gradients(parameters)
        norm = whole(nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm))
        report["grad_norm"] = float(norm)  # before it was clipped
        check_numbers(report, self._most_gap)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.weights.settle()
        self.updates += 1
        seconds = time.perf_counter() - began
        speed = {
            "seconds": seconds,
            "tokens_per_second": report["tokens_read"] / seconds,
            "trained_per_second": report["tokens"] / seconds,
        }
        return report | {"rate": rate} | speed

    def _together(self, metrics: LossMetrics, loss: float, read: int, places: int) -> Metrics:
        """The numbers of all ranks; `places` are the tokens read with their padding."""
        found = self.ranks.gather((metrics, loss, read, places))
        report = sum((one[0] for one in found), LossMetrics()).report()
        tokens, held = float(sum(one[2] for one in found)), sum(one[3] for one in found)
        return report | {
            "loss": sum(one[1] for one in found),
            "tokens_read": tokens,
            "padding_share": 1 - tokens / held if held else 0.0,
        }


def check_numbers(report: Metrics, most_gap: float) -> None:
    """Raises NotFinite, or PolicyError for rows of another model, by a step's numbers."""
    if not (math.isfinite(report["loss"]) and math.isfinite(report["grad_norm"])):
        raise NotFinite(
            f"the loss is {report['loss']:g} and its gradient's size {report['grad_norm']:g}.",
            "Set a lower learning_rate or max_grad_norm.",
        )
    gap = report.get("sampler_gap", 0.0)
    if gap > most_gap:
        raise PolicyError(
            f"the rows were not sampled from this model: their log-probabilities differ from its "
            f"own by {gap:.1f} nats a token, as with another model or tokenizer.",
            "Train the model that the rows were collected with; the step is not saved.",
        )
