"""The trained part of a model: adapters beside its frozen linear layers, or all of its weights.

Low-rank adapters (LoRA, arXiv:2106.09685), in float32 whatever the frozen weights are:

    y = x W' + b + (alpha / r) (x A') B',   A: (r, in) random, B: (out, r) zero at the start

There is no dropout. All weights have float32 masters if the model computes in bfloat16, where an
update smaller than 1/256 of a weight rounds to nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rubricem.memory.errors import SettingsError
from rubricem.training.local.ranks import put, whole


class Trainable:
    """Named parameters in training; subclasses say which."""

    def _trainable(self) -> Mapping[str, nn.Parameter]:
        """By name, as they are now: sharding replaces them."""
        raise NotImplementedError

    def _model_parameters(self) -> Mapping[str, nn.Parameter]:
        """What the model computes with."""
        return self._trainable()

    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer updates, float32."""
        return list(self._trainable().values())

    def settle(self) -> None:
        """Make the model compute with what the optimizer has updated."""

    def state(self, keep: bool = True) -> dict[str, Tensor]:
        """The whole state, in main memory; the next update may change it.

        A rank that does not `keep` it takes part in gathering, and gets nothing.
        """
        return {name: whole(parameter, keep) for name, parameter in self._trainable().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state of this model."""
        for name, parameter in self._trainable().items():
            put(parameter, state[name])
        self.settle()

    def snapshot(self) -> dict[str, Tensor]:
        """Copies of what the model computes with, for `as_in`."""
        return {name: weight.detach().clone() for name, weight in self._model_parameters().items()}

    @contextmanager
    def as_in(self, held: Mapping[str, Tensor]) -> Iterator[None]:
        """The model with the weights of another time."""
        now = self.snapshot()
        self._compute_with(held)
        try:
            yield
        finally:
            self._compute_with(now)

    def _compute_with(self, held: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self._model_parameters().items():
                weight.copy_(held[name])


def adapter_config(rank: int, alpha: float, layers: Iterable[str], base: str) -> dict[str, Any]:
    """An adapter's configuration for peft; `layers` are the names of the adapted ones."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted({name.rpartition(".")[2] for name in layers}),
        "base_model_name_or_path": base,
    }


class LoraLinear(nn.Module):
    """A frozen linear layer with an adapter beside it."""

    def __init__(self, linear: nn.Linear, start: Tensor, alpha: float) -> None:
        """`start`: A, (r, in)."""
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.scale = alpha / len(start)
        self.lora_a = nn.Parameter(start)
        self.lora_b = nn.Parameter(torch.zeros(linear.out_features, len(start)))

    def forward(self, x: Tensor) -> Tensor:
        inner = nn.functional.linear(x, self.lora_a.to(x.dtype))
        beside = nn.functional.linear(inner, self.lora_b.to(x.dtype))
        return torch.add(self.linear(x), beside, alpha=self.scale)


_PREFIX, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
"""parts of the names in peft's files"""


class Adapter(Trainable):
    """The adapters of one model, named as its layers are."""

    def __init__(self, model: Any, starts: Mapping[str, Tensor], alpha: float) -> None:
        """Freeze the model and put an adapter beside each named layer; `starts`: its A, (r, in)."""
        model.requires_grad_(False)
        self.layers: dict[str, LoraLinear] = {}
        for name, start in starts.items():
            parent, _, attribute = name.rpartition(".")
            owner = model.get_submodule(parent)
            self.layers[name] = LoraLinear(getattr(owner, attribute), start, alpha)
            setattr(owner, attribute, self.layers[name])

    @classmethod
    def attach(cls, model: Any, rank: int, alpha: float, seed: int) -> "Adapter":
        """A new one beside each linear layer but the output's; A is drawn by the seed.

        Raises SettingsError for a model without any, such as those that use GPT-2's layers.
        """
        output, random = model.get_output_embeddings(), torch.Generator().manual_seed(seed)
        starts = {}
        for name, layer in model.named_modules():
            if type(layer) is nn.Linear and layer is not output:
                bound = layer.in_features**-0.5
                start = torch.empty(rank, layer.in_features)
                starts[name] = start.uniform_(-bound, bound, generator=random)
        if not starts:
            raise SettingsError(
                f"a {model.config.model_type} model has no linear layer to put an adapter beside.",
                'Set adaptation to "full".',
            )
        return cls(model, starts, alpha)

    @classmethod
    def restore(cls, model: Any, state: Mapping[str, Tensor], alpha: float) -> "Adapter":
        """That of a state, beside the layers that it has matrices of."""
        starts = {n.removeprefix(_PREFIX).removesuffix(_A): a for n, a in state.items()
                  if n.endswith(_A)}  # fmt: skip
        found = cls(model, starts, alpha)
        found.load(state)
        return found

    def merge(self, model: Any) -> None:
        """Add the adapters to the weights of their layers, which stand alone again."""
        for name, layer in self.layers.items():
            parent, _, attribute = name.rpartition(".")
            with torch.no_grad():
                layer.linear.weight += layer.scale * layer.lora_b @ layer.lora_a
            setattr(model.get_submodule(parent), attribute, layer.linear)

    def state(self, keep: bool = True) -> dict[str, Tensor]:
        """Whole copies of all A and B, which no update changes, with the names of peft's files."""
        return {name: tensor.clone() for name, tensor in super().state(keep).items()}

    def _trainable(self) -> Mapping[str, nn.Parameter]:
        found = {}
        for name, layer in self.layers.items():
            found[f"{_PREFIX}{name}{_A}"] = layer.lora_a
            found[f"{_PREFIX}{name}{_B}"] = layer.lora_b
        return found


class FullWeights(Trainable):
    """The weights of one model, named as its parameters are."""

    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        """Make all weights of a float32 model trainable, and the model compute in a type.

        Sharded weights are masters already: they are rounded as they are gathered.
        """
        self.model = model.requires_grad_(True)
        self._masters = {name: _master(weight, dtype) for name, weight in model.named_parameters()}

    def settle(self) -> None:
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if weight is not self._masters[name]:
                    weight.copy_(self._masters[name])

    def _trainable(self) -> Mapping[str, nn.Parameter]:
        return self._masters

    def _model_parameters(self) -> Mapping[str, nn.Parameter]:
        return dict(self.model.named_parameters())


def _master(weight: nn.Parameter, dtype: torch.dtype) -> nn.Parameter:
    if dtype == torch.float32:
        return weight
    master = nn.Parameter(weight.data)
    weight.data = weight.data.to(dtype)

    def hand_over(weight: Any) -> None:
        """Add a backward pass's gradient to the master's, so that a window's sum is float32."""
        if master.grad is None:
            master.grad = weight.grad.float()
        else:
            master.grad += weight.grad
        weight.grad = None

    weight.register_post_accumulate_grad_hook(hand_over)  # type: ignore[no-untyped-call]
    return master
