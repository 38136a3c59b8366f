"""What a step makes small: the clipped policy objective, and imitation.

All tensors are (B, T), aligned as in `Batch`: position t belongs to the token ids[t]. Logarithms
are natural. On trained tokens only, with c the weight and s the share of a token in its window
(`training.window_weights`), A its advantage and w without a gradient:

    loss = sum of ( -c * w * L(r, A) + beta * s * k3 )
    L(r, A) = min(r * A, clip(r, 1 - low, 1 + high) * A),  and with dual clip d, where A < 0,
              max of that and d * A

- decoupled: r = exp(logprobs - old), the ratio to the policy before the update as the trainer
  recomputed it (PPO, arXiv:1707.06347, as in GRPO, arXiv:2402.03300), and w = exp(old - behaviour)
  corrects what separates that policy from the sampler, token by token: truncated at `cap` (TIS),
  or 0 outside `band` (IcePop). Of a row sampled under another prompt w is 1;
- bypass: r = exp(logprobs - behaviour), the ratio to the sampler, and w = 1;
- k3 = exp(ref - logprobs) - (ref - logprobs) - 1 estimates the divergence from a reference.

Positions that are not trained are filled with 0 before any arithmetic, so nothing that stands
there (padding, tool output, NaN) reaches the loss or its gradient.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from memory.errors import SettingsError
from memory.schema import Stage
from training.loss_metrics import Ledger, LossMetrics
from training.objective_config import ObjectiveConfig
from training.rows import OBJECTIVES
from training.tensors import Batch

EXPONENT_BOUND = 20.0
"""log-ratios are held within it: exp stays finite, and a token so far off is clipped anyway"""


@dataclass(frozen=True)
class ObjectiveResult:
    """The loss of a batch, and what it was made of."""

    loss: Tensor
    """a scalar to call backward() on; those of a window's batches add up to the window's loss"""
    metrics: LossMetrics


@dataclass(frozen=True)
class _Terms:
    """What the clipped objective is made of, each (B, T), 0 or 1 where not trained."""

    new: Tensor
    old: Tensor
    behaviour: Tensor
    ratio: Tensor
    importance: Tensor
    policy: Tensor
    """-w * L(r, A)"""
    divergence: Tensor | None
    """k3, None without a reference"""


def token_logprobs(logits: Tensor, ids: Tensor, rows: int = 256) -> Tensor:
    """The log-probability of each id under the logits that predict it, float32.

    `logits` is (..., V) and `ids` (...): they are aligned already, so for a whole sequence pass
    logits[:, :-1] and ids[:, 1:]. Works through `rows` positions at a time and keeps, of
    float32 logits that lie in one piece, no second copy for the backward pass. Of no position
    the result is empty and still hangs on the logits.
    """
    flat, wanted = logits.reshape(-1, logits.shape[-1]), ids.reshape(-1, 1)
    parts = []
    for start in range(0, max(len(flat), 1), rows):
        part, index = flat[start : start + rows], wanted[start : start + rows]
        chosen = part.gather(1, index).squeeze(1).float()
        parts.append(chosen - torch.logsumexp(part.float(), dim=1))
    return torch.cat(parts).reshape(ids.shape)


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
    that update, when `logprobs` are they. What the window weights of the batch were made with is
    the configuration to give. Raises SettingsError for a beta without a reference.
    """
    settings = config or ObjectiveConfig()
    if settings.beta and reference is None:
        raise SettingsError(
            "beta is set and there is no reference to diverge from.",
            "Give the log-probabilities of the reference, or set beta to 0.",
        )
    terms = _terms(batch, logprobs, old, reference, settings)
    loss = (batch.weights * terms.policy).sum()
    if settings.beta and terms.divergence is not None:
        loss = loss + settings.beta * (batch.shares * terms.divergence).sum()
    return ObjectiveResult(loss, _measured(batch, terms, settings))


def imitation_objective(batch: Batch, logprobs: Tensor) -> ObjectiveResult:
    """The weighted negative log-likelihood (nats) of a batch's trained tokens.

    loss = sum of -c * logprobs; by token-mean, and with rows that weigh 1, the mean over the
    window's tokens. `logprobs` is (B, T).
    """
    surprise = -_trained(logprobs, batch.mask)
    ledger = Ledger()
    ledger.sum("tokens", torch.ones_like(surprise), batch.mask)
    ledger.mean("negative_log_likelihood", surprise, batch.mask)
    _measure_stages(ledger, batch, {"loss": surprise})
    return ObjectiveResult((batch.weights * surprise).sum(), ledger.closed())


def _terms(
    batch: Batch,
    logprobs: Tensor,
    old: Tensor | None,
    reference: Tensor | None,
    config: ObjectiveConfig,
) -> _Terms:
    new = _trained(logprobs, batch.mask)
    before = new.detach() if old is None else _trained(old, batch.mask).detach()
    behaviour = torch.where(batch.sampled, batch.behaviour, before)
    ratio = _exp(new - (behaviour if config.correction == "bypass" else before))
    importance = _importance(before - behaviour, config)
    away = None if reference is None else _trained(reference, batch.mask).detach() - new
    return _Terms(
        new=new.detach(),
        old=before,
        behaviour=behaviour,
        ratio=ratio,
        importance=importance,
        policy=-importance * _clipped(ratio, batch.advantages, config),
        divergence=None if away is None else _k3(away),
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
    weight = _exp(gap)
    match config.importance:
        case "truncate":
            return weight.clamp(max=config.cap)
        case "mask":
            return torch.where(_outside(weight, config), 0.0, weight)
        case "none":
            return torch.ones_like(weight)


def _outside(weight: Tensor, config: ObjectiveConfig) -> Tensor:
    return (weight < config.band[0]) | (weight > config.band[1])


def _measured(batch: Batch, terms: _Terms, config: ObjectiveConfig) -> LossMetrics:
    """The numbers of a batch: of all trained tokens, of each objective, and of each stage."""
    ledger, mask = Ledger(), batch.mask
    signals = {
        "clipped_low": (terms.ratio < 1 - config.clip[0]) & (batch.advantages < 0),
        "clipped_high": (terms.ratio > 1 + config.clip[1]) & (batch.advantages > 0),
        "kl_old": _k3(terms.old - terms.new),
    }
    if config.dual_clip is not None:
        signals["clipped_dual"] = (terms.ratio > config.dual_clip) & (batch.advantages < 0)
    if terms.divergence is not None:
        signals["kl_reference"] = terms.divergence
    ledger.sum("tokens", torch.ones_like(terms.new), mask)
    for name, values in (signals | _importance_signals(terms, config)).items():
        ledger.mean(name, values.float(), mask)
    ledger.peak("ratio", terms.ratio, mask)
    _measure_sampler(ledger, batch, terms)
    _measure_objectives(ledger, batch, terms, signals)
    sizes = {"loss": terms.policy, "advantage_size": batch.advantages.abs()}
    ledger.mean("advantage_size", sizes["advantage_size"], mask)
    _measure_stages(ledger, batch, sizes)
    return ledger.closed()


def _importance_signals(terms: _Terms, config: ObjectiveConfig) -> dict[str, Tensor]:
    found = {
        "ratio": terms.ratio,
        "surprise": -terms.new,
        "importance": terms.importance,
        "importance_square": terms.importance**2,
    }
    weight = _exp(terms.old - terms.behaviour)
    if config.importance == "truncate":
        found["importance_truncated"] = weight > config.cap
    if config.importance == "mask":
        found["importance_masked"] = _outside(weight, config)
    return found


def _measure_sampler(ledger: Ledger, batch: Batch, terms: _Terms) -> None:
    """How far the trainer's policy is from what the sampler computed for the same tokens."""
    gap = (terms.old - terms.behaviour).abs()
    ledger.mean("sampler_gap", gap, batch.sampled)
    ledger.peak("sampler_gap", gap, batch.sampled)
    ledger.mean("kl_behaviour", _k3(terms.behaviour - terms.new), batch.sampled)


def _measure_objectives(
    ledger: Ledger, batch: Batch, terms: _Terms, signals: dict[str, Tensor]
) -> None:
    """What each objective adds to the loss, and its own clipping and divergences."""
    for number, name in enumerate(OBJECTIVES):
        where = batch.objectives == number
        ledger.sum(f"{name}_loss", batch.weights * terms.policy, where)
        for signal, values in signals.items():
            ledger.mean(f"{name}_{signal}", values.float(), where)


def _measure_stages(ledger: Ledger, batch: Batch, values: dict[str, Tensor]) -> None:
    """Token-means of each stage, so that a long one can be told from a loud one."""
    for number, stage in enumerate(Stage):
        where = batch.mask & (batch.stages == number)
        for name, tensor in values.items():
            ledger.mean(f"{stage}_{name}", tensor, where)


def _trained(values: Tensor, mask: Tensor) -> Tensor:
    """Values where a token is trained, and 0 elsewhere, whatever stood there."""
    return values.masked_fill(~mask, 0.0)


def _exp(logarithm: Tensor) -> Tensor:
    return logarithm.clamp(-EXPONENT_BOUND, EXPONENT_BOUND).exp()


def _k3(away: Tensor) -> Tensor:
    """Of how far the other log-probability is away; never negative, 0 where they are equal."""
    held = away.clamp(-EXPONENT_BOUND, EXPONENT_BOUND)
    return held.exp() - held - 1
