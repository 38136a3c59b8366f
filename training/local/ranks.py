"""The processes that train together, as torchrun starts them, and what they exchange.

Every process reads the same rows and plans the same windows; only forward and backward passes are
divided, so only gradients, metrics and, for saving, sharded weights are sent. A rank with fewer
parts of a window than another runs parts without a trained token, since sharded weights are fetched
together at each block.

accelerate joins the processes and sends them what is no tensor, by gloo. The time-out is days,
since a rank that follows waits for the first one while that collects.
"""

import atexit
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.training.objective.batch import Part

T = TypeVar("T")
CPU = torch.device("cpu")
WAITED = timedelta(days=30)
"""for the other ranks; one whose process ends is known at once by its connection"""
LOST = (
    "connection closed",
    "connection reset",
    "connection refused",
    "broken pipe",
    "gloo/",
    "nccl",
)
"""what a collective that cannot be finished says"""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train together."""

    rank: int = 0
    world: int = 1
    local: int = 0
    """its number on this machine"""
    device: torch.device = CPU

    @classmethod
    def join(cls) -> "Ranks":
        """Join the processes that torchrun started, if it did, until this process ends.

        Raises SettingsError for a GPU that this process would have to share.
        """
        local = int(os.environ.get("LOCAL_RANK", "0"))
        place = device_of(local)
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls(device=place)
        on_gpu = place.type == "cuda"
        backend = {"backend": "cpu:gloo,cuda:nccl"} if on_gpu else {}
        joined = dist.is_initialized()
        state = PartialState(cpu=not on_gpu, timeout=WAITED, **backend)
        if not joined:
            atexit.register(state.destroy_process_group)
        return cls(state.process_index, state.num_processes, local, place)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and tells."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all are here."""
        self.gather(None)

    def gather(self, value: T) -> list[T]:
        """The value of each rank, in their order."""
        if self.world == 1:
            return [value]
        with self.report_lost():
            return list(gather_object([value]))

    def broadcast(self, value: T | None = None) -> T:
        """The first rank's value, to all; the others wait for it, however long it takes."""
        held = [value]
        if self.world > 1:
            with self.report_lost():
                broadcast_object_list(held)
        return held[0]  # type: ignore[return-value]

    @contextmanager
    def report_lost(self) -> Iterator[None]:
        """Work that all ranks have a part in. Raises PolicyError where one of them is gone."""
        if self.device.type == "cuda":  # for each thread it is the first GPU until it is said
            torch.cuda.set_device(self.device)
        try:
            yield
        except RuntimeError as error:
            lost = any(sign in str(error).casefold() for sign in LOST)
            if self.world == 1 or not (lost or isinstance(error, dist.DistError)):
                raise
            raise PolicyError(
                "Another process of the training has ended, or cannot be reached any more.",
                "See its messages; the same command continues from the newest checkpoint, also "
                "with another number of processes.",
            ) from error

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make each gradient the sum over all ranks; one that a rank has none of counts as 0.

        A sum and not a mean, since each token's weight is a share of the whole window already.
        Sharded ones are summed already.
        """
        if self.world == 1:
            return
        for parameter in parameters:
            if not isinstance(parameter, DTensor):
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)

    def check_alike(self, seen: Mapping[str, Any]) -> None:
        """Raises SettingsError where the ranks see other things under a name; all have to ask."""
        found = self.gather(dict(seen))
        other = [n for n in seen if any(each.get(n) != found[0].get(n) for each in found)]
        if other:
            raise SettingsError(
                f"the processes that train together do not see the same {', '.join(other)}.",
                "Give all machines the same configuration, files, weights and packages, and a "
                "folder `out` that they share.",
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
        if isinstance(target, DTensor):  # all ranks have the values: nothing is sent
            there, mesh, parts = values.to(target.device), target.device_mesh, target.placements
            values = distribute_tensor(there, mesh, parts, src_data_rank=None)
        target.copy_(values)


def device_of(local: int = 0) -> torch.device:
    """Where a process of this number on its machine computes: on a GPU if torch finds one.

    Errors as `Ranks.join` has them. An empty CUDA_VISIBLE_DEVICES means the processor.
    """
    if not torch.cuda.is_available():
        return CPU
    if local >= (gpus := torch.cuda.device_count()):
        raise SettingsError(
            f"this is process {local + 1} of its machine, where torch finds {gpus} GPUs: each "
            "process needs one of its own.",
            f"Start torchrun with --nproc-per-node={gpus}, or with CUDA_VISIBLE_DEVICES empty.",
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)
