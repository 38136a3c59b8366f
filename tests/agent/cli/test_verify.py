"""`rubricem ask --verify` over a real server, and runs that may ask no more."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rubricem.agent.cli import main
from rubricem.agent.models.policy import ChatWriter
from rubricem.agent.research.question import Budgets
from rubricem.agent.verify.verifier import AnswerVerifier
from rubricem.memory.schema import Status, Verification
from tests.support.policies import (
    QUESTION,
    RUN,
    SUPPORTED,
    client,
    contents,
    journalled,
    researching,
)
from tests.support.scripted_server import Fault, Hang, ScriptedServer

UNSUPPORTED = SUPPORTED.replace('"supported"', '"unsupported"')
QUERY = "What does lru_cache do with maxsize None?"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "cache.md").write_text("# lru_cache\n\nWith None it is an unbounded cache.\n")
    return folder


def ask(server: ScriptedServer, documents: Path, *more: str) -> dict[str, Any]:
    where = ("--base-url", server.base_url, "--source", str(documents))
    done = CliRunner().invoke(main, ["ask", QUERY, *where, "--json", *more])
    assert done.exit_code == 0, done.output
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_claims_are_checked_by_default_and_marked(documents: Path):
    with ScriptedServer([*RUN, UNSUPPORTED]) as server:
        report = ask(server, documents)
        asked = contents(server.requests[-1].body)
    assert report["answer"] == "It is an unbounded cache [1: not supported]."
    assert report["verification"]["checker"].startswith("scripted@127.0.0.1")
    assert report["usage"]["calls"] == 4
    assert [role for role, _ in asked] == ["system", "user"], "no transcript is sent with it"


def test_off_checks_nothing(documents: Path):
    with ScriptedServer(RUN) as server:
        report = ask(server, documents, "--verify", "off")
        assert len(server.requests) == 3
    assert (report["verification"], report["status"]) == (None, "finished")


def test_repair_rewrites_what_is_not_supported(documents: Path):
    turns = [*RUN, UNSUPPORTED, "an unbounded cache with None", SUPPORTED]
    with ScriptedServer(turns) as server:
        report = ask(server, documents, "--verify", "repair")
    assert report["answer"] == "It is an unbounded cache with None [1]."
    assert report["verification"]["repairs"] == [
        {"claim": "an unbounded cache", "became": "an unbounded cache with None"}
    ]


def test_rules_alone_can_be_chosen(documents: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUBRICEM_CHECKER", "lexical")
    with ScriptedServer(RUN) as server:
        report = ask(server, documents)
    assert report["verification"]["checker"] == "lexical rules"
    assert report["citations"][0]["support"]["verdict"] == "supported"


def test_a_server_that_refuses_the_check_does_not_lose_the_answer(documents: Path):
    with ScriptedServer([*RUN, *[Fault(401)] * 9]) as server:
        report = ask(server, documents)
    assert (report["status"], report["answer"]) == ("finished", "It is an unbounded cache [1].")
    assert "checked by lexical rules alone" in report["verification"]["note"]


async def checking(server: ScriptedServer, data_dir: Path, **budgets: Any) -> Verification:
    """A run over a server that is checked by the same model, within budgets."""
    async with (
        client(server.base_url, timeout=30) as model,
        researching(server.base_url, data_dir) as researcher,
    ):
        checked = replace(researcher, verifier=AnswerVerifier("mark", ChatWriter(model)))
        wanted = replace(checked.template, question=QUESTION, budgets=Budgets(**budgets))
        run = await checked.ask(wanted, "t")
    assert run.status is not Status.FAILED
    assert run.verification is not None
    return run.verification


async def test_a_run_whose_tokens_are_spent_is_checked_by_rules(tmp_path: Path):
    # The run's three calls take 360 tokens, and so many more are kept in reserve for its answer.
    with ScriptedServer([*RUN, UNSUPPORTED]) as server:
        assert (await checking(server, tmp_path, tokens=800)).checks[0].verdict == "unsupported"
    with ScriptedServer(RUN) as server:
        found = await checking(server, tmp_path / "less", tokens=470)
    assert (found.checker, found.checks[0].verdict) == ("lexical rules", "supported")
    assert found.note == "no model checked the citations, since the budget of 470 tokens ran out"


async def test_a_check_that_outlasts_the_seconds_is_left_to_rules(tmp_path: Path):
    with ScriptedServer([*RUN, Hang()]) as server:
        found = await checking(server, tmp_path, seconds=1.5)
    assert found.checker == "lexical rules"
    assert "1.5 seconds ran out" in found.note


async def test_a_resume_repeats_no_check(tmp_path: Path):
    with ScriptedServer([*RUN, UNSUPPORTED]) as server:
        first = await checking(server, tmp_path)
        kept = journalled(tmp_path)
        (tmp_path / "runs" / "t" / "trajectory.json").unlink()
        assert await checking(server, tmp_path) == first
        assert (len(server.requests), journalled(tmp_path)) == (4, kept)
