"""A server that is killed, or ended by ^C, in the middle: its runs go on with the next one."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from agent.cli import main
from tests.conftest import COMMAND, ROOT
from tests.flow import SUPPORTED, answer, plan, search
from tests.run_site import CHANGING, QUESTION, Said, read
from tests.scripted_server import Hang, Reply, Scripted, ScriptedServer

RUN = (plan(), search("unbounded cache"), answer())


class Halting:
    """The turns of `RUN`; the third hangs until `go` is set."""

    def __init__(self) -> None:
        self.go = False
        self.third = 0

    def __call__(self, body: dict[str, Any], number: int) -> Scripted:
        if "check claims" in body["messages"][0]["content"]:
            return SUPPORTED
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn < 2:
            return RUN[turn]
        self.third += 1
        return RUN[2] if self.go else Reply(RUN[2], hang_after=6)


@contextmanager
def server(model: ScriptedServer, folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command in a process of its own, and the address that it prints."""
    documents = folder / "documents"
    documents.mkdir(exist_ok=True)
    (documents / "cache.md").write_text("# lru_cache\n\nIf maxsize is None, it is unbounded.\n")
    options = ["--port", "0", "--base-url", model.base_url, "--model", "scripted"]
    command = [*COMMAND, "serve", *options, "--source", str(documents), "--memory", "off"]
    environment = {**os.environ, "RUBRICEM_DATA_DIR": str(folder / "data")}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[2], process
        finally:
            process.kill()


async def told_until(address: str, run: str, name: str, after: int | None = None) -> list[Said]:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    url = f"{address}api/runs/{run}/events"
    told = []
    async with (
        httpx.AsyncClient(timeout=60) as http,
        http.stream("GET", url, headers=headers) as reply,
    ):
        async for event in read(reply):
            told.append(event)
            if event.name == name:
                break
    return told


async def asked(address: str) -> str:
    async with httpx.AsyncClient(timeout=60) as http:
        reply = await http.post(f"{address}api/runs", json={"question": QUESTION}, headers=CHANGING)
        return str(reply.json()["run"])


async def third_turn(script: Halting) -> None:
    while not script.third:
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
async def test_a_run_goes_on_when_the_server_starts_again(tmp_path: Path, by: signal.Signals):
    script = Halting()
    with ScriptedServer(script) as model:
        with server(model, tmp_path) as (address, process):
            run = await asked(address)
            watching = asyncio.create_task(told_until(address, run, "end"))
            await asyncio.wait_for(third_turn(script), 60)
            seen = (await told_until(address, run, "results"))[-1].id
            process.send_signal(by)
            assert await asyncio.to_thread(process.wait, 15) == (-by if by == signal.SIGKILL else 0)
            await asyncio.gather(watching, return_exceptions=True)
        finished = len(model.requests) - script.third
        script.go = True
        with server(model, tmp_path) as (address, _):
            rest = await told_until(address, run, "end", after=seen)
        numbers = [event.id for event in rest]
        assert numbers == list(range(numbers[0], numbers[0] + len(rest))) and numbers[0] > seen
        assert rest[0].name == "restart" and rest[-2].data["status"] == "finished"
        text = "".join(event.data["text"] for event in rest if event.name == "text")
        assert text == "".join(RUN), "what was told before is told again, once"
        repeated = len(model.requests) - finished - script.third - 1
        assert repeated == 0, "only the turn in flight was asked for again, and then the check"


@pytest.mark.slow
async def test_a_run_that_asks_when_the_server_is_killed_asks_again(tmp_path: Path):
    with ScriptedServer([*RUN, SUPPORTED]) as model:
        with server(model, tmp_path) as (address, process):
            async with httpx.AsyncClient(timeout=60, headers=CHANGING) as http:
                body = {"question": QUESTION, "approve_plan": True}
                run = (await http.post(f"{address}api/runs", json=body)).json()["run"]
            first = (await told_until(address, run, "ask"))[-1]
            process.kill()
        with server(model, tmp_path) as (address, _):
            again = (await told_until(address, run, "ask", after=first.id))[-1]
            assert again.data["id"] != first.data["id"]
            async with httpx.AsyncClient(timeout=60, headers=CHANGING) as http:
                url = f"{address}api/runs/{run}/answer"
                old = await http.post(url, json={"id": first.data["id"], "decision": "approve"})
                assert old.status_code == 409
                new = await http.post(url, json={"id": again.data["id"], "decision": "approve"})
                assert new.status_code == 200
            told = await told_until(address, run, "end", after=again.id)
        assert told[-2].data["status"] == "finished"
        assert len(model.requests) == len(RUN) + 1


def test_a_port_in_use_is_a_sentence_and_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    with ScriptedServer([Hang()]) as model, socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = ["--base-url", model.base_url, "--source", "python"]
        done = CliRunner().invoke(main, ["serve", "--port", port, *options])
        assert done.exit_code == 2
        assert done.stderr.splitlines() == [
            f"error: Port {port} is in use.",
            "Choose another by --port, or 0 for any free one.",
        ]
