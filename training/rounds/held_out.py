"""The held-out questions: asked of a checkpoint by the same seeds, judged, and never learnt from.

Their rubrics are made at the first asking and kept, no memory is recalled, and nothing is put
into the bank: askings differ by the checkpoint alone.
"""

import asyncio
import json
from dataclasses import dataclass

from memory.runs import write_atomically
from training.questions_selecting import Selected
from training.rounds.collected import Sampled
from training.rounds.judge_numbers import reward_intervals
from training.rounds.numbers import numbers_of
from training.rounds.rows import judged_groups
from training.rounds.updating import Updates
from training.row_rule import RowRule
from training.run_directory import RunDirectory
from training.watching.events import HeldOutJudged, PhaseChanged, Watch, unwatched
from training.watching.names import of_held_out

NUMBERS = "numbers.json"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """When they are asked, and of what."""

    sampled: Sampled
    asked: Selected
    updates: Updates
    rule: RowRule
    stop: asyncio.Event | None = None
    watch: Watch = unwatched

    async def __call__(self, updates: int) -> None:
        """Ask them after so many updates if it is time for that; once, also after a kill."""
        config, run = self.sampled.config, self.sampled.folders.held_out(updates)
        due = updates % config.held_out_every == 0 or updates >= config.rounds
        if not due:
            return
        if not (run.folder / NUMBERS).exists():
            await self._ask(run, updates)
        if await asyncio.to_thread(self._is_best, updates):
            await asyncio.to_thread(self.updates.keep_best)

    async def _ask(self, run: RunDirectory, updates: int) -> None:
        self.watch(PhaseChanged("held-out", updates, True))
        async with self.sampled.held_out(run, self.asked, self.updates.checkpoint) as collector:
            await collector.collect(self.stop)
        found = await asyncio.to_thread(self._write, run, updates)
        self.watch(PhaseChanged("held-out", updates, False))
        self.watch(HeldOutJudged(updates, found))

    def _is_best(self, updates: int) -> bool:
        """Whether `best_by` chooses by this asking, and none of those before was as good."""
        training, folders = self.sampled.training, self.sampled.folders
        name = of_held_out(training.best_by)
        if name is None:
            return False
        better, now = training.better(name), _numbers(folders.held_out(updates))
        return all(better(now, _numbers(folders.held_out(n))) for n in range(1, updates))

    def _write(self, run: RunDirectory, updates: int) -> dict[str, float]:
        """The asking's numbers, its rewards with the 95% intervals of their means."""
        groups = judged_groups(run, updates)
        numbers = {n: v for n, v in numbers_of(groups, self.rule).items() if "spread" not in n}
        found = {"updates": float(updates), **numbers, **reward_intervals(groups)}
        write_atomically(run.folder / NUMBERS, json.dumps(found, indent=1))
        return found


def _numbers(run: RunDirectory) -> dict[str, float]:
    """What an asking gave; {} where there was none."""
    path = run.folder / NUMBERS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


async def not_asked(updates: int) -> None:
    """In place of `HeldOut` where no question is held out."""
