"""Uploads that come at once share one limit: what may come is reserved before it is read."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from agent.serve.routes_uploads import router
from tests.serve_apps import served
from tests.waiting import PATIENCE

MOST = 3000
BODY = b"x" * 900
BOUNDARY = {"content-type": "multipart/form-data; boundary=cut"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with served(router(tmp_path, MOST)) as client:
        yield client


async def sent(client: httpx.AsyncClient, number: int, body: bytes = BODY) -> int:
    files = [("documents", (f"{number}.md", body))]
    reply = await client.post("/api/uploads", data={"folder": f"f{number}"}, files=files)
    return reply.status_code


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "uploads").glob("*/*"))


async def test_uploads_at_once_stay_below_the_limit_together(
    client: httpx.AsyncClient, tmp_path: Path
):
    statuses = await asyncio.gather(*(sent(client, number) for number in range(12)))
    assert set(statuses) == {201, 413}
    assert held(tmp_path) == 900 * statuses.count(201) <= MOST
    assert [path.name for path in (tmp_path / "uploads").glob(".new-*")] == []


async def test_what_is_on_its_way_has_its_room_reserved_and_gives_it_back(
    client: httpx.AsyncClient, tmp_path: Path
):
    reading, go = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b'--cut\r\nContent-Disposition: form-data; name="documents"; filename="a.md"\r\n\r\n'
        reading.set()
        await go.wait()
        yield b"hello\r\n--cut--\r\n"

    # It does not say how much it brings, so all that is left is kept for it.
    slow = asyncio.create_task(client.post("/api/uploads", content=slowly(), headers=BOUNDARY))
    await asyncio.wait_for(reading.wait(), PATIENCE)
    assert await sent(client, 1) == 413
    go.set()
    assert (await slow).status_code == 201
    assert await sent(client, 1) == 201


async def test_an_upload_that_is_refused_or_broken_off_gives_its_room_back(
    client: httpx.AsyncClient, tmp_path: Path
):
    reading = asyncio.Event()

    async def never() -> AsyncIterator[bytes]:
        yield b"--cut\r\n"
        reading.set()
        await asyncio.Event().wait()

    gone = asyncio.create_task(client.post("/api/uploads", content=never(), headers=BOUNDARY))
    await asyncio.wait_for(reading.wait(), PATIENCE)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert await sent(client, 1, b"\0") == 422
    assert await sent(client, 1, b"x" * 2500) == 201
    assert await sent(client, 2) == 413
    assert (await client.delete("/api/uploads/f1")).status_code == 200
    assert await sent(client, 2) == 201


async def test_a_body_longer_than_its_room_is_given_up_while_it_comes(
    client: httpx.AsyncClient, tmp_path: Path
):
    async def long() -> AsyncIterator[bytes]:
        yield b'--cut\r\nContent-Disposition: form-data; name="documents"; filename="a.md"\r\n\r\n'
        for _ in range(10):
            yield b"x" * 1000
        yield b"\r\n--cut--\r\n"

    reply = await client.post("/api/uploads", content=long(), headers=BOUNDARY)
    assert reply.status_code == 413 and held(tmp_path) == 0
