"""`rubricem eval`: a table, one JSON object, or one sentence and its remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.conftest import refusal, rubricem
from tests.support.evaluated import QUESTIONS, answers, failing, written
from tests.support.scripted_server import ScriptedServer

pytestmark = pytest.mark.usefixtures("data")


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICEM_VERIFY", "off")


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return written(tmp_path / "questions.jsonl")


def evaluated(
    server: ScriptedServer, questions: Path, documents: Path, *arguments: object, code: int = 0
) -> Result:
    where = ("--base-url", server.base_url, "--model", "scripted", "--source", documents)
    return rubricem("eval", questions, *where, *arguments, code=code)


def arms(server: ScriptedServer, questions: Path, documents: Path, *arguments: object) -> Any:
    """The figures of each arm."""
    return json.loads(evaluated(server, questions, documents, *arguments, "--json").stdout)["arms"]


def test_every_question_is_answered_in_every_arm_and_graded(
    questions: Path, documents: Path, tmp_path: Path
):
    out = tmp_path / "out"
    with ScriptedServer(answers) as server:
        done = evaluated(server, questions, documents, "--arms", "stages,plain,closed",
                         "--out", out, "--json")  # fmt: skip
    told = json.loads(done.stdout)
    stages, plain, closed = (told["arms"][arm]["all"] for arm in ("stages", "plain", "closed"))
    assert (stages["n"], stages["em"], stages["f1"], stages["evidence"]) == (3, 1, 1, 0.5)
    assert (plain["em"], plain["f1"], plain["evidence"]) == (0, 0.4, 1)
    assert (closed["searches"], closed["evidence"], closed["unanswerable"]) == (0, None, 1)
    assert (closed["honest"], stages["honest"]) == (1, 0), "of the wrong ones"
    assert set(told["arms"]["stages"]["types"]) == {"cache", "heap", "none"}
    assert len((out / "rows.jsonl").read_text().splitlines()) == 9
    assert json.loads((out / "evaluation.json").read_text()) == told


def test_the_same_command_goes_on_and_asks_nothing_again(
    questions: Path, documents: Path, data: Path
):
    with ScriptedServer(answers) as server:
        first = evaluated(server, questions, documents, "--limit", "2")
        asked = len(server.requests)
        again = evaluated(server, questions, documents, "--limit", "2")
    assert len(server.requests) == asked == 4
    assert first.stdout == again.stdout and "exact match" in first.stdout
    assert [each.name[:10] for each in (data / "evaluations").iterdir()] == ["questions-"]


def test_other_settings_for_the_same_folder_are_refused(
    questions: Path, documents: Path, tmp_path: Path
):
    out = ("--out", tmp_path / "out", "--quiet")
    with ScriptedServer(answers) as server:
        evaluated(server, questions, documents, *out, "--limit", "1")
        other = evaluated(server, questions, documents, *out, "--set", "seed=7", code=2)
        written(questions, [{**QUESTIONS[0], "question": "Another one?"}])
        changed = evaluated(server, questions, documents, *out, code=2)
    assert "holds an evaluation with other" in other.stderr
    assert "holds another question with the id 'cache'" in changed.stderr
    assert "another folder with --out" in other.stderr and "another folder" in changed.stderr


def test_a_server_that_is_gone_ends_the_evaluation_with_its_reason(documents: Path, tmp_path: Path):
    many = written(tmp_path / "many.jsonl", [{"question": f"What is {n}?"} for n in range(9)])
    with ScriptedServer(failing) as server:
        done = evaluated(server, many, documents, "--out", tmp_path / "out", "--quiet", code=1)
    for said in ("5 runs in a row failed", "the same command then continues"):
        assert said in done.stderr
    with ScriptedServer(answers) as server:
        again = arms(server, many, documents, "--out", tmp_path / "out")
    assert again["stages"]["all"]["failed"] == 0, "they are tried again"


def test_a_rubric_is_graded_by_the_judge_alone_that_is_named(documents: Path, tmp_path: Path):
    rubric = [{"criterion": "says unbounded", "points": 3}, {"criterion": "is long", "points": 1}]
    asked = written(tmp_path / "r.jsonl", [{"question": "What is it?", "rubric": rubric}])

    def judging(body: dict[str, list[dict[str, str]]], number: int) -> str:
        if "Items:" in body["messages"][-1]["content"]:
            marks = [{"number": n, "explanation": "x", "criteria_met": n == 1} for n in (1, 2)]
            return json.dumps({"verdicts": marks})
        # What no passage supports is counted by itself, and no part of this grade.
        return str(answers(body, number)).replace("an unbounded cache", "4,096 entries")

    with ScriptedServer(judging) as server:
        unjudged = evaluated(server, asked, documents, "--quiet", "--out", tmp_path / "a")
        judged = arms(server, asked, documents, "--judge", "checklist", "--out", tmp_path / "b")
    assert "no rubric is graded without --judge" in unjudged.stderr
    assert judged["stages"]["all"]["rubric"] == 0.75


SERVED = ("Q", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--quiet")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((*SERVED, "--arms", "stages,fast"), "There is no arm 'fast'."),
        ((*SERVED, "--source", "nowhere"), "Unknown source 'nowhere'."),
        (("Q", "--own-passages"), "No passages came with the questions"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence_and_a_remedy(
    questions: Path, arguments: tuple[str, ...], sentence: str
):
    told = refusal("eval", *(questions if word == "Q" else word for word in arguments))
    assert told.startswith(f"error: {sentence}")


def test_the_passages_of_the_questions_can_be_searched(tmp_path: Path):
    context = [["Cache", ["With maxsize None lru_cache is unbounded."]], ["Heap", ["heap[0]."]]]
    asked = [{"_id": "h", "question": "What is lru_cache?", "answer": "unbounded cache",
              "supporting_facts": [["Cache", 0]], "context": context}]  # fmt: skip
    path = written(tmp_path / "hotpot.jsonl", asked)
    with ScriptedServer(answers) as server:
        done = rubricem("eval", path, "--base-url", server.base_url, "--model", "scripted",
                        "--own-passages", "--json")  # fmt: skip
    told = json.loads(done.stdout)
    assert told["format"] == "hotpotqa" and told["arms"]["stages"]["all"]["all_gold"] == 1.0
