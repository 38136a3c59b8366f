"""The processes that train together, as started by torchrun, and what they exchange.

Every process reads the same rows and plans the same windows; only the forward and backward passes
are divided. So only gradients, metrics and, for saving, sharded weights are sent. A single process
is the case of one rank: nothing is sent then.

A window is divided into parts for the model, and a rank with fewer parts than another runs parts
without a trained token instead: sharded weights are fetched together at each block, so all ranks
must go through the model equally often.

Anything but GPU tensors goes through a group of its own, by gloo, with a time-out of days: a rank
that follows waits there for the next order of the first rank while that one collects.
"""

import gc
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from rubricem.memory.errors import PolicyError, RubricemError, SettingsError
from rubricem.training.local.local_config import Device
from rubricem.training.objective.batch import Part, alike
from rubricem.training.rows.row import TrainRow

T = TypeVar("T")
CPU = torch.device("cpu")
WAITED = timedelta(days=30)
"""for the other ranks; one whose process ends is known at once by its connection"""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train together."""

    rank: int = 0
    world: int = 1
    local: int = 0
    """its number on this machine"""
    device: torch.device = CPU
    values: Any = None
    """the group of what is no tensor; None: the default one"""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and tells."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            with self.report_lost():
                dist.barrier(group=self.values)

    def gather(self, value: T) -> list[T]:
        """The value of each rank, in their order."""
        if self.world == 1:
            return [value]
        found: list[T | None] = [None] * self.world
        with self.report_lost():
            dist.all_gather_object(found, value, group=self.values)
        return found  # type: ignore[return-value]

    def hear(self, order: T | None = None) -> T:
        """What the first rank says, to all; the others wait for it, however long it takes."""
        said = [order]
        if self.world > 1:
            with self.report_lost():
                dist.broadcast_object_list(said, src=0, group=self.values)
        return said[0]  # type: ignore[return-value]

    def raise_first(self, error: RubricemError | None) -> None:
        """Raise on all ranks what went wrong on the first; all have to ask."""
        if (found := self.hear(error)) is not None:
            raise found

    @contextmanager
    def report_lost(self) -> Iterator[None]:
        """Work that all ranks have a part in. Raises PolicyError where one of them is gone."""
        if self.device.type == "cuda":  # for each thread it is the first GPU until it is said
            torch.cuda.set_device(self.device)
        try:
            yield
        except RuntimeError as error:
            told = str(error).casefold()
            lost = isinstance(error, dist.DistError) or any(sign in told for sign in LOST)
            if self.world == 1 or not lost:
                raise
            raise PolicyError(
                "Another process of the training has ended, or cannot be reached any more.",
                "See its messages; the same command continues from the newest checkpoint, also "
                "with another number of processes.",
            ) from error

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make each gradient the sum over all ranks; one that a rank has none of counts as 0.

        Once for a whole window, when its last part is done: a sum and not a mean, since each
        token's weight is a share of the whole window already. Sharded ones are summed already.
        """
        if self.world == 1:
            return
        pending = []
        for parameter in parameters:
            if isinstance(parameter, DTensor):
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            pending.append(dist.all_reduce(parameter.grad, async_op=True))
        for work in pending:
            work.wait()

    def check_alike(self, seen: Mapping[str, Any]) -> None:
        """Raises SettingsError where the ranks see other things under a name; all have to ask."""
        found = self.gather(dict(seen))
        names = dict.fromkeys(name for each in found for name in each)
        other = [n for n in names if any(each.get(n) != found[0].get(n) for each in found)]
        if other:
            name = other[0]
            values = [_brief(each.get(name)) for each in found]
            rank = next(r for r, each in enumerate(found) if each.get(name) != found[0].get(name))
            raise SettingsError(
                f"the processes that train together do not see the same {', '.join(other)}: of "
                f"{name} process 0 has {values[0]} and process {rank} has {values[rank]}.",
                "Give all machines the same configuration, files, weights and packages.",
            )

    def check_together(self, step: int, out: Path) -> None:
        """Raises SettingsError where the ranks see a run at different steps; all have to ask."""
        seen = sorted(set(self.gather(step)))
        if len(seen) > 1:
            raise SettingsError(
                f"{out} is not the same folder for all processes: they find the run at the steps "
                f"{', '.join(map(str, seen))}.",
                "Name as `out` a folder that all machines share.",
            )

    def share(self, parts: Sequence[Part]) -> list[Part]:
        """This rank's parts; every rank has equally many, and about as many tokens."""
        if self.world == 1 or not parts:
            return list(parts)
        most = -(-len(parts) // self.world)
        taken: list[list[Part]] = [[] for _ in range(self.world)]
        for part in sorted(parts, key=lambda part: -_tokens(part)):
            free = [mine for mine in taken if len(mine) < most]
            min(free, key=lambda mine: sum(map(_tokens, mine))).append(part)
        mine = taken[self.rank]
        shortest = min((row for part in parts for row in part), key=lambda row: len(row.ids))
        return mine + [[shortest.silent()]] * (most - len(mine))

    def run_of(self, rows: Sequence[TrainRow]) -> list[TrainRow]:
        """This rank's rows where what some begin with is read once: a run in order of their ids.

        All ranks' come to about as many tokens, without those that a row has with the one before
        it. A rank may have none, so this is not for sharded weights.
        """
        ordered = sorted(rows, key=lambda row: row.ids)
        pairs = zip(ordered, [(), *(row.ids for row in ordered)], strict=False)
        own = [len(row.ids) - alike(row.ids, before) for row, before in pairs]
        middles = [end - tokens / 2 for end, tokens in zip(accumulate(own), own, strict=True)]
        places = [int(middle * self.world / sum(own)) for middle in middles]
        last = self.world - 1
        found = zip(ordered, places, strict=True)
        return [row for row, place in found if min(place, last) == self.rank]

    @classmethod
    @contextmanager
    def join(cls, device: Device) -> Iterator["Ranks"]:
        """Join the processes that torchrun started, if it did; leave them in the end.

        Within another `join` it is the same group, which that one leaves: torchrun has one store
        for the whole life of its processes, in which a second group would find the first's
        addresses.

        Raises SettingsError for a GPU that is not there, or that this process would have to share.
        After an error the group is left as it is: the process ends, and torchrun ends the others,
        which may be waiting for this one.
        """
        world, local = (
            int(os.environ.get("WORLD_SIZE", "1")),
            int(os.environ.get("LOCAL_RANK", "0")),
        )
        place = device_of(device, local)
        if world == 1:
            yield cls(device=place)
            return
        if dist.is_initialized():
            yield cls(dist.get_rank(), world, local, place, _values())
            return
        if place.type == "cuda":  # gloo is for what is offloaded to the processor
            dist.init_process_group("cpu:gloo,cuda:nccl", device_id=place)
        else:
            dist.init_process_group("gloo")
        yield cls(dist.get_rank(), world, local, place, _values())
        gc.collect()  # sharded weights hold on to the group
        dist.destroy_process_group()


@cache
def _values() -> Any:
    """The group of what is no tensor, which all ranks make at the same time."""
    return dist.new_group(backend="gloo", timeout=WAITED)


LOST = (
    "connection closed",
    "connection reset",
    "connection refused",
    "broken pipe",
    "gloo/",
    "nccl",
)
"""what a collective that cannot be finished says"""


def _brief(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= MOST_TOLD else f"{text[:MOST_TOLD]}..."


MOST_TOLD = 40
"""characters of a value in a sentence"""


def _tokens(part: Part) -> int:
    return sum(len(row.ids) for row in part)


ALONE = Ranks()


def whole(tensor: Tensor, keep: bool = True) -> Tensor:
    """A tensor in the processor's memory, of a sharded one with the parts of all ranks.

    Shares the memory of one that lies there whole already. A rank that does not `keep` it takes
    part in gathering, and gets nothing.
    """
    full = tensor.detach()
    full = full.full_tensor() if isinstance(full, DTensor) else full
    return full.cpu() if keep else full.new_empty(0, device="cpu")


def put(target: Tensor, values: Tensor) -> None:
    """Overwrite a tensor by a whole one; a sharded one takes its part."""
    with torch.no_grad():
        if not isinstance(target, DTensor):
            target.copy_(values)
            return
        # FSDP2 divides the first dimension, in order.
        part, size = target.to_local(), -(-len(values) // target.device_mesh.size())
        start = size * target.device_mesh.get_local_rank()
        part.copy_(values[start : start + len(part)].to(part.dtype))


def device_of(wanted: Device, local: int = 0) -> torch.device:
    """Where a process of this number on its machine computes; errors as `Ranks.join` has them."""
    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise SettingsError("torch finds no GPU here.", 'Set device to "cpu" or "auto".')
    if wanted == "cpu" or not there:
        return torch.device("cpu")
    check_gpu(local, torch.cuda.device_count())
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def check_gpu(local: int, gpus: int) -> None:
    """Raises SettingsError where a machine has no GPU for its process of this number, from 0."""
    if local >= gpus:
        raise SettingsError(
            f"this is process {local + 1} of its machine, where torch finds {gpus} GPU"
            f"{'' if gpus == 1 else 's'}: each process needs one of its own.",
            f'Start torchrun with --nproc-per-node={gpus}, or set device to "cpu".',
        )
