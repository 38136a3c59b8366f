"""Packages that only come with an extra, imported where they are needed.

Blocking work beside an event loop.
"""

import asyncio
import importlib
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from rubricem.memory.errors import SettingsError


def needed(module: str, extra: str = "data") -> Any:
    """The module. Raises SettingsError that names the extra where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise SettingsError(
            f"This needs {module.partition('.')[0]}, which is not installed.",
            f"Install it: pip install 'rubricem[{extra}]'",
        ) from cause


T = TypeVar("T")


async def in_thread(work: Callable[[], T], give_up: Callable[[], None] = lambda: None) -> T:
    """What the work gives. A cancellation waits for its end, since no thread can be ended.

    `give_up` is called by a cancellation: work that heeds it ends sooner.
    """
    # No task around it: what is no Exception would leave a task's loop without passing its caller.
    working = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    try:
        return await asyncio.shield(working)
    finally:
        if not working.done():
            give_up()
            await asyncio.wait({working})
