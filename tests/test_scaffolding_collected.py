"""A scaffold through a collecting run: what each member is shown, and what is kept of it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli import main
from memory.rubrics import RubricBuffer
from memory.schema import Criterion, Stage, Trajectory
from tests.collected import QUESTIONS, Failing, Opened, two_turns
from tests.fakes import ScriptedPolicy
from tests.scripted_server import ScriptedServer
from tests.test_collect_command import scripted
from training.export_forms import ExportOptions, export_run
from training.exporting import run_rows
from training.local.windows import read_rows
from training.run_directory import Question, RunDirectory
from training.scaffolded_groups import criteria_of
from training.scaffolding import ScaffoldRule

RULE = ScaffoldRule()
ASKED = (Question(id="0", question="What is one?", criteria=("Says 1.", "Says 2.")),)


async def collected(folder: Path, **changed: object) -> list[Trajectory]:
    opened = Opened(folder, questions=ASKED, group_size=3, scaffold=RULE, **changed)
    try:
        await opened.collector().collect()
        return sorted(opened.run.trajectories(), key=lambda t: t.thread)
    finally:
        opened.close()


async def test_members_are_shown_less_and_less_and_the_last_one_nothing(tmp_path: Path):
    first, second, last = await collected(tmp_path)
    assert first.scaffold and second.scaffold and last.scaffold is None
    assert (first.scaffold.shown, second.scaffold.shown) == (2, 1)
    assert "1. Says 1.\n2. Says 2." in first.system
    assert first.system.endswith(first.scaffold.text)
    assert first.system.removesuffix(first.scaffold.text) == last.system


async def test_a_rollout_keeps_the_ids_of_its_prompt_with_and_without(tmp_path: Path):
    first, _, last = await collected(tmp_path)
    assert first.scaffold
    prompt = first.segments[0]
    assert prompt.token_ids == tuple(map(ord, first.system + prompt.text))
    assert first.scaffold.bare_ids == last.segments[0].token_ids


async def test_the_criteria_are_not_in_what_the_judge_reads(tmp_path: Path):
    first, *_ = await collected(tmp_path)
    assert "Says 1." not in first.transcript()


async def test_a_run_that_goes_on_shows_what_it_showed_at_first(tmp_path: Path):
    down = Failing(ScriptedPolicy(two_turns), lambda call: call > 3)
    opened = Opened(tmp_path, down, questions=ASKED, group_size=3, scaffold=RULE)
    await opened.collector(judge=None, reflecting=None, at_once=1).collect()
    # Meanwhile somebody judges the question; the failed rollouts are asked as they were.
    failed = opened.run.store.request("s000-q000-r1")["ask"]
    (opened.run.folder / "steps/000/done.json").unlink()
    grown = RubricBuffer(
        question="What is one?",
        version=1,
        active={Stage.ANSWER: (Criterion(title="new", description="New."),)},
    )
    opened.buffers.save(grown)
    opened.close()
    again = Opened(tmp_path, questions=ASKED, group_size=3, scaffold=RULE)
    await again.collector().collect()
    assert again.run.store.request("s000-q000-r1")["ask"] == failed
    assert len(list(again.run.trajectories())) == 3
    again.close()


async def test_a_question_without_criteria_is_asked_without_a_scaffold(tmp_path: Path):
    opened = Opened(tmp_path, questions=QUESTIONS[:1], scaffold=RULE)
    await opened.collector().collect()
    assert [t.scaffold for t in opened.run.trajectories()] == [None, None]
    opened.close()


def test_a_rubric_takes_the_place_of_what_stands_in_the_file():
    one, two = (Criterion(title=t, description=t) for t in ("kept", "new"))
    buffer = RubricBuffer(
        question="q",
        persistent={Stage.ANSWER: (one.model_copy(update={"persistent": True}),)},
        active={Stage.PLAN: (two,)},
        retired={Stage.PLAN: (Criterion(title="old", description="old"),)},
    )
    assert [c.title for c in criteria_of(buffer, ("file",))] == ["new", "kept"]
    assert [c.description for c in criteria_of(RubricBuffer(question="q"), ("file",))] == ["file"]


async def test_rows_have_the_prompt_without_the_scaffold_and_keep_the_other(tmp_path: Path):
    opened = Opened(tmp_path, questions=ASKED, group_size=3, scaffold=RULE)
    await opened.collector().collect()
    opened.close()
    trajectories = {t.id: t for t in opened.run.trajectories()}
    rows = [row for row in (await run_rows(opened.run)).rows if row.objective == "policy"]
    assert {row.recompute_logprobs for row in rows} == {True, False}
    for row in rows:
        one = trajectories[row.trajectory]
        bare = one.scaffold.bare_ids if one.scaffold else one.segments[0].token_ids
        assert row.ids[: row.prompt_tokens] == bare
        assert row.ratio_allowed
        shown = one.segments[0].token_ids if one.scaffold else ()
        assert row.scaffolded_prompt == shown


@pytest.mark.parametrize("ratio", ["behaviour", "scaffolded"])
async def test_rows_of_a_run_are_exported_for_the_ratio_that_is_asked_for(
    tmp_path: Path, ratio: str
):
    opened = Opened(tmp_path, questions=ASKED, group_size=3, scaffold=RULE)
    await opened.collector().collect()
    opened.close()
    out = tmp_path / "rows.jsonl"
    wanted = ExportOptions(scaffold_ratio=ratio)
    told = await export_run(opened.run.folder, "rows", out, wanted)
    rows = [row for row in read_rows([out]) if row.objective == "policy"]
    shown = {t.id: t for t in opened.run.trajectories() if t.scaffold}
    assert shown and any(row.trajectory in shown for row in rows)
    for row in rows:
        one = shown.get(row.trajectory)
        assert not row.recompute_logprobs
        assert row.across_prompts == (ratio == "behaviour" and one is not None)
        if one is not None:
            kept = row.ids if ratio == "scaffolded" else row.scaffolded_prompt
            assert kept[: len(one.segments[0].token_ids or ())] == one.segments[0].token_ids
    count = sum(row.across_prompts for row in rows)
    across = f"{count} of them form their ratio to what was sampled under a scaffold"
    assert (across in told) == (ratio == "behaviour")


def test_the_command_shows_what_the_questions_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# one\nOne is one.\n")
    line = {"question": "What is one?", "criteria": ["Says that it is a number."]}
    (tmp_path / "q.jsonl").write_text(json.dumps(line))
    named = ["collect", str(tmp_path / "q.jsonl"), "--out", str(tmp_path / "run")]
    how = ["--judge", "none", "--group-size", "2", "--scaffold", "binary:1", "--progress", "0.1"]
    with ScriptedServer(scripted) as server:
        server_flags = ["--base-url", server.base_url, "--source", str(tmp_path / "notes")]
        done = CliRunner().invoke(main, [*named, *how, *server_flags])
        again = CliRunner().invoke(main, [*named, *how[:-2], *server_flags])
        asked = [request.body["messages"][0]["content"] for request in server.requests]
    assert done.exit_code == 0, done.output
    assert sum("1. Says that it is a number." in system for system in asked) == 2
    shown = {t.thread[-2:]: t.scaffold for t in RunDirectory(tmp_path / "run").trajectories()}
    assert shown["r0"] is not None and shown["r1"] is None
    assert again.exit_code == 2 and "with another scaffold" in again.stderr
