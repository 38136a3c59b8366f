"""Log-probabilities of a batch's trained tokens, with the vocabulary's logits never all at once.

A row of 2,000 tokens over a vocabulary of 152,000 would hold 1.2 GB of float32 logits, and as
much again for their gradient. Logits are made for trained positions only, in pieces, and made
anew for each piece on the way back.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training.objective import token_logprobs
from training.tensors import Batch

PIECE = 128
"""positions whose logits exist at the same time"""


def batch_logprobs(model: Any, batch: Batch) -> Tensor:
    """(B, T) float32: the log-probability (nats) of each trained token, 0 elsewhere.

    `model` is a causal language model of transformers whose logits are those of its output layer as
    they are (nothing capped or scaled); `batch` is padded or, for a model that keeps packed rows
    apart, packed, on the model's device. No attention mask is passed: what a packed row may see is
    told from where the position ids begin anew. A batch without a trained token is computed too,
    and gives every weight a gradient of 0, for the ranks that have no row of their own.
    """
    # What stands after the last trained token is never looked at by one before it.
    trained = batch.mask.any(dim=0).nonzero()
    width = int(trained.max()) + 1 if len(trained) else batch.mask.shape[1]
    hidden = model.base_model(
        input_ids=batch.ids[:, : width - 1],
        position_ids=batch.position[:, : width - 1],
        use_cache=False,
    ).last_hidden_state
    wanted = batch.mask[:, 1:width]
    chosen = _logprobs(hidden[wanted], model.get_output_embeddings(), batch.ids[:, 1:width][wanted])
    result = chosen.new_zeros(batch.mask.shape)
    return result.masked_scatter(batch.mask, chosen)


def _logprobs(hidden: Tensor, output: nn.Module, ids: Tensor) -> Tensor:
    """(N,) from (N, hidden) states, the output layer and the (N,) ids that they predict."""
    parts = []
    for start in range(0, max(len(ids), 1), PIECE):
        piece = slice(start, start + PIECE)
        parts.append(checkpoint(_piece, hidden[piece], output, ids[piece], use_reentrant=False))
    return torch.cat(parts)


def _piece(hidden: Tensor, output: nn.Module, ids: Tensor) -> Tensor:
    return token_logprobs(output(hidden).float(), ids)
