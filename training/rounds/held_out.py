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
from training.rounds.numbers import numbers_of
from training.rounds.rows import judged_groups
from training.rounds.updating import Updates
from training.row_rule import RowRule
from training.run_directory import RunDirectory

NUMBERS = "numbers.json"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """When they are asked, and of what."""

    sampled: Sampled
    asked: Selected
    updates: Updates
    rule: RowRule
    stop: asyncio.Event | None = None

    async def __call__(self, updates: int) -> None:
        """Ask them after so many updates if it is time for that; once, also after a kill."""
        config, run = self.sampled.config, self.sampled.folders.held_out(updates)
        due = updates % config.held_out_every == 0 or updates >= config.rounds
        if not due or (run.folder / NUMBERS).exists():
            return
        async with self.sampled.held_out(run, self.asked, self.updates.checkpoint) as collector:
            await collector.collect(self.stop)
        await asyncio.to_thread(self._write, run, updates)

    def _write(self, run: RunDirectory, updates: int) -> None:
        numbers = numbers_of(judged_groups(run, updates), self.rule)
        found = {"updates": updates, **{n: v for n, v in numbers.items() if "spread" not in n}}
        write_atomically(run.folder / NUMBERS, json.dumps(found, indent=1))
        means = (f"{n} {v:.3f}" for n, v in found.items() if n.endswith("mean") and "reward" in n)
        self.sampled.tell(f"held-out questions after {updates} updates: {', '.join(means)}")


async def not_asked(updates: int) -> None:
    """In place of `HeldOut` where no question is held out."""
