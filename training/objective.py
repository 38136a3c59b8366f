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

What stands at positions that are not trained reaches neither the loss nor its gradient.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from memory.errors import SettingsError
from training.loss_metrics import LossMetrics
from training.objective_config import ObjectiveConfig
from training.objective_numbers import measured_clipped, measured_imitation
from training.objective_terms import clipped_terms, trained
from training.tensors import Batch


@dataclass(frozen=True)
class ObjectiveResult:
    """The loss of a batch, and what it was made of."""

    loss: Tensor
    """a scalar to call backward() on; those of a window's batches add up to the window's loss"""
    metrics: LossMetrics
    """by the names that `training.objective_numbers` explains"""


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
    terms = clipped_terms(batch, logprobs, old, reference, settings)
    loss = (batch.weights * terms.policy).sum()
    if settings.beta and terms.divergence is not None:
        loss = loss + settings.beta * (batch.shares * terms.divergence).sum()
    return ObjectiveResult(loss, measured_clipped(batch, terms, settings))


def imitation_objective(batch: Batch, logprobs: Tensor) -> ObjectiveResult:
    """The weighted negative log-likelihood (nats) of a batch's trained tokens.

    loss = sum of -c * logprobs; by token-mean, and with rows that weigh 1, the mean over the
    window's tokens. `logprobs` is (B, T).
    """
    surprise = -trained(logprobs, batch.mask)
    loss = (batch.weights * surprise).sum()
    return ObjectiveResult(loss, measured_imitation(batch, surprise))
