"""How OpenEnv's own tests are taken over: which ones, and with what changed."""

from pathlib import Path

import pytest

from tests.upstream_rubrics import TESTS, chosen, main, renamed

PLAIN = """
from openenv.core.rubrics.base import Rubric
from openenv.core.llm_client import LLMClient
def test_names():
    assert Rubric.__module__ == "judge.rubrics.base"
    assert LLMClient.__module__ == "judge.rubrics.llm_client"
"""
GLUE = "from openenv.core.env_server.interfaces import Environment\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / TESTS).mkdir(parents=True)
    (tmp_path / TESTS / "test_base_rubric.py").write_text(PLAIN)
    (tmp_path / TESTS / "test_glue.py").write_text(GLUE)
    return tmp_path


def test_only_the_import_path_is_changed():
    assert renamed("import openenv.core.rubrics as r  # openenv") == (
        "import judge.rubrics as r  # openenv"
    )
    assert renamed(GLUE) == GLUE


def test_the_glue_to_environments_is_run_only_where_the_package_is(checkout: Path):
    assert [name for name, _ in chosen(checkout, glue=False)] == ["test_base_rubric.py"]
    assert [name for name, _ in chosen(checkout, glue=True)] == [
        "test_base_rubric.py",
        "test_glue.py",
    ]


def test_a_checkouts_tests_run_on_our_rubrics(checkout: Path, capfd: pytest.CaptureFixture[str]):
    (checkout / TESTS / "test_glue.py").unlink()
    assert main([str(checkout)]) == 0
    assert "1 passed" in capfd.readouterr().out
    (checkout / TESTS / "test_more.py").write_text("def test_no():\n    assert False\n")
    assert main([str(checkout)]) == 1


def test_without_a_checkout_nothing_is_said_to_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([]) == 2
    assert main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "make upstream OPENENV=DIR" in said and f"in {tmp_path}" in said
