"""The graph for `langgraph dev` and LangGraph servers: `langgraph.json` names `research`.

The server brings its own checkpointer. The clients are built at the first question, from the same
settings as on the command line, and live as long as the process. A question goes in, a report with
its status comes out.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.setup import open_researcher
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of, with_default_source

_STACK, _LOCK = AsyncExitStack(), asyncio.Lock()
_OPENED: list[Researcher] = []


async def research() -> Any:
    async with _LOCK:
        if not _OPENED:
            setup = await asyncio.to_thread(lambda: setup_of(with_default_source(load_settings())))
            opened = await _STACK.enter_async_context(open_researcher(setup))
            opened.template = replace(opened.template, budgets=setup.budgets)
            _OPENED.append(opened)
    return _OPENED[0].graph()
