"""The graph for `langgraph dev` and LangGraph servers: `langgraph.json` names it.

The server brings its own checkpointer and hands in a question; the clients are built at the
first one, from the same settings as on the command line, and live as long as the process.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from agent.graph import Decoder, build_graph
from agent.researcher import Researcher
from agent.run import Run
from memory.schema import AnswerFormat, Trajectory


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
                from agent.auto_source import with_default_source
                from agent.clients import budgets_of, open_researcher
                from agent.settings import load_settings

                settings = await asyncio.to_thread(lambda: with_default_source(load_settings()))
                built = await self._stack.enter_async_context(open_researcher(settings))
                built.template = replace(built.template, budgets=budgets_of(settings))
                self._built = built
        return self._built


graph = build_graph(ServedRuns())
