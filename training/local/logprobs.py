"""Log-probabilities of rows' tokens under a model, without keeping its logits.

A row of 2,000 tokens over a vocabulary of 152,000 would have 1.2 GB of float32 logits, and as much
again for their gradient. Logits are computed for trained positions only, in pieces. Of a frozen
output layer W the gradient of a token's log-probability by its state, W[id] - softmax W, is made
with the logits (as in Liger Kernel, arXiv:2410.10989); of one that is trained each piece is
recomputed in the backward pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rubricem.training.objective.batch import Batch

Score = Callable[[Batch], Tensor]
"""`batch_logprobs` of a model"""
PIECE = 128
"""positions whose logits exist at the same time"""


def batch_logprobs(model: Any, batch: Batch) -> Tensor:
    """(B, T) float32: the log-probability (nats) of each trained token, 0 elsewhere.

    `model` is a causal language model of transformers with plain logits of its output layer
    (neither capped nor scaled); `batch` is on its device. A batch without a trained token is
    computed too, and gives every weight a gradient of 0, for ranks that have no row of their own.
    """
    # What stands after the last trained token is never looked at by one before it.
    trained = batch.mask.any(dim=0).nonzero()
    width = int(trained.max()) + 1 if len(trained) else batch.mask.shape[1]
    ids = batch.ids[:, : width - 1]
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    wanted = batch.mask[:, 1:width]
    chosen = _logprobs(hidden[wanted], model.get_output_embeddings(), batch.ids[:, 1:width][wanted])
    result = chosen.new_zeros(batch.mask.shape)
    return result.masked_scatter(batch.mask, chosen)


def _logprobs(hidden: Tensor, output: nn.Module, ids: Tensor) -> Tensor:
    """(N,) from (N, hidden) states, the output layer and the (N,) ids that they predict."""

    def of_piece(hidden: Tensor, ids: Tensor) -> Tensor:
        return token_logprobs(output(hidden).float(), ids)

    pieces = [slice(start, start + PIECE) for start in range(0, max(len(ids), 1), PIECE)]
    weight, bias = output.weight, getattr(output, "bias", None)
    if isinstance(output, nn.Linear) and not (weight.requires_grad or bias is not None):
        found: Tensor = _Frozen.apply(hidden, weight, ids, pieces)  # type: ignore[no-untyped-call]
        return found
    parts = [checkpoint(of_piece, hidden[p], ids[p], use_reentrant=False) for p in pieces]
    return torch.cat(parts)


class _Frozen(torch.autograd.Function):
    """`_logprobs` under an output layer (V, hidden) that has no gradient and no bias."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, ids: Tensor, pieces: Sequence[slice]
    ) -> Tensor:
        chosen, slopes = [], []
        for piece in pieces:
            logits = nn.functional.linear(hidden[piece], weight).float()
            sums = logits.logsumexp(-1, keepdim=True)
            chosen.append((logits.gather(-1, ids[piece].unsqueeze(-1)) - sums).squeeze(-1))
            if ctx.needs_input_grad[0]:
                chances = logits.sub_(sums).exp_().to(weight.dtype)
                slopes.append(weight[ids[piece]] - chances @ weight)
        if slopes:
            ctx.save_for_backward(torch.cat(slopes))
        return torch.cat(chosen)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (slopes,) = ctx.saved_tensors
        return gradients[0].unsqueeze(-1).to(slopes.dtype) * slopes, None, None, None


def token_logprobs(logits: Tensor, ids: Tensor) -> Tensor:
    """The log-probability of each id under the logits that predict it, float32.

    `logits` is (..., V) and `ids` (...), already aligned: for a whole sequence pass logits[:, :-1]
    and ids[:, 1:]. For no positions the result is empty and still connected to the logits' graph.
    """
    chosen = logits.gather(-1, ids.unsqueeze(-1)).squeeze(-1).float()
    return chosen - torch.logsumexp(logits.float(), dim=-1)
