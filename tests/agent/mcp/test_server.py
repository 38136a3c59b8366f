"""`rubricem mcp` as clients of the official SDK meet it: as a program, and over HTTP."""

import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters

from rubricem.memory.runs import RunStore
from tests.conftest import COMMAND, ROOT
from tests.support.policies import RUN, SUPPORTED
from tests.support.scripted_server import Fault, Script, Scripted, ScriptedServer
from tests.support.sites import PageSite
from tests.support.waiting import PATIENCE, Process

QUESTION = "What does lru_cache do with maxsize None?"
ANSWERED = [*RUN, SUPPORTED]
TOOLS = ["bank_search", "bank_show", "judge", "open_page", "research", "search"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "documents").mkdir()
    text = "# lru_cache\n\nIf maxsize is None, lru_cache is an unbounded cache.\n"
    (tmp_path / "documents" / "cache.md").write_text(text)
    return tmp_path


def variables(here: Path, base_url: str) -> dict[str, str]:
    return {
        "PYTHONPATH": str(ROOT),
        "RUBRICEM_BASE_URL": base_url,
        "RUBRICEM_MODEL": "scripted",
        "RUBRICEM_SOURCE": str(here / "documents"),
        "RUBRICEM_DATA_DIR": str(here / "data"),
        "RUBRICEM_ALLOW_HOSTS": "127.0.0.1",
    }


@asynccontextmanager
async def program(here: Path, script: Script = ()) -> AsyncIterator[Client]:
    """A client of the program on its standard input and output."""
    with ScriptedServer(script) as model:
        command, *args = (*COMMAND, "mcp")
        env = variables(here, model.base_url)
        started = StdioServerParameters(command=command, args=args, env=env, cwd=here)
        async with Client(started, read_timeout_seconds=PATIENCE) as client:
            yield client


@contextmanager
def over_http(here: Path) -> Iterator[str]:
    """The address of a server that the command serves on loopback."""
    with ScriptedServer(ANSWERED) as model:
        process = Process(
            [*COMMAND, "mcp", "--http", "--port", "0"],
            cwd=here,
            env={**os.environ, **variables(here, model.base_url)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None and process.stdout is not None
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+/mcp", process.stderr.readline())
            assert found
            yield found[0]
        finally:
            process.terminate()
            printed, _ = process.communicate()
    assert printed == ""


async def asked(client: Client, name: str, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refusal(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert result.is_error
    [said] = result.content
    assert said.type == "text" and "Traceback" not in said.text
    return said.text


async def test_a_program_researches_with_progress_and_checked_citations(here: Path):
    progress: list[tuple[float, str | None]] = []

    async def heard(number: float, total: float | None, message: str | None) -> None:
        progress.append((number, message))

    async with program(here, ANSWERED) as client:
        listed = await client.list_tools()
        assert sorted(tool.name for tool in listed.tools) == TOOLS
        result = await client.call_tool("research", {"question": QUESTION}, progress_callback=heard)
    assert not result.is_error
    [text] = result.content
    assert text.type == "text" and text.text.startswith("# What does lru")
    found = result.structured_content
    assert (found["status"], found["answer"]) == ("finished", "It is an unbounded cache [1].")
    [citation] = found["citations"]
    assert (citation["number"], citation["verdict"]) == (1, "supported")
    assert found["sources"][0]["location"].endswith("cache.md")
    assert RunStore(here / "data").load(found["run"]).question == QUESTION
    numbers = [number for number, _ in progress]
    assert numbers == [float(n) for n in range(1, len(numbers) + 1)]
    messages = [message for _, message in progress]
    assert messages[0] == "stage: plan"
    assert "call 1: folder: lru_cache maxsize None" in messages
    assert messages[-1] is not None


async def test_looking_up_needs_no_model(here: Path):
    page = "<html><title>Caches</title><body><p>A page about caches and their size.</p></body>"
    with PageSite({"/caches": page}) as site:
        async with program(here) as client:
            found = await asked(client, "search", query="lru_cache", limit=3)
            [passage] = found["passages"]
            assert passage["location"].endswith("cache.md")
            address = f"http://127.0.0.1:{site.port}/caches"
            opened = await asked(client, "open_page", address=address, words="size")
            assert "their size" in opened["passages"][0]["text"]
            assert (await asked(client, "bank_search", text="caches"))["matches"] == []


async def test_what_fails_is_the_tools_error_in_a_sentence(here: Path):
    async with program(here, [Fault(401)]) as client:
        said = await refusal(client, "research", question=" ")
        assert "There is no question." in said
        assert "wants an API key" in await refusal(client, "research", question=QUESTION)
        said = await refusal(client, "open_page", address="http://169.254.169.254/latest")
        assert "in a private network" in said
        assert "is no web address" in await refusal(client, "open_page", address="file:///etc")
        assert "no run that has ended is called" in await refusal(client, "judge", run="nothing")
        assert "cannot name a thread" in await refusal(client, "judge", run="../../etc")
        assert "No reflections have the id" in await refusal(client, "bank_show", id="nothing")
        assert "search" in await refusal(client, "search", query="x", limit=0)


async def test_a_run_is_judged_by_its_name(here: Path):
    def judging(body: dict[str, Any], number: int) -> Scripted:
        said = [message["content"] for message in body["messages"]]
        if number < 4:
            return ANSWERED[number]
        if "Criteria:" in said[1]:
            return json.dumps({"verdicts": [{"number": 1, "justification": "so", "points": 2}]})
        rule = {"title": "Rule", "description": "It names the rule."}
        return json.dumps({"answer": {"positive": [rule]}})

    async with program(here, judging) as client:
        run = (await asked(client, "research", question=QUESTION))["run"]
        judged = await asked(client, "judge", run=run)
    scores = {stage["stage"]: stage["score"] for stage in judged["stages"]}
    assert list(scores) == ["plan", "research", "review", "answer"]
    assert scores["answer"] == 1.0
    assert (here / "data" / "runs" / run / "judgement.json").is_file()


async def test_a_server_over_http_answers_the_same(here: Path):
    with over_http(here) as address:
        async with Client(address, read_timeout_seconds=PATIENCE) as client:
            listed = await client.list_tools()
            assert sorted(tool.name for tool in listed.tools) == TOOLS
            found = await asked(client, "research", question=QUESTION, format="short")
            assert found["answer"] == "It is an unbounded cache [1]."
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}
        foreign = {**accept, "origin": "https://evil.example"}
        assert httpx.post(address, json=body, headers=foreign, timeout=PATIENCE).status_code == 403
        renamed = {**accept, "host": "evil.example"}
        assert httpx.post(address, json=body, headers=renamed, timeout=PATIENCE).status_code == 421


def test_nothing_but_the_protocol_is_on_standard_output(here: Path):
    client = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    called = {"name": "research", "arguments": {"question": QUESTION}}
    asking: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", **client}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": called},
    ]
    with ScriptedServer(ANSWERED) as model:
        messages: list[Any] = []
        with Process(
            [*COMMAND, "mcp"],
            cwd=here,
            env={**os.environ, **variables(here, model.base_url)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(
                "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in asking)
            )
            process.stdin.flush()
            while not messages or messages[-1].get("id") != 2:
                messages.append(json.loads(process.stdout.readline()))
            process.stdin.close()
            assert process.stdout.read() == ""
        assert process.returncode == 0
    assert {message["jsonrpc"] for message in messages} == {"2.0"}
    assert messages[-1]["result"]["structuredContent"]["status"] == "finished"


def test_a_server_that_cannot_be_is_a_sentence(here: Path):
    done = subprocess.run(
        [*COMMAND, "mcp", "--source", "/nowhere"],
        cwd=here,
        env={**os.environ, "RUBRICEM_DATA_DIR": str(here / "data"), "RUBRICEM_DECODING": "odd"},
        input="",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: RUBRICEM_DECODING cannot be 'odd'")
