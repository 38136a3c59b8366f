"""The objectives that a step minimises: the clipped policy objective, and imitation.

All tensors are (B, T), aligned as in `Batch`: position t belongs to the token ids[t]. Logarithms
are natural. On trained tokens only, with c the weight and s the share of a token in its window
(`training.objective.batch`), A its advantage and w without a gradient:

    loss = sum of ( -c * w * L(r, A) + beta * s * k3 )
    L(r, A) = min(r * A, clip(r, 1 - low, 1 + high) * A)

- decoupled: r = exp(logprobs - old) is the ratio to the policy before the update, recomputed by
  the trainer (PPO, arXiv:1707.06347, as in GRPO, arXiv:2402.03300), and w = exp(old - behaviour)
  corrects per token for the difference between that policy and the sampler: truncated at 2
  (TIS). For a row sampled under another prompt w is 1;
- bypass: r = exp(logprobs - behaviour), the ratio to the sampler, and w = 1;
- k3 = exp(ref - logprobs) - (ref - logprobs) - 1 estimates the divergence from a reference.

Positions that are not trained are filled with 0 before any arithmetic, so that no value there
(padding, tool output, NaN) reaches the loss or its gradient.

docs/training_numbers.md explains the metrics of a step. They add up over micro-batches and ranks: a
mean is kept as a total and its number of tokens, so that the metrics of a window do not depend on
how it was split.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import add
from typing import Any

import torch
from torch import Tensor

from rubricem.memory.schema import Stage
from rubricem.training.objective.batch import Batch
from rubricem.training.objective.objective_config import LARGEST_IMPORTANCE, ObjectiveConfig
from rubricem.training.rows.row import OBJECTIVES

Signals = Mapping[str, tuple[Tensor, Tensor]]
"""values and the tokens where they count, (B, T) and (B, T) bool, by the name of their metric"""


@dataclass(frozen=True, slots=True)
class LossMetrics:
    """Metrics over the trained tokens of some rows; `+` gives those over both."""

    totals: Mapping[str, float] = field(default_factory=dict)
    tokens: Mapping[str, float] = field(default_factory=dict)
    """for a mean, the number of tokens in its total; a total whose name is missing is a sum"""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """the largest value over all tokens"""

    @classmethod
    def of(cls, means: Signals, sums: Signals, peaks: Signals | None = None) -> "LossMetrics":
        """Those of a batch, but for sums and means over no token; peaks are not negative.

        They are computed on its device, and transferred all at once.
        """
        added, largest = {**sums, **means}, peaks or {}
        held = [_mask_out(v.detach(), where) for v, where in (*added.values(), *largest.values())]
        found = [values.sum() for values in held[: len(added)]]
        found += [where.sum() for _, where in added.values()]
        found += [values.max() for values in held[len(added) :]]
        numbers = torch.stack([one.double() for one in found]).tolist()
        counts = dict(zip(added, numbers[len(added) :], strict=False))
        return cls(
            totals={n: total for n, total in zip(added, numbers, strict=False) if counts[n]},
            tokens={name: counts[name] for name in means if counts[name]},
            peaks=dict(zip(largest, numbers[2 * len(added) :], strict=True)),
        )

    def __add__(self, other: "LossMetrics") -> "LossMetrics":
        def join(part: str, of: Callable[[Any, Any], Any]) -> dict[str, Any]:
            mine, others = getattr(self, part), getattr(other, part)
            shared = {name: of(mine[name], others[name]) for name in mine if name in others}
            return {**mine, **others, **shared}

        return LossMetrics(join("totals", add), join("tokens", add), join("peaks", max))

    def report(self) -> dict[str, float]:
        """Sums, means, and peaks (ending in `_max`); a mean over no token is left out.

        `ess` is the effective sample size of the importance weights w over n tokens, as a share
        of n: (sum of w)^2 / (n * sum of w^2), which is 1 if all are equal (Kish, 1965).
        """
        means = {n: self.totals[n] / count for n, count in self.tokens.items() if count}
        square = means.pop("importance_square", None)
        if square is not None:
            means["ess"] = means["importance"] ** 2 / square if square else 0.0
        sums = {name: total for name, total in self.totals.items() if name not in self.tokens}
        return (
            {"tokens": 0.0}
            | sums
            | means
            | {f"{name}_max": peak for name, peak in self.peaks.items()}
        )


@dataclass(frozen=True)
class ObjectiveResult:
    """The loss of a batch, and its metrics."""

    loss: Tensor
    """a scalar to call backward() on; the losses of a window's batches add up to its loss"""
    metrics: LossMetrics
    """under the names of docs/training_numbers.md"""


def clipped_objective(
    batch: Batch,
    logprobs: Tensor,
    old: Tensor | None = None,
    reference: Tensor | None = None,
    config: ObjectiveConfig | None = None,
) -> ObjectiveResult:
    """The clipped objective of a batch of policy, reflection and judge rows.

    `logprobs`, `old` and `reference` are (B, T); only the first gets a gradient. `old` is of the
    policy before the window's first update, recomputed by the trainer; None in the pass before
    that update, where `logprobs` serve as `old`. `config` must be the one with which the window
    weights of the batch were made; a beta needs a reference.
    """
    settings = config or ObjectiveConfig()
    terms = ClippedTerms.of(batch, logprobs, old, reference, settings)
    loss = (batch.weights * terms.policy).sum()
    if settings.beta and terms.divergence is not None:
        loss = loss + settings.beta * (batch.shares * terms.divergence).sum()
    return ObjectiveResult(loss, _measure_clipped(batch, terms, settings))


def imitation_objective(batch: Batch, logprobs: Tensor) -> ObjectiveResult:
    """The weighted negative log-likelihood (nats) of a batch's trained tokens.

    loss = sum of -c * logprobs; under token-mean, with rows of weight 1, this is the mean over
    the window's tokens. `logprobs` is (B, T).
    """
    surprise = -_mask_out(logprobs, batch.mask)
    loss = (batch.weights * surprise).sum()
    means = {"negative_log_likelihood": (surprise, batch.mask), **_by_stage(batch, surprise)}
    counted = {"tokens": (torch.ones_like(surprise), batch.mask)}
    return ObjectiveResult(loss, LossMetrics.of(means, counted))


EXPONENT_BOUND = 20.0
"""log-ratios are clamped to it: exp stays finite, and tokens beyond it are clipped anyway"""


@dataclass(frozen=True)
class ClippedTerms:
    """The terms of the clipped objective, each (B, T), 0 or 1 at tokens that are not trained."""

    new: Tensor
    old: Tensor
    behaviour: Tensor
    ratio: Tensor
    importance: Tensor
    policy: Tensor
    """-w * L(r, A)"""
    divergence: Tensor | None
    """k3; None without a reference"""

    @classmethod
    def of(
        cls, batch: Batch, logprobs: Tensor, old: Tensor | None, reference: Tensor | None,
        config: ObjectiveConfig,
    ) -> "ClippedTerms":  # fmt: skip
        """The terms under `logprobs`, which alone get a gradient.

        `old` is of the policy before the window's first update; None: `logprobs` serve as `old`.
        """
        new = _mask_out(logprobs, batch.mask)
        before = new.detach() if old is None else _mask_out(old, batch.mask).detach()
        behaviour = torch.where(batch.sampled, batch.behaviour, before)
        ratio = _bounded_exp(new - (behaviour if config.importance == "bypass" else before))
        weight = _bounded_exp(before - behaviour).clamp(max=LARGEST_IMPORTANCE)
        importance = torch.ones_like(weight) if config.importance == "bypass" else weight
        held = ratio.clamp(1 - config.clip[0], 1 + config.clip[1])
        clipped = torch.minimum(ratio * batch.advantages, held * batch.advantages)
        start = None if reference is None else _mask_out(reference, batch.mask).detach()
        return cls(
            new=new.detach(), old=before, behaviour=behaviour, ratio=ratio, importance=importance,
            policy=-importance * clipped, divergence=None if start is None else _k3(start - new),
        )  # fmt: skip


def _mask_out(values: Tensor, mask: Tensor) -> Tensor:
    """Values where the mask is true (for example, at trained tokens), 0 elsewhere."""
    return values.masked_fill(~mask, 0.0)


def _bounded_exp(logarithm: Tensor) -> Tensor:
    """The exponential, clamped so that it and its gradient are finite."""
    return logarithm.clamp(-EXPONENT_BOUND, EXPONENT_BOUND).exp()


def _k3(away: Tensor) -> Tensor:
    """exp(away) - away - 1, with `away` the difference of two log-probabilities (nats).

    An estimate of the divergence; never negative, and 0 if they are equal.
    """
    held = away.clamp(-EXPONENT_BOUND, EXPONENT_BOUND)
    return held.exp() - held - 1


def _measure_clipped(batch: Batch, terms: ClippedTerms, config: ObjectiveConfig) -> LossMetrics:
    """The metrics of a batch: over all trained tokens, by objective, and by stage."""
    mask, gap = batch.mask, (terms.old - batch.behaviour).abs()
    signals = {
        "clipped_low": (terms.ratio < 1 - config.clip[0]) & (batch.advantages < 0),
        "clipped_high": (terms.ratio > 1 + config.clip[1]) & (batch.advantages > 0),
        "kl_old": _k3(terms.old - terms.new),
        "ratio": terms.ratio,
        "surprise": -terms.new,
        "importance": terms.importance,
        "importance_square": terms.importance**2,
        "advantage_size": batch.advantages.abs(),
    }
    if config.importance == "truncate":
        weight = _bounded_exp(terms.old - terms.behaviour)
        signals["importance_truncated"] = weight > LARGEST_IMPORTANCE
    if terms.divergence is not None:
        signals["kl_reference"] = terms.divergence
    means = {
        **{name: (values.float(), mask) for name, values in signals.items()},
        # How far the trainer's log-probabilities are from the sampler's for the same tokens.
        "scaffold_gap": (gap, mask & ~batch.sampled),
        "sampler_gap": (gap, batch.sampled),
        "kl_behaviour": (_k3(terms.behaviour - terms.new), batch.sampled),
        **_by_stage(batch, terms.policy),
    }
    sums = {
        f"{objective}_loss": (batch.weights * terms.policy, batch.objectives == number)
        for number, objective in enumerate(OBJECTIVES)
    }
    sums["tokens"] = (torch.ones_like(terms.new), mask)
    peaks = {"ratio": (terms.ratio, mask), "sampler_gap": (gap, batch.sampled)}
    return LossMetrics.of(means, sums, peaks)


def _by_stage(batch: Batch, loss: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Means over the tokens of each stage, which separate its loss per token from its length."""
    return {
        f"{stage}_loss": (loss, batch.mask & (batch.stages == number))
        for number, stage in enumerate(Stage)
    }
