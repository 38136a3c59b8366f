"""Streams of events: how many are open, and what is told of a run that was never watched."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agent.serve.desk import RunDesk
from agent.serve.event_log import END
from agent.serve.refusals import conflict
from agent.serve.telling import ended

MOST_OPEN = 2000
"""streams at once, of all runs"""


@dataclass
class Streams:
    """Counts the streams that are open."""

    open: int = 0

    def enter(self) -> bool:
        """Count one more, if there is room for it."""
        if self.open >= MOST_OPEN:
            return False
        self.open += 1
        return True

    async def counted(self, frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same frames; one stream less once they end or nobody reads them."""
        try:
            async for frame in frames:
                yield frame
        finally:
            self.open -= 1


async def past_events(desk: RunDesk, run: str) -> str:
    """The end of a run that was asked elsewhere, as events; Refused (409) where it has none."""
    if not await asyncio.to_thread(desk.store.ended, run):
        raise conflict("Nothing is told of this run.", "Resume it to go on with it here.")
    trajectory = await asyncio.to_thread(desk.store.load, run)
    said = await asyncio.to_thread(ended, trajectory)
    frames = [
        f"id: {number}\nevent: {name}\ndata: {json.dumps({'t': trajectory.seconds, **held})}\n\n"
        for number, (name, held) in enumerate([*said, (END, {})], start=1)
    ]
    return "".join(frames)
