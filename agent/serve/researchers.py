"""The researchers of a server: one model for all, one researcher for each way to answer.

The model is opened by the first question and stays; sources are opened once for each set of
them. What they have to say while they work goes to the run that is being worked on.
"""

import asyncio
import json
from collections import OrderedDict
from contextlib import AsyncExitStack
from contextvars import ContextVar

from agent.building import built
from agent.choice import choose_policy
from agent.clients import choices_of, decoding_of, open_policy, template_of
from agent.events import Event, Listener, SourceProgress, ignore
from agent.opened_sources import open_sources
from agent.policy import Policy
from agent.researcher import Researcher
from agent.settings import Settings

MOST = 8
"""researchers held; beyond, the one used least recently goes"""
CURRENT: ContextVar[Listener] = ContextVar("CURRENT", default=ignore)
"""the listener of the run that this task works on"""


def tell_current(event: Event) -> None:
    CURRENT.get()(event)


class Researchers:
    """Opens what runs need; close it once none goes on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._policy: Policy | None = None
        self._stack = AsyncExitStack()
        self._held: OrderedDict[str, Researcher] = OrderedDict()
        self._lock = asyncio.Lock()

    @property
    def model(self) -> str | None:
        """The name of the model that answers, once it is open."""
        return self._policy.name if self._policy else None

    async def of(self, settings: Settings) -> Researcher:
        """The researcher for these settings; they may differ from the server's in what is
        asked of a run, never in its model. Raises what opening raises; the next tries again.
        """
        choices = await asyncio.to_thread(choices_of, settings)
        key = json.dumps(choices, sort_keys=True)
        async with self._lock:
            if key not in self._held:
                self._held[key] = await self._opened(settings, choices)
            self._held.move_to_end(key)
            while len(self._held) > MOST:
                self._held.popitem(last=False)
            return self._held[key]

    async def aclose(self) -> None:
        await self._stack.aclose()

    async def _opened(self, settings: Settings, choices: dict[str, object]) -> Researcher:
        decoding = decoding_of(settings, choose_policy(settings))
        # A folder that holds nothing is told before weights are fetched for it.
        search_tool = await open_sources(settings, tell_current)
        for problem in await search_tool.prepare():
            tell_current(SourceProgress(problem))
        if self._policy is None:
            opened = open_policy(self._settings, choose_policy(self._settings), tell_current)
            self._policy = await self._stack.enter_async_context(opened)
        template = template_of(settings)
        return built(settings, self._policy, decoding, search_tool, template, choices, tell_current)
