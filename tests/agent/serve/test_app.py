"""The whole server: its guard before all routes, its end, and where it says it can be opened."""

import hashlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from rubricem.agent.serve.app import TOKEN_FILE_NAME, WARNING, create_app
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.security import Security
from rubricem.agent.settings import Settings
from rubricem.memory.runs import RunStore
from tests.conftest import ROOT
from tests.support.banks import bank_in, reflection
from tests.support.collected import written_run
from tests.support.pages import begun_server
from tests.support.values import run_of
from tests.support.waiting import PATIENCE, wait_for

STATIC = ROOT / "agent" / "serve" / "static"
OURS = {"X-Rubricem": "1"}


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the whole server, which is closed by the task that opened it."""
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


async def test_everything_is_there_behind_the_guards_headers(tmp_path: Path):
    async with opened(tmp_path) as client:
        for path in (
            "bank", "bank/stats", "bank/item", "runs/a/judge", "runs/a/export/md", "uploads",
            "collected", "collected/shown", "trained",
        ):  # fmt: skip
            reply = await client.get(f"/api/{path}")
            assert reply.status_code == 200, reply.text
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in reply.headers["content-security-policy"]
            foreign = await client.get(f"/api/{path}", headers={"Host": "evil.example"})
            assert foreign.status_code == 403


def test_what_others_wrote_of_the_page_is_what_its_list_says_it_is():
    vendor = STATIC / "vendor"
    listed = re.findall(r"^    ([0-9a-f]{64})  (\S+)$", (vendor / "README.md").read_text(), re.M)
    told = {name: hashed for hashed, name in listed}
    files = {path.relative_to(vendor).as_posix(): path for path in vendor.rglob("*.*")}
    files = {name: path for name, path in files.items() if path.suffix in (".js", ".css", ".woff2")}
    assert files.keys() <= told.keys() and len(told) > 20
    for name, hashed in told.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == hashed, name
    named = set(re.findall(r"fonts/[\w-]+\.woff2", (vendor / "katex.min.css").read_text()))
    assert named == {name for name in told if name.startswith("fonts/")}


OPENED = """
import sys, httpx
for address in sys.argv[1:]:
    with httpx.Client(base_url=address, timeout=30, trust_env=False) as http:
        print(http.get("/").status_code, http.get("/api/status").status_code)
"""
"""what a page of another machine would see, in a process that may leave loopback"""


def login(address: str, token: str) -> int:
    """The status of an attempt, asked by loopback, which tests may reach."""
    here = f"http://127.0.0.1:{httpx.URL(address).port}/api/login"
    asked = {"json": {"token": token}, "headers": {"X-Rubricem": "1"}, "timeout": PATIENCE}
    return httpx.post(here, **asked).status_code


@pytest.mark.slow
def test_every_address_that_is_printed_opens_the_page_and_asks_for_the_token(tmp_path: Path):
    options = ("--host", "0.0.0.0", "--base-url", "http://127.0.0.1:9/v1", "--source", "python")
    with begun_server(tmp_path, *options, until="Warning", terminal=True) as (lines, _):
        told = [found[0] for line in lines if (found := re.search(r"http://\S+/(?=$| \()", line))]
        assert told and not any("0.0.0.0" in each for each in told)
        assert lines[-1] == WARNING
        link = next(line for line in lines if "#token=" in line)
        token = (tmp_path / "data" / TOKEN_FILE_NAME).read_text().strip()
        assert not link.endswith(token) and any(f"Token: {token} " in line for line in lines)
        address, ticket = link.split()[-1].split("#token=")
        assert [login(address, ticket) for _ in range(2)] == [200, 401], "it enters once"
        command = [sys.executable, "-c", OPENED, *told]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.stdout.splitlines() == ["200 401"] * len(told), done.stderr


def test_no_argument_and_no_output_but_a_terminals_holds_what_opens_the_page(tmp_path: Path):
    """Our browser keeps its arguments, as any user of the machine can, and its page."""
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    script = (
        f'#!/bin/sh\n{{ echo "$@"; stat -c %a "${{1#file://}}"; cat "${{1#file://}}"; }} >{seen}\n'
    )
    browser.write_text(script)
    browser.chmod(0o755)
    options = ("--open", "--base-url", "http://127.0.0.1:9/v1", "--source", "python")
    with begun_server(tmp_path, *options, until="A token", BROWSER=str(browser)) as (lines, _):
        wait_for(lambda: seen.exists() and "url=" in seen.read_text())
        token = (tmp_path / "data" / TOKEN_FILE_NAME).read_text().strip()
        assert token not in str(lines) and "#token" not in str(lines)
        arguments, mode, page = seen.read_text().split("\n", 2)
        address, ticket = page.split("url=")[1].rstrip('">').split("#token=")
        assert mode == "600" and ticket not in arguments and token not in arguments + page
        assert [login(address, ticket) for _ in range(2)] == [200, 401]


async def test_past_runs_are_found_named_and_deleted_for_good(tmp_path: Path):
    async with opened(tmp_path) as client:
        named = {"title": "My caches", "tags": ["Work"]}
        assert (await client.patch("/api/runs/a", json=named, headers=OURS)).json() == named
        for sought, number in {"q=caches": 1, "tag=work": 1, "q=heaps": 0, "tag=home": 0}.items():
            found = (await client.get(f"/api/runs?{sought}")).json()
            assert found["found"] == len(found["runs"]) == number and found["tags"] == {"Work": 1}
        (row,) = (await client.get("/api/runs?q=caches")).json()["runs"]
        assert (row["title"], row["tags"]) == ("My caches", ["Work"]) and row["preview"]
        assert "found" not in (await client.get("/api/runs?before=a")).json()
        wrong = await client.patch("/api/runs/a", json={"tags": ["a,b"]}, headers=OURS)
        assert wrong.status_code == 422 and "tag" in wrong.json()["error"]
        assert (await client.delete("/api/runs/a")).status_code == 403
        assert (await client.delete("/api/runs/a", headers=OURS)).status_code == 204
        assert not (tmp_path / "data" / "runs" / "a").exists()
        for method in ("GET", "DELETE", "PATCH"):
            gone = await client.request(method, "/api/runs/a", headers=OURS, json={})
            assert gone.status_code == 404
        assert (await client.get("/api/runs")).json()["runs"] == []
