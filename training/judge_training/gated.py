"""Models whose calls are journaled in one file and pass one gate, as those of collecting do.

What is finished is never asked again, a server that serves nobody is waited for, and money is
kept to its limit. Every model of a run is wrapped here.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agent.journaled import Calls, JournaledChat, JournaledReader
from agent.settings import Settings, load_settings
from judge.building import LocalModel
from memory.journal import Journal
from training.flow import Flow, RunStopped
from training.local.session import Tell
from training.meter import Meter
from training.purse import Purse

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gated:
    """The gate of one folder's calls."""

    flow: Flow
    scopes: Calls
    """names whose calls are made, by `scope`"""

    def model(self, model: Any) -> Any:
        """The same model behind the gate; one in token ids stays one."""
        calls = Calls(self.flow.journal, partial(self.flow.call, model.name))
        if isinstance(model, LocalModel) or hasattr(model, "complete"):
            return JournaledReader(model, model, calls)
        return JournaledChat(model, calls)

    async def through(self, work: Awaitable[T], stop: asyncio.Event | None) -> T:
        """What the work gives; `stop`, once set, ends it when the calls in flight are kept.

        Raises RunStopped where a person or the limit of money ended it, PolicyError where a
        server was away for too long.
        """
        doing, over = asyncio.ensure_future(work), asyncio.ensure_future(self.flow.over())
        stopping = asyncio.ensure_future(self._stopped(stop))
        try:
            await asyncio.wait({doing, over}, return_when=asyncio.FIRST_COMPLETED)
            if self.flow.ended_by is not None and not doing.done():
                raise self.flow.ended_by
            return doing.result()
        finally:
            for task in (doing, over, stopping):
                task.cancel()
            await asyncio.gather(doing, over, stopping, return_exceptions=True)

    async def _stopped(self, stop: asyncio.Event | None) -> None:
        if stop is not None:
            await stop.wait()
            self.flow.end(RunStopped.by_a_person("The training of the judge was interrupted."))


@contextmanager
def gated(folder: Path, tell: Tell, most_cost: float | None = None) -> Iterator[Gated]:
    """The gate of the calls that are kept in a folder's journal.jsonl; raises StoreError."""
    meter = Meter()
    journal = Journal(folder / "journal.jsonl", meter.hear)
    try:
        purse = Purse(most_cost, "max_run_cost under [distil]")
        flow = Flow(journal, meter, purse, tell=tell)
        yield Gated(flow, Calls(journal))
    finally:
        journal.close()


async def all_done(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them give, in their order; what one raises ends the others."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
    return [task.result() for task in running]


def settings_of(model: str | None, base_url: str | None, **chosen: Any) -> Settings:
    """The settings in force, with exactly this model and server, whatever else they name."""
    settings = load_settings({"model": model, **chosen})
    return settings.model_copy(update={"model": model, "base_url": base_url})
