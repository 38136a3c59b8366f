"""Rows to tensors: token sequences side by side, padded on the right.

Shapes: B = sequences of the tensor, T = tokens of each. Position t of every tensor belongs to
ids[t], as in `TrainRow`; ids[t] is predicted by the model's output at t - 1. No attention mask is
needed, and none may be given: with causal attention no real token sees the padding on the right.

The weight of each token in a window's loss is known before the window is cut into batches. A window
is all the rows of one optimizer step, over all micro-batches and ranks. With o an objective, W a
row's own weight, and `size` the divisor of the aggregation,

    token-mean     size = N_o             trained tokens of o
    sequence-mean  size = M_o * n         rows of o with a trained token, trained tokens of this one

    weight of a token = W / size                  for the clipped term, and for imitation
    share of a token  = 1 / size over all objectives together    for the divergence

so that the loss is a plain sum over tokens, and does not depend on how a window is cut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rubricem.memory.errors import SettingsError
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.rows.row import OBJECTIVES, Objective, TrainRow


class Sizes(NamedTuple):
    """The sizes of a window, or of one of its objectives."""

    rows: int
    """with a trained token"""
    tokens: int
    """that are trained"""


@dataclass(frozen=True, slots=True)
class WindowWeights:
    """The sizes of a window, and the weights of its tokens by them."""

    config: ObjectiveConfig
    objectives: Mapping[Objective, Sizes]
    whole: Sizes

    def weights(self, row: TrainRow) -> Tensor:
        """(len(ids),) float32, 0 where not trained; those of a window's objective sum to 1."""
        return row.weight * self._mean(row, self.objectives[row.objective])

    def shares(self, row: TrainRow) -> Tensor:
        """(len(ids),) float32, 0 where not trained; a window's sum to 1."""
        return self._mean(row, self.whole)

    def _mean(self, row: TrainRow, sizes: Sizes) -> Tensor:
        mask = torch.tensor(row.loss_mask, dtype=torch.float32)
        own = sum(row.loss_mask)
        by_row = self.config.aggregation == "sequence-mean"
        return mask / (sizes.rows * own if by_row else sizes.tokens) if own else mask


def window_weights(
    rows: Sequence[TrainRow], config: ObjectiveConfig | None = None
) -> WindowWeights:
    """The weights of a window's tokens; `rows` are all of the window, on all ranks.

    Raises SettingsError for `bypass` with a row that needs the ratio to the policy before the
    update.
    """
    settings = config or ObjectiveConfig()
    unsuited = next((row for row in rows if row.recompute_logprobs), None)
    if settings.importance == "bypass" and unsuited is not None:
        raise SettingsError(
            f"bypass forms the ratio to what the sampler computed, and row {unsuited.id} was "
            "sampled under another prompt.",
            "Set importance to truncate.",
        )
    kinds = {row.objective for row in rows}
    parts = {kind: _sizes([row for row in rows if row.objective == kind]) for kind in kinds}
    return WindowWeights(settings, parts, _sizes(rows))


def _sizes(rows: Sequence[TrainRow]) -> Sizes:
    counts = [sum(row.loss_mask) for row in rows]
    return Sizes(sum(map(bool, counts)), sum(counts))


@dataclass(frozen=True)
class Batch:
    """Rows as tensors of shape (B, T), T tokens of the longest; padding is 0 unless stated."""

    ids: Tensor
    """int64"""
    mask: Tensor
    """bool; True where a token is trained"""
    advantages: Tensor
    """float32; as in the rows, 0 where not trained"""
    behaviour: Tensor
    """float32; the sampler's log-probabilities (natural log), 0 where not trained"""
    sampled: Tensor
    """bool; True where `behaviour` is of these very ids, False where it is of another prompt"""
    weights: Tensor
    """float32; the weight of a token's clipped or imitation term in the window's loss"""
    shares: Tensor
    """float32; the weight of a token's divergence in the window's loss"""
    objectives: Tensor
    """int64; the index in `OBJECTIVES`, -1 where not trained"""
    stages: Tensor
    """int64; 0 to 3, -1 for none and where padded"""
    lengths: Tensor
    """int64, (rows,); the tokens of each row without its padding, in order"""

    @property
    def tokens(self) -> int:
        """The number of trained tokens."""
        return int(self.mask.sum())

    def to(self, device: torch.device | str) -> "Batch":
        """The same on a device; `lengths` stay where they are."""
        names = (field.name for field in fields(self) if field.name != "lengths")
        return Batch(lengths=self.lengths, **{n: getattr(self, n).to(device) for n in names})

    @classmethod
    def collate(cls, rows: Sequence[TrainRow], window: WindowWeights | None = None) -> "Batch":
        """Lay rows side by side that may be trained on (`rows.credit.trainable`).

        `window`: of the whole step; None: these are all of it.
        """
        weights = window or window_weights(rows)
        lines = [_row_tensors(row, weights) for row in rows]
        fill = {"stages": -1, "objectives": -1}
        padded = {
            name: pad_sequence([line[name] for line in lines], True, fill.get(name, 0))
            for name in lines[0]
        }
        return cls(**padded, lengths=torch.tensor([len(row.ids) for row in rows]))


Part = list[TrainRow]
"""rows that go through the model at once"""


def cut(rows: Sequence[TrainRow], micro_batch: int | None, room: int | None = None) -> list[Part]:
    """The parts of a window, of so many rows of similar length at most.

    `room`: tokens of a part with its padding, which a single row may exceed; without either, each
    row is a part.
    """
    if micro_batch == 1 or micro_batch is room is None:
        return [[row] for row in rows]
    parts: list[Part] = []
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        last = parts[-1] if parts else []
        wider = (len(last) + 1) * len(last[0].ids) if last else 0
        full = len(last) == micro_batch or (room is not None and wider > room)
        if not last or full:
            parts.append([row])
        else:
            last.append(row)
    return parts


def _row_tensors(row: TrainRow, window: WindowWeights) -> dict[str, Tensor]:
    mask = torch.tensor(row.loss_mask, dtype=torch.bool)
    numbers = {"advantages": row.advantages, "behaviour": row.behaviour_logprobs}
    lines = {
        name: torch.tensor(values, dtype=torch.float32).masked_fill(~mask, 0.0)
        for name, values in numbers.items()
    }
    kind = OBJECTIVES.index(row.objective)
    return lines | {
        "ids": torch.tensor(row.ids, dtype=torch.int64),
        "mask": mask,
        "sampled": mask & torch.tensor(not row.recompute_logprobs),
        "weights": window.weights(row),
        "shares": window.shares(row),
        "objectives": torch.where(mask, kind, -1),
        "stages": torch.tensor(row.stages, dtype=torch.int64),
    }
