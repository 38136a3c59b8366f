"""What a step makes small: the clipped policy objective, and imitation.

All tensors are (B, T) and aligned as in `TrainRow`: position t belongs to the token ids[t].
With r = exp(logprobs - old), w = min(exp(old - behaviour), cap), on trained tokens only:

    loss = sum of ( -w * min(r * A, clip(r) * A) + beta * k3 ) / normaliser

- the ratio is to the policy as it was before the update, recomputed by the trainer (PPO,
  arXiv:1707.06347, as in GRPO, arXiv:2402.03300);
- w corrects what separates that policy from the sampler: token by token, truncated, constant;
- k3 = exp(ref - logprobs) - (ref - logprobs) - 1 estimates the divergence from a reference.

Positions that are not trained are filled with 0 before any arithmetic, so nothing that stands
there (padding, tool output, NaN) reaches the loss or its gradient.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EXPONENT_BOUND = 20.0
"""log-ratios are held within it: exp stays finite, and a token so far off is clipped anyway"""


@dataclass(frozen=True)
class ObjectiveResult:
    """The loss of some rows, and what it was made of."""

    loss: Tensor
    """a scalar to call backward() on; sums over the rows of a window to the window's loss"""
    metrics: dict[str, float]
    """means over these rows' trained tokens, maxima where the name ends in `_max`, and `tokens`"""


def token_logprobs(logits: Tensor, ids: Tensor, rows: int = 256) -> Tensor:
    """The log-probability of each id under the logits that predict it, float32.

    `logits` is (..., V) and `ids` (...): they are aligned already, so for a whole sequence pass
    logits[:, :-1] and ids[:, 1:]. Works through `rows` positions at a time and keeps, of
    float32 logits that lie in one piece, no second copy for the backward pass.
    """
    flat, wanted = logits.reshape(-1, logits.shape[-1]), ids.reshape(-1, 1)
    parts = []
    for start in range(0, len(flat), rows):
        part, index = flat[start : start + rows], wanted[start : start + rows]
        chosen = part.gather(1, index).squeeze(1).float()
        parts.append(chosen - torch.logsumexp(part.float(), dim=1))
    return torch.cat(parts).reshape(ids.shape) if parts else ids.new_zeros(ids.shape).float()


def clipped_objective(
    logprobs: Tensor,
    old_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    normaliser: float,
    clip: tuple[float, float] = (0.2, 0.2),
    truncation: float = 2.0,
    ref_logprobs: Tensor | None = None,
    beta: float = 0.0,
) -> ObjectiveResult:
    """The clipped objective of some rows; only `logprobs` gets a gradient.

    `mask` is bool. `normaliser` is the trained tokens of the whole accumulation window, so that
    the rows may be split in any way. `clip` is how far the ratio may fall and rise. `beta`
    needs `ref_logprobs`. Raises ValueError for a normaliser that is not positive, or no reference.
    """
    if beta and ref_logprobs is None:
        raise ValueError("beta needs the log-probabilities of the reference")
    new = _trained(logprobs, mask)
    old = _trained(old_logprobs, mask).detach()
    gap = old - _trained(behaviour_logprobs, mask).detach()
    kept = _trained(advantages, mask).detach()
    ratio = _exp(new - old)
    weight = _exp(gap).clamp(max=truncation)
    low, high = 1 - clip[0], 1 + clip[1]
    policy = -weight * torch.minimum(ratio * kept, ratio.clamp(low, high) * kept)
    away = _trained(ref_logprobs, mask).detach() - new if ref_logprobs is not None else None
    divergence = torch.zeros_like(policy) if away is None else _k3(away)
    loss = _sum(policy + beta * divergence, mask, normaliser)
    values = {
        "policy_loss": policy,
        "kl_reference": divergence,
        "kl_old": _k3(old - new),
        "clipped_low": ((ratio < low) & (kept < 0)).float(),
        "clipped_high": ((ratio > high) & (kept > 0)).float(),
        "ratio": ratio,
        "importance": weight,
        "importance_truncated": (_exp(gap) > truncation).float(),
        "sampler_gap": gap.abs(),
        "advantage_size": kept.abs(),
    }
    return ObjectiveResult(loss, _metrics(values, mask, ("ratio", "sampler_gap")))


def imitation_objective(
    logprobs: Tensor, mask: Tensor, *, normaliser: float, weights: Tensor | None = None
) -> ObjectiveResult:
    """Mean negative log-likelihood of the trained tokens (nats), each times its weight if given.

    Raises ValueError for a normaliser that is not positive.
    """
    surprise = -_trained(logprobs, mask)
    weighted = surprise if weights is None else surprise * _trained(weights, mask).detach()
    loss = _sum(weighted, mask, normaliser)
    return ObjectiveResult(loss, _metrics({"negative_log_likelihood": surprise}, mask, ()))


def merged_metrics(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of a window from those of its parts: means by tokens, maxima, and the count."""
    tokens = sum(part["tokens"] for part in parts)
    merged = {"tokens": tokens}
    for name in parts[0]:
        if name.endswith("_max"):
            merged[name] = max(part[name] for part in parts)
        elif name != "tokens":
            merged[name] = sum(part[name] * part["tokens"] for part in parts) / max(tokens, 1)
    return merged


def _trained(values: Tensor, mask: Tensor) -> Tensor:
    """Values where a token is trained, and 0 elsewhere, whatever stood there."""
    return values.masked_fill(~mask, 0.0)


def _exp(logarithm: Tensor) -> Tensor:
    return logarithm.clamp(-EXPONENT_BOUND, EXPONENT_BOUND).exp()


def _k3(away: Tensor) -> Tensor:
    """Of how far the other log-probability is away; never negative, 0 where they are equal."""
    held = away.clamp(-EXPONENT_BOUND, EXPONENT_BOUND)
    return held.exp() - held - 1


def _sum(values: Tensor, mask: Tensor, normaliser: float) -> Tensor:
    if normaliser <= 0:
        raise ValueError(f"the loss is divided by the trained tokens; got {normaliser}")
    return _trained(values, mask).sum() / normaliser


def _metrics(
    values: Mapping[str, Tensor], mask: Tensor, peaks: tuple[str, ...]
) -> dict[str, float]:
    tokens = float(mask.sum())
    metrics = {"tokens": tokens}
    for name, tensor in values.items():
        metrics[name] = float(_trained(tensor.detach(), mask).sum()) / max(tokens, 1.0)
    for name in peaks:
        metrics[f"{name}_max"] = float(_trained(values[name].detach(), mask).max())
    return metrics
