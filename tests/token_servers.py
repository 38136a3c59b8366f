"""Policies over replayed servers, opened as the product opens them, with short waits."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from agent.servers.endpoint import Endpoint
from agent.servers.finding import Kind, open_tokens
from agent.servers.limiter import Limiter
from agent.servers.model_server import ModelServer
from agent.servers.retrying import Retry
from agent.servers.server_errors import Server
from agent.servers.token_server import TokenServer
from memory.interfaces import Message
from tests.recorded_server import Events, Json, RecordedServer

QUICK = Retry(tries=3, first=0.01, longest=0.02, total=1.0)
CHAT = [Message("system", "Be brief."), Message("user", "Count.")]


@asynccontextmanager
async def http_to(base_url: str) -> AsyncIterator[ModelServer]:
    http = ModelServer(Server(Endpoint.parse(base_url), "qwen", "OPENAI_API_KEY"))
    try:
        yield http
    finally:
        await http.aclose()


@asynccontextmanager
async def maybe_opened(
    server: RecordedServer,
    kind: Kind | None = None,
    tell: Callable[[str], None] = lambda line: None,
    timeout: float = 5.0,
) -> AsyncIterator[TokenServer | None]:
    async with http_to(server.base_url) as http:
        yield await open_tokens(
            http, kind, context_tokens=2048, limiter=Limiter(8), price=None, timeout=timeout,
            tell=tell, retry=QUICK,
        )  # fmt: skip


@asynccontextmanager
async def opened(server: RecordedServer, kind: Kind | None = None) -> AsyncIterator[TokenServer]:
    async with maybe_opened(server, kind) as found:
        assert found is not None
        yield found


def changed(events: Events, change: Callable[[Json], Any]) -> Events:
    """Every event with something done to a copy of it."""
    import copy

    copies = [copy.deepcopy(event) for event in events.events]
    for event in copies:
        change(event)
    return replace(events, events=copies)


def without(routes: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: route for name, route in routes.items() if name not in names}
