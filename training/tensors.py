"""Rows to tensors: a few token sequences side by side, padded on the right.

Shapes: B = rows, T = the longest row's tokens. Position t of every tensor belongs to ids[t], as
in `TrainRow`; what predicts ids[t] is the model's output at t - 1. With causal attention the
padding on the right is seen by no real token, so no attention mask is needed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memory.errors import SettingsError
from training.rows import Objective, TrainRow


@dataclass(frozen=True)
class Batch:
    """Rows as tensors of shape (B, T); padding is 0 in all but `ids` and `stages`."""

    ids: Tensor
    """int64; the given id where padded"""
    mask: Tensor
    """bool; True where a token is trained"""
    advantages: Tensor
    """float32; times the row's weight and its objective's scale, 0 where not trained"""
    behaviour: Tensor
    """float32; the sampler's log-probabilities, 0 where not trained"""
    stages: Tensor
    """int64; 0 to 3, -1 for none and where padded"""
    position: Tensor
    """int64; 0, 1, 2 ... along each row, padding included"""
    lengths: Tensor
    """int64, (B,); the tokens of each row before its padding"""

    @property
    def tokens(self) -> int:
        """How many tokens are trained."""
        return int(self.mask.sum())


def trained_tokens(rows: Sequence[TrainRow]) -> int:
    """The trained tokens of rows: the normaliser when they are one accumulation window."""
    return sum(sum(row.loss_mask) for row in rows)


def objective_scales(
    rows: Sequence[TrainRow], weights: Mapping[Objective, float] | None = None
) -> dict[Objective, float]:
    """By what to multiply each objective's advantages so that it is a token-mean of its own.

    The window's loss is one sum over N tokens divided by N. An objective with N_o of them and the
    weight w_o counts as w_o times its own mean when its advantages are scaled by w_o * N / N_o: the
    clipped objective is linear in the advantage's size. Divergence terms are not scaled by it.
    An objective without a weight has 1; one without a trained token is left out.
    """
    tokens: Counter[Objective] = Counter()
    for row in rows:
        tokens[row.objective] += sum(row.loss_mask)
    total = tokens.total()
    asked = weights or {}
    return {name: asked.get(name, 1.0) * total / n for name, n in tokens.items() if n}


def collate(
    rows: Sequence[TrainRow], pad: int = 0, scales: Mapping[Objective, float] | None = None
) -> Batch:
    """Lay rows side by side; `scales` as from `objective_scales`, 1 where it names none.

    Raises SettingsError for no rows, for imitation mixed with ratios, and for a row that asks
    for a ratio though its tokens are not those that were sampled.
    """
    _check(rows)
    width = max(len(row.ids) for row in rows)
    factors = [row.weight * (scales or {}).get(row.objective, 1.0) for row in rows]
    mask = _padded([row.loss_mask for row in rows], width, 0).bool()
    advantages = _padded([row.advantages for row in rows], width, 0.0)
    scaled = advantages * torch.tensor(factors, dtype=torch.float32).unsqueeze(1)
    behaviour = _padded([row.behaviour_logprobs for row in rows], width, 0.0)
    return Batch(
        ids=_padded([row.ids for row in rows], width, pad),
        mask=mask,
        advantages=scaled.masked_fill(~mask, 0.0),
        behaviour=behaviour.masked_fill(~mask, 0.0),
        stages=_padded([row.stages for row in rows], width, -1),
        position=torch.arange(width).repeat(len(rows), 1),
        lengths=torch.tensor([len(row.ids) for row in rows]),
    )


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


def _padded(
    lists: Sequence[tuple[int, ...]] | Sequence[tuple[float, ...]], width: int, fill: float
) -> Tensor:
    """(B, width); int64 for an int `fill`, float32 for a float."""
    dtype = torch.int64 if isinstance(fill, int) else torch.float32
    padded = torch.full((len(lists), width), fill, dtype=dtype)
    for line, values in zip(padded, lists, strict=True):
        line[: len(values)] = torch.tensor(values, dtype=dtype)
    return padded
