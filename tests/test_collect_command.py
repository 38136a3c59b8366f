"""`rubricem collect` and `rubricem export` over a scripted server that writes, judges, reflects."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from agent.settings import load_settings
from memory.bank import RubricBank
from memory.buffers import BufferStore
from memory.schema import Reflection, Stage
from tests.flow import answer, plan
from tests.scripted_server import Fault, Scripted, ScriptedServer
from training.groups import Reflected
from training.opening import CollectOptions, judge_settings, open_collector
from training.opening_flow import at_once
from training.questions_selecting import Selected
from training.rows import TrainRow
from training.run_directory import Question, RunDirectory

QUESTION = "What does functools.lru_cache do with maxsize=None?"
REFLECTION = (
    "<reflection_rubrics>\nCritical Requirement: name the bound.\n</reflection_rubrics>\n"
    "<reflection_takeaways>\n- Read the documentation first.\n</reflection_takeaways>"
)
PROPOSAL = json.dumps(
    {
        stage: {"positive": [{"title": "Rule", "description": f"The {stage} names the rule."}]}
        for stage in ("plan", "answer")
    }
)


def scripted(body: dict[str, Any], number: int) -> Scripted:
    """A policy whose answers differ, and a judge that likes those which end in an even digit."""
    messages = [message["content"] for message in body["messages"]]
    system, said = messages[0], messages[1]
    if "Criteria:" in said:
        good = 2 if re.search(r"answer \d*[02468]</cite>", said) else 0
        given = [{"number": n, "justification": "so it is", "points": good} for n in (1, 2)]
        return json.dumps({"verdicts": given})
    if "Criteria in force:" in said or ("one JSON object" in system and "review" not in said):
        return PROPOSAL
    if "<run>" in said:
        return REFLECTION
    if ids := re.findall(r"review ([A-Z])\]", said):
        parts = {"diagnostic_accuracy": 0.9, "specificity": 0.9, "scope_and_balance": 0.9}
        listed = [{"id": i, "justification": "good", **parts} for i in dict.fromkeys(ids)]
        return json.dumps({"reviews": listed})
    if "tool_output" in messages[-1]:
        return answer(f'It is <cite id="S1">answer {body["seed"]}</cite>.')
    return plan()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "lru.md").write_text(
        "# lru_cache\nWithout a maxsize the lru_cache has no bound.\n"
    )
    (tmp_path / "questions.txt").write_text(f"{QUESTION}\n")
    return tmp_path


def collect(folder: Path, server: ScriptedServer, *arguments: str) -> Result:
    named = [str(folder / "questions.txt"), "--out", str(folder / "run")]
    source = ["--base-url", server.base_url, "--source", str(folder / "documents")]
    return CliRunner().invoke(main, ["collect", *named, *source, *arguments])


def export(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["export", str(folder / "run"), *arguments])


def test_groups_are_collected_judged_reflected_upon_and_kept(folder: Path):
    with ScriptedServer(scripted) as server:
        done = collect(folder, server, "--group-size", "4", "--reflections", "2", "--memory", "on")
    assert done.exit_code == 0, done.output
    assert "1 groups in 1 steps, 4 rollouts: 4 finished" in done.stdout
    assert "2 reflections, 1 accepted" in done.stdout
    assert "s000-q000-r3: finished, 1 searches" in done.stderr
    run = RunDirectory(folder / "run")
    (group,) = run.groups()
    assert len(group.trajectories) == 4 and group.notes == ()
    scores = {j.score(Stage.ANSWER) for j in run.judgements()}
    assert scores <= {0.0, 1.0} and len(list(run.judgements())) == 4
    reflected = run.part(0, "s000-q000-reflected", Reflected)
    assert reflected and reflected.usage.calls == 3, "two were written, and judged at once"
    buffer = BufferStore(folder / "data" / "buffers").load(QUESTION)
    assert buffer.version > 0
    assert group.rubric_version.startswith("1-")


def banked(folder: Path) -> list[Reflection]:
    return [i.reflection for i in asyncio.run(RubricBank(folder / "data").items())]


def test_what_was_accepted_is_in_the_bank(folder: Path):
    with ScriptedServer(scripted) as server:
        collect(folder, server, "--group-size", "2", "--reflections", "1", "--memory", "on")
    (item,) = banked(folder)
    assert (item.question, item.takeaways) == (QUESTION, "- Read the documentation first.")


def test_a_bank_that_is_only_read_stays_as_it_is(folder: Path):
    with ScriptedServer(scripted) as server:
        collect(folder, server, "--group-size", "2", "--reflections", "1")
    assert banked(folder) == []


def test_a_step_recalls_what_the_steps_before_it_taught_and_nothing_of_its_own(folder: Path):
    twice = Selected(tuple(Question(id=number, question=QUESTION) for number in ("0", "1")))
    with ScriptedServer(scripted) as server:
        flags = {"base_url": server.base_url, "source": (str(folder / "documents"),)}
        settings = load_settings({**flags, "memory": "on", "decoding": "free"})

        async def collected() -> None:
            options = CollectOptions(group_size=2, reflections=1)
            run = RunDirectory(folder / "run")
            async with open_collector(settings, options, run, twice, lambda line: None) as opened:
                await opened.collect()

        asyncio.run(collected())
    first, second = RunDirectory(folder / "run").groups()
    (earlier, _) = banked_ever(folder)
    assert (first.step, first.recalled) == (0, ())
    assert (second.step, second.recalled) == (1, (earlier.id,))
    prompts = [t.segments[0].text for t in RunDirectory(folder / "run").trajectories()]
    assert ["- Read the documentation first." in prompt for prompt in prompts] == [
        False, False, True, True,
    ]  # fmt: skip


def test_what_is_asked_what_is_dropped_and_what_is_held_out_is_kept_with_the_run(folder: Path):
    lines = [f"What is {n}?" for n in range(8)]
    (folder / "questions.txt").write_text("\n".join([*lines, "WHAT is  0?", "x" * 300]))
    with ScriptedServer(scripted) as server:
        chosen = ("--held-out", "0.5", "--filter", "length<=20")
        done = collect(folder, server, "--judge", "none", "--group-size", "1", *chosen)
        other = collect(folder, server, "--judge", "none", "--group-size", "1")
    assert done.exit_code == 0, done.output
    run = RunDirectory(folder / "run")
    selection = run.manifest().selection
    assert selection is not None and (selection.filtered, selection.duplicates) == (1, 1)
    held = (folder / "run" / "held_out.jsonl").read_text().splitlines()
    asked = {question.question for question in run.questions()}
    assert 0 < len(held) < 8 and selection.held_out == len(held)
    assert asked.isdisjoint(json.loads(line)["question"] for line in held)
    assert asked == {trajectory.question for trajectory in run.trajectories()}
    assert done.stderr.startswith(
        f"10 questions read, 1 filtered out, 1 duplicates dropped, {len(held)}"
    )
    assert other.exit_code == 2 and "another list of questions, selection" in other.stderr


def banked_ever(folder: Path) -> list[Reflection]:
    return [i.reflection for i in asyncio.run(RubricBank(folder / "data").history(QUESTION))]


def test_the_same_command_again_asks_the_server_for_nothing(folder: Path):
    with ScriptedServer(scripted) as server:
        first = collect(folder, server, "--group-size", "2")
        asked = len(server.requests)
        again = collect(folder, server, "--group-size", "2")
        assert len(server.requests) == asked
    assert (again.exit_code, again.stdout) == (0, first.stdout)


def test_a_run_that_a_server_broke_off_goes_on_where_it_was(folder: Path):
    down = [True]

    def failing(body: dict[str, Any], number: int) -> Scripted:
        return Fault(401) if number > 1 and down[-1] else scripted(body, number)

    with ScriptedServer(failing) as server:
        broken = collect(folder, server, "--group-size", "2", "--judge", "none")
        assert broken.exit_code == 1
        assert "error: No rollout of step 0 came to an end" in broken.stderr
        down[-1], asked = False, len(server.requests)
        done = collect(folder, server, "--group-size", "2", "--judge", "none")
        assert len(server.requests) == asked + 2, "the two plans were in the journal"
    assert done.exit_code == 0 and "2 rollouts: 2 finished" in done.stdout


def test_a_half_collected_run_goes_on_where_its_server_has_moved_to(folder: Path):
    def failing(body: dict[str, Any], number: int) -> Scripted:
        return Fault(401) if number > 1 else scripted(body, number)

    shape = ("--group-size", "2", "--judge", "none")
    with ScriptedServer(failing) as server:
        assert collect(folder, server, *shape).exit_code == 1
    with ScriptedServer(scripted) as moved:
        done = collect(folder, moved, *shape)
        assert len(moved.requests) == 2, "the two plans were in the journal"
        other = collect(folder, moved, *shape, "--model", "another")
    assert done.exit_code == 0 and "2 rollouts: 2 finished" in done.stdout
    assert other.exit_code == 2 and "with another policy, settings" in other.stderr


def test_what_is_said_of_a_scaffold_that_there_is_not_is_refused(folder: Path):
    with ScriptedServer(scripted) as server:
        for flag in ("--progress", "0.5"), ("--scaffold-decay", "linear"):
            done = collect(folder, server, *flag)
            assert done.exit_code == 2 and "none is asked for" in done.stderr
        assert server.requests == []
    assert not (folder / "run").exists()


def test_other_settings_are_refused(folder: Path):
    with ScriptedServer(scripted) as server:
        collect(folder, server, "--group-size", "2", "--judge", "none")
        other = collect(folder, server, "--group-size", "3", "--judge", "none", "--tool-calls", "2")
    assert other.exit_code == 2
    assert "holds a run with another group size, tool calls" in other.stderr


def test_a_chat_servers_run_gives_no_rows_without_a_tokeniser(folder: Path):
    with ScriptedServer(scripted) as server:
        collect(folder, server, "--group-size", "4", "--reflections", "0")
    done = export(folder)
    assert done.exit_code == 0, done.output
    assert "0 rows (none), 0 trained tokens" in done.stdout
    assert "4 dropped: it has no token ids" in done.stdout
    assert (folder / "run" / "rows.jsonl").read_text() == ""


@pytest.mark.model
def test_with_a_tokeniser_its_rows_form_no_ratio(folder: Path, real_weights: Path):
    with ScriptedServer(scripted) as server:
        collect(folder, server, "--group-size", "6", "--reflections", "0")
    run = RunDirectory(folder / "run")
    apart = len({j.score(Stage.ANSWER) for j in run.judgements()}) > 1
    out = folder / "rows.jsonl"
    done = export(folder, "--model", "0.5b", "--credit", "answer-only", "--out", str(out))
    assert done.exit_code == 0, done.output
    rows = [TrainRow.model_validate_json(line) for line in out.read_text().splitlines()]
    assert len(rows) == (6 if apart else 0)
    assert not any(row.ratio_allowed for row in rows)


def test_a_wrong_questions_file_or_folder_is_told(folder: Path):
    with ScriptedServer(scripted) as server:
        (folder / "questions.txt").write_text("\n")
        done = collect(folder, server)
    assert done.exit_code == 2 and "holds no question" in done.stderr
    done = export(folder)
    assert done.exit_code == 2 and "is no collecting run" in done.stderr


def test_the_judge_is_the_policys_model_unless_another_is_named():
    settings = load_settings({"base_url": "http://localhost:1/v1", "model": "large"})
    assert judge_settings(settings, CollectOptions()) is settings
    other = judge_settings(settings, CollectOptions(judge_model="1.5b"))
    assert (other.model, other.base_url) == ("1.5b", None)
    small = load_settings({"model": "0.5b"})
    assert judge_settings(small, CollectOptions(judge_model="0.5b")) is small
    there = judge_settings(settings, CollectOptions(judge_base_url="http://localhost:2/v1"))
    assert (there.model, there.base_url) == (None, "http://localhost:2/v1")


def test_an_embedded_model_has_as_many_runs_at_once_as_slots():
    assert at_once(load_settings({"slots": 3})) == 3
    assert at_once(load_settings({"base_url": "http://localhost:1/v1", "concurrency": 9})) == 9
