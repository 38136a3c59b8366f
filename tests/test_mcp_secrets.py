"""The keys of MCP servers stay in the settings: they are in no report, dump, list or sentence."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from agent.cli import main
from agent.clients import CHOICES, choices_of
from agent.mcp_tools.config import ToolServer
from agent.serve.exporting import for_others
from agent.serve.routes_exports import router
from agent.settings import Settings, load_settings
from memory.runs import RunStore
from memory.schema import Source, Stage, Trajectory
from tests.judged import WHOLE, run_of
from tests.run_site import site
from tests.scripted_server import ScriptedServer
from tests.serve_apps import served
from tests.test_serve_exports import _pdf_text, keep

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


def leaky() -> Trajectory:
    """A run in which a tool told every key, in every place that has words."""
    told = f"{' '.join(SECRETS)} but Bearer stays"
    source = Source(id="S1", title=told, location="mcp:x", text=told, tool=told, query=told)
    answer = f'<answer>It is <cite id="S1">in {told}</cite>.</answer>'
    run = run_of({**WHOLE, Stage.ANSWER: answer}, "leaky", sources=(source,), reason=told)
    return run.model_copy(update={"question": told, "policy": told})


@pytest.mark.parametrize("kind", ["md", "html", "pdf", "json"])
async def test_no_key_is_in_an_export(tmp_path: Path, kind: str):
    settings = chosen(tmp_path)
    keep(RunStore(settings.data_dir), leaky())
    async with served(router(settings)) as http:
        reply = await http.get(f"/api/runs/leaky/export/{kind}")
    text = _pdf_text(reply.content) if kind == "pdf" else reply.text
    whole = re.sub(r"\s+", "", text.replace("\\", ""))
    assert "Bearerstays" in whole
    assert [secret for secret in SECRETS if secret in whole] == []


def test_every_kind_of_secret_setting_is_taken_out_of_what_leaves(tmp_path: Path):
    secret = {
        name: SecretStr(f"{name}-0123456789")
        for name, field in Settings.model_fields.items()
        if "SecretStr" in str(field.annotation)
    }
    settings = chosen(tmp_path, **secret)
    assert {"api_key", "scholar_key", "checkpoints"} <= set(secret)
    told = " ".join([*SECRETS, *(each.get_secret_value() for each in secret.values())])
    left = for_others(leaky().model_copy(update={"question": told}), settings)
    assert set(left.question.split()) == {"***"}


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


def test_a_mistake_beside_a_key_is_told_without_it(monkeypatch: pytest.MonkeyPatch):
    wrong = {**SERVERS, "local": {**SERVERS["local"], "seconds": -1}}
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", json.dumps(wrong))
    done = CliRunner().invoke(main, ["ask", "What?"])
    assert done.exit_code == 2 and "seconds" in done.output
    assert [secret for secret in (*SECRETS, ARGUMENT) if secret in done.output] == []
    monkeypatch.setenv("RUBRICEM_MCP_SERVERS", json.dumps(SERVERS))
    assert set(load_settings().mcp_servers) == set(SERVERS)
