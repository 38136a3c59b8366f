"""The graph for `langgraph dev` and LangGraph servers: `langgraph.json` names it.

The server brings its own checkpointer. The clients are built at the first question, from the same
settings as on the command line, and live as long as the process. The input is a question, or a
conversation in the form of chat pages: its last message is then asked after the earlier ones, and
the report is the reply.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Annotated

from langchain_core.messages import AnyMessage
from langgraph.graph.message import add_messages

from rubricem.agent.research.graph import Position, ResearchInput, ResearchOutput, build_graph
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.setup import open_researcher
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of, with_default_source

Messages = Annotated[list[AnyMessage], add_messages]


class Conversing(Position, total=False):
    """The state of a run, and the conversation in which it is asked."""

    messages: Messages


class Said(ResearchInput, total=False):
    """A question, or a conversation that ends in one."""

    messages: Messages


class Heard(ResearchOutput, total=False):
    """The report, also as the conversation's last message."""

    messages: Messages


class ServedResearcher:
    """The researcher behind the graph, opened when the first question arrives."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._researcher: Researcher | None = None

    async def obtain(self) -> Researcher:
        async with self._lock:
            if self._researcher is None:
                setup = await asyncio.to_thread(
                    lambda: setup_of(with_default_source(load_settings()))
                )
                built = await self._stack.enter_async_context(open_researcher(setup))
                built.template = replace(built.template, budgets=setup.budgets)
                self._researcher = built
        return self._researcher


graph = build_graph(ServedResearcher().obtain, state=Conversing, sent=Said, received=Heard)
