"""The graph for `langgraph dev` and LangGraph servers: `langgraph.json` names it.

The server brings its own checkpointer and hands in a question; the clients are built at the
first one, from the same settings as on the command line, and live as long as the process.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from rubricem.agent.research.graph import Decoder, build_graph
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.run import Run
from rubricem.agent.research.setup import Setup, open_researcher
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of, with_default_source
from rubricem.memory.schema import AnswerFormat, Trajectory


class ServedRuns:
    """`Runs` of a researcher that is built when the first question arrives."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def begin(self, question: str, answer_format: AnswerFormat) -> str:
        return await (await self._researcher()).begin(question, answer_format)

    async def find(self, key: str) -> Run | None:
        return await (await self._researcher()).find(key)

    async def open(self, key: str) -> Run:
        return await (await self._researcher()).open(key)

    async def finish(self, run: Run) -> Trajectory:
        return await (await self._researcher()).finish(run)

    async def abandon(self, run: Run, error: BaseException) -> None:
        await (await self._researcher()).abandon(run, error)

    @property
    def decoder(self) -> Decoder:
        return self._built.decoder

    async def _researcher(self) -> Researcher:
        async with self._lock:
            if not hasattr(self, "_built"):
                setup = await asyncio.to_thread(_setup)
                built = await self._stack.enter_async_context(open_researcher(setup))
                built.template = replace(built.template, budgets=setup.budgets)
                self._built = built
        return self._built


def _setup() -> Setup:
    return setup_of(with_default_source(load_settings()))


graph = build_graph(ServedRuns())
