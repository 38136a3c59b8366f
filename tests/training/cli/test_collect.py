"""`rubricem collect` and `rubricem export` over a scripted server that writes, judges, reflects.

What can go wrong while `rubricem collect` runs as a process, and that nothing is lost by it.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.learning.reflect import Reflected
from rubricem.agent.models.opening import ServerChoice
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.bank import RubricBank
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import Reflection, Stage
from rubricem.training.cli.collect import read_config
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.questions import Question, Selected
from rubricem.training.collect.setup import judge_choice, open_collector
from rubricem.training.show.collected import run_numbers
from tests.conftest import ENVIRONMENT, ROOT, rubricem
from tests.support.banks import reflection
from tests.support.collected import QUESTION, collecting
from tests.support.policies import answer, plan
from tests.support.scripted_server import Fault, Reply, Scripted, ScriptedServer
from tests.support.waiting import Process, wait_for

REFLECTION = (
    "<reflection_rubrics>\nCritical Requirement: name the bound.\n</reflection_rubrics>\n"
    "<reflection_takeaways>\n- Read the documentation first. [plan]\n</reflection_takeaways>"
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
    if ids := re.findall(r"review (\d+)\]", said):
        parts = {"diagnostic_accuracy": 0.9, "specificity": 0.9, "scope_and_balance": 0.9}
        listed = [{"id": i, "justification": "good", **parts} for i in dict.fromkeys(ids)]
        return json.dumps({"reviews": listed})
    if "tool_output" in messages[-1]:
        held = re.search(r'<snippet id="S1">.*?\n([^\n]*\.)\n</snippet>', messages[-1], re.S)
        kept = f' <cite id="S1">{held[1]}</cite>' if held else ""
        return answer(f'It is <cite id="S1">answer {body["seed"]}</cite>.{kept}')
    return plan()


def collect(folder: Path, server: ScriptedServer, *arguments: str) -> Result:
    named = [str(folder / "questions.txt"), "--out", str(folder / "run")]
    source = ["--base-url", server.base_url, "--source", str(folder / "documents")]
    return CliRunner().invoke(main, ["collect", *named, *source, *arguments])


def collect_into(run: Path, folder: Path, where: list[str], *arguments: str) -> Result:
    named = [str(folder / "questions.txt"), "--out", str(run), *where]
    return CliRunner().invoke(main, ["collect", *named, *arguments])


def banked(folder: Path) -> list[Reflection]:
    return [i.reflection for i in asyncio.run(RubricBank(folder / "data").items())]


def test_groups_are_collected_judged_reflected_upon_and_kept_once_and_for_all(folder: Path):
    shape = ("--group-size", "4", "reflections=2", "settings.memory=on")
    with ScriptedServer(scripted) as server:
        done = collect(folder, server, *shape)
        asked = len(server.requests)
        again = collect(folder, server, *shape)
        assert len(server.requests) == asked, "the same command asks the server for nothing"
        other = collect(folder, server, *shape, "--group-size", "3", "settings.tool_calls=2")
    assert (again.exit_code, again.stdout) == (0, done.stdout)
    assert other.exit_code == 2
    assert "holds a run with another group size, tool calls" in other.stderr
    assert done.exit_code == 0, done.output
    assert "1 group in 1 step, 4 rollouts: 4 finished" in done.stdout
    assert "2 reflections, 1 accepted" in done.stdout
    assert "it may take rollouts: 16 calls" in done.stderr and "rollouts: 8 calls, " in done.stdout
    assert "mean support of 4 answers: " in done.stdout
    assert "s000-q000-r3: finished, 1 search" in done.stderr
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
    (item,) = banked(folder)
    assert (item.question, item.takeaways) == (QUESTION, "- Read the documentation first. [plan]")


def test_a_file_says_all_that_options_and_keys_say_and_these_come_first(folder: Path):
    (folder / "plan").mkdir()
    (folder / "plan" / "run.toml").write_text(
        'questions = "../questions.txt"\nout = "run"\ngroup_size = 3\njudge = "none"\n'
        "limit = 1\n[settings]\ntool_calls = 2\n"
    )
    with ScriptedServer(scripted) as server:
        where = ["--base-url", server.base_url, "--source", str(folder / "documents")]
        done = rubricem("collect", "plan/run.toml", *where, "--group-size", "1", "seed=3", code=2)
        assert "did you mean" in done.stderr or "seed" in done.stderr
        rubricem("collect", "plan/run.toml", *where, "--group-size", "1", "settings.seed=3")
    manifest = RunDirectory(folder / "plan" / "run").manifest()
    assert (manifest.group_size, manifest.seed, manifest.tool_calls) == (1, 3, 2)
    assert rubricem("collect", "questions.txt", code=2).stderr.startswith("error: A collecting run")


@pytest.mark.parametrize("judge", ["trained", "judge.gguf"])
def test_what_a_file_names_lies_beside_it(tmp_path: Path, judge: str):
    (tmp_path / "trained").mkdir()
    (tmp_path / "run.toml").write_text(
        f'questions = "q.txt"\nout = "run"\nrubric = "standards.md"\njudge_model = "{judge}"\n'
    )
    config = read_config(tmp_path / "run.toml", (), {}, {})
    assert config.rubric == tmp_path / "standards.md"
    assert config.judge_model == str(tmp_path / judge)
    assert (config.questions, config.out) == (str(tmp_path / "q.txt"), tmp_path / "run")


def test_a_collection_of_ec15fe0e_is_shown_exported_and_goes_on(folder: Path):
    copytree(ROOT / "tests" / "data" / "ec15fe0e" / "collection", folder / "old")
    assert "1 group in 1 step, 2 rollouts: 2 finished" in rubricem("runs", "show", "old").stdout
    assert "2 runs" in rubricem("export", "old", "--to", "sft").stdout
    (folder / "questions.txt").write_text(f"{QUESTION}\nWhat does maxsize bound?\n")
    shape = ("--group-size", "2", "step_size=1", "reflections=1", "settings.seed=4",
             "settings.memory=off", "settings.tool_calls=2", "settings.max_tokens=4096",
             "system_prompt=short")  # fmt: skip
    with ScriptedServer(scripted) as server:
        where = ["--base-url", server.base_url, "--source", "documents"]
        done = collect_into(folder / "old", folder, where, *shape)
        assert done.exit_code == 2 and "another settings" in done.stderr, "other documents"
        manifest = json.loads((folder / "old" / "manifest.json").read_text())
        manifest["settings"]["source"] = [str(folder / "documents")]
        (folder / "old" / "manifest.json").write_text(json.dumps(manifest))
        done = collect_into(folder / "old", folder, where, *shape)
    assert done.exit_code == 0, done.output
    assert "2 groups in 2 steps, 4 rollouts: 4 finished" in done.stdout


def test_a_run_of_branches_is_refused_in_a_sentence(folder: Path):
    copytree(ROOT / "tests" / "data" / "ec15fe0e" / "collection", folder / "old")
    path = folder / "old" / "manifest.json"
    path.write_text(path.read_text().replace('"branch": false', '"branch": true'))
    assert "ec15fe0e" in rubricem("export", "old", code=2).stderr


def test_a_step_recalls_what_the_steps_before_it_taught_and_nothing_of_its_own(folder: Path):
    twice = Selected(tuple(Question(id=number, question=QUESTION) for number in ("0", "1")))
    private = reflection(QUESTION, "elsewhere", server="https://a.example")
    asyncio.run(RubricBank(folder / "data").put(private))
    with ScriptedServer(scripted) as server:
        flags = {"base_url": server.base_url, "source": (str(folder / "documents"),)}
        settings = load_settings({**flags, "memory": "on", "decoding": "free"})

        async def collected() -> None:
            options = collecting(group_size=2, reflections=1)
            run = RunDirectory(folder / "run")
            async with open_collector(settings, options, run, twice, lambda line: None) as opened:
                await opened.collect()

        asyncio.run(collected())
    first, second = RunDirectory(folder / "run").groups()
    (_, earlier, _) = banked_ever(folder)
    assert earlier.private and earlier.server == server.base_url
    assert (first.step, first.recalled) == (0, ()), "private to another server"
    assert (second.step, second.recalled) == (1, (earlier.id,))
    prompts = [t.segments[0].text for t in RunDirectory(folder / "run").trajectories()]
    assert ["- Read the documentation first." in prompt for prompt in prompts] == [
        False, False, True, True,
    ]  # fmt: skip


def test_what_is_asked_what_is_dropped_and_what_is_held_out_is_kept_with_the_run(folder: Path):
    lines = [f"What is {n}?" for n in range(8)]
    (folder / "questions.txt").write_text("\n".join([*lines, "WHAT is  0?"]))
    with ScriptedServer(scripted) as server:
        chosen = ("held_out=0.5", "--limit", "2")
        done = collect(folder, server, "--judge", "none", "--group-size", "1", *chosen)
        other = collect(folder, server, "--judge", "none", "--group-size", "1")
    assert done.exit_code == 0, done.output
    run = RunDirectory(folder / "run")
    held = (folder / "run" / "held_out.jsonl").read_text().splitlines()
    asked = {question.question for question in run.questions()}
    told = f"{8 - len(held) - 2} over the limit, 1 duplicate dropped, {len(held)} held out, 2 asked"
    assert 0 < len(held) < 7 and told in done.stderr and len(run.questions()) == 2
    assert asked.isdisjoint(json.loads(line)["question"] for line in held)
    assert asked == {trajectory.question for trajectory in run.trajectories()}
    assert other.exit_code == 2 and "another list of questions" in other.stderr


def banked_ever(folder: Path) -> list[Reflection]:
    return [i.reflection for i in asyncio.run(RubricBank(folder / "data").history(QUESTION))]


def test_a_half_collected_run_goes_on_where_its_server_has_moved_to(folder: Path):
    def failing(body: dict[str, Any], number: int) -> Scripted:
        return Fault(401) if number > 1 else scripted(body, number)

    shape = ("--group-size", "2", "--judge", "none")
    with ScriptedServer(failing) as server:
        broken = collect(folder, server, *shape)
    assert broken.exit_code == 1
    assert "error: No rollout of step 0 ended" in broken.stderr
    with ScriptedServer(scripted) as moved:
        done = collect(folder, moved, *shape)
        assert len(moved.requests) == 2, "the two plans were in the journal"
        other = collect(folder, moved, *shape, "--model", "another")
    assert done.exit_code == 0 and "2 rollouts: 2 finished" in done.stdout
    assert other.exit_code == 2 and "with another policy, settings" in other.stderr


def test_the_judge_is_the_policys_model_unless_another_is_named():
    settings = load_settings({"base_url": "http://localhost:1/v1", "model": "large"})
    setup = setup_of(settings)
    assert judge_choice(settings, setup, collecting()) is setup.model
    other = judge_choice(settings, setup, collecting(judge_model="1.5b"))
    assert other.embedded and other.name == "1.5b"
    small = load_settings({"model": "0.5b"})
    own = setup_of(small)
    assert judge_choice(small, own, collecting(judge_model="0.5b")) is own.model
    options = collecting(judge_base_url="http://localhost:2/v1")
    there = judge_choice(settings, setup, options)
    assert isinstance(there, ServerChoice)
    assert (there.model, there.base_url) == (None, "http://localhost:2/v1")


COMMAND = (sys.executable, "-c", "from rubricem.agent.cli import main; main(prog_name='rubricem')")
QUESTIONS = ("Which rule decides?", "What is excepted?")


def turns(body: dict[str, Any], number: int) -> str:
    later = "tool_output" in body["messages"][-1]["content"]
    return answer('It is <cite id="S1">so</cite>.') if later else plan()


def slowly(body: dict[str, Any], number: int) -> Scripted:
    return Reply(turns(body, number), piece_seconds=0.02)


@pytest.fixture
def asking(folder: Path) -> Path:
    """The working directory, with two questions to ask."""
    (folder / "questions.txt").write_text("".join(f"{q}\n" for q in QUESTIONS))
    return folder


def arguments_of(folder: Path, server: ScriptedServer, *more: str) -> list[str]:
    named = [str(folder / "questions.txt"), "--out", str(folder / "run"), "--judge", "none"]
    where = ["--base-url", server.base_url, "--source", str(folder / "documents")]
    return ["collect", *named, *where, "--group-size", "2", *more]


def environment_of(folder: Path) -> dict[str, str]:
    prices = '{"scripted": [0, 0, 5000]}'
    return {"RUBRICEM_DATA_DIR": str(folder / "data"), "RUBRICEM_MEMORY": "off",
            "RUBRICEM_PRICES": prices}  # fmt: skip


def begin(folder: Path, server: ScriptedServer, *arguments: str, **options: Any) -> Process:
    """A process of its own, which can be interrupted and limited."""
    return Process(
        [*COMMAND, *arguments_of(folder, server, *arguments)],
        env={**ENVIRONMENT, "HOME": os.environ["HOME"], **environment_of(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def finished(folder: Path, server: ScriptedServer, *arguments: str) -> tuple[int, str, str]:
    environment = environment_of(folder)
    done = CliRunner().invoke(main, arguments_of(folder, server, *arguments), env=environment)
    return done.exit_code, done.stdout, done.stderr


def served(folder: Path) -> int:
    """How many rollouts a run's finished steps hold."""
    return run_numbers(RunDirectory(folder / "run")).finished


@pytest.mark.slow
def test_ctrl_c_once_finishes_what_is_in_flight_and_the_same_command_goes_on(asking: Path):
    with ScriptedServer(slowly) as server:
        process = begin(asking, server)
        wait_for(lambda: len(server.requests) >= 4)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate()
        asked = len(server.requests)
        assert process.returncode == 130, errors
        assert "Finishing the calls in flight; ^C again stops at once." in errors
        assert "The run was interrupted. The same command continues" in errors
        assert not out and served(asking) == 0
        status, out, errors = finished(asking, server)
    assert status == 0, errors
    assert "4 rollouts: 4 finished" in out
    assert len(server.requests) == 8 and asked < 8, "no call was made twice"


def test_a_limit_of_money_needs_a_price(asking: Path):
    with ScriptedServer(turns, models=("nameless",)) as server:
        status, _, errors = finished(asking, server, "max_run_cost=1")
    assert status == 2
    assert "the price of nameless@" in errors and "rubricem.toml" in errors
