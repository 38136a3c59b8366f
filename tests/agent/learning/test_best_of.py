"""`ask --best-of N`: N runs, one judge, one answer."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.learning.best_of import choose
from rubricem.memory.schema import Judgement, Stage, StageScore, Status
from tests.agent.cli.test_ask import begun, where
from tests.conftest import refusal, rubricem
from tests.support.policies import RUN
from tests.support.scripted_server import Fault, Hang, Scripted, ScriptedServer
from tests.support.values import run_of, varied
from tests.support.waiting import wait_for

RUNS = [varied("a", "one"), varied("b", "two"), varied("c", "three")]
pytestmark = pytest.mark.usefixtures("data")


def judged(*scores: float | None) -> list[Judgement]:
    return [
        Judgement(
            trajectory_id=run.id,
            judge="j",
            stages=(StageScore(stage=Stage.ANSWER, score=score, unscored_reason=why),),
        )
        for run, score in zip(RUNS, scores, strict=True)
        for why in ["down" if score is None else ""]
    ]


def test_the_highest_score_is_chosen_of_equals_the_first_and_never_an_unscored_run():
    best, said = choose(RUNS, judged(0.25, 0.75, 0.75))
    assert best.id == "b"
    assert said == "run 2 was chosen; the judge's scores are 0.25, 0.75, 0.75"
    assert choose(RUNS, judged(None, 0.0, None))[0].id == "b"


def test_without_scores_the_first_run_that_did_not_fail_is_taken():
    failed = run_of({}, "a", status=Status.FAILED, reason="gone")
    best, said = choose([failed, *RUNS[1:]], judged(None, None, None))
    assert (best.id, said) == ("b", "run 2 was taken unjudged: down")
    assert choose([failed], ())[0].id == "a"


class Script:
    """Answers every run by the same turns, and judges by `verdict`."""

    def __init__(self, verdict: Scripted | Callable[[str], Scripted]) -> None:
        self.verdict = verdict
        self.turns = 0
        self.judged: list[str] = []

    def __call__(self, body: dict[str, Any], number: int) -> Scripted:
        said = body["messages"][-1]["content"]
        if "Attempt 1:" in said:
            self.judged.append(said)
            return self.verdict(said) if callable(self.verdict) else self.verdict
        text = RUN[self.turns % len(RUN)]
        self.turns += 1
        # Runs that say the same would be judged as one.
        return text.replace("unbounded", "unbounded, boundless") if self.turns > len(RUN) else text


FIRST = json.dumps({"scores": [{"id": 1, "score": 1, "explanation": "x"}, {"id": 2, "score": 0.5}]})


def test_a_judge_picks_one_of_the_runs_and_each_keeps_its_judgement(documents: Path, data: Path):
    script = Script(FIRST)
    with ScriptedServer(script) as server:
        done = rubricem(
            "ask", *where(server, documents, "--best-of", "2", "--thread", "mine", "--json")
        )
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["thread"] == "mine-1", "both orders cancel: the first of equals"
    assert len(script.judged) == 2
    for name in ("mine-1", "mine-2"):
        text = (data / "runs" / name / "judgement.json").read_text()
        assert Judgement.model_validate_json(text).score(Stage.ANSWER) == 0.75


def test_the_run_that_the_judge_prefers_is_the_answer(documents: Path):
    def boundless(said: str) -> str:
        first = "boundless" in said.split("Attempt 2:")[0].split("Attempt 1:")[1]
        given = [{"id": 1, "score": float(first)}, {"id": 2, "score": float(not first)}]
        return json.dumps({"scores": given})

    with ScriptedServer(Script(boundless)) as server:
        done = rubricem("ask", *where(server, documents, "--best-of", "2", "--thread", "mine"))
    assert done.exit_code == 0 and "boundless" in done.stdout
    assert "run 2 was chosen; the judge's scores are 0.00, 1.00" in " ".join(done.stderr.split())


def test_a_judge_that_fails_leaves_an_answer(documents: Path):
    with ScriptedServer(Script(Fault(400, "no judge here"))) as server:
        done = rubricem("ask", *where(server, documents, "--best-of", "2", "--thread", "mine"))
    assert done.exit_code == 0
    assert "boundless" not in done.stdout and "unbounded cache" in done.stdout
    assert "was taken unjudged" in done.stderr


def test_an_interrupt_ends_all_runs_and_says_how_to_go_on(
    documents: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_VERIFY", "off")
    several = ("--best-of", "2", "--thread", "t")
    with ScriptedServer([*RUN, RUN[0], Hang(), *RUN[1:], *[FIRST] * 3]) as server:
        with begun(server, documents, *several[:2]) as process:
            wait_for(lambda: len(server.requests) == 5)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
        assert process.returncode == 130 and "the same command with --thread t" in errors
        done = rubricem("ask", *where(server, documents, *several))
        assert done.exit_code == 0, done.stderr
        asked = [str(request.body["messages"]) for request in server.requests]
        written = [text for text in asked if "Attempt 1:" not in text]
        assert len(written) == 5 + 2, "what had finished is not repeated"


def test_several_runs_are_not_resumed(documents: Path):
    with ScriptedServer(RUN) as server:
        rubricem("ask", *where(server, documents, "--thread", "mine"))
    assert "one run" in refusal("ask", "--resume", "mine", "--best-of", "2")
