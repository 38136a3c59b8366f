"""The order in which rounds that overlap reach what they share.

A round passes three milestones: its rollouts have ended, its groups are judged, and it is kept,
its reflections included. Rounds overlap, but the bank takes what they teach in their order, and
each recalls from it as it stood after a round that follows from the numbers alone: so results do
not depend on which round was faster, or on where a run was killed.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from memory.schema import Reflection
from training.curriculum import Curriculum
from training.groups import Memory, Milestone
from training.watching.events import Phase

OnPhase = Callable[[Phase, bool], None]
"""Called with a phase as it begins (True) and ends."""
_NEXT: dict[str, tuple[Phase, Phase | None]] = {
    "rollout": ("collect", "judge"),
    "judge": ("judge", "reflect"),
    "reflect": ("reflect", None),
}
"""of a part that is timed, the phase that ends with it and the one that begins"""


@dataclass
class Milestones:
    """How far a round of so many groups is, and when it came there."""

    groups: int
    rolled: asyncio.Event = field(default_factory=asyncio.Event)
    judged: asyncio.Event = field(default_factory=asyncio.Event)
    kept: asyncio.Event = field(default_factory=asyncio.Event)
    seconds: dict[str, float] = field(default_factory=dict)
    """of each part; of a round that went on after a kill, from there"""
    on_phase: OnPhase = lambda phase, running: None

    def __post_init__(self) -> None:
        self._reached: dict[Milestone, set[str]] = {"rolled": set(), "judged": set()}
        self._last: float | None = None

    def begin(self) -> None:
        self._last = time.monotonic()
        self.on_phase("collect", True)

    def reached(self, milestone: Milestone, group: str) -> None:
        self._reached[milestone].add(group)
        if len(self._reached[milestone]) == self.groups:
            if milestone == "rolled":
                self._pass("rollout", self.rolled)
            else:
                self._pass("judge", self.judged)

    def all_kept(self) -> None:
        """Also of a round that was kept before a kill, and passes no milestone any more."""
        self._pass("reflect", self.kept)
        self.rolled.set()
        self.judged.set()

    def _pass(self, part: str, event: asyncio.Event) -> None:
        if not event.is_set():
            now = time.monotonic()
            if self._last is not None:
                self.seconds[part], self._last = now - self._last, now
                over, begun = _NEXT[part]
                self.on_phase(over, False)
                if begun is not None:
                    self.on_phase(begun, True)
            event.set()


class InTurn:
    """The bank of a round, which is put into only after the round before is kept."""

    def __init__(self, memory: Memory, before: asyncio.Event, idle: asyncio.Event) -> None:
        """`idle` is set once the round only waits for the one before, with no call in flight."""
        self._memory = memory
        self._before = before
        self._idle = idle

    async def generation(self) -> int:
        return await self._memory.generation()

    def pin(self, generation: int, *, own: bool = True) -> None:
        self._memory.pin(generation, own=own)

    async def put(self, reflection: Reflection) -> bool:
        self._idle.set()
        await self._before.wait()
        return await self._memory.put(reflection)


def recalls_after(curriculum: Curriculum, number: int, ahead: int) -> int:
    """The round after which the bank is as a round sees it; -1: as it was at the beginning.

    A round that runs ahead waits for no reflections of the two before it, which may take as long
    as two rounds; one that asked the same questions it does wait for: what it taught of them has
    to be there. It never sees less than the round before saw.
    """
    return max(_recalls_after(curriculum, n, ahead) for n in range(number + 1))


def _recalls_after(curriculum: Curriculum, number: int, ahead: int) -> int:
    own, over = _asked(curriculum, number), max(number - 1 - 2 * ahead, -1)
    shares = (n for n in range(number - 1, over, -1) if own & _asked(curriculum, n))
    return next(shares, over)


def _asked(curriculum: Curriculum, number: int) -> set[str]:
    return {question.question for question in curriculum.batch(number).questions}
