"""The graph for `langgraph dev` and LangGraph servers: `langgraph.json` names `research`.

The server brings its own checkpointer. The clients are built at the first question, from the same
settings as on the command line, and live as long as the process.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from rubricem.agent.models.policy import Policy
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.setup import Setup, open_researcher
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of, with_default_source

CONFIGURABLE = (
    "answer_format", "effort", "length", "tool_calls", "max_total_tokens", "max_seconds", "max_cost"
)  # fmt: skip
"""settings that a caller may name; model, sources and powers are the server's own"""
_STACK, _LOCK = AsyncExitStack(), asyncio.Lock()
_OPENED: dict[str, Researcher] = {}
MOST = 64
"""different choices of callers that are kept; a run of a former one ends, but not from a pause"""


async def research(config: dict[str, Any]) -> Any:
    """The graph by what `configurable` names of `CONFIGURABLE`. Raises SettingsError."""
    named = config.get("configurable") or {}
    chosen = {name: named[name] for name in CONFIGURABLE if named.get(name) is not None}
    key = json.dumps(chosen, sort_keys=True)
    async with _LOCK:
        if key not in _OPENED:
            opened = await _open(chosen)
            if len(_OPENED) == MOST:  # the first has what the others share
                del _OPENED[[*_OPENED][1]]
            _OPENED[key] = opened
        return _OPENED[key].graph()


async def _open(chosen: dict[str, Any]) -> Researcher:
    """A researcher of these choices; model and sources are opened once for all."""
    first = next(iter(_OPENED.values()), None)

    async def policy() -> Policy:
        assert first is not None
        return first.policy

    def settle() -> Setup:
        return setup_of(with_default_source(load_settings(chosen, arguments=True)))

    setup = await asyncio.to_thread(settle)
    opening = open_researcher(
        setup, policy=policy if first else None, search_tool=first.search_tool if first else None
    )
    opened = await _STACK.enter_async_context(opening)
    opened.template = replace(opened.template, budgets=setup.budgets)
    return opened
