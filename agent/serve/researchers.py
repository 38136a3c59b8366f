"""The researchers of a server: one model for all, one researcher for each way to answer.

The model is opened by the first question and stays; sources are opened once for each set of
them. What they have to say while they work goes to the run that is being worked on.
"""

import asyncio
import gc
import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from agent.building import built
from agent.choice import choose_policy
from agent.clients import choices_of, decoding_of, open_policy, template_of
from agent.events import Event, Listener, SourceProgress, ignore
from agent.opened_sources import close_sources, open_sources
from agent.policy import Policy
from agent.researcher import Researcher
from agent.settings import Settings
from memory.interfaces import SearchTool

MOST = 8
"""researchers held; beyond, the one used least recently goes"""
CURRENT: ContextVar[Listener] = ContextVar("CURRENT", default=ignore)
"""the listener of the run that this task works on"""


def tell_current(event: Event) -> None:
    CURRENT.get()(event)


@dataclass
class _Held:
    """A researcher, its sources, and how many runs use it now."""

    researcher: Researcher
    search_tool: SearchTool
    users: int = 0


class Researchers:
    """Opens what runs need; close it once none goes on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._policy: Policy | None = None
        self._stack = AsyncExitStack()
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._lock = asyncio.Lock()

    @property
    def model(self) -> str | None:
        """The name of the model that answers, once it is open."""
        return self._policy.name if self._policy else None

    @property
    def policy(self) -> Policy | None:
        """The model that answers, once it is open."""
        return self._policy

    @asynccontextmanager
    async def of(self, settings: Settings) -> AsyncIterator[Researcher]:
        """The researcher for these settings, which have the server's model.

        Raises what opening raises; the next that wants it tries again.
        """
        choices = await asyncio.to_thread(choices_of, settings)
        async with self._lock:
            held = await self._hold(json.dumps(choices, sort_keys=True), settings, choices)
        try:
            yield held.researcher
        finally:
            held.users -= 1

    async def opened(self) -> Policy:
        """The model that answers; the first that wants it opens it."""
        async with self._lock:
            return await self._opened_policy()

    async def aclose(self) -> None:
        for held in self._held.values():
            await close_sources(held.search_tool)
        await self._stack.aclose()

    async def _hold(self, key: str, settings: Settings, choices: dict[str, Any]) -> _Held:
        if key not in self._held:
            self._held[key] = await self._opened(settings, choices)
        held = self._held[key]
        held.users += 1
        self._held.move_to_end(key)
        idle = [name for name, each in self._held.items() if not each.users]
        for name in idle[: max(len(self._held) - MOST, 0)]:
            await close_sources(self._held.pop(name).search_tool)
        return held

    async def _opened(self, settings: Settings, choices: dict[str, Any]) -> _Held:
        decoding = decoding_of(settings, choose_policy(settings))
        # A folder that holds nothing is told before weights are fetched for it.
        tool = await open_sources(settings, tell_current)
        try:
            for problem in await tool.prepare():
                tell_current(SourceProgress(problem))
            policy = await self._opened_policy()
        except BaseException:
            await close_sources(tool)
            raise
        template = template_of(settings)
        return _Held(built(settings, policy, decoding, tool, template, choices, tell_current), tool)

    async def _opened_policy(self) -> Policy:
        if self._policy is None:
            opened = open_policy(self._settings, choose_policy(self._settings), tell_current)
            self._policy = await self._stack.enter_async_context(opened)
            # What is loaded by now stays. Looked through for garbage again and again, it holds
            # everything up for a quarter of a second each time.
            gc.freeze()
        return self._policy
