"""`rubricem eval`: a table and a page, one JSON object, or one sentence and its remedy."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from tests.support.evaluated import QUESTIONS, answers, documents, failing, written
from tests.support.scripted_server import ScriptedServer


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return documents(tmp_path / "documents")


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return written(tmp_path / "questions.jsonl")


def evaluate(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["eval", *map(str, arguments)])


def evaluated(server: ScriptedServer, questions: Path, source: Path, *arguments: object) -> Result:
    where = ("--base-url", server.base_url, "--model", "scripted", "--source", source)
    return evaluate(questions, *where, "--verify", "off", *arguments)


def test_every_question_is_answered_in_every_arm_and_graded(
    questions: Path, source: Path, tmp_path: Path
):
    out = tmp_path / "out"
    with ScriptedServer(answers) as server:
        done = evaluated(server, questions, source, "--arms", "stages,plain,closed", "--out", out,
                         "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    stages, plain, closed = (told["arms"][arm]["all"] for arm in ("stages", "plain", "closed"))
    assert (stages["n"], stages["em"], stages["f1"], stages["evidence"]) == (3, 1, 1, 0.5)
    assert (plain["em"], plain["f1"], plain["evidence"]) == (0, 0.4, 1)
    assert (closed["searches"], closed["evidence"], closed["unanswerable"]) == (0, None, 1)
    assert (closed["honest"], stages["honest"]) == (1, 0), "of the wrong ones"
    assert set(told["arms"]["stages"]["types"]) == {"cache", "heap", "none"}
    assert len((out / "rows.jsonl").read_text().splitlines()) == 9
    assert json.loads((out / "evaluation.json").read_text()) == told


def test_the_same_command_goes_on_and_asks_nothing_again(questions: Path, source: Path, data: Path):
    with ScriptedServer(answers) as server:
        first = evaluated(server, questions, source, "--limit", "2")
        asked = len(server.requests)
        again = evaluated(server, questions, source, "--limit", "2")
    assert (first.exit_code, again.exit_code) == (0, 0), again.output
    assert len(server.requests) == asked == 4
    assert first.stdout == again.stdout and "exact match" in first.stdout
    assert [each.name[:10] for each in (data / "evaluations").iterdir()] == ["questions-"]


def test_questions_and_arms_may_be_added_to_a_folder(questions: Path, source: Path, tmp_path: Path):
    more = ("--out", tmp_path / "out", "--quiet")
    with ScriptedServer(answers) as server:
        assert evaluated(server, questions, source, *more, "--limit", "1").exit_code == 0
        asked = len(server.requests)
        done = evaluated(server, questions, source, *more, "--arms", "stages,closed")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 6 and len(server.requests) == asked + 2 * 2 + 1 * 2 + 2


def test_other_settings_for_the_same_folder_are_refused(
    questions: Path, source: Path, tmp_path: Path
):
    out = ("--out", tmp_path / "out", "--quiet")
    with ScriptedServer(answers) as server:
        assert evaluated(server, questions, source, *out, "--limit", "1").exit_code == 0
        other = evaluated(server, questions, source, *out, "--seed", "7")
        written(questions, [{**QUESTIONS[0], "question": "Another one?"}])
        changed = evaluated(server, questions, source, *out)
    assert other.exit_code == changed.exit_code == 2
    assert "other settings: seed was 0 and is now 7" in other.stderr
    assert "holds another question with the id 'cache'" in changed.stderr
    assert "another folder with --out" in other.stderr and "another folder" in changed.stderr


def test_half_a_row_that_a_kill_left_is_done_again(questions: Path, source: Path, tmp_path: Path):
    rows = tmp_path / "out" / "rows.jsonl"
    with ScriptedServer(answers) as server:
        where = ("--out", tmp_path / "out", "--quiet")
        assert evaluated(server, questions, source, *where).exit_code == 0
        whole = rows.read_text()
        rows.write_text(whole[:-30])
        assert evaluated(server, questions, source, *where).exit_code == 0
    assert [json.loads(line)["id"] for line in rows.read_text().splitlines()] == [
        json.loads(line)["id"] for line in whole.splitlines()
    ]


def test_without_gold_a_warning_is_told_and_the_rest_reported(source: Path, tmp_path: Path):
    bare = written(tmp_path / "bare.jsonl", [{"question": "What is lru_cache?"}])
    with ScriptedServer(answers) as server:
        done = evaluated(server, bare, source, "--quiet")
    assert done.exit_code == 0
    assert "warning: No question says what a right answer is" in done.stderr
    assert "searches, mean" in done.stdout and "exact match" not in done.stdout


def test_a_server_that_is_gone_ends_the_evaluation_with_its_reason(source: Path, tmp_path: Path):
    many = written(tmp_path / "many.jsonl", [{"question": f"What is {n}?"} for n in range(9)])
    with ScriptedServer(failing) as server:
        done = evaluated(server, many, source, "--out", tmp_path / "out", "--quiet",
                         "--at-once", "1")  # fmt: skip
    assert done.exit_code == 1
    assert (
        "5 runs in a row failed" in done.stderr and "the same command then goes on" in done.stderr
    )
    with ScriptedServer(answers) as server:
        again = evaluated(server, many, source, "--out", tmp_path / "out", "--json")
    assert json.loads(again.stdout)["arms"]["stages"]["all"]["failed"] == 0, "they are tried again"


def test_best_of_n_is_an_arm_whose_runs_are_all_counted(
    questions: Path, source: Path, tmp_path: Path
):
    def judging(body: dict[str, list[dict[str, str]]], number: int) -> str:
        if "Attempt 1:" in body["messages"][-1]["content"]:
            scores = [{"id": at, "score": 1, "explanation": "x"} for at in (1, 2)]
            return json.dumps({"scores": scores})
        return str(answers(body, number))

    with ScriptedServer(judging) as server:
        done = evaluated(server, questions, source, "--best-of", "2", "--arms", "stages",
                         "--limit", "1", "--out", tmp_path / "out", "--json")  # fmt: skip
    arms = json.loads(done.stdout)["arms"]
    assert (arms["best-of-2"]["all"]["searches"], arms["stages"]["all"]["searches"]) == (2, 1)


def test_a_rubric_is_graded_by_the_judge_that_is_named(source: Path, tmp_path: Path):
    rubric = [{"criterion": "says unbounded", "points": 3}, {"criterion": "is long", "points": 1}]
    asked = written(tmp_path / "r.jsonl", [{"question": "What is it?", "rubric": rubric}])

    def judging(body: dict[str, list[dict[str, str]]], number: int) -> str:
        if "Items:" in body["messages"][-1]["content"]:
            marks = [{"number": n, "explanation": "x", "criteria_met": n == 1} for n in (1, 2)]
            return json.dumps({"verdicts": marks})
        return str(answers(body, number))

    with ScriptedServer(judging) as server:
        unjudged = evaluated(server, asked, source, "--quiet", "--out", tmp_path / "a")
        judged = evaluated(server, asked, source, "--judge", "checklist", "--json",
                           "--out", tmp_path / "b")  # fmt: skip
    assert "no rubric is graded without --judge" in unjudged.stderr
    assert json.loads(judged.stdout)["arms"]["stages"]["all"]["rubric"] == 0.75


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--arms", "stages,fast"], "error: There is no arm 'fast'."),
        (["--format", "squad"], "error: There is no format 'squad'."),
        (["--judge", "pairwise"], "error: A judge 'pairwise' cannot grade one answer"),
        (["--at-once", "9", "--concurrency", "4"], "error: This model serves 4 runs at once."),
        (["--source", "nowhere"], "error: Unknown source 'nowhere'."),
    ],
)
def test_what_cannot_be_measured_is_one_sentence_and_a_remedy(
    questions: Path, arguments: list[str], sentence: str, data: Path
):
    where = ("--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--quiet")
    done = evaluate(questions, *where, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    told, remedy = [line for line in done.stderr.splitlines() if line]
    assert told.startswith(sentence) and remedy


def test_the_embedded_model_runs_no_more_at_once_than_it_has_slots(questions: Path, data: Path):
    done = evaluate(questions, "--model", "0.5b", "--at-once", "2", "--quiet")
    assert done.exit_code == 2 and "This model serves 1 run at once." in done.stderr


def test_the_passages_of_the_questions_can_be_searched(tmp_path: Path, data: Path):
    context = [["Cache", ["With maxsize None lru_cache is unbounded."]], ["Heap", ["heap[0]."]]]
    asked = [{"_id": "h", "question": "What is lru_cache?", "answer": "unbounded cache",
              "supporting_facts": [["Cache", 0]], "context": context}]  # fmt: skip
    path = written(tmp_path / "hotpot.jsonl", asked)
    with ScriptedServer(answers) as server:
        done = evaluate(path, "--base-url", server.base_url, "--model", "scripted",
                        "--own-passages", "--verify", "off", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["format"] == "hotpotqa" and told["arms"]["stages"]["all"]["all_gold"] == 1.0


def test_claims_are_checked_by_the_rules_in_place_of_questions(tmp_path: Path, data: Path):
    said = {"claim": "The cache is unbounded.", "evidence": "The cache is unbounded."}
    claims = written(tmp_path / "claims.jsonl", [
        {**said, "label": "supported"},
        {**said, "claim": "It has 7 eggs.", "label": "not_supported"},
    ])  # fmt: skip
    done = evaluate("--claims", claims, "--quiet")
    assert done.exit_code == 0, done.output
    assert "balanced accuracy 1.000" in done.stdout
    assert json.loads(evaluate("--claims", claims, "--json").stdout)["claims"] == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "error: Name a file of questions, or one of claims."),
        (["Q", "--claims", "Q"], "error: Questions and claims are measured one at a time."),
        (["Q", "--checker", "rules"], "error: --checker belongs to claims."),
        (["Q", "--own-passages"], "error: No passages came with the questions"),
    ],
)
def test_questions_and_claims_are_told_apart(
    questions: Path, arguments: list[str], sentence: str, data: Path
):
    done = evaluate(*(questions if word == "Q" else word for word in arguments))
    assert done.exit_code == 2
    told, remedy = [line for line in done.stderr.splitlines() if line]
    assert told.startswith(sentence) and remedy


def test_where_no_arm_searches_no_source_is_opened(questions: Path, data: Path, tmp_path: Path):
    with ScriptedServer(answers) as server:
        done = evaluated(server, questions, tmp_path / "missing", "--arms", "closed", "--json")
    assert done.exit_code == 0, done.output
    assert list(json.loads(done.stdout)["arms"]) == ["closed"]
