"""The served app over a scripted model, and a client that reads a run's events off it."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from agent.serve.app import create_app
from agent.serve.desk import Capacity, RunDesk
from agent.serve.security import Security
from agent.settings import Settings
from tests.scripted_server import ScriptedServer
from tests.tool_servers import serving_http
from tests.waiting import PATIENCE

QUESTION = "What does lru_cache do with maxsize None?"
CHANGING = {"X-Rubricem": "1"}


@dataclass(frozen=True)
class Said:
    """One event as it came."""

    id: int
    name: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Site:
    """A running server and a client of it."""

    http: httpx.AsyncClient
    desk: RunDesk

    async def ask(self, question: str = QUESTION, **asked: Any) -> str:
        """The key of a new run."""
        reply = await self.http.post("/api/runs", json={"question": question, **asked})
        assert reply.status_code == 201, reply.text
        return str(reply.json()["run"])

    async def one(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.http.get(f"/api/runs/{run}")).json()
        return found

    async def events(self, run: str, after: int | None = None) -> AsyncIterator[Said]:
        """What is told of a run, to its end."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        async with self.http.stream("GET", f"/api/runs/{run}/events", headers=headers) as reply:
            assert reply.status_code in (200, 204), reply.status_code
            async for event in read(reply):
                yield event

    async def ended(self, run: str) -> list[Said]:
        return [event async for event in self.events(run)]

    async def until(self, run: str, name: str) -> Said:
        """The first event of a name."""
        async for event in self.events(run):
            if event.name == name:
                return event
        raise AssertionError(f"{name} was never told")


async def read(reply: httpx.Response) -> AsyncIterator[Said]:
    """The events of a stream."""
    number, name = 0, ""
    async for line in reply.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "id":
            number = int(value)
        elif field == "event":
            name = value
        elif field == "data":
            yield Said(number, name, json.loads(value))


def settings(folder: Path, model: ScriptedServer, **more: Any) -> Settings:
    documents = folder / "documents"
    documents.mkdir(exist_ok=True)
    (documents / "cache.md").write_text("# lru_cache\n\nIf maxsize is None, it is unbounded.\n")
    chosen = {"base_url": model.base_url, "model": "scripted", "source": (str(documents),)}
    return Settings(**{**chosen, "data_dir": folder / "data", "memory": "off", **more})


@contextmanager
def app_at(
    chosen: Settings, security: Security | None = None, capacity: Capacity | None = None
) -> Iterator[tuple[str, RunDesk]]:
    desk = RunDesk(chosen, capacity)
    with serving_http(create_app(desk, security or Security())) as address:
        yield address, desk


@asynccontextmanager
async def site(
    chosen: Settings, security: Security | None = None, capacity: Capacity | None = None
) -> AsyncIterator[Site]:
    with app_at(chosen, security, capacity) as (address, desk):
        async with httpx.AsyncClient(base_url=address, headers=CHANGING, timeout=PATIENCE) as http:
            yield Site(http, desk)
