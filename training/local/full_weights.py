"""All weights of a model in training, with float32 masters where it computes in bfloat16.

A bfloat16 number has 8 significant bits, so an update smaller than 1/256 of a weight rounds to
nothing. The optimizer therefore changes a float32 copy, which gathers gradients in float32 too,
and the model computes with that copy rounded. In float32 the weights are their own masters.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from training.local.ranks import put, whole


class FullWeights:
    """The weights of one model, named as its parameters are."""

    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        """Let all weights of a float32 model be trained, and the model compute in a type.

        Sharded weights are masters already: they are rounded as they are gathered.
        """
        self.model = model.requires_grad_(True)
        self._masters = {name: _master(weight, dtype) for name, weight in model.named_parameters()}

    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer changes, float32."""
        return list(self._masters.values())

    def settle(self) -> None:
        """Let the model compute with what the optimizer has changed."""
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if weight is not self._masters[name]:
                    weight.copy_(self._masters[name])

    def state(self, keep: bool = True) -> dict[str, Tensor]:
        """The masters, whole, in the processor's memory; the next update may change them."""
        return {name: whole(master, keep) for name, master in self._masters.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over all weights. Raises ValueError when names or shapes are not this model's."""
        mine = self._masters
        if {n: m.shape for n, m in mine.items()} != {n: t.shape for n, t in state.items()}:
            raise ValueError("the weights belong to another model")
        for name, master in mine.items():
            put(master, state[name])
        self.settle()

    def held(self) -> dict[str, Tensor]:
        """Copies as they lie, for `as_in`."""
        return {name: weight.detach().clone() for name, weight in self.model.named_parameters()}

    @contextmanager
    def as_in(self, held: Mapping[str, Tensor]) -> Iterator[None]:
        """The model with the weights of another time."""
        now = self.held()
        self._compute_with(held)
        try:
            yield
        finally:
            self._compute_with(now)

    def _compute_with(self, held: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                weight.copy_(held[name])


def _master(weight: nn.Parameter, dtype: torch.dtype) -> nn.Parameter:
    if dtype == torch.float32:
        return weight
    master = nn.Parameter(weight.data)
    weight.data = weight.data.to(dtype)
    hook = partial(_hand_over, master)
    weight.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
    return master


def _hand_over(master: nn.Parameter, weight: Any) -> None:
    """Add a backward pass's gradient to the master's, so that a window's sum is float32."""
    if master.grad is None:
        master.grad = weight.grad.float()
    else:
        master.grad += weight.grad
    weight.grad = None
