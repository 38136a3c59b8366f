"""The gate that all calls of a collecting run pass: it decides when each may begin.

A run ends early when a person interrupts it, its money is spent, or a server is away for long. Then
no new call begins, those in flight are finished and kept, and the same command resumes the run.
Where money is limited, a call begins only if it and all in flight, each at the cost of the dearest
call so far, still fit. Runs that share a purse belong to one training; the cost of each is in its
own journal, including calls without a usable reply.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rubricem.agent.models.policy import (
    BesidePolicy,
    JournaledCalls,
    MakeCall,
    Policy,
    journal_calls,
)
from rubricem.memory.asking import usage_of_error
from rubricem.memory.errors import JudgeError, PolicyError, RubricemError, SettingsError
from rubricem.memory.runs import CallKey, Journal
from rubricem.memory.schema import (
    NO_USAGE,
    Completion,
    OnText,
    Sampling,
    Segment,
    StopPredicate,
    Usage,
)

LIMIT = "max_run_cost"
LOST = "lost"
"""the journal's thread for what failed calls had cost"""


class Meter:
    """Sums usage: of the journal's replies as it is opened, then of each call."""

    def __init__(self) -> None:
        self.cost = 0.0
        """in US dollars, of the calls whose price is known"""
        self.largest = 0.0
        self.calls = 0

    def hear(self, reply: Mapping[str, Any]) -> None:
        self.count(usage_of(reply))

    def count(self, usage: Usage) -> None:
        self.calls += usage.calls
        if usage.cost is not None:
            self.cost += usage.cost
            self.largest = max(self.largest, usage.cost)


def usage_of(reply: Mapping[str, Any]) -> Usage:
    usage = reply.get("usage")
    return Usage.model_validate(usage) if usage else NO_USAGE


@dataclass(eq=False)
class Purse:
    """What may be spent, is spent, and is about to be."""

    most: float | None = None
    """US dollars; None: no limit"""
    limit: str = LIMIT
    empty: RubricemError | None = None
    """why no run that shares it begins a call any more"""
    in_flight: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """set, and replaced by a new one, when something has changed of a run that shares it"""
    _meters: dict[Path, Meter] = field(default_factory=dict)

    def share(self, journal: Path, meter: Meter) -> None:
        self._meters[journal] = meter

    def count(self, journals: Iterable[Path]) -> None:
        """Count journals that nobody has open. Raises StoreError where one cannot be read."""
        for path in journals:
            meter = Meter()
            Journal(path, meter.hear, lambda thread: False).close()
            self.share(path, meter)

    @property
    def spent(self) -> float:
        return sum(meter.cost for meter in self._meters.values())

    def affords(self) -> bool:
        if self.most is None:
            return True
        # What a call costs is known from the first one on.
        if not any(meter.calls for meter in self._meters.values()):
            return not self.in_flight
        dearest = max(meter.largest for meter in self._meters.values())
        return self.spent + (self.in_flight + 1) * dearest <= self.most

    def describe(self) -> str:
        return f"{self.spent:.2f} of {self.most or 0:g} US dollars"


T = TypeVar("T")
GO_ON = "The same command continues; finished work is not repeated."
MEND = "Fix that and run the same command again; finished work is not repeated."


class RunStopped(RubricemError):
    """The run was ended before its end, by a person or by its limit of money."""

    def __init__(self, sentence: str, remedy: str = GO_ON, *, by_person: bool = False) -> None:
        """`by_person`: by ^C, or by whoever else sets a run's event to stop."""
        super().__init__(sentence, remedy)
        self.by_person = by_person


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server is waited for that serves nobody; in seconds."""

    longest: float = 900.0
    """then the run ends"""
    alone: float = 60.0
    """a call that fails for so long while others succeed has failed by itself"""
    first: float = 5.0
    most: float = 60.0

    def wait(self, tried: int) -> float:
        return min(self.first * 2.0 ** (tried - 1), self.most)


@dataclass
class RunGate:
    """The gate of one run; `meter` has heard what `journal` held when it was opened."""

    journal: Journal
    meter: Meter
    purse: Purse = field(default_factory=Purse)
    """what the whole run may cost; runs that share one are ended together by it"""
    patience: Patience = Patience()
    tell: Callable[[str], None] = lambda line: None
    name: str = "The run"
    in_flight: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._ended_by: RubricemError | None = None
        self._rollouts = self._parked = 0
        self.purse.share(self.journal.path, self.meter)
        self._answered: dict[str, float] = {}
        self._away: set[str] = set()

    @property
    def ended_by(self) -> RubricemError | None:
        return self._ended_by or self.purse.empty

    def end(self, why: RubricemError) -> None:
        """Begin no call any more; the first reason stands."""
        self._ended_by = self.ended_by or why
        self._tell_change()

    async def through(self, work: Awaitable[T], stop: asyncio.Event | None = None) -> T:
        """What the work gives; raises RunStopped where `stop` or the limit of money ended it."""

        async def wait_for_stop() -> None:
            if stop is not None:
                await stop.wait()
                self.end(RunStopped(f"{self.name} was interrupted.", by_person=True))

        def is_over() -> bool:
            idle = self.in_flight == 0 and self._parked == self._rollouts
            return self.ended_by is not None and idle

        doing = asyncio.ensure_future(work)
        over = asyncio.ensure_future(self._until(is_over))
        stopping = asyncio.ensure_future(wait_for_stop())
        try:
            await asyncio.wait({doing, over}, return_when=asyncio.FIRST_COMPLETED)
            if self.ended_by is not None and not doing.done():
                raise self.ended_by
            return doing.result()
        finally:
            for task in (doing, over, stopping):
                task.cancel()
            await asyncio.gather(doing, over, stopping, return_exceptions=True)

    def calls(self, server: str) -> JournaledCalls:
        return JournaledCalls(self.journal, partial(self.call, server))

    def usage_in(self, thread: str) -> Usage:
        return sum(map(usage_of, self.journal.replies_of(thread).values()), NO_USAGE)

    def with_journal(self, model: Any) -> Any:
        return journal_calls(model, self.calls(model.name))

    async def ask_rubric(self, call: str, ask: MakeCall) -> dict[str, Any]:
        """The reply to a rubric; the run ends where it cost an unknown amount of limited money."""
        reply = await self.calls("the model that a rubric asks").once(call, ask)
        if self.purse.most is not None and usage_of(reply).cost is None:
            limit = self.purse.limit
            self.end(
                SettingsError(
                    f"{limit} cannot be kept: a rubric asks a model of its own, whose price is not "
                    "known.",
                    f"Leave out {limit}, or take another judge.",
                )
            )
        return reply

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
    def job(self) -> Iterator[None]:
        """A call, or those that other processes make, is in flight inside."""
        self.in_flight += 1
        self.purse.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self.purse.in_flight -= 1
            self._tell_change()

    async def call(
        self, server: str, make: Callable[[], Awaitable[T]], *, of_rollout: bool = False
    ) -> T:
        """What `make` gives, once it may begin; never returns where the run has ended.

        A server that serves nobody is waited for. Raises what `make` raises otherwise.
        """
        began, tried = 0.0, 0
        while True:
            await self._until(lambda: self.ended_by is not None or self._affordable())
            if self.ended_by is not None:
                self._parked += of_rollout
                self._tell_change()
                try:
                    await asyncio.Event().wait()
                finally:
                    self._parked -= of_rollout
            # Waiting for money is no waiting for the server.
            began = began or time.monotonic()
            with self.job():
                try:
                    return await self._make(server, make)
                except (PolicyError, JudgeError) as error:
                    tried += 1
                    self._bear(error, server, began)
            await self._until(lambda: self.ended_by is not None, self.patience.wait(tried))

    def _affordable(self) -> bool:
        if self.purse.affords():
            return True
        if not self.purse.in_flight:
            self.purse.empty = RunStopped(
                f"The run's budget is spent: {self.purse.describe()}, "
                "and another call may cost more.",
                f"Allow more by {self.purse.limit}. {GO_ON}",
            )
            self._tell_change()
        return False

    async def _make(self, server: str, make: Callable[[], Awaitable[T]]) -> T:
        try:
            made = await make()
        except (RubricemError, asyncio.CancelledError) as error:
            if (spent := usage_of_error(error)).calls:
                self.meter.count(spent)
                # The journal keeps what a call had cost that failed in the end, or was cut off.
                key = CallKey(LOST, 0, 0, uuid.uuid4().hex)
                keeping = asyncio.ensure_future(
                    self.journal.append(key, {"usage": spent.model_dump(mode="json")})
                )
                await asyncio.shield(keeping)
                self.journal.forget(LOST)
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
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    await self.purse.changed.wait()

    def _tell_change(self) -> None:
        self.purse.changed.set()
        self.purse.changed = asyncio.Event()


class GatedPolicy(BesidePolicy):
    """A `Policy` that writes rollouts: each of its turns begins when the gate lets it."""

    def __init__(self, policy: Policy, gate: RunGate) -> None:
        super().__init__(policy)
        self._gate = gate

    async def write(
        self, system: str, transcript: Sequence[Segment], sampling: Sampling,
        stop: StopPredicate | None, on_text: OnText | None,
    ) -> Completion:  # fmt: skip
        return await self._gate.call(
            self.name,
            lambda: self._policy.write(system, transcript, sampling, stop, on_text),
            of_rollout=True,
        )


def check_priced(*models: Any, limit: str = LIMIT) -> None:
    """Raise SettingsError where a limit of money could not be kept for want of a price."""
    # Models of this process have no price.
    unknown = [m.name for m in models if getattr(m, "price", True) is None]
    if unknown:
        raise SettingsError(
            f"{limit} cannot be kept: the price of {unknown[0]} is not known.",
            "Name it under prices in rubricem.toml: MODEL = [prompt, cached, completion], in US "
            "dollars for a million tokens.",
        )
