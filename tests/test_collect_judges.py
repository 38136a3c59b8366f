"""The judges of a collecting run by name: kinds, rubrics of one's own, and what is none."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from judge.composed_judge import StageView
from memory.errors import SettingsError
from memory.schema import Stage
from tests.flow import answer, plan
from tests.judged import QUESTION, varied
from tests.scripted_server import Scripted, ScriptedServer
from training.judges import compositions_of, known_judge
from training.run_directory import RunDirectory

RUBRICS = """
from judge.rubrics import Gate, Rubric, WeightedSum
from judge.composed_judge import Judged
from memory.schema import Stage

class Long(Rubric):
    def forward(self, action, observation):
        return float(len(action) > 20)

class Unknown(Rubric):
    def forward(self, action, observation):
        return float("nan")

def parts():
    both = WeightedSum([Long(), Gate(Long(), 0.5)], [0.25, 0.75])
    return both

def answers():
    return {"answer": Long, Stage.PLAN: Long()}

def wrong_stage():
    return {"question": Long}

def broken():
    raise KeyError("shelf")

instance = WeightedSum([Long(), Long()], [0.5, 0.5])
number = 3
several = {stage: Unknown for stage in Stage}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "own_rubrics.py").write_text(RUBRICS)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("own_rubrics", "half_written"):
            del sys.modules[name]


@pytest.mark.parametrize("kind", ["stage", "relative", "pairwise", "checklist", "none"])
def test_a_judge_of_the_house_is_known_by_its_kind(kind: str):
    assert known_judge(kind) == kind


def test_a_rubric_is_known_by_its_name_and_its_code(here: Path):
    before = known_judge("rubric:own_rubrics:Long")
    assert before.startswith("rubric:own_rubrics:Long ")
    (here / "own_rubrics.py").write_text(RUBRICS + "more = 1\n")
    assert known_judge("rubric:own_rubrics:Long") != before


@pytest.mark.parametrize("name", ["Long", "parts", "instance"])
def test_a_class_a_function_and_a_rubric_stand_for_every_stage(here: Path, name: str):
    found = compositions_of(f"rubric:own_rubrics:{name}")
    assert set(found) == set(Stage)
    first, second = found[Stage.PLAN](), found[Stage.PLAN]()
    assert first is not second, "a rubric keeps state, so no two stages share one"


def test_a_mapping_names_the_rubrics_of_some_stages(here: Path):
    found = compositions_of("rubric:own_rubrics:answers")
    assert list(found) == [Stage.ANSWER, Stage.PLAN]
    view = StageView(varied("a", "x"), Stage.ANSWER, None)  # type: ignore[arg-type]
    assert found[Stage.ANSWER]()("short", view) == 0.0
    assert set(compositions_of("rubric:own_rubrics:several")) == set(Stage)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("best", "There is no judge 'best'"),
        ("rubric:own_rubrics", "does not name a rubric"),
        ("rubric::Long", "does not name a rubric"),
        ("rubric:own_rubrics:Short", "own_rubrics has no 'Short'"),
        ("rubric:nowhere:Long", "'nowhere' cannot be imported: ModuleNotFoundError"),
        ("rubric:half_written:Long", "'half_written' cannot be imported: SyntaxError"),
        ("rubric:own_rubrics:number", "gives a int, which is no"),
        ("rubric:own_rubrics:wrong_stage", "names a stage 'question'"),
        ("rubric:own_rubrics:broken", "gives no rubric: KeyError: 'shelf'"),
    ],
)
def test_what_is_no_judge_is_told_with_a_remedy(here: Path, name: str, told: str):
    (here / "half_written.py").write_text("class Long(")
    with pytest.raises(SettingsError, match=told) as raised:
        known_judge(name)
    assert raised.value.remedy


def by_script(body: dict[str, Any], number: int) -> Scripted:
    """A policy, and judges of whole answers that prefer the answer of the larger seed."""
    said = [message["content"] for message in body["messages"]]
    if "tool_output" in said[-1]:
        return answer(f'It is <cite id="S1">answer {body["seed"]}</cite>.')
    return plan()


def collect(here: Path, judge: str, server: ScriptedServer) -> Result:
    (here / "q.txt").write_text(f"{QUESTION}\n")
    (here / "docs").mkdir(exist_ok=True)
    (here / "docs" / "lru.md").write_text("# lru_cache\nIt evicts the least recently used.\n")
    return CliRunner().invoke(
        main,
        ["collect", "q.txt", "--out", "run", "--base-url", server.base_url, "--group-size", "2",
         "--source", "docs", "--reflections", "0", "--judge", judge],
    )  # fmt: skip


def collected(here: Path, judge: str, script: Any = by_script) -> RunDirectory:
    with ScriptedServer(script) as server:
        done = collect(here, judge, server)
    assert done.exit_code == 0, done.output
    return RunDirectory(here / "run")


def test_the_scores_of_a_rubrics_parts_are_logged_by_name(here: Path):
    run = collected(here, "rubric:own_rubrics:parts")
    assert run.manifest().judge_kind.startswith("rubric:own_rubrics:parts ")
    first, second = run.judgements()
    for stage in (*first.stages, *second.stages):
        if stage.missing:
            continue
        assert stage.score == 1.0
        assert stage.components == {
            "rubric_0": 1.0, "rubric_1": 1.0, "rubric_1.rubric": 1.0,
        }  # fmt: skip
    assert not all(stage.missing for stage in first.stages)


def test_unknown_parts_are_left_out_and_the_stage_is_unscored(here: Path):
    run = collected(here, "rubric:own_rubrics:several")
    answers = [j.stages[-1] for j in run.judgements()]
    assert [(a.score, a.components) for a in answers] == [(None, {}), (None, {})]
    assert answers[0].unscored_reason == "its rubrics gave no number"


def relative(body: dict[str, Any], number: int) -> Scripted:
    """A policy, and a relative judge that grades the first attempt shown 0.9, the other 0.2."""
    if not body["messages"][0]["content"].startswith("You compare"):
        return by_script(body, number)
    grades = [{"id": i, "explanation": "so", "score": s} for i, s in (("1", 0.9), ("2", 0.2))]
    return json.dumps({"scores": grades})


def test_a_relative_judges_reward_stands_at_the_answer_alone(here: Path):
    run = collected(here, "relative", relative)
    assert run.manifest().judge_kind == "relative"
    found = [[s.score for s in j.stages] for j in run.judgements()]
    assert sorted(scores[-1] for scores in found) == [0.2, 0.9]
    assert all(scores[:3] == [None] * 3 for scores in found)


def test_a_run_is_not_gone_on_with_under_another_judge(here: Path):
    with ScriptedServer(by_script) as server:
        collect(here, "rubric:own_rubrics:Long", server)
        other = collect(here, "checklist", server)
    assert other.exit_code == 2
    assert "holds a run with another judge kind." in other.stderr


def test_a_judge_that_there_is_not_is_told_before_anything_is_begun(here: Path):
    with ScriptedServer([]) as server:
        done = collect(here, "best", server)
        assert server.requests == []
    assert done.exit_code == 2 and "error: There is no judge 'best'." in done.stderr
    assert not (here / "run").exists()
