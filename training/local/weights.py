"""The trained part of a model: adapters beside its frozen linear layers, or all of its weights.

Low-rank adapters (LoRA, arXiv:2106.09685):

    y = x W' + b + (alpha / r) (x A') B',   A: (r, in) random, B: (out, r) zero at the start

A and B are float32 whatever the frozen weights are, so that small updates are not rounded away; the
arithmetic runs in the type of the weights. One autograd function covers layer and adapter: compared
with peft's layers it saves the float32 copies of every activation, a third of the CPU time of a
step. There is no dropout: passes over one row must agree.

All weights have float32 masters if the model computes in bfloat16. A bfloat16 number has 8
significant bits, so an update smaller than 1/256 of a weight rounds to nothing. The optimizer
therefore changes a float32 copy, which also accumulates gradients in float32, and the model
computes with that copy rounded. In float32 the weights are their own masters.

For sampling, frozen layers can be packed: their weights laid out once as oneDNN multiplies fastest.
Torch lays them out anew at every product, which for few rows takes as long as the product itself
(of a layer of the 0.5B 8 to 32 rows go at 190 GFLOP/s in place of 110 to 150, on one core with
AVX-512 in bfloat16). The operators are those by which torch's own compiler packs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rubricem.memory.errors import SettingsError
from rubricem.training.local.ranks import put, whole


class Trainable:
    """Named parameters in training; subclasses say which."""

    foreign: ClassVar[str]
    """the error for a state with other names or shapes"""

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
        """Restore a state. Raises ValueError if names or shapes are not this model's."""
        mine = self._trainable()
        if {n: p.shape for n, p in mine.items()} != {n: t.shape for n, t in state.items()}:
            raise ValueError(self.foreign)
        for name, parameter in mine.items():
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


def first_matrices(
    model: Any, rank: int, seed: int, blocks: int | None = None
) -> dict[str, Tensor]:
    """The initial A of each adapter, (rank, in), by the name of its linear layer.

    `blocks`: only this many of the last blocks; None: all layers. An output layer has none. Raises
    SettingsError for a model without any other linear layer, such as those that use GPT-2's layers,
    and for one with fewer blocks.
    """
    beginnings = None if blocks is None else _last_blocks(model, blocks)
    output, random = model.get_output_embeddings(), torch.Generator().manual_seed(seed)
    found = {}
    for name, layer in model.named_modules():
        inside = beginnings is None or name.startswith(beginnings)
        if type(layer) is nn.Linear and layer is not output and inside:
            bound = layer.in_features**-0.5
            start = torch.empty(rank, layer.in_features)
            found[name] = start.uniform_(-bound, bound, generator=random)
    if not found:
        raise SettingsError(
            f"a {model.config.model_type} model has no linear layer to put an adapter beside.",
            'Set adaptation to "full".',
        )
    return found


def blocks_of(model: Any) -> tuple[str, Sequence[nn.Module]]:
    """The decoder's blocks, the lowest first, and the name of their list.

    That is the longest list of modules; without any there are none.
    """
    lists = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)]
    name, found = max(lists, key=lambda named: len(named[1]), default=("", ()))
    return name, tuple(found)


def _last_blocks(model: Any, blocks: int) -> tuple[str, ...]:
    """Prefixes of the names of modules in them."""
    name, found = blocks_of(model)
    if blocks > len(found):
        raise SettingsError(
            f"the model has {len(found)} blocks, and {blocks} of them are to be adapted.",
            f"Set adapted_blocks to {len(found)} or less, or leave it out.",
        )
    return tuple(f"{name}.{number}." for number in range(len(found) - blocks, len(found)))


def adapter_config(
    rank: int, alpha: float, layers: Iterable[str], base: str, blocks: int | None = None
) -> dict[str, Any]:
    """An adapter's configuration for peft; `layers` are the names of the adapted ones.

    If only the last blocks are adapted, each layer has its full name.
    """
    last = {name.rpartition(".")[2] for name in layers} if blocks is None else layers
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(last),
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
        weight, bias = self.linear.weight, self.linear.bias
        values = (x, weight, bias, self.lora_a, self.lora_b, self.scale)
        return _Adapted.apply(*values)  # type: ignore[no-any-return,no-untyped-call]


class _Adapted(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        low_a, low_b = a.to(x.dtype), b.to(x.dtype)
        flat = x.reshape(-1, x.shape[-1])
        inner = flat @ low_a.T
        y = nn.functional.linear(flat, weight, bias).addmm_(inner, low_b.T, alpha=scale)
        ctx.save_for_backward(flat, weight, low_a, low_b, inner)
        ctx.scale, ctx.shape = scale, x.shape
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        flat, weight, low_a, low_b, inner = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1])
        grad_inner = grad @ low_b * ctx.scale
        grad_x = (grad @ weight).addmm_(grad_inner, low_a).view(ctx.shape)
        grad_a = (grad_inner.T @ flat).float()
        grad_b = (grad.T @ inner * ctx.scale).float()
        return grad_x, None, None, grad_a, grad_b, None


class Adapter(Trainable):
    """The adapters of one model, named as its layers are."""

    foreign = "the adapter belongs to another model, or has another rank or other adapted_blocks"

    def __init__(self, layers: Mapping[str, LoraLinear]) -> None:
        self.layers = dict(layers)

    @classmethod
    def attach(
        cls, model: Any, rank: int, alpha: float, seed: int, blocks: int | None = None
    ) -> "Adapter":
        """Freeze the model and put an adapter beside each layer that `first_matrices` names.

        Raises SettingsError as that does.
        """
        model.requires_grad_(False)
        layers = {}
        for name, start in first_matrices(model, rank, seed, blocks).items():
            parent, _, attribute = name.rpartition(".")
            owner = model.get_submodule(parent)
            layers[name] = LoraLinear(getattr(owner, attribute), start, alpha)
            setattr(owner, attribute, layers[name])
        return cls(layers)

    def state(self, keep: bool = True) -> dict[str, Tensor]:
        """Whole copies of all A and B, which no update changes, with the names of peft's files."""
        return {name: tensor.clone() for name, tensor in super().state(keep).items()}

    def _trainable(self) -> Mapping[str, nn.Parameter]:
        found = {}
        for name, layer in self.layers.items():
            found[f"base_model.model.{name}.lora_A.weight"] = layer.lora_a
            found[f"base_model.model.{name}.lora_B.weight"] = layer.lora_b
        return found

    def switch_off(self) -> AbstractContextManager[None]:
        """Use the base model alone."""
        return self.as_in(
            {name: torch.zeros_like(w) for name, w in self._model_parameters().items()}
        )


class FullWeights(Trainable):
    """The weights of one model, named as its parameters are."""

    foreign = "the weights belong to another model"

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


Packed = dict[str, Tensor]
"""weights of linear layers, by their names, as oneDNN reads them fastest"""


class PackedLinear(nn.Module):
    """A frozen linear layer, and what an adapter adds to it.

    Packed once, and not for every product, a layer writes few rows up to twice as fast on a CPU.
    """

    def __init__(self, layer: nn.Linear | LoraLinear, packed: Tensor) -> None:
        super().__init__()
        linear = layer.linear if isinstance(layer, LoraLinear) else layer
        self.packed, self.bias = packed, linear.bias
        self.added: tuple[Tensor, Tensor] | None = None
        if isinstance(layer, LoraLinear):
            a, b = layer.lora_a.detach().to(packed.dtype), layer.lora_b.detach().to(packed.dtype)
            self.added = a.T, (layer.scale * b).T

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _product(x, self.packed, self.bias, "none", [], "")
        if self.added is not None:
            a, b = self.added
            y += (x @ a) @ b
        return y


_mkldnn = torch.ops.mkldnn
_product: Any = getattr(_mkldnn, "_linear_pointwise", None)
_reorder: Any = getattr(_mkldnn, "_reorder_linear_weight", None)


def pack(model: Any, packed: Packed) -> Any:
    """Have linear layers compute with packed weights, where torch can; `packed`: those known."""
    if not packs(model):
        return model
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if type(layer) in (nn.Linear, LoraLinear) and not name.endswith(".linear")
    }
    for name, layer in layers.items():
        weight = (layer.linear if isinstance(layer, LoraLinear) else layer).weight
        held = packed.get(name)
        if held is None:
            held = packed[name] = _reorder(weight.detach(), PACKED_FOR)
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, PackedLinear(layer, held))
    return model


PACKED_FOR = 16
"""rows of a product that packed weights are laid out for; others are computed too"""


def packs(model: Any) -> bool:
    """Whether weights can be packed: of bfloat16 on a CPU that has instructions for it."""
    return bool(
        None not in (_product, _reorder)
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        and model.dtype == torch.bfloat16
        and model.device.type == "cpu"
    )
