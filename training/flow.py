"""When the calls of a collecting run may begin: the one gate that all of them pass.

A run ends before its end for three reasons: a person interrupts it, its money is spent, or a
server serves nobody for long. Then no call begins any more, those in flight are finished and
kept, and the same command goes on later. Money is kept to its limit by letting fewer calls begin
the nearer it is: one more begins only where it and all in flight could each cost as much as the
dearest one did, and still fit.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from memory.errors import JudgeError, PolicyError, RubricemError
from memory.interfaces import Completion
from memory.journal import Journal
from training.meter import Meter, keep_lost
from training.purse import Purse

T = TypeVar("T")
GO_ON = "The same command goes on; what is finished is not repeated."


class RunStopped(RubricemError):
    """The run was ended before its end, by a person or by its limit of money."""

    by_person = False

    @classmethod
    def by_a_person(cls, sentence: str) -> "RunStopped":
        """Of ^C, or of whoever else sets a run's event to stop."""
        stopped = cls(sentence, GO_ON)
        stopped.by_person = True
        return stopped


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server is waited for that serves nobody; in seconds."""

    longest: float = 900.0
    """then the run ends"""
    alone: float = 60.0
    """a call that fails for so long while others succeed has failed by itself"""
    first: float = 5.0
    """wait; each next one is twice as long"""
    most: float = 60.0

    def wait(self, tried: int) -> float:
        return min(self.first * 2.0 ** (tried - 1), self.most)


@dataclass
class Flow:
    """The gate of one run; `meter` has heard what `journal` held when it was opened."""

    journal: Journal
    meter: Meter
    purse: Purse = field(default_factory=Purse)
    """what the whole run may cost; runs that share one are ended together by it"""
    patience: Patience = Patience()
    tell: Callable[[str], None] = lambda line: None
    in_flight: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._ended_by: RubricemError | None = None
        self._rollouts = self._parked = 0
        self.purse.share(self.journal.path, self.meter)
        self._answered: dict[str, float] = {}
        self._away: set[str] = set()

    @property
    def ended_by(self) -> RubricemError | None:
        """Why no call begins any more."""
        return self._ended_by or self.purse.empty

    def end(self, why: RubricemError) -> None:
        """Begin no call any more; the first reason stands."""
        self._ended_by = self.ended_by or why
        self._tell_change()

    async def over(self) -> None:
        """Return once the run was ended and all that was in flight is finished and kept."""
        await self._until(
            lambda: (
                self.ended_by is not None and self.in_flight == 0 and self._parked == self._rollouts
            )
        )

    @contextmanager
    def rollout(self) -> Iterator[None]:
        """A rollout goes on inside, until it ends or its next call may not begin."""
        self._rollouts += 1
        try:
            yield
        finally:
            self._rollouts -= 1
            self._tell_change()

    @contextmanager
    def parked(self) -> Iterator[None]:
        """A rollout waits inside for a place; a run that is ended does not wait for it."""
        self._parked += 1
        self._tell_change()
        try:
            yield
        finally:
            self._parked -= 1

    async def call(
        self, server: str, make: Callable[[], Awaitable[T]], *, of_rollout: bool = False
    ) -> T:
        """What `make` gives, once it may begin; never returns where the run has ended.

        A completion, or a reply as the journal keeps it, is counted. A server that serves nobody
        is waited for. Raises what `make` raises otherwise.
        """
        began, tried = 0.0, 0
        while True:
            await self._admitted(of_rollout)
            # Waiting for money is no waiting for the server.
            began = began or time.monotonic()
            self._count(1)
            try:
                made = await self._made(server, make)
                return made
            except (PolicyError, JudgeError) as error:
                tried += 1
                self._bear(error, server, began)
            finally:
                self._count(-1)
                self._tell_change()
            await self._until(lambda: self.ended_by is not None, self.patience.wait(tried))

    async def _admitted(self, of_rollout: bool) -> None:
        """Return where one more call may begin."""
        await self._until(lambda: self.ended_by is not None or self._affordable())
        if self.ended_by is not None:
            with self.parked() if of_rollout else nullcontext():
                await _for_ever()

    def _affordable(self) -> bool:
        if self.purse.affords():
            return True
        if not self.purse.in_flight:
            self.purse.empty = RunStopped(
                f"The run's money is spent: {self.purse.told()}, and another call may cost more.",
                f"Allow it more by {self.purse.limit}. {GO_ON}",
            )
            self._tell_change()
        return False

    def _count(self, calls: int) -> None:
        self.in_flight += calls
        self.purse.in_flight += calls

    async def _made(self, server: str, make: Callable[[], Awaitable[T]]) -> T:
        try:
            made = await make()
        except RubricemError as error:
            if error.usage is not None and error.usage.calls:
                self.meter.count(error.usage)
                await keep_lost(self.journal, error.usage)
            raise
        if isinstance(made, Completion):
            self.meter.count(made.usage)
        elif isinstance(made, Mapping):
            self.meter.hear(made)
        self._answered[server] = time.monotonic()
        if server in self._away:
            self._away.remove(server)
            self.tell(f"{server} answers again")
        return made

    def _bear(self, error: PolicyError | JudgeError, server: str, began: float) -> None:
        """Raise the error, end the run by it, or return where the server is to be waited for."""
        gone = time.monotonic() - began
        answers = self._answered.get(server, began) > began
        if not error.away or (answers and gone >= self.patience.alone):
            raise error
        if gone >= self.patience.longest:
            minutes = f"{self.patience.longest / 60:g} minutes"
            self.end(PolicyError(f"{error}; it was waited for {minutes}", GO_ON))
        elif server not in self._away:
            self._away.add(server)
            self.tell(f"{error}; it is waited for, and what does not need it goes on")

    async def _until(self, holds: Callable[[], bool], seconds: float | None = None) -> None:
        """Return once it holds, or after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    change = asyncio.get_running_loop().create_future()
                    self.purse.waiting.add(change)
                    try:
                        await change
                    finally:
                        self.purse.waiting.discard(change)

    def _tell_change(self) -> None:
        for change in self.purse.waiting:
            if not change.done():
                change.set_result(None)


async def _for_ever() -> NoReturn:
    """Wait to be cancelled."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody ends it")
