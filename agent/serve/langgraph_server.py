"""The graph for `langgraph dev` and LangGraph servers: `langgraph.json` names `research`.

The server brings its own checkpointer. The clients are built at the first question, from the same
settings as on the command line, and live as long as the process.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.setup import Setup, open_researcher
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of, with_default_source
from rubricem.memory.schema import Decoding

CONFIGURABLE = (
    "answer_format", "effort", "length", "tool_calls", "max_total_tokens", "max_seconds", "max_cost"
)  # fmt: skip
"""settings that a caller may name; model, sources and powers are the server's own"""
_STACK, _LOCK = AsyncExitStack(), asyncio.Lock()
_OPENED: list[Researcher] = []


async def research(config: dict[str, Any]) -> Any:
    """The graph by what `configurable` names of `CONFIGURABLE`. Raises SettingsError."""
    named = config.get("configurable") or {}
    chosen = {name: named[name] for name in CONFIGURABLE if named.get(name) is not None}

    def settle() -> Setup:
        return setup_of(with_default_source(load_settings(chosen, arguments=True)))

    setup = await asyncio.to_thread(settle)
    async with _LOCK:
        if not _OPENED:
            _OPENED.append(await _STACK.enter_async_context(open_researcher(setup)))
    [first] = _OPENED
    made = replace(
        first,
        decoder=setup.open_decoder(None) if setup.decoding is Decoding.FREE else first.decoder,
        template=replace(setup.template, budgets=setup.budgets),
        choices={**setup.choices, "source": first.choices["source"]},
    )
    made.runs = first.runs  # one goes on after a person's answer, whoever drives the graph then
    return made.graph()
