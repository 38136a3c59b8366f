"""What a run may spend - tokens, seconds, US dollars - and how its spending is watched.

A budget has a reserve: where what is left falls below it the research ends, so that an answer
can still be written; where nothing is left the run is broken off. Tokens are those processed
afresh, read and written: what a server read from its cache is not counted. Money is limited
where a price is known. A call is not begun that would, at the size of the one before it, spend
more tokens or dollars than are left; seconds also end a call in flight.

All that decides is taken from the journal where it holds the calls: the clock stands still
while finished calls are replayed, so a resumed run decides as it did at first.
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar, cast

from memory.schema import Stage, Usage

T = TypeVar("T")
Limited = Literal["tokens", "seconds", "cost"]
LIMITED: tuple[Limited, ...] = ("tokens", "seconds", "cost")
RESERVE = 0.15
"""share of a budget kept for the answer, or two of the largest calls so far where that is more"""
LARGEST_RESERVE = 0.5


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits of one run; None: no limit."""

    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    """in US dollars"""

    def phrases(self) -> dict[Limited, str]:
        """Each limit that there is, in words."""
        words: dict[Limited, str] = {}
        if self.tokens is not None:
            words["tokens"] = f"{self.tokens:,} tokens"
        if self.seconds is not None:
            words["seconds"] = f"{self.seconds:,g} seconds"
        if self.cost is not None:
            words["cost"] = f"{self.cost:,.6g} US dollar{'' if self.cost == 1 else 's'}"
        return words


UNLIMITED = Budgets()


class RunCut(Exception):
    """The run is broken off: a budget is spent, or a person wants it to end.

    `text` is what the policy had written of the turn in flight.
    """

    def __init__(self, by: Limited | Literal["interrupt"], stage: Stage, text: str = "") -> None:
        super().__init__(by)
        self.by = by
        self.stage = stage
        self.text = text


class OutOfTime(Exception):
    """A call was ended before its own end: by its budget of seconds, or by a person."""

    def __init__(self, by: Literal["seconds", "interrupt"]) -> None:
        super().__init__(by)
        self.by = by


@dataclass
class Spending:
    """What one run has spent so far of its budgets."""

    budgets: Budgets = UNLIMITED
    stop: asyncio.Event | None = None
    """set by a person who wants the run to end now"""
    _spent: dict[Limited, float] = field(default_factory=lambda: dict.fromkeys(LIMITED, 0.0))
    _last: dict[Limited, float] = field(default_factory=lambda: dict.fromkeys(LIMITED, 0.0))
    _largest: dict[Limited, float] = field(default_factory=lambda: dict.fromkeys(LIMITED, 0.0))
    _since: float | None = field(default_factory=time.monotonic)
    """None while finished calls are replayed"""

    @property
    def seconds(self) -> float:
        """Time the run was worked on, in this process and before."""
        going = 0.0 if self._since is None else time.monotonic() - self._since
        return self._spent["seconds"] + going

    def live(self) -> None:
        """From now on time counts: a call is made that no journal holds."""
        if self._since is None:
            self._since = time.monotonic()

    def stand(self) -> None:
        """A person is waited for: until the next call is made no time counts."""
        self._spent["seconds"], self._since = self.seconds, None

    def replayed(self, at: float) -> None:
        """A call was read back that had ended after so many seconds; the clock stands there."""
        self._spent["seconds"], self._since = max(at, 0.0), None

    def count(self, usage: Usage, seconds: float) -> None:
        """Count one call of the policy and how long it took."""
        fresh = max(usage.prompt_tokens - usage.cached_tokens, 0) + usage.completion_tokens
        self._spent["tokens"] += fresh
        self._spent["cost"] += usage.cost or 0.0
        sizes = {"tokens": float(fresh), "seconds": seconds, "cost": usage.cost or 0.0}
        self._last = cast(dict[Limited, float], sizes)
        self._largest = {name: max(self._largest[name], self._last[name]) for name in LIMITED}

    def low(self) -> Limited | None:
        """The budget of which only the reserve is left."""
        for name, limit in self._limits():
            reserve = min(max(RESERVE * limit, 2 * self._largest[name]), LARGEST_RESERVE * limit)
            if self._used(name) > limit - reserve:
                return name
        return None

    def out(self) -> Limited | None:
        """The budget that does not allow another call of the policy."""
        for name, limit in self._limits():
            coming = 0.0 if name == "seconds" else self._last[name]
            if self._used(name) >= limit or self._used(name) + coming > limit:
                return name
        return None

    def room(self, tokens: int) -> int:
        """So many tokens as may be written, of those wanted."""
        if self.budgets.tokens is None:
            return tokens
        return max(min(tokens, self.budgets.tokens - int(self._spent["tokens"])), 1)

    async def bounded(self, call: Coroutine[Any, Any, T]) -> T:
        """What the call gives; raises OutOfTime where it is ended before."""
        if self.stop is None and self.budgets.seconds is None:
            return await call
        left = None if self.budgets.seconds is None else self.budgets.seconds - self.seconds
        stopping = self.stop is not None and self.stop.is_set()
        if stopping or (left is not None and left <= 0):
            call.close()
            raise OutOfTime("interrupt" if stopping else "seconds")
        task = asyncio.ensure_future(call)
        stopped = asyncio.ensure_future((self.stop or asyncio.Event()).wait())
        try:
            await asyncio.wait({task, stopped}, timeout=left, return_when="FIRST_COMPLETED")
            if task.done():
                return task.result()
            raise OutOfTime("interrupt" if stopped.done() else "seconds")
        finally:
            task.cancel()
            stopped.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    def holds(self, decision: dict[str, Any]) -> bool:
        """Whether a decision that the journal kept is still right: not under a larger budget."""
        limit = asdict(self.budgets).get(decision["by"])
        return limit is not None and limit <= decision["limit"]

    def decision(self, by: Limited, text: str = "") -> dict[str, Any]:
        """A decision as the journal keeps it."""
        limit = asdict(self.budgets)[by]
        return {"by": by, "limit": limit, "text": text, "at": self.seconds}

    def _limits(self) -> list[tuple[Limited, float]]:
        limits = {name: getattr(self.budgets, name) for name in LIMITED}
        return [(name, limit) for name, limit in limits.items() if limit is not None]

    def _used(self, name: Limited) -> float:
        return self.seconds if name == "seconds" else self._spent[name]


def reason_of(by: str, budgets: Budgets, *, low: bool = False) -> str:
    """Why a run ended early, as a clause."""
    if by == "interrupt":
        return "it was interrupted"
    phrase = budgets.phrases()[cast(Limited, by)]
    how = "ran low, so the research ended before it was done" if low else "ran out"
    return f"the budget of {phrase} {how}"
