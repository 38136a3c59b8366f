"""Work that goes on at the same time: until all of it is done, or one part ends it all."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from training.flow import GO_ON, RunStopped

T = TypeVar("T")


async def all_of(
    tasks: Sequence["asyncio.Task[None]"],
    stop: asyncio.Event | None,
    ending: Collection[asyncio.Event],
) -> None:
    """Return when all are done; what one raises ends the others and is raised.

    `stop`, once set, is a RunStopped by a person; spent money is one too. Everybody was told then:
    whoever is to set an event of `ending` is let finish and keep the calls in flight.
    """
    stopped, left = asyncio.ensure_future(_stopped(stop)), set(tasks)
    try:
        while left:
            over, _ = await asyncio.wait({*left, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(task.exception(), RunStopped) for task in over):
                await asyncio.gather(*(event.wait() for event in ending))
            for task in over:
                task.result()
            left -= over
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)


async def _stopped(stop: asyncio.Event | None) -> None:
    if stop is None:
        await asyncio.get_running_loop().create_future()
    else:
        await stop.wait()
    error = RunStopped("The training was interrupted.", GO_ON)
    error.by_person = True
    raise error


async def in_thread(work: Callable[[], T]) -> T:
    """What blocking work gives; a cancellation waits for its end, since no thread can be ended."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait({task})
