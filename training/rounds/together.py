"""Work that goes on at the same time: until all of it is done, or one part ends it all."""

import asyncio
from collections.abc import Collection, Sequence

from training.flow import RunStopped


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
    raise RunStopped.by_a_person("The training was interrupted.")
