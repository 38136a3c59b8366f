"""Runs that have ended, as those who look at them over HTTP name them."""

import asyncio

from agent.serve.refusals import conflict, unknown_run
from memory.errors import SettingsError
from memory.runs import RunStore
from memory.schema import Trajectory


async def ended_run(store: RunStore, run: str) -> Trajectory:
    """The run of this key. Refused (404) where there is none, (409) where it has not ended."""
    return await asyncio.to_thread(_ended_run, store, run)


def _ended_run(store: RunStore, run: str) -> Trajectory:
    try:
        known, ended = store.holds(run), store.ended(run)
    except SettingsError as error:
        raise unknown_run(run) from error
    if not known:
        raise unknown_run(run)
    if not ended:
        raise conflict("The run has not ended.", "Wait for its end, or stop it.")
    return store.load(run)
