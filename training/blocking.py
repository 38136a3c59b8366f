"""Blocking work beside an event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], give_up: Callable[[], None] = lambda: None) -> T:
    """What the work gives. A cancellation waits for its end, since no thread can be ended.

    `give_up` is called by a cancellation: work that heeds it ends sooner.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            give_up()
            await asyncio.wait({task})
