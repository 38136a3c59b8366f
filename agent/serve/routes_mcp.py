"""`/mcp`: the agent's tools for MCP clients, by streamable HTTP, over the runs of the desk.

The guard of all routes has checked host, origin and token before. No key of the server is passed
on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.util import find_spec

from fastapi import APIRouter, Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rubricem.agent.mcp.workbench import Workbench
from rubricem.agent.serve.desk import RunDesk, desk_of
from rubricem.agent.serve.openai import OpenAIRuns
from rubricem.agent.serve.requests import RequestRefused, RunAsked, for_others
from rubricem.agent.transcript.events import Tell
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import AnswerFormat, SearchTool, Trajectory

PATH = "/mcp"
EXTRA = "mcp"


@asynccontextmanager
async def open_tools(desk: RunDesk) -> AsyncIterator[None]:
    """The tools of a desk, where their extra is installed."""
    if find_spec(EXTRA) is None:
        yield
        return
    from rubricem.agent.mcp.server import http_app_of, server_of

    async with DeskBench(desk) as bench:
        server = server_of(bench)
        desk.tools = http_app_of(server)
        async with server.session_manager.run():
            yield


class Tools:
    """Not a function, which would be taken for a handler of requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        desk = await desk_of(Request(scope))
        if desk.tools is None:
            raise RequestRefused(
                HTTPStatus.NOT_IMPLEMENTED,
                "This server lacks the extra `mcp`, which its MCP tools need.",
                'Install it where rubricem serve runs: pip install "rubricem[mcp]"',
            )
        await desk.tools(scope, receive, send)


routes = APIRouter(routes=[Route(PATH, Tools(), include_in_schema=False)])


class DeskBench(Workbench):
    """Research as a run of the desk: it waits for its place, and is shown on the page.

    If its client gives up, it is stopped, and can be resumed.
    """

    def __init__(self, desk: RunDesk) -> None:
        super().__init__(desk.setup, logging.getLogger(__name__).warning)
        self._desk = desk
        self._runs = OpenAIRuns(desk)

    async def _answer(self, question: str, answer_format: AnswerFormat, tell: Tell) -> Trajectory:
        asked = RunAsked(question=question, format=answer_format, approve_plan=False, clarify=False)
        work = await self._desk.start(asked)
        async with self._runs.stop_on_leave(work):
            async for line in self._runs.progress(work):
                tell(line)
        if work.trajectory is None:
            raise RubricemError((await self._runs.answer(work)).reason)
        return await asyncio.to_thread(for_others, work.trajectory, self._desk.settings)

    async def _sources(self) -> SearchTool:
        if self._setup is not self._desk.setup:  # others were chosen on the page
            self._setup, self._tool = self._desk.setup, None
        return await super()._sources()
