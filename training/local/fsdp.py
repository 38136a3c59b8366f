"""Weights divided over the ranks: each holds a part, and blocks are gathered as they are needed.

Fully sharded data parallelism of torch (FSDP2). What is trained is sharded in float32; weights
that a block computes with are gathered in the type of the computation, and gradients are summed
in float32 while they are scattered to the ranks that hold their part.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from training.local.learner import Score
from training.local.logprobs import batch_logprobs
from training.local.ranks import Ranks
from training.tensors import Batch


class Scorer(nn.Module):
    """A model as one function of a batch, so that all weights are gathered where it is called."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        return batch_logprobs(self.model, batch)


def sharded(model: Any, ranks: Ranks, dtype: torch.dtype | None) -> Score:
    """Divide a model's weights over the ranks, in place; returns the way through it.

    `dtype`: of the computation where the weights are float32 masters; None: that of the weights.
    """
    scorer = Scorer(model)
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    options: dict[str, Any] = {
        "mesh": init_device_mesh(ranks.device.type, (ranks.world,)),
        "mp_policy": precision if dtype else MixedPrecisionPolicy(),
        # Also of the outermost: weights are changed in their parts, and gathered anew after that.
        "reshard_after_forward": True,
    }
    for block in _blocks(model):
        fully_shard(block, **options)
    fully_shard(scorer, **options)
    for module in scorer.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # a token's weight is its share already
            module.set_force_sum_reduction_for_comms(True)
    return scorer


def _blocks(model: Any) -> list[nn.Module]:
    """The largest list of alike modules: the decoder's blocks."""
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m)]
    return list(max(lists, key=len, default=()))
