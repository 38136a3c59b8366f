"""The clipped objective token by token; `training.objective` has the equation and the sums.

All tensors are (B, T), aligned as in `Batch`. Positions that are not trained are filled with 0
before any arithmetic, so nothing that stands there (padding, tool output, NaN) reaches the loss or
its gradient.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from training.objective_config import ObjectiveConfig
from training.tensors import Batch

EXPONENT_BOUND = 20.0
"""log-ratios are held within it: exp stays finite, and a token so far off is clipped anyway"""


@dataclass(frozen=True)
class ClippedTerms:
    """What the clipped objective is made of, each (B, T), 0 or 1 where not trained."""

    new: Tensor
    old: Tensor
    behaviour: Tensor
    ratio: Tensor
    importance: Tensor
    policy: Tensor
    """-w * L(r, A)"""
    reference: Tensor | None
    """log-probabilities; None without a reference"""
    divergence: Tensor | None
    """k3, None without a reference"""


def clipped_terms(
    batch: Batch,
    logprobs: Tensor,
    old: Tensor | None,
    reference: Tensor | None,
    config: ObjectiveConfig,
) -> ClippedTerms:
    """The terms at the policy of `logprobs`, the only one with a gradient.

    `old` is of the policy before the window's first update; None: `logprobs` are they.
    """
    new = trained(logprobs, batch.mask)
    before = new.detach() if old is None else trained(old, batch.mask).detach()
    behaviour = torch.where(batch.sampled | batch.across, batch.behaviour, before)
    ratio = bounded_exp(new - (behaviour if config.correction == "bypass" else before))
    importance = _importance(before - behaviour, config)
    start = None if reference is None else trained(reference, batch.mask).detach()
    return ClippedTerms(
        new=new.detach(),
        old=before,
        behaviour=behaviour,
        ratio=ratio,
        importance=importance,
        policy=-importance * _clipped(ratio, batch.advantages, config),
        reference=start,
        divergence=None if start is None else k3(start - new),
    )


def _clipped(ratio: Tensor, advantages: Tensor, config: ObjectiveConfig) -> Tensor:
    """L(r, A) of the module's equation."""
    held = ratio.clamp(1 - config.clip[0], 1 + config.clip[1])
    least = torch.minimum(ratio * advantages, held * advantages)
    if config.dual_clip is None:
        return least
    floor = config.dual_clip * advantages
    return torch.where(advantages < 0, torch.maximum(least, floor), least)


def _importance(gap: Tensor, config: ObjectiveConfig) -> Tensor:
    """W of the module's equation, of log-probabilities that are `gap` apart."""
    weight = bounded_exp(gap)
    match config.importance:
        case "truncate":
            return weight.clamp(max=config.cap)
        case "mask":
            return torch.where(outside_band(weight, config), 0.0, weight)
        case "none":
            return torch.ones_like(weight)


def outside_band(weight: Tensor, config: ObjectiveConfig) -> Tensor:
    """Where an importance weight is one that `mask` turns to 0."""
    return (weight < config.band[0]) | (weight > config.band[1])


def trained(values: Tensor, mask: Tensor) -> Tensor:
    """Values where a token is trained, and 0 elsewhere, whatever stood there."""
    return values.masked_fill(~mask, 0.0)


def bounded_exp(logarithm: Tensor) -> Tensor:
    """Finite, and its gradient too."""
    return logarithm.clamp(-EXPONENT_BOUND, EXPONENT_BOUND).exp()


def k3(away: Tensor) -> Tensor:
    """exp(away) - away - 1, of how far the other log-probability is away (nats).

    An estimate of the divergence; never negative, 0 where they are equal.
    """
    held = away.clamp(-EXPONENT_BOUND, EXPONENT_BOUND)
    return held.exp() - held - 1
