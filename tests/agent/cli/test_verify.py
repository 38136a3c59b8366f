"""`rubricem ask --verify` over a real server, and runs that may ask no more."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rubricem.agent.cli import main
from rubricem.agent.models.policy import ChatWriter
from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.agent.transcript.question import Budgets
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
from tests.support.scripted_server import Fault, Hang, Scripted, ScriptedServer

UNSUPPORTED = SUPPORTED.replace('"supported"', '"unsupported"')
QUERY = "What does lru_cache do with maxsize None?"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "cache.md").write_text("# lru_cache\n\nWith None it is an unbounded cache.\n")
    return folder


@pytest.mark.parametrize(
    ("flags", "turns", "said", "checker"),
    [
        ((), [UNSUPPORTED], "an unbounded cache [1: not supported]", "scripted@127.0.0.1"),
        (("--verify", "off"), [], "an unbounded cache [1]", None),
        (
            ("--verify", "repair"),
            [UNSUPPORTED, "an unbounded cache with None", SUPPORTED],
            "an unbounded cache with None [1]",
            "scripted@127.0.0.1",
        ),
        ((), [Fault(401)] * 9, "an unbounded cache [1]", "scripted@127.0.0.1"),
    ],
    ids=["marked by default", "off", "repaired", "refused by its server"],
)
def test_claims_are_checked_as_it_is_said_and_a_check_that_fails_loses_no_answer(
    documents: Path, flags: tuple[str, ...], turns: list[Scripted], said: str, checker: str | None
):
    with ScriptedServer([*RUN, *turns]) as server:
        where = ("--base-url", server.base_url, "--source", str(documents))
        done = CliRunner().invoke(main, ["ask", QUERY, *where, "--json", *flags])
        checks = [contents(request.body) for request in server.requests[3:]]
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["status"], report["answer"]) == ("finished", f"It is {said}.")
    for check in checks:
        assert check[0][0] == "system" and len(check) == 2, "no transcript is sent with it"
    found = report["verification"]
    assert found["checker"].startswith(checker) if checker else found is None
    if flags[-1:] == ("repair",):
        became = {"claim": "an unbounded cache", "became": "an unbounded cache with None"}
        assert found["repairs"] == [became]
    if turns[-1:] == [Fault(401)]:
        assert "checked by lexical rules alone" in found["note"]


def test_rules_alone_can_be_chosen(documents: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUBRICEM_CHECKER", "lexical")
    with ScriptedServer(RUN) as server:
        where = ("--base-url", server.base_url, "--source", str(documents))
        report = json.loads(CliRunner().invoke(main, ["ask", QUERY, *where, "--json"]).stdout)
    assert report["verification"]["checker"] == "lexical rules"
    assert report["citations"][0]["support"]["verdict"] == "supported"


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
