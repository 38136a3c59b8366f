"""`/mcp`: the agent's tools for MCP clients, by streamable HTTP, over the runs of the desk.

The SDK is loaded, and the tools are opened, at the first request. By then the guard of all routes
has checked host, origin and token. No key of the server is passed on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fastapi import APIRouter
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rubricem.agent.mcp.workbench import Workbench
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.openai import OpenAIRuns
from rubricem.agent.serve.requests import RequestRefused, RunAsked
from rubricem.agent.serve.routes_ended import for_others
from rubricem.agent.transcript.events import Tell
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import AnswerFormat, LocalModel, Trajectory

PATH = "/mcp"
EXTRA = "mcp"
TOOLS = "rubricem.agent.mcp.server"


def router(desk: RunDesk, package: str = EXTRA) -> APIRouter:
    tools = Tools(desk, package)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        await tools.aclose()

    routes = APIRouter(lifespan=lifespan)
    routes.routes.append(Route(PATH, tools, include_in_schema=False))
    return routes


class Tools:
    """An ASGI application that opens the tools of a desk at the first request."""

    def __init__(self, desk: RunDesk, package: str) -> None:
        self._desk = desk
        self._package = package
        self._lock = asyncio.Lock()
        self._app: ASGIApp | None = None
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self._open_app()
        await app(scope, receive, send)

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _open_app(self) -> ASGIApp:
        if find_spec(self._package) is None:
            raise RequestRefused(
                HTTPStatus.NOT_IMPLEMENTED,
                "This server lacks the extra `mcp`, which its MCP tools need.",
                'Install it where rubricem serve runs: pip install "rubricem[mcp]"',
            )
        async with self._lock:
            if self._app is None and not self._desk.closing.is_set():
                opened: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(self._hold(opened))
                either: list[asyncio.Future[Any]] = [opened, self._task]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not opened.done():
                    # It says why the tools could not be opened.
                    self._task.result()
                self._app = opened.result()
        if self._app is None:
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE, "This server ends.", "Come back later."
            )
        return self._app

    async def _hold(self, opened: "asyncio.Future[ASGIApp]") -> None:
        """Keep the tools open until the server ends, in the one task that may close them."""
        await asyncio.to_thread(
            import_module, TOOLS
        )  # most of a second, in which others are served
        from rubricem.agent.mcp.server import http_app_of, server_of

        async with DeskBench(self._desk) as bench:
            with _logging_kept():
                server = server_of(bench)
            app = http_app_of(server)
            async with server.session_manager.run():
                opened.set_result(app)
                await self._desk.closing.wait()
                self._app = None


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Restores the logging of the process, which the SDK configures as a whole."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


class DeskBench(Workbench):
    """Research as a run of the desk: it waits for its place, and is shown on the page.

    If its client gives up, it is stopped, and can be resumed.
    """

    def __init__(self, desk: RunDesk) -> None:
        super().__init__(desk.setup, logging.getLogger(__name__).warning)
        self._desk = desk
        self._runs = OpenAIRuns(desk)

    async def research(self, question: str, answer_format: AnswerFormat, tell: Tell) -> Trajectory:
        asked = RunAsked(question=question, format=answer_format, approve_plan=False, clarify=False)
        work = await self._desk.start(asked)
        async with self._runs.stop_on_leave(work):
            async for line in self._runs.progress(work):
                tell(line)
        answer = await self._runs.answer(work)
        store = self._desk.store
        if not await asyncio.to_thread(store.has_ended, work.run):
            raise RubricemError(answer.reason)
        trajectory = await asyncio.to_thread(store.load, work.run)
        return await asyncio.to_thread(for_others, trajectory, self._desk.settings)

    @property
    def reader(self) -> LocalModel | None:
        return self._desk.researchers.reader
