"""What is told of each step's loss, by the names of `metrics.jsonl`.

Of all trained tokens, as means where nothing else is said; divergences and gaps in nats:

- `tokens`: how many are trained; `surprise`: -logprobs, one sample of the entropy;
- `ratio`, `ratio_max`; `clipped_low`, `clipped_high`, `clipped_dual`: shares without a gradient;
- `kl_old`, `kl_reference`, `kl_behaviour`: k3 to the old policy, the reference and the sampler;
- `importance`, `ess`, `importance_truncated`, `importance_masked`: the weight w, the effective
  share of the tokens by it, and the shares that it was held or dropped for;
- `sampler_gap`, `sampler_gap_max`: size of old - behaviour, where both are of the same ids;
- `scaffold_gap`: the same where the sampler's prompt had a rubric scaffold that the row's has not;
- `advantage_size`: |A|.

Of each policy row, as the median and the counts above 2, 10 and 100:

- `sequence_ratio`: exp(sum of logprobs - behaviour), of the policy as it is trained to the sampler,
  whatever prompt that had;
- `novelty`: exp(mean of logprobs - reference), RuscaRL's ratio of sequences, where there is a
  reference: with a `beta`, or where `novelty` is set.

Of each objective that has a token, `{objective}_loss`: what its clipped terms add to the loss (a
sum), and its own shares clipped and k3. Of each stage, `{stage}_loss` and `{stage}_advantage_size`:
means of the unweighted term and of |A| over the stage's tokens.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from memory.schema import Stage
from training.loss_metrics import Ledger, LossMetrics
from training.objective_config import ObjectiveConfig
from training.objective_terms import ClippedTerms, bounded_exp, k3, outside_band
from training.rows import OBJECTIVES
from training.tensors import Batch


def measured_clipped(batch: Batch, terms: ClippedTerms, config: ObjectiveConfig) -> LossMetrics:
    """The numbers of a batch: of all trained tokens, of each objective, and of each stage."""
    ledger, mask = Ledger(), batch.mask
    signals = {
        "clipped_low": (terms.ratio < 1 - config.clip[0]) & (batch.advantages < 0),
        "clipped_high": (terms.ratio > 1 + config.clip[1]) & (batch.advantages > 0),
        "kl_old": k3(terms.old - terms.new),
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
    _measure_sequences(ledger, batch, terms)
    _measure_objectives(ledger, batch, terms, signals)
    sizes = {"loss": terms.policy, "advantage_size": batch.advantages.abs()}
    ledger.mean("advantage_size", sizes["advantage_size"], mask)
    _measure_stages(ledger, batch, sizes)
    return ledger.closed()


def measured_imitation(batch: Batch, surprise: Tensor) -> LossMetrics:
    """The numbers of a batch that is imitated, from its negative log-likelihoods (B, T)."""
    ledger = Ledger()
    ledger.sum("tokens", torch.ones_like(surprise), batch.mask)
    ledger.mean("negative_log_likelihood", surprise, batch.mask)
    _measure_stages(ledger, batch, {"loss": surprise})
    return ledger.closed()


def _importance_signals(terms: ClippedTerms, config: ObjectiveConfig) -> dict[str, Tensor]:
    found = {
        "ratio": terms.ratio,
        "surprise": -terms.new,
        "importance": terms.importance,
        "importance_square": terms.importance**2,
    }
    weight = bounded_exp(terms.old - terms.behaviour)
    if config.importance == "truncate":
        found["importance_truncated"] = weight > config.cap
    if config.importance == "mask":
        found["importance_masked"] = outside_band(weight, config)
    return found


def _measure_sampler(ledger: Ledger, batch: Batch, terms: ClippedTerms) -> None:
    """How far the trainer's policy is from what the sampler computed for the same tokens."""
    gap = (terms.old - batch.behaviour).abs()
    ledger.mean("scaffold_gap", gap, batch.mask & ~batch.sampled)
    ledger.mean("sampler_gap", gap, batch.sampled)
    ledger.peak("sampler_gap", gap, batch.sampled)
    ledger.mean("kl_behaviour", k3(terms.behaviour - terms.new), batch.sampled)


def _measure_sequences(ledger: Ledger, batch: Batch, terms: ClippedTerms) -> None:
    policy = batch.objectives == OBJECTIVES.index("policy")
    sums = partial(_row_sums, batch)
    logs = sequence_logs(sums, terms.new, batch.behaviour, policy, terms.reference)
    for name, values in logs.items():
        ledger.rows(name, values)


def sequence_logs(
    sums: Callable[[Tensor], Tensor],
    new: Tensor,
    behaviour: Tensor,
    policy: Tensor,
    reference: Tensor | None,
) -> dict[str, Tensor]:
    """The logs (nats) of the ratios of whole policy rows, (rows,) by name.

    All are (B, T), `policy` true where a policy row is trained; `sums` adds up such values row by
    row. Rows without such a token are left out.
    """
    counts = sums(policy.double())
    some = counts > 0
    found = {"sequence_ratio": sums(_policys(new - behaviour, policy))[some]}
    if reference is not None:
        moved = sums(_policys(new - reference, policy))
        found["novelty"] = (moved / counts.clamp(min=1))[some]
    return found


def _policys(values: Tensor, policy: Tensor) -> Tensor:
    return values.double().masked_fill(~policy, 0.0)


def _row_sums(batch: Batch, values: Tensor) -> Tensor:
    """(rows,) from (B, T)."""
    return torch.stack([line.sum() for line in batch.split(values)])


def _measure_objectives(
    ledger: Ledger, batch: Batch, terms: ClippedTerms, signals: dict[str, Tensor]
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
