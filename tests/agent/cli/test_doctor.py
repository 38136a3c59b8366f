"""Doctor against a real server on loopback, real folders and real, if small, weights."""

import json
import os
import resource
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rubricem.agent.cli import main
from rubricem.agent.cli.doctor import (
    Check,
    check_checker,
    check_data_dir,
    check_server,
    check_tools,
    check_weights,
)
from rubricem.agent.models.opening import EmbeddedChoice, ServerChoice
from rubricem.agent.settings import load_settings
from rubricem.agent.weights.catalogue import lookup
from tests.conftest import rubricem
from tests.support.policies import RUN
from tests.support.scripted_server import Fault, Scripted, ScriptedServer
from tests.support.sites import Sent, WebSite, git
from tests.support.tool_servers import TOOLS, server, serving_http


class Served(WebSite):
    """A model server's list, or a refusal, and the keys that it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.keys: list[str | None] = []
        self.list_models("small")

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def list_models(self, *names: str) -> None:
        self.body: Any = {"data": [{"id": name} for name in names]}

    def answer(self, path: str, headers: Mapping[str, str]) -> Sent:
        self.keys.append(headers.get("authorization"))
        status = self.status if path == "/v1/models" else 404
        return Sent(self.body, status, kind="application/json")


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as server:
        yield server


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*args: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """The checks by their names."""
    result = rubricem("doctor", "--json", *args, code=code)
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def states(*checks: Check) -> list[str]:
    assert all(check.remedy for check in checks if check.state != "ok"), "each has its remedy"
    return [check.state for check in checks]


def test_a_fresh_machine_is_fit_and_told_what_will_be_fetched():
    checks = found()
    assert checks["llama.cpp"]["state"] == "ok"
    assert checks["weights"]["state"] == "note"
    assert "qwen2.5-coder-1.5b is not fetched yet (1,117 MB)" in checks["weights"]["found"]
    assert "rubricem models fetch qwen2.5-coder-1.5b" in checks["weights"]["remedy"]
    assert checks["source"]["state"] == "ok"
    assert "GB free" in checks["data directory"]["found"]


@pytest.mark.parametrize(("named", "state"), [("python", "note"), ("@work", "fault")])
def test_each_part_of_a_collection_is_checked_and_keeps_from_asking_only_where_it_is_named(
    named: str, state: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("full", "empty"):
        (folder / name).mkdir()
    (folder / "full" / "a.md").write_text("# A\n\nOne.\n")
    parts = ["full", "empty", "upload:gone", "searxng:http://ann:hunter2@127.0.0.1:9", "python"]
    held = {"work": parts, "rest": ["full", "nowhere"]}
    monkeypatch.setenv("RUBRICEM_COLLECTIONS", json.dumps(held))
    result = rubricem("doctor", "--json", "--source", named, code=int(state == "fault"))
    checks = [c for c in json.loads(result.stdout)["checks"] if c["name"] == "source"]
    told = {check["found"].partition(": ")[0]: check for check in checks}
    work, both = " of the collection @work", "full of the collection @work and @rest"
    bad = [f"{each}{work}" for each in ("empty", "upload:gone", "searxng:http://***@127.0.0.1:9")]
    assert [told[each]["state"] for each in bad] == [state] * 3
    assert all(told[each]["remedy"] for each in bad) and "hunter2" not in result.output
    assert (
        told[both]["state"] == "ok" and told["nowhere of the collection @rest"]["state"] == "note"
    )
    assert told["python" if state == "note" else f"python{work}"]["state"] == "ok"


def test_a_repository_is_asked_for_and_told_as_it_was_named(folder: Path):
    there = f"git:file://{folder / 'there'}"
    git(folder, "init", "-q", "there")
    git(folder / "there", "commit", "-q", "--allow-empty", "-m", "one")
    for source, told in (
        (there, f"ok     source          {there}"),
        (f"{there}#gone", "has no gone."),
        ("git:file:///gone", "The repository file:///gone cannot be fetched: "),
    ):
        shown = rubricem("doctor", "--source", source, code=int(source != there)).output
        assert told in shown and f'source: ["{source}"]' in shown


async def test_a_key_is_sent_and_a_refusal_is_told_from_a_missing_key(served: Served):
    served.status = 401
    without = await check_server(ServerChoice("small", served.url))
    wrong = await check_server(ServerChoice("small", served.url, "sk-wrong"))
    assert states(without, wrong) == ["fault", "fault"]
    assert "requires an API key and none is set (401)" in without.found
    assert "refused the API key (401)" in wrong.found
    assert served.keys == [None, "Bearer sk-wrong"]
    assert "sk-wrong" not in f"{wrong}"


async def test_a_server_that_is_down_is_told_from_one_that_is_no_model_server(
    served: Served,
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        down = await check_server(ServerChoice("m", f"http://127.0.0.1:{free.getsockname()[1]}/v1"))
    elsewhere = await check_server(ServerChoice("m", served.url.removesuffix("/v1")))
    served.body = b"<html>welcome</html>"
    page = await check_server(ServerChoice("m", served.url))
    assert states(down, elsewhere, page) == ["fault"] * 3
    assert "no model server answers" in down.found
    assert "(404)" in elsewhere.found and "not an OpenAI-compatible" in page.found


@pytest.mark.parametrize(("reply", "state"), [(RUN[0], "ok"), (Fault(404), "fault")])
async def test_a_model_that_the_server_does_not_list_is_asked_for_a_few_tokens(
    reply: Scripted, state: str
):
    with ScriptedServer([reply], models=["small", "other"]) as server:
        listed = await check_server(ServerChoice("small", server.base_url))
        keyed = await check_server(ServerChoice("small", server.base_url, "sk-any"))
        assert keyed.state == "note" and "so that the key was not tried" in keyed.found
        check = await check_server(ServerChoice("smal", server.base_url))
    assert (listed.state, check.state, len(server.requests)) == ("ok", state, 1)
    assert check.remedy == ("It has: small, other." if state == "fault" else "")


async def test_servers_of_tools_and_the_checkers_are_asked_and_are_no_obstacle(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    with serving_http(server().streamable_http_app()) as address:
        here = {"url": f"{address}/mcp", "seconds": 60}
        held = {"full": {**here, "tools": TOOLS}, "half": {**here, "tools": [TOOLS[0], "nothing"]},
                "gone": {"command": "no-such-program", "tools": ["a"]}}  # fmt: skip
        monkeypatch.setenv("RUBRICEM_MCP_SERVERS", json.dumps(held))
        settings = load_settings({"checker": f"judge@{served.url}"})
        served.status = 401
        full, half, gone = await check_tools(settings)
    [checker] = await check_checker(settings)
    assert states(full, half, gone, checker) == ["ok", "note", "note", "note"]
    assert TOOLS[0] in full.found and "without nothing" in half.found
    assert "gone" in gone.found and checker.name == "checker" and "401" in checker.found
    assert await check_checker(load_settings({})) == []


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_no_key_and_no_password_is_printed(
    served: Served, output: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789-abcXY")
    address = served.url.replace("//", "//me:secret@")
    web = f"searxng:http://ann:hunter2@{served.root.removeprefix('http://')}"
    named = ("--base-url", address, "--source", "python", "--source", web, *output)
    printed = CliRunner().invoke(main, ["doctor", *named]).output
    assert not [each for each in ("0123456789", "secret", "hunter2") if each in printed]
    assert "set, and not shown" in printed and "searxng:http://***@127.0.0.1" in printed


async def test_weights_cut_short_or_altered_are_a_fault(folder: Path):
    weights = lookup("0.5b")
    assert weights is not None
    choice = EmbeddedChoice("0.5b")
    missing = await check_weights(choice, folder)
    file = folder / weights.folder / weights.files[0].path
    file.parent.mkdir()
    file.write_bytes(b"GGUF")
    cut = await check_weights(choice, folder)
    assert states(missing, cut) == ["note", "fault"]
    assert "cut short" in cut.found
    assert "rubricem models fetch" in cut.remedy


def test_a_full_disk_a_lock_and_a_clock_set_back_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    data = folder / "data"
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(data))
    data.mkdir()
    rubricem("runs")
    assert check_data_dir(data).state == "ok"
    with closing(sqlite3.connect(data / "history.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        locked = check_data_dir(data)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2500, hard))
    try:
        full = check_data_dir(data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    tomorrow = time.time() + 86_400
    os.utime(data / "history.sqlite", (tomorrow, tomorrow))
    ahead = check_data_dir(data)
    assert states(locked, full, ahead) == ["note", "fault", "note"]
    assert "locks" in locked.found and "too large" in full.found and "24 hours" in ahead.found


def test_a_data_directory_that_cannot_be_written_is_a_fault(folder: Path):
    (folder / "file").touch()
    bad, good = check_data_dir(folder / "file" / "data"), check_data_dir(folder / "new" / "data")
    assert states(bad, good) == ["fault", "ok"]
    assert "RUBRICEM_DATA_DIR" in bad.remedy
    assert list((folder / "new" / "data").iterdir()) == []
