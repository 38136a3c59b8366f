"""The programs that the docs show, run as they are written: OpenAI's client, and an MCP client."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chat_terminal import turns
from tests.conftest import ROOT
from tests.docs_served import scripted_folder
from tests.openai_served import served
from tests.test_docs import PAGES
from tests.test_docs_examples import PYTHON

TESTED = {"README.md": 1, "library.md": 2, "collecting.md": 1, "serving.md": 1, "recipes.md": 1}
"""how many programs each page has; test_library and test_docs_examples run those of two pages"""


def program(page: str) -> str:
    [text] = [each.read_text(encoding="utf-8") for each in PAGES if each.name == page]
    [code] = PYTHON.findall(text)
    return str(code)


def run(code: str, page: str) -> None:
    values: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, page, "exec"), values)
    if "client" in values:
        values["client"].close()


def test_every_program_that_is_shown_is_run_by_some_test() -> None:
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    found = {name: len(PYTHON.findall(text)) for name, text in texts.items()}
    assert {name: count for name, count in found.items() if count} == TESTED


def test_the_program_of_the_readme_prints_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted_folder(tmp_path, monkeypatch):
        run(program("README.md"), "README.md")
    assert capsys.readouterr().out == "It is an unbounded cache [1].\n"


def test_the_program_with_openais_client_prints_the_report_and_its_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = program("serving.md")
    with served(turns, tmp_path) as (address, _, _):
        assert "http://127.0.0.1:8421/v1" in code
        run(code.replace("http://127.0.0.1:8421/v1", address), "serving.md")
    printed = capsys.readouterr().out
    assert printed.startswith("It is an unbounded cache [1].")
    assert printed.endswith("lru_cache cache.md\n")


def test_the_program_with_an_mcp_client_prints_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = program("recipes.md")
    command = tmp_path / "rubricem"
    command.write_text(
        f"#!{sys.executable}\nfrom agent.cli import main\nmain(prog_name='rubricem')\n"
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with scripted_folder(tmp_path, monkeypatch) as model:
        # A client hands on PATH, HOME and their like, as that of every MCP server.
        (tmp_path / "rubricem.toml").write_text(
            f'base_url = "{model.base_url}"\nmodel = "scripted"\ndata_dir = "data"\n'
        )
        monkeypatch.syspath_prepend(str(ROOT))
        code = code.replace(
            'command="rubricem",', f'command="rubricem", env={{"PYTHONPATH": {str(ROOT)!r}}},'
        )
        run(code, "recipes.md")
    assert "It is an unbounded cache [1]." in capsys.readouterr().out
