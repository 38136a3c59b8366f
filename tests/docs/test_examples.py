"""What the docs show works as it is written: programs, a judge of one's own, training files.

What they say of the server and the chat is what these have: addresses, limits, commands.
"""

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Match, Route

from rubricem.agent.chat.talk import COMMANDS
from rubricem.agent.serve import routes_uploads
from rubricem.agent.serve.app import MOST_BODY, create_app
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.security import Security
from rubricem.agent.settings import Settings
from rubricem.agent.sources.documents import MOST_BYTES
from rubricem.memory.schema import Stage
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.judge_training.distil import read_distil
from rubricem.training.judge_training.grpo import read_grpo
from rubricem.training.local.local_config import Method
from rubricem.training.rounds.rounds_config import build_job
from tests.conftest import ROOT, rubricem
from tests.docs.test_docs import DOCS, PAGES, TOML
from tests.support.pages import openai_served
from tests.support.policies import answer, plan
from tests.support.scripted_server import Scripted, ScriptedServer
from tests.support.terminal import scripted_folder, turns

PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def program(page: str) -> str:
    """The one program that a page shows."""
    [text] = [each.read_text(encoding="utf-8") for each in PAGES if each.name == page]
    [code] = PYTHON.findall(text)
    return str(code)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("own_rubrics", None)


def scripted(body: dict[str, Any], number: int) -> Scripted:
    """One rollout cites and one does not; the judge has one criterion, which both meet."""
    said = [message["content"] for message in body["messages"]]
    if "Criteria:" in said[1]:
        return json.dumps({"verdicts": [{"number": 1, "justification": "so", "points": 2}]})
    if "one JSON object" in said[0]:
        rule = {"title": "Rule", "description": "It names the rule."}
        return json.dumps({"answer": {"positive": [rule]}})
    if "tool_output" not in said[-1]:
        return plan()
    claim = "the least recently used entry"
    return answer(f'It evicts <cite id="S1">{claim}</cite>.' if body["seed"] % 2 else f"{claim}.")


def seeds_differ(run: RunDirectory) -> bool:
    return len({"<cite id=" in trajectory.transcript() for trajectory in run.trajectories()}) == 2


def test_the_judge_of_ones_own_that_is_shown_scores_a_run(here: Path):
    (here / "own_rubrics.py").write_text(program("collecting.md"))
    (here / "questions.txt").write_text("What does functools.lru_cache evict?\n")
    (here / "docs").mkdir()
    (here / "docs" / "lru.md").write_text("# lru_cache\nIt evicts the least recently used entry.\n")
    line, *_ = re.findall(
        r"^rubricem (collect .*rubric:own_rubrics.*)$",
        (DOCS / "collecting.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    with ScriptedServer(scripted) as server:
        more = ["--base-url", server.base_url, "--source", "docs", "reflections=0"]
        rubricem(*shlex.split(line), "--group-size", "6", *more)
    run = RunDirectory(here / "run")
    assert seeds_differ(run), "of six rollouts some cite and some do not"
    judged = {judgement.trajectory_id: judgement for judgement in run.judgements()}
    for trajectory in run.trajectories():
        cites = "<cite id=" in trajectory.transcript()
        assert judged[trajectory.id].score(Stage.ANSWER) == (1.0 if cites else 0.0)


TESTED = {
    "README.md": 1, "library.md": 3, "collecting.md": 1, "serving.md": 1, "recipes.md": 1,
    "extending.md": 1,
}  # fmt: skip
"""how many programs each page has; test_library and test_parts run those of their pages"""


def run(code: str, page: str) -> None:
    values: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, page, "exec"), values)
    if "client" in values:
        values["client"].close()


def test_every_program_that_is_shown_is_run_by_some_test():
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    found = {name: len(PYTHON.findall(text)) for name, text in texts.items()}
    assert {name: count for name, count in found.items() if count} == TESTED


def test_the_program_of_the_readme_prints_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with scripted_folder(tmp_path, monkeypatch):
        run(program("README.md"), "README.md")
    assert capsys.readouterr().out == "It is an unbounded cache [1].\n"


def test_the_program_with_openais_client_prints_the_report_and_its_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code = program("serving.md")
    with openai_served(turns, tmp_path) as here:
        assert "http://127.0.0.1:8421/v1" in code
        run(code.replace("http://127.0.0.1:8421/v1", here.url), "serving.md")
    printed = capsys.readouterr().out
    assert printed.startswith("It is an unbounded cache [1].")
    assert re.search(r"lru_cache http://127\.0\.0\.1:\d+/#/run/\w+\n\Z", printed)


def test_the_program_with_an_mcp_client_prints_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    code = program("recipes.md")
    command = tmp_path / "rubricem"
    command.write_text(
        f"#!{sys.executable}\nfrom rubricem.agent.cli import main\nmain(prog_name='rubricem')\n"
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with scripted_folder(tmp_path, monkeypatch) as model:
        # A client hands on PATH, HOME and their like, as that of every MCP server.
        (tmp_path / "rubricem.toml").write_text(
            f'base_url = "{model.base_url}"\nmodel = "scripted"\ndata_dir = "data"\n'
        )
        monkeypatch.delenv("XDG_DATA_HOME")  # of those it is not
        given = {"PYTHONPATH": str(ROOT), "RUBRICEM_CONFIG": "rubricem.toml"}
        monkeypatch.syspath_prepend(str(ROOT))
        code = code.replace('command="rubricem",', f'command="rubricem", env={given!r},')
        run(code, "recipes.md")
    assert "It is an unbounded cache [1]." in capsys.readouterr().out


SERVING = (DOCS / "serving.md").read_text(encoding="utf-8")
CHAT = (DOCS / "chat.md").read_text(encoding="utf-8")
TOLD = re.compile(r"`(GET|POST) (/[^`?]*)")


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    desk = RunDesk(Settings(data_dir=tmp_path_factory.mktemp("data")))
    return [*create_app(desk, Security()).routes]


def known(routes: list[Any], method: str, address: str) -> bool:
    scope = {"type": "http", "method": method, "path": address, "headers": [], "root_path": ""}
    return any(route.matches(scope)[0] is Match.FULL for route in routes if matched(route))


def matched(route: object) -> bool:
    return not isinstance(route, Route) or route.path != "/"


def test_every_address_that_is_told_is_served(routes: list[Any]):
    addresses = [(m, a.replace("/KIND", "/md")) for m, a in TOLD.findall(SERVING)]
    assert ("POST", "/api/runs/RUN/resume") in addresses
    assert len(addresses) > 15
    assert [each for each in addresses if not known(routes, *each)] == []


def test_the_limits_that_are_told_are_those_in_force(tmp_path: Path):
    settings = Settings(data_dir=tmp_path, base_url="http://localhost:1/v1", model="m")
    capacity = RunDesk(settings).capacity
    said = [
        f"bodies over {MOST_BODY >> 20} MiB",
        f"over {routes_uploads.REQUEST_BYTES // 10**6} MB or {routes_uploads.REQUEST_FILES} files",
        f"{MOST_BYTES // 10**6} MB a document, {routes_uploads.MOST_IN_ALL:,} documents",
        f"documents and {routes_uploads.ALL_BYTES // 10**9} GB in all",
        f"at most {capacity.running}",
        f"Up to {capacity.waiting} more wait",
    ]
    page = " ".join(SERVING.split())
    assert [phrase for phrase in said if phrase not in page] == []


def test_the_commands_of_the_chat_are_all_told():
    assert set(re.findall(r"`/(\w+)", CHAT)) == set(COMMANDS)


SETTINGS = ("# rubricem.toml", "# ~/.config/rubricem/rubricem.toml")
METHODS: dict[str, Method] = {
    "# sft.toml": "sft",
    "# grpo.toml": "ss-grpo",
    "# rounds.toml": "ss-grpo",
}
READ = {"# distil.toml": read_distil, "# judge-grpo.toml": read_grpo}
"""of the judge, whose tables have readers of their own"""
SHOWN = [
    pytest.param(block, id=f"{page.stem}-{block.splitlines()[0].strip('# ')}")
    for page in PAGES
    for block in TOML.findall(page.read_text(encoding="utf-8"))
    if block.splitlines()[0] not in SETTINGS
]


@pytest.mark.parametrize("block", SHOWN)
def test_a_training_file_that_is_shown_is_one(block: str, tmp_path: Path):
    for folder in ("run", "taught"):  # collected runs, by their manifest
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "manifest.json").touch()
    values = tomllib.loads(block)
    if read := READ.get(block.splitlines()[0]):
        (tmp_path / "judge.toml").write_text(block, encoding="utf-8")
        config, told = read(tmp_path / "judge.toml")
        assert (config.out, config.judge) == (tmp_path / values["out"], "full")
        assert told.pairs == (tmp_path / "preferences.jsonl",)
        return
    job = build_job(values, tmp_path, METHODS[block.splitlines()[0]])
    assert (job.rounds is not None) == ("rounds" in values)
    assert job.config.out == tmp_path / values["out"]
    named = {name: values[name] for name in ("learning_rate", "batch", "epochs") if name in values}
    assert {name: getattr(job.config, name) for name in named} == named


def test_each_kind_of_training_is_shown():
    shown = {str(each.values[0]).splitlines()[0] for each in SHOWN}
    assert shown == {*METHODS, *READ}


def test_every_command_of_the_page_names_a_file_that_it_shows():
    text = (DOCS / "training.md").read_text(encoding="utf-8")
    named = re.findall(r"train (sft|ss-grpo) (\w+\.toml)$", text, re.MULTILINE)
    assert named
    assert all(METHODS[f"# {file}"] == method for method, file in named)
