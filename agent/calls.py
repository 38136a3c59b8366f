"""Calls of one run: found in its journal, or made within its budgets and then kept there.

A finished call is never made again and never refused: budgets are asked only before a call that
the journal does not hold. What the clock decided is kept as well, so that a resume with the
same budget hears the same, and one with a larger budget goes on.
"""

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from agent.budgets import Limited, OutOfTime, RunCut, Spending
from memory.journal import CallKey, Journal
from memory.schema import Stage
from memory.text import storable

Reply = dict[str, Any]
MakeCall = Callable[[], Coroutine[Any, Any, Reply]]


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one run."""

    journal: Journal
    spending: Spending

    async def write(
        self, key: CallKey, cut: CallKey, stage: Stage, call: MakeCall, heard: list[str]
    ) -> Reply:
        """A reply of the policy; raises RunCut where a budget does not allow the call.

        `heard` grows while the policy writes; `cut` is the key of the end by the clock.
        """
        if self.journal.find(key) is None and self.journal.find(cut) is None:
            by = self.spending.out()
            if by is not None and by != "seconds":
                raise RunCut(by, stage)
        return await self.reply(key, cut, stage, call, heard)

    async def reply(
        self, key: CallKey, cut: CallKey, stage: Stage, call: MakeCall, heard: list[str]
    ) -> Reply:
        """The reply to any call; raises RunCut where the clock or a person ends it."""
        if (kept := self.journal.find(key)) is not None:
            self.spending.replayed(kept.get("at", 0.0))
            return kept
        self.spending.live()
        began = self.spending.seconds
        reply = await self._within_limits(cut, stage, call, heard)
        at = _milliseconds(self.spending.seconds)
        reply = reply | {"at": at, "took": max(at - began, 0.0)}
        await self.journal.append(key, reply)
        return reply

    async def low(self, key: CallKey) -> Limited | None:
        """The budget of which only the reserve is left."""
        kept = self.journal.find(key)
        if kept is not None and self.spending.holds(kept):
            by: Limited = kept["by"]
            return by
        low = self.spending.low()
        if low == "seconds":
            await self.journal.append(key, self.spending.decision(low))
        return low

    async def _within_limits(
        self, key: CallKey, stage: Stage, call: MakeCall, heard: list[str]
    ) -> Reply:
        kept = self.journal.find(key)
        if kept is not None and self.spending.holds(kept):
            self.spending.replayed(kept["at"])
            raise RunCut(kept["by"], stage, kept["text"])
        try:
            return await self.spending.bounded(call())
        except OutOfTime as end:
            text = storable("".join(heard))
            if end.by == "seconds":
                await self.journal.append(key, self.spending.decision("seconds", text))
            raise RunCut(end.by, stage, text) from None


def _milliseconds(seconds: float) -> float:
    # Down, so that a clock that stands here in a resume is never ahead of what was seen first.
    return math.floor(seconds * 1000) / 1000
