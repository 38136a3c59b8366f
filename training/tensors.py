"""Rows to tensors: token sequences side by side, padded on the right, or one after the other.

Shapes: B = sequences of the tensor, T = tokens of each. Position t of every tensor belongs to
ids[t], as in `TrainRow`; what predicts ids[t] is the model's output at t - 1. No attention mask
is needed, and none may be given: with causal attention the padding on the right is seen by no
real token, and of rows one after the other (`training.packing`) the position ids, which begin
anew with each row, tell a model that can be packed for where one ends; a mask of ones beside them
mixes the rows silently.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from memory.errors import SettingsError
from training.rows import OBJECTIVES, TrainRow
from training.window_weights import WindowWeights, window_weights


@dataclass(frozen=True)
class Batch:
    """Rows as tensors of shape (B, T); padding is 0 where nothing else is said.

    Padded: B rows, T tokens of the longest. Packed: B = 1, T tokens of all.
    """

    ids: Tensor
    """int64; the given id where padded"""
    mask: Tensor
    """bool; True where a token is trained"""
    advantages: Tensor
    """float32; as in the rows, 0 where not trained"""
    behaviour: Tensor
    """float32; the sampler's log-probabilities (natural log), 0 where not trained"""
    sampled: Tensor
    """bool; True where `behaviour` is of these very ids, False where it is of another prompt"""
    across: Tensor
    """bool; True where it is of another prompt, and the ratio is formed to it all the same"""
    weights: Tensor
    """float32; what a token's clipped or imitation term counts in the window's loss. An engine
    that divides one sum by a window's N trained tokens gets the same from weights * N * advantages
    """
    shares: Tensor
    """float32; what a token's divergence counts in the window's loss"""
    objectives: Tensor
    """int64; the place in `OBJECTIVES`, -1 where not trained"""
    stages: Tensor
    """int64; 0 to 3, -1 for none and where padded"""
    position: Tensor
    """int64; 0, 1, 2 ... along each row, padding included"""
    lengths: Tensor
    """int64, (rows,); the tokens of each row without its padding, in order"""

    @property
    def tokens(self) -> int:
        """How many tokens are trained."""
        return int(self.mask.sum())

    @property
    def padding(self) -> float:
        """The share of the positions that belong to no row, 0 to 1."""
        return 1 - int(self.lengths.sum()) / self.ids.numel()

    def split(self, values: Tensor) -> list[Tensor]:
        """The part of each row, (length,), of values of shape (B, T)."""
        lengths: list[int] = self.lengths.tolist()
        if len(values) == len(lengths):
            return [line[:length] for line, length in zip(values, lengths, strict=True)]
        return list(torch.split(values[0], lengths))

    def to(self, device: torch.device | str) -> "Batch":
        """The same on a device; `lengths` stay where they are."""
        names = (field.name for field in fields(self) if field.name != "lengths")
        return Batch(lengths=self.lengths, **{n: getattr(self, n).to(device) for n in names})


def collate(rows: Sequence[TrainRow], window: WindowWeights | None = None, pad: int = 0) -> Batch:
    """Lay rows side by side; `window` is that of the whole step, None: these rows are all of it.

    Raises SettingsError for no rows, for imitation mixed with ratios, for a row that asks for a
    ratio though its tokens are not those that were sampled, and for a trained token whose
    advantage or log-probability is not finite.
    """
    lines = row_tensors(rows, window)
    width = max(len(row.ids) for row in rows)
    fills = {"ids": pad, "stages": -1, "objectives": -1}
    padded = {name: _padded(parts, width, fills.get(name, 0)) for name, parts in lines.items()}
    return Batch(
        **padded,
        position=torch.arange(width).repeat(len(rows), 1),
        lengths=torch.tensor([len(row.ids) for row in rows]),
    )


def row_tensors(
    rows: Sequence[TrainRow], window: WindowWeights | None = None
) -> dict[str, list[Tensor]]:
    """By the name of a `Batch`'s field, what each row has for it, (len(ids),).

    Of all fields but `position` and `lengths`. Raises SettingsError as `collate` does.
    """
    _check(rows)
    found: dict[str, list[Tensor]] = {}
    weights = window or window_weights(rows)
    for row in rows:
        for name, line in _row_tensors(row, weights).items():
            found.setdefault(name, []).append(line)
    return found


def _row_tensors(row: TrainRow, window: WindowWeights) -> dict[str, Tensor]:
    mask = torch.tensor(row.loss_mask, dtype=torch.bool)
    numbers = {"advantages": row.advantages, "behaviour": row.behaviour_logprobs}
    lines = {
        name: torch.tensor(values, dtype=torch.float32).masked_fill(~mask, 0.0)
        for name, values in numbers.items()
    }
    if not all(line.isfinite().all() for line in lines.values()):
        raise SettingsError(
            f"row {row.id} has an advantage or a log-probability that is not finite.",
            "Leave the row out, and see how its rollout was scored.",
        )
    kind = OBJECTIVES.index(row.objective)
    return lines | {
        "ids": torch.tensor(row.ids, dtype=torch.int64),
        "mask": mask,
        "sampled": mask & torch.tensor(not (row.recompute_logprobs or row.across_prompts)),
        "across": mask & torch.tensor(row.across_prompts),
        "weights": window.weights(row),
        "shares": window.shares(row),
        "objectives": torch.where(mask, kind, -1),
        "stages": torch.tensor(row.stages, dtype=torch.int64),
    }


def _check(rows: Sequence[TrainRow]) -> None:
    if not rows or not any(row.ids for row in rows):
        raise SettingsError(
            "there is no token to train on.", "Export rows from a run with finished rollouts."
        )
    objectives = {row.objective for row in rows}
    if "sft" in objectives and len(objectives) > 1:
        raise SettingsError(
            "one batch mixes sft rows with rows of another objective.",
            "Train on one kind of rows at a time.",
        )
    barred = next((r for r in rows if r.objective != "sft" and not r.ratio_allowed), None)
    if barred is not None:
        raise SettingsError(
            f"the tokens of row {barred.id} are not those that were sampled, so it has no ratio.",
            "Collect with a model that returns token ids, in free decoding, or train by sft.",
        )


def _padded(lines: Sequence[Tensor], width: int, fill: int) -> Tensor:
    """(B, width), of the lines' dtype."""
    padded = torch.full((len(lines), width), fill, dtype=lines[0].dtype)
    for row, line in zip(padded, lines, strict=True):
        row[: len(line)] = line
    return padded
