"""The inspection routes on the server itself: its guard before them, its end, all of them there."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from agent.serve.app import create_app
from agent.serve.desk import RunDesk
from agent.serve.security import Security
from agent.settings import Settings
from memory.runs import RunStore
from tests.bank_parts import bank_in, reflection
from tests.judged import run_of
from tests.run_pages import written_run

OURS = {"X-Rubricem": "1"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(data_dir=tmp_path / "data", base_url="http://127.0.0.1:9/v1", model="m")
    store = RunStore(settings.data_dir)
    store.create("a", {"ask": {"question": "?"}, "choices": {}})
    store.save(run_of(name="a"))
    await bank_in(settings.data_dir).put(reflection("cache", "item"))
    written_run(tmp_path / "shown")
    app = create_app(RunDesk(settings), Security(), [tmp_path / "shown"])
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "bank", "bank/stats", "bank/item", "runs/a/judge", "runs/a/export/md", "uploads",
        "collected", "collected/shown", "trained",
    ],
)  # fmt: skip
async def test_everything_is_there_behind_the_guards_headers(client: httpx.AsyncClient, path: str):
    reply = await client.get(f"/api/{path}")
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    foreign = await client.get(f"/api/{path}", headers={"Host": "evil.example"})
    assert foreign.status_code == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", "bank/item"), ("DELETE", "bank/item"), ("POST", "bank/item/release"),
        ("POST", "runs/a/judge"), ("POST", "runs/a/rate"), ("POST", "uploads"),
        ("DELETE", "uploads/x"),
    ],
)  # fmt: skip
async def test_nothing_is_changed_without_the_header_of_our_own_page(
    client: httpx.AsyncClient, method: str, path: str, tmp_path: Path
):
    assert (await client.request(method, f"/api/{path}")).status_code == 403
    foreign = OURS | {"Origin": "http://evil.example"}
    assert (await client.request(method, f"/api/{path}", headers=foreign)).status_code == 403
    assert (await client.get("/api/bank/item")).json()["state"] == "active"
    assert not (tmp_path / "data" / "uploads").exists()


async def test_an_upload_larger_than_other_bodies_is_let_through(client: httpx.AsyncClient):
    files = [("documents", ("a.txt", b"x" * 3_000_000))]
    reply = await client.post("/api/uploads", headers=OURS, data={"folder": "n"}, files=files)
    assert (reply.status_code, reply.json()["source"]) == (201, "upload:n")
    assert "upload:n" in (await client.get("/api/status")).json()["sources"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"rubrics": "\\ud800"}', b"\xff"])
async def test_a_malformed_change_is_a_sentence(client: httpx.AsyncClient, body: bytes):
    headers = OURS | {"Content-Type": "application/json"}
    reply = await client.patch("/api/bank/item", headers=headers, content=body)
    assert reply.status_code in (400, 422) and reply.json()["error"]
