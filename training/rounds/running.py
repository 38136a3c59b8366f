"""Rounds of collecting and training, one step ahead of each other.

    rollouts     N+1 ---------->  N+2 ---------->
    judge         N  -->          N+1 -->
    reflect            N  ------>      N+1 ------>
    update        N-1's reflections, N's rollouts     N's reflections, N+1's rollouts

While round N is judged, reflected upon and trained, the rollouts of N+1 are sampled from the
policy before that update; N's reflections become rows a round later, so that nobody waits for
them (RubricEM, arXiv:2605.10899, section 3.4 and appendix D). Which checkpoint a round samples
from and which state of the bank it sees follow from its number alone. Every finished part is on
disk before the next begins, and the same call goes on after a kill.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from training.blocking import in_thread
from training.collecting import Collector
from training.compiling import Compiled
from training.curriculum import Batch, Curriculum
from training.groups import Snapshot
from training.rounds.folders import RoundFolders
from training.rounds.numbers import (
    both_updates,
    numbers_of,
    reflection_numbers,
    rows_numbers,
)
from training.rounds.rows import (
    JudgedGroup,
    RoundRows,
    judged_groups,
    lag,
    reflected_rows,
    rollout_rows,
    usable,
)
from training.rounds.together import all_of
from training.rounds.turns import InTurn, Milestones, recalls_after
from training.rounds.updating import Updates
from training.rounds.variety import Variety
from training.row_rule import RowRule
from training.watching.events import Phase, PhaseChanged, RoundTrained, Watch, unwatched

OpenRound = Callable[[int, Batch], AbstractAsyncContextManager[Collector]]
KEPT = "kept"
"""the part of a round that holds the state of the bank after it"""


@dataclass(frozen=True, slots=True)
class RoundRules:
    """How rounds follow one another, and which of their rows are trained."""

    rounds: int
    ahead: int
    max_staleness: int
    max_row_tokens: int
    rows: RowRule


@dataclass
class Rounds:
    """All rounds of one training run that are not done yet."""

    rules: RoundRules
    curriculum: Curriculum
    folders: RoundFolders
    open_round: OpenRound
    updates: Updates
    held_out: Callable[[int], Awaitable[None]]
    """asks the held-out questions after so many updates, if they are to be asked then"""
    variety: Variety = field(default_factory=Variety)
    tell: Callable[[str], None] = lambda line: None
    watch: Watch = unwatched
    stop: asyncio.Event | None = None
    """once set, no call begins any more, and the run ends when those in flight are kept"""
    _collecting: set[asyncio.Event] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Do every round that is not done. Raises what ended it: RunStopped at `stop`."""
        done, rounds = self.updates.done, range(max(self.updates.done - 1, 0), self.rules.rounds)
        self._at = {n: self._milestones(n) for n in rounds}
        self._trained = [asyncio.Event() for _ in range(max(done, self.rules.rounds) + 1)]
        for updates in range(done):
            self._trained[updates].set()
        await self._let_sample(done)
        tasks = [asyncio.ensure_future(self._train())]
        tasks += [asyncio.ensure_future(self._collect(number)) for number in rounds]
        await all_of(tasks, self.stop, self._collecting)

    def _milestones(self, number: int) -> Milestones:
        return Milestones(
            len(self.curriculum.batch(number).questions), on_phase=partial(self._changed, number)
        )

    def _changed(self, number: int, phase: Phase, running: bool) -> None:
        self.watch(PhaseChanged(phase, number + 1, running))

    async def _let_sample(self, updates: int) -> None:
        """Let the rounds begin that sample from the checkpoint after so many updates."""
        last = updates + self.rules.ahead
        if (checkpoint := self.updates.checkpoint) is not None:
            for number in range(last if updates else 0, last + 1):
                await asyncio.to_thread(self.folders.keep_policy, number, checkpoint)
        self._trained[updates].set()

    async def _collect(self, number: int) -> None:
        """One round: rollouts, judgement, reflections, and what they teach into the bank."""
        at, run = self._at[number], self.folders.round(number)
        if run.part(0, KEPT, Snapshot) is None:
            await self._its_turn(number)
            at.begin()
            async with self.open_round(number, self.curriculum.batch(number)) as collector:
                await self._collected(number, collector)
        await asyncio.to_thread(self.folders.release_policy, number)
        at.all_kept()
        self.tell(f"round {number + 1} of {self.rules.rounds} is collected")

    async def _its_turn(self, number: int) -> None:
        """Return once there is nothing left that the round has to wait for."""
        before = self._at.get(number - 1)
        if before is not None:
            await before.rolled.wait()
        await self._trained[max(number - self.rules.ahead, 0)].wait()
        for earlier in range(recalls_after(self.curriculum, number, self.rules.ahead) + 1):
            if earlier in self._at:
                await self._at[earlier].kept.wait()

    async def _collected(self, number: int, collector: Collector) -> None:
        at, run = self._at[number], self.folders.round(number)
        before = self._at.get(number - 1)
        collector.reached = at.reached
        collector.fresh = self.curriculum.batch(number).fresh
        seen = self._bank_seen_by(number)
        if collector.memory is not None and seen is not None:
            run.save_part(0, "snapshot", seen)
        with self._awaited_at_stop() as idle:
            if collector.memory is not None and before is not None:
                collector.memory = InTurn(collector.memory, before.kept, idle)
            await collector.collect(self.stop)
        if before is not None:
            await before.kept.wait()
        generation = await collector.memory.generation() if collector.memory is not None else 0
        run.save_part(0, KEPT, Snapshot(generation=generation))

    async def _ask_held_out(self, updates: int) -> None:
        with self._awaited_at_stop():
            await self.held_out(updates)

    @contextmanager
    def _awaited_at_stop(self) -> Iterator[asyncio.Event]:
        """Whoever stops the rounds waits until the event is set, at the latest at the end."""
        idle = asyncio.Event()
        self._collecting.add(idle)
        try:
            yield idle
        finally:
            idle.set()

    def _bank_seen_by(self, number: int) -> Snapshot | None:
        """The state of the bank that a round recalls from; None: as it is when round 0 begins."""
        after = recalls_after(self.curriculum, number, self.rules.ahead)
        if after >= 0:
            return self.folders.round(after).part(0, KEPT, Snapshot)
        return self.folders.round(0).part(0, "snapshot", Snapshot) if number else None

    async def _train(self) -> None:
        """Every update that is not saved yet, each as soon as what it needs is there."""
        for number in range(self.updates.done, self.rules.rounds):
            await self._ask_held_out(number)
            await self._update(number)
        await self._ask_held_out(self.updates.done)

    async def _update(self, number: int) -> None:
        """The two updates of a round, saved as one; once the second begins they come to that."""
        began = monotonic()
        waited, before, reflections = await self._reflections_before(number)
        reflected = await in_thread(partial(self.updates.update, reflections.rows))
        waited += await _waited_for(self._at[number].judged)
        with self._awaited_at_stop():
            groups, rollouts = await asyncio.to_thread(self._rollouts, number)
            self._changed(number, "update", True)
            trained = await in_thread(partial(self.updates.update, rollouts.rows))
            metrics = {
                "round": float(number + 1),
                **both_updates(reflected, trained),
                **await asyncio.to_thread(numbers_of, groups, self.rules.rows),
                **reflection_numbers(before),
                **await self.variety(groups),
                **rows_numbers(rollouts, reflections),
                **self._seconds(number),
                "seconds/wait": waited,
                "seconds/train": monotonic() - began - waited,
            }
            await in_thread(partial(self.updates.save, metrics))
            await self._let_sample(number + 1)
            self._changed(number, "update", False)
            self.watch(RoundTrained(number + 1, self.rules.rounds, metrics))

    async def _reflections_before(self, number: int) -> tuple[float, list[JudgedGroup], RoundRows]:
        """The seconds waited for the round before to be kept, its groups and reflection rows."""
        if not number:
            return 0.0, [], RoundRows()
        waited = await _waited_for(self._at[number - 1].kept)
        return waited, *await asyncio.to_thread(self._reflections, number - 1)

    def _reflections(self, number: int) -> tuple[list[JudgedGroup], RoundRows]:
        run = self.folders.round(number)
        groups = judged_groups(run, number)
        found = reflected_rows(groups, run.manifest().policy_version)
        return groups, self._usable(found, number, number + 1)

    def _rollouts(self, number: int) -> tuple[list[JudgedGroup], RoundRows]:
        groups = judged_groups(self.folders.round(number), number)
        return groups, self._usable(rollout_rows(groups, self.rules.rows), number, number)

    def _usable(self, found: Compiled, number: int, updates: int) -> RoundRows:
        """The rows of a round that a policy after so many updates is trained on."""
        rounds, changes = range(number + 1), self.updates.changes
        versions = [self.folders.round(n).manifest().policy_version for n in rounds]
        sampled = [changes(max(n - self.rules.ahead, 0)) for n in rounds]
        staleness = lag(versions, sampled, number, changes(updates))
        return usable(found, staleness, self.rules.max_staleness, self.rules.max_row_tokens)

    def _seconds(self, number: int) -> dict[str, float]:
        """Of the round's rollouts and judgement, and of the reflections of the one before."""
        before = self._at[number - 1].seconds if number - 1 in self._at else {}
        timed = {**self._at[number].seconds, "reflect": before.get("reflect")}
        return {f"seconds/{part}": took for part, took in timed.items() if took is not None}


async def _waited_for(event: asyncio.Event) -> float:
    began = monotonic()
    await event.wait()
    return monotonic() - began
