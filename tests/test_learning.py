"""`rubricem ask --memory`: what a run teaches, and what the next one is given of it."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from agent.learning import learn
from agent.policy import ChatWriter
from agent.settings import Settings
from memory.bank import RubricBank
from memory.schema import Status
from tests.flow import RUN, SUPPORTED, contents
from tests.scripted_server import Fault, Scripted, ScriptedServer
from tests.test_reflecting import GOOD
from tests.test_reflection_judge import by_content
from tests.trajectories import trajectory

QUESTION = "What does lru_cache do with maxsize None?"
CRITERIA = json.dumps(
    {"answer": {"positive": [{"title": "Unbounded", "description": "Says so.", "weight": 3}]}}
)
VERDICTS = json.dumps({"verdicts": [{"number": 1, "justification": "It does.", "points": 2}]})
GREAT = GOOD.replace("- Read the default, too.", "- worth 0.9")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "cache.md").write_text("# lru_cache\n\nWith None it never evicts.\n")
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


class Server:
    """Answers by who is asked: the researcher, the two judges, the one who reflects."""

    def __init__(self, reflection: Scripted = GREAT, judged: Scripted | None = None) -> None:
        self.reflection = reflection
        self.judged = judged
        self.asked: list[str] = []

    def __call__(self, body: dict[str, Any], number: int) -> Scripted:
        system = contents(body)[0][1]
        if "You are a research agent" in system:
            self.asked.append("research")
            return RUN[sum(role == "assistant" for role, _ in contents(body))]
        if system.startswith("You check claims"):
            return SUPPORTED
        if system.startswith("You review finished"):
            self.asked.append("reflect")
            return self.reflection
        if system.startswith("You judge reviews"):
            self.asked.append("judge reflections")
            return self.judged or by_content(body)
        scoring = '"verdicts"' in system
        self.asked.append("score" if scoring else "criteria")
        return VERDICTS if scoring else CRITERIA


@pytest.fixture
def script() -> Iterator[Server]:
    yield Server()


def ask(server: ScriptedServer, data: Path, *more: str) -> Result:
    where = ("--base-url", server.base_url, "--source", str(data.parent / "notes"))
    return CliRunner().invoke(main, ["ask", QUESTION, *where, *more])


def bank(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["bank", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_a_run_teaches_and_the_next_one_on_the_question_is_given_it(data: Path, script: Server):
    with ScriptedServer(script) as server:
        first = ask(server, data, "--memory", "on", "--thread", "one")
        assert first.exit_code == 0, first.output
        second = ask(server, data, "--json", "--thread", "two")
        asked = [contents(r.body) for r in server.requests]
    assert script.asked == [
        *["research"] * 3, "criteria", "score", *["reflect"] * 8, "judge reflections",
        *["research"] * 3,
    ]  # fmt: skip
    assert "judging this run" in first.stderr and "kept reflection" in first.stderr
    [kept] = bank("list")["reflections"]
    assert (kept["question"], kept["takeaways"]) == (QUESTION, "- worth 0.9")
    assert kept["score"] == pytest.approx(0.9)
    assert json.loads(second.stdout)["recalled"] == [kept["id"]]
    assert "worth 0.9" not in asked[0][1][1]
    assert "This very question was tried before" in asked[-2][1][1]
    assert "worth 0.9" in asked[-2][1][1] and "Unbounded" not in asked[-2][1][1]
    run = data / "runs" / "one"
    assert json.loads((run / "judgement.json").read_text())["stages"][3]["score"] == 1.0
    assert len(json.loads((run / "reflections.json").read_text())) == 8
    shown = bank("show", kept["id"][:6])
    assert (shown["reflection"], shown["history"]) == (kept, [kept])


def test_a_run_that_was_learnt_from_is_not_learnt_from_again(data: Path, script: Server):
    with ScriptedServer(script) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        calls = len(server.requests)
        again = ask(server, data, "--memory", "on", "--thread", "one")
        assert len(server.requests) == calls
    assert again.exit_code == 0 and "learnt from before" in again.stderr


@pytest.mark.parametrize("memory", ["off", "read-only"])
def test_without_on_nothing_is_judged_or_kept(data: Path, script: Server, memory: str):
    with ScriptedServer(script) as server:
        assert ask(server, data, "--memory", memory).exit_code == 0
    assert script.asked == ["research"] * 3
    assert not (data / "bank").exists()


def test_off_is_given_nothing(data: Path, script: Server):
    with ScriptedServer(script) as server:
        ask(server, data, "--memory", "on")
        done = ask(server, data, "--memory", "off", "--json")
        last = contents(server.requests[-2].body)[1][1]
    assert json.loads(done.stdout)["recalled"] == []
    assert last.startswith(QUESTION)


@pytest.mark.parametrize(
    ("reflection", "judged", "said"),
    [
        (Fault(401), None, "nothing was learnt from this run"),
        (GREAT, "no JSON", "the judge failed"),
        ("no form", None, "There is no whole reflection_rubrics block"),
        (GOOD.replace("- Read the default, too.", "- worth 0.3"), None, "the best scored 0.30"),
    ],
)
def test_a_failure_of_learning_never_loses_the_answer(
    data: Path, reflection: Scripted, judged: Scripted | None, said: str
):
    with ScriptedServer(Server(reflection, judged)) as server:
        done = ask(server, data, "--memory", "on")
    assert done.exit_code == 0
    assert "It is an unbounded cache [1]" in done.stdout
    assert said in done.stderr
    assert bank("list")["reflections"] == []


async def test_an_interruption_of_learning_ends_the_learning_alone(tmp_path: Path):
    class Waiting:
        name = "waiting"

        async def chat(self, *args: Any) -> Any:
            await asyncio.sleep(60)

    settings = Settings(data_dir=tmp_path, base_url="http://127.0.0.1:9/v1", model="m")
    run = trajectory("It is.")
    (tmp_path / "runs" / run.thread).mkdir(parents=True)
    (tmp_path / "runs" / run.thread / "trajectory.json").write_text(run.model_dump_json())
    task = asyncio.create_task(learn(settings, ChatWriter(Waiting()), run))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "nothing was learnt from this run: it was interrupted"
    failed = run.model_copy(update={"status": Status.FAILED})
    assert await learn(settings, ChatWriter(Waiting()), failed) == "a failed run teaches nothing"


def test_the_bank_is_listed_and_shown_in_words(data: Path, script: Server):
    with ScriptedServer(script) as server:
        ask(server, data, "--memory", "on")
    runner = CliRunner()
    listed = runner.invoke(main, ["bank", "list"]).stdout
    assert QUESTION in listed and listed.endswith("1 reflection\n")
    identifier = listed.split()[0]
    shown = runner.invoke(main, ["bank", "show", identifier]).stdout
    assert "it never looked at eviction" in shown and "- worth 0.9" in shown
    wrong = runner.invoke(main, ["bank", "show", "nothing"])
    assert wrong.exit_code == 2 and "no reflection begins with 'nothing'" in wrong.stderr
    checks = json.loads(runner.invoke(main, ["doctor", "--json"]).stdout)["checks"]
    [held] = [check["found"] for check in checks if check["name"] == "bank"]
    assert held == "1 reflection, memory read-only"


def test_an_empty_bank_is_searched_without_an_embedding_model(data: Path):
    done = CliRunner().invoke(main, ["bank", "search", "caches"])
    assert (done.exit_code, done.stdout) == (0, "The bank is empty.\n")
    assert asyncio.run(RubricBank(data).items()) == []
