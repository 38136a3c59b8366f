"""Rows on their way through the model, for their log-probabilities.

A row of 2,000 tokens over a vocabulary of 152,000 would have 1.2 GB of float32 logits, and as much
again for their gradient. Logits are computed for trained positions only, in pieces; if the output
layer is trained, too, each piece is recomputed in the backward pass.

Rows begin alike: all of a run with the system prompt, those of a group with their question, samples
of one stage with everything before it, and candidates of a reflection with a whole trajectory. A
common beginning is a branch of a tree, and goes through the model once:

    forward    the branch by itself, keeping the keys and values that each layer made of it;
    behind     each row's rest attends to them as to given values, so that its backward pass, taken
               at once, leaves their gradient: G = sum over the rows of dL/d(K, V, h);
    backward   through the branch once, from G.

Loss and gradient are those of whole rows, since a gradient is the sum over the paths to the loss,
and all paths from a branch to it lead through K, V and the last states h. At any time the
activations of one path from the root to a row's end are kept, as many as those of the row by
itself. Blocks below the lowest adapter give the same results for a part in every pass, those of the
reference and of the policy before its updates: if a window has several passes, only the first
computes them. Branches nest. G is float32 whatever the model computes in, so that many rows' parts
add up unrounded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rubricem.training.objective.batch import Batch, WindowWeights, alike, cut
from rubricem.training.rows.row import TrainRow

Pairs = tuple[tuple[Tensor, Tensor], ...]
"""keys and values of some blocks, each (B, heads, n, width)"""
PIECE = 128
"""positions whose logits exist at the same time"""


def batch_logprobs(model: Any, batch: Batch, before: "Prefix | None" = None) -> Tensor:
    """(B, T) float32: the log-probability (nats) of each trained token, 0 elsewhere.

    `model` is a causal language model of transformers with plain logits of its output layer
    (neither capped nor scaled); `batch` is padded or, for a model that separates packed rows,
    packed, on the model's device. `before`: what all its rows begin with, if it has been read. No
    attention mask is passed: what a packed row may see is derived from where the position ids
    restart. A batch without a trained token is computed too, and gives every weight a gradient of
    0, for the ranks that have no row of their own.
    """
    # What stands after the last trained token is never looked at by one before it.
    trained = batch.mask.any(dim=0).nonzero()
    width = int(trained.max()) + 1 if len(trained) else batch.mask.shape[1]
    start = before.length if before else 0
    hidden = model.base_model(
        input_ids=batch.ids[:, start : width - 1],
        position_ids=batch.position[:, start : width - 1],
        past_key_values=before.cache(len(batch.ids)) if before else None,
        use_cache=before is not None,
    ).last_hidden_state
    if before:
        hidden = torch.cat([before.states(len(hidden)), hidden], dim=1)
    wanted = batch.mask[:, 1:width]
    chosen = _logprobs(hidden[wanted], model.get_output_embeddings(), batch.ids[:, 1:width][wanted])
    result = chosen.new_zeros(batch.mask.shape)
    return result.masked_scatter(batch.mask, chosen)


def _logprobs(hidden: Tensor, output: nn.Module, ids: Tensor) -> Tensor:
    """(N,) from (N, hidden) states, the output layer and the (N,) ids that they predict."""
    if type(output) is nn.Linear and not output.weight.requires_grad:
        return _Chosen.apply(hidden, output.weight, output.bias, ids)  # type: ignore[no-any-return,no-untyped-call]

    def of_piece(hidden: Tensor, ids: Tensor) -> Tensor:
        return token_logprobs(output(hidden).float(), ids)

    parts = []
    for start in range(0, max(len(ids), 1), PIECE):
        piece = slice(start, start + PIECE)
        parts.append(checkpoint(of_piece, hidden[piece], ids[piece], use_reentrant=False))
    return torch.cat(parts)


def token_logprobs(logits: Tensor, ids: Tensor) -> Tensor:
    """The log-probability of each id under the logits that predict it, float32.

    `logits` is (..., V) and `ids` (...), already aligned: for a whole sequence pass logits[:, :-1]
    and ids[:, 1:]. For no positions the result is empty and still connected to the logits' graph.
    """
    chosen = logits.gather(-1, ids.unsqueeze(-1)).squeeze(-1).float()
    return chosen - torch.logsumexp(logits.float(), dim=-1)


class _Chosen(torch.autograd.Function):
    """The same for a frozen output layer, whose logits are computed once.

    The derivative of a log-probability by its state does not depend on the loss, so it is kept in
    their place: with p the softmax, W the layer's weight and i the id, dl/dh = W_i - p W.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor
    ) -> Tensor:
        chosen, slopes = [], []
        pieces = torch.split(hidden, PIECE), torch.split(ids, PIECE)
        for piece, of_piece in zip(*pieces, strict=True):
            logits = nn.functional.linear(piece, weight, bias).float()
            whole, places = logits.logsumexp(-1, keepdim=True), of_piece.unsqueeze(-1)
            chosen.append((logits.gather(-1, places) - whole).squeeze(-1))
            if ctx.needs_input_grad[0]:
                away = logits.sub_(whole).exp_().neg_()
                away.scatter_add_(-1, places, torch.ones_like(whole))
                slopes.append(away.to(weight.dtype) @ weight)
        ctx.save_for_backward(torch.cat(slopes or [hidden]))
        return torch.cat(chosen)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (slopes,) = ctx.saved_tensors
        return (slopes * grads[0].unsqueeze(-1)).to(slopes.dtype), None, None, None


class _Made(NamedTuple):
    """The results of the lower blocks for a part."""

    states: Tensor
    """(B, n, hidden), after the last of them"""
    pairs: Pairs
    """of a branch, for each of them; else ()"""


class LowerBlocks:
    """The blocks below the lowest adapter, skipped when their results for a part are known.

    Parts are identified by their place in a plan, whose passes process them in one order.
    """

    def __init__(self, blocks: Sequence[nn.Module] = (), room: int = 1 << 29) -> None:
        """`blocks`: the lowest first. `room`: bytes to keep at most; later parts are not kept."""
        self._blocks, self._room = blocks, room
        self._kept: list[_Made | None] | None = None
        self._part = self._left = 0

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keep the first pass's results for the parts of one plan, for use by later passes."""
        self._kept, self._left = [], self._room
        for block in self._blocks:
            vars(block)["forward"] = partial(self._through, block.forward, block)
        try:
            yield
        finally:
            self._kept = None
            for block in self._blocks:
                del vars(block)["forward"]

    def rewind(self) -> None:
        """Begin a pass."""
        self._part = 0

    def _through(
        self, forward: Callable[..., Tensor], block: nn.Module, states: Tensor, **more: Any
    ) -> Tensor:
        assert self._kept is not None
        first, last = self._part == len(self._kept), block is self._blocks[-1]
        made = None if first else self._kept[self._part]
        if made is None:
            states = forward(states, **more)
        if last:
            self._part += 1
            if first:
                self._kept.append(_Made(states, ()) if self._fits(states) else None)
        return made.states if made and last else states

    def of_branch(self, pairs: Pairs) -> Pairs:
        """K and V of all blocks of the branch read last, given those of its cache."""
        made = self._kept[self._part - 1] if self._kept and self._blocks else None
        if made is None or self._kept is None:
            return pairs
        below, above = pairs[: len(self._blocks)], pairs[len(self._blocks) :]
        if not made.pairs:
            held = self._fits(*chain.from_iterable(below))
            self._kept[self._part - 1] = made._replace(pairs=below) if held else None
        return (*(made.pairs or below), *above)

    def _fits(self, *tensors: Tensor) -> bool:
        self._left -= sum(one.numel() * one.element_size() for one in tensors)
        return self._left >= 0


class Prefix:
    """What a branch's tokens, and all before them, leave for later rows: K, V and h.

    Leaves of a separate graph, float32, whose gradients add up; `backward` passes them on.
    """

    def __init__(
        self,
        model: Any,
        ids: Tensor,
        before: "Prefix | None" = None,
        lower: LowerBlocks | None = None,
    ) -> None:
        """Read ids, (1, n), after those of `before`; `lower` may know some of the results."""
        from transformers import DynamicCache

        start = before.length if before else 0
        self.length: int = start + ids.shape[1]
        cache = before.cache(1) if before else DynamicCache()
        states = model.base_model(
            input_ids=ids,
            position_ids=torch.arange(start, self.length, device=ids.device).unsqueeze(0),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        if before:
            states = torch.cat([before.states(1), states], dim=1)
        pairs: Pairs = tuple(layer[:2] for layer in cache)
        pairs = lower.of_branch(pairs) if lower else pairs
        self._made: list[Tensor] = [*chain.from_iterable(pairs), states]
        # Below the lowest adapter nothing has a gradient, and nothing is to be kept for one.
        self._left = [
            made.detach().float().requires_grad_(made.requires_grad) for made in self._made
        ]

    def cache(self, rows: int) -> Any:
        """K and V as a model of transformers takes them, for this many rows."""
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        cache, kind = DynamicCache(), self._made[-1].dtype
        left = [each.to(kind).expand(rows, -1, -1, -1) for each in self._left[:-1]]
        for keys, values in zip(left[::2], left[1::2], strict=True):
            layer = DynamicLayer()  # type: ignore[no-untyped-call]
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values  # `update` would copy them
            cache.layers.append(layer)
        return cache

    def states(self, rows: int) -> Tensor:
        """The last states of all positions so far, (rows, length, hidden)."""
        return self._left[-1].to(self._made[-1].dtype).expand(rows, -1, -1)

    def backward(self) -> None:
        """Propagate the gradient left by later rows to what made K, V and h."""
        pairs = zip(self._made, self._left, strict=True)
        moved = [(made, left.grad) for made, left in pairs if left.grad is not None]
        if moved:
            torch.autograd.backward(
                [made for made, _ in moved], [grad.to(made.dtype) for made, grad in moved]
            )


@dataclass(frozen=True, slots=True)
class Fork:
    """Tokens that go through the model once, and what follows them."""

    ids: Tensor
    """int64, (1, n)"""
    behind: "PassPlan"


Score = Callable[[Batch, Prefix | None], Tensor]
"""`batch_logprobs` of a model"""
LEAST = {"cpu": 32, "cuda": 1024}
"""tokens that a branch has to save to be worth its pass, by the kind of device: a pass over few
tokens takes as long as one over about this many"""


@dataclass(frozen=True, slots=True)
class PassPlan:
    """What goes through the model, one part after another."""

    parts: tuple[Fork | Batch, ...] = ()
    """the parts of a batch's rows that are still to be read"""

    @classmethod
    def grow(
        cls, rows: Sequence[TrainRow], window: WindowWeights, micro_batch: int, least: int
    ) -> "PassPlan":
        """The tree of some rows; those that branch at one place are batched by `micro_batch`.

        `window` is that of the whole step, `least` what a branch has to save, in tokens.
        """

        def divide(rows: list[TrainRow], read: int, known: int) -> list[TrainRow | Fork]:
            """What follows `read` tokens of sorted rows, known to be alike up to `known`."""
            if len(rows) == 1:
                return [*rows]
            # Each row keeps a token of its own to read: no pass is without any.
            end = min(alike(rows[0].ids, rows[-1].ids, known), min(map(_end, rows)) - 1)
            worth = (len(rows) - 1) * (end - read) >= least
            found: list[TrainRow | Fork] = [row for row in rows if _end(row) <= end + 1]
            going = [row for row in rows if _end(row) > end + 1]
            for _, ways in groupby(going, key=lambda row: row.ids[end]):
                found += divide(list(ways), end if worth else read, end)
            ids = torch.tensor([rows[0].ids[read:end]], dtype=torch.int64)
            return [Fork(ids, laid(found))] if worth else found

        def laid(found: Sequence[TrainRow | Fork]) -> "PassPlan":
            alone = [one for one in found if isinstance(one, TrainRow)]
            branches = [one for one in found if isinstance(one, Fork)]
            batches = (Batch.collate(part, window) for part in cut(alone, 0, micro_batch))
            return cls((*branches, *batches))

        return laid(divide(sorted(rows, key=lambda row: row.ids), 0, 0)) if rows else cls()

    def passes(
        self,
        model: Any,
        score: Score,
        device: torch.device,
        lower: LowerBlocks,
        before: Prefix | None = None,
    ) -> Iterator[tuple[Batch, Tensor]]:
        """Each batch on the device, with its log-probabilities by `score`.

        The backward pass of one, if any, has to be done before the next is requested: that is how
        its gradient reaches the branches.
        """
        for part in self.parts:
            if isinstance(part, Batch):
                batch = part.to(device)
                yield batch, score(batch, before)
            else:
                prefix = Prefix(model, part.ids.to(device), before, lower)
                yield from part.behind.passes(model, score, device, lower, prefix)
                prefix.backward()


def _end(row: TrainRow) -> int:
    """The number of its tokens that are read: those before the last trained one."""
    trained = (place for place in reversed(range(len(row.ids))) if row.loss_mask[place])
    return next(trained, len(row.ids) - 1)


@dataclass(frozen=True, slots=True)
class PlanSizes:
    """The size of a plan in tokens, except for `batches`; `+` adds up."""

    batches: int = 0
    rows: int = 0
    """with each row counted whole"""
    read: int = 0
    """without padding, and with a branch counted once"""
    places: int = 0
    """with padding"""

    def __add__(self, other: "PlanSizes") -> "PlanSizes":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return PlanSizes(*(mine + more for mine, more in pairs))

    @classmethod
    def of(cls, plan: PassPlan, before: int = 0) -> "PlanSizes":
        """Of what follows this many tokens."""
        found = cls()
        for part in plan.parts:
            if isinstance(part, Batch):
                whole, lines = int(part.lengths.sum()), before * len(part.lengths)
                found += cls(1, whole, whole - lines, part.ids.numel() - lines)
            else:
                own = part.ids.numel()
                found += cls(0, 0, own, own) + cls.of(part.behind, before + own)
        return found
