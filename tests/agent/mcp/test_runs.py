"""A run whose policy calls tools of MCP servers: sources with ids, failures told, runs that end.

The keys of MCP servers stay in the settings: they are in no report, dump, list or sentence.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rubricem import research
from rubricem.agent.cli import main
from rubricem.agent.settings import Settings, load_settings
from rubricem.agent.settings.door import CHOICES, choices_of
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.transcript.events import Event, SourceProgress, ToolCalled, ToolReturned
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import Author, Status
from tests.support.pages import site
from tests.support.policies import RUN, SUPPORTED, answer, contents, plan, search
from tests.support.scripted_server import Fault, Scripted, ScriptedServer
from tests.support.tool_servers import PAGES, server, serving_http

QUESTION = "What does lru_cache do with maxsize None?"


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


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "heap.md").write_text("# heapq\n\nThe smallest is heap[0].\n")
    text = "# functools.cache\n\nSimple unbounded function cache.\n"
    (tmp_path / "documents" / "cache.md").write_text(text)
    return tmp_path / "documents"


async def asked(documents: Path, *script: Scripted, **options: Any) -> tuple[Any, Any, list[Event]]:
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
    report, model, told = await asked(documents, *script, mcp_servers=wiki(address, "page"))
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


async def test_text_of_a_tool_opens_no_tag_of_the_transcript(documents: Path, address: str):
    script = (calling("wiki.page", "hostile"), answer("Nothing <cite id='S1'>is known</cite>."))
    report, model, _ = await asked(
        documents, *script, mcp_servers=wiki(address, "page"), verify="off"
    )
    shown = [s for s in report.trajectory.segments if s.author is Author.TOOL]
    assert "Owned." in shown[0].text and "<answer" not in shown[0].text
    assert shown[0].text.count("</tool_output>") == 1
    assert report.sources[0].text == PAGES["hostile"], "kept as it came"
    assert "Owned" not in report.text
    assert len(model.requests) == 2


@pytest.mark.parametrize(("tool", "said"), [("broken", "failed"), ("hang", "did not answer")])
async def test_a_tool_that_fails_or_hangs_is_told_and_the_run_goes_on(
    tool: str, said: str, documents: Path, address: str
):
    script = (calling(f"wiki.{tool}", "x"), *RUN[1:], SUPPORTED)
    servers = wiki(address, tool, seconds=2)
    report, model, told = await asked(documents, *script, mcp_servers=servers)
    assert report.status is Status.FINISHED
    failed = next(e.error for e in told if isinstance(e, ToolReturned))
    assert said in failed
    assert '<tool_output error="' in contents(model.requests[1].body)[-1][1]


async def test_a_server_that_cannot_be_had_is_a_sentence_in_the_events(documents: Path):
    servers = {"wiki": {"command": "/nowhere/wiki-mcp", "tools": ["page"]}}
    report, model, told = await asked(documents, *RUN, SUPPORTED, mcp_servers=servers)
    assert report.status is Status.FINISHED
    messages = [event.message for event in told if isinstance(event, SourceProgress)]
    [problem] = [message for message in messages if "MCP server" in message]
    assert problem.endswith("Its tools are left out.")
    assert "More tools" not in contents(model.requests[0].body)[0][1]


async def test_a_finished_call_of_a_tool_is_not_repeated_by_a_resume(documents: Path, address: str):
    options: dict[str, Any] = {"mcp_servers": wiki(address, "page"), "thread": "mine"}
    script = (calling("wiki.page", "lru_cache"), Fault(401), answer(), SUPPORTED)
    with ScriptedServer(script) as model:
        where = {"source": str(documents), "base_url": model.base_url}
        with pytest.raises(RubricemError, match="API key"):
            await research(QUESTION, **where, **options)
        report = await research(QUESTION, **where, **options)
    assert report.status is Status.FINISHED
    assert len(model.requests) == 4, "the plan was written once"
    lines = (documents.parent / "data/runs/mine/journal.jsonl").read_text().splitlines()
    assert sum("passages" in line for line in lines) == 1


def test_servers_come_from_the_environment_and_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", json.dumps(wiki("http://localhost:1/mcp", "page")))
    assert load_settings().mcp_servers["wiki"].tools == ("page",)
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", "{")
    with pytest.raises(SettingsError, match="RUBRICEM_MCP_SERVERS is not valid JSON"):
        load_settings()
    monkeypatch.delenv("RUBRICEM_MCP_SERVERS")
    (tmp_path / "rubricem.toml").write_text(
        '[mcp_servers.wiki]\nurl = "http://localhost:1/mcp"\ntools = ["page"]\n'
        'headers = {Authorization = "Bearer s3cret"}\n'
    )
    settings = load_settings()
    assert settings.mcp_servers["wiki"].url == "http://localhost:1/mcp"
    assert "s3cret" not in repr(settings)


def test_a_folders_own_file_starts_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
):
    monkeypatch.chdir(tmp_path)
    text = '[mcp_servers.evil]\ncommand = "rm"\ntools = ["page"]\n'
    (tmp_path / "rubricem.toml").write_text(text)
    with pytest.raises(SettingsError, match="names a program as MCP server evil"):
        load_settings()
    (tmp_path / "rubricem.toml").unlink()
    own = home / "config" / "rubricem" / "rubricem.toml"
    own.parent.mkdir(parents=True)
    own.write_text(text)
    assert load_settings().mcp_servers["evil"].command == "rm"


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


def chosen(folder: Path, **more: Any) -> Settings:
    servers = {name: ToolServer(**server) for name, server in SERVERS.items()}
    bank = f"http://me:{PASSWORD}@127.0.0.1:1"
    return Settings(data_dir=folder / "data", mcp_servers=servers, bank_server=bank, **more)


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_doctor_shows_which_servers_there_are_and_no_key(
    monkeypatch: pytest.MonkeyPatch, output: tuple[str, ...]
):
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", json.dumps(SERVERS))
    monkeypatch.setenv("RUBRICEM_BANK_SERVER", f"http://me:{PASSWORD}@127.0.0.1:1")
    options = ["--base-url", "http://127.0.0.1:9/v1", "--source", "python"]
    printed = CliRunner().invoke(main, ["doctor", *options, *output]).output
    assert '"command": "wiki-mcp"' in printed and '"WIKI_TOKEN": "set' in printed
    assert "https://mcp.example/mcp?***" in printed
    assert [secret for secret in (*SECRETS, ARGUMENT) if secret in printed] == []


def test_no_dump_of_the_settings_and_no_run_holds_a_key(tmp_path: Path):
    settings = chosen(tmp_path)
    dumps = [
        repr(settings.mcp_servers),
        settings.model_dump_json(include={"mcp_servers": {"hosted": {"headers"}}}),
        json.dumps(settings.model_dump(mode="json")["mcp_servers"]["local"]["env"]),
        json.dumps(choices_of(settings)),
    ]
    assert [
        (secret, dump) for secret in (HEADER, VARIABLE) for dump in dumps if secret in dump
    ] == []
    assert not {"mcp_servers", "api_key", "scholar_key", "checkpoints"} & set(CHOICES)


async def test_the_served_page_is_told_no_key(tmp_path: Path):
    with ScriptedServer([]) as model:
        settings = chosen(tmp_path, base_url=model.base_url, model="scripted", source=("python",))
        async with site(settings) as here:
            told = (await here.http.get("/api/status")).text
    assert [secret for secret in (*SECRETS, ARGUMENT) if secret in told] == []


@pytest.mark.parametrize(
    ("wrong", "said"), [({"seconds": -1}, "seconds"), ({"tools": None}, "wiki-mcp.tools")]
)
def test_a_mistake_beside_a_key_is_told_without_it(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], said: str
):
    servers = {**SERVERS, "wiki-mcp": {**SERVERS["local"], **wrong}}
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", json.dumps(servers))
    done = CliRunner().invoke(main, ["ask", "What?"])
    assert done.exit_code == 2 and said in done.output
    assert [secret for secret in (*SECRETS, ARGUMENT) if secret in done.output] == []
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", json.dumps(SERVERS))
    assert set(load_settings().mcp_servers) == set(SERVERS)
