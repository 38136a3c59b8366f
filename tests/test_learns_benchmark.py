"""The learning curve's questions hold in the installed documentation; its figures by hand."""

import builtins
import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.embedded import QUESTIONS as HELD_OUT
from benchmarks.learns.__main__ import main
from benchmarks.learns.figures import Asked, Asking, askings, values
from benchmarks.learns.phases import accepted
from benchmarks.learns.plan import QUESTIONS, QUICK, Plan, Sizes
from benchmarks.learns.plot import draw
from memory.schema import Stage
from tests.collected import Opened
from training.rounds.job import build_job
from training.run_directory import RunDirectory


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def documented(symbol: str) -> str:
    """The signature and the documentation of what a dotted name stands for."""
    parts = symbol.split(".")
    found: Any = builtins
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        parts = parts[cut:]
        break
    for part in parts:
        found = getattr(found, part)
    try:
        signature = str(inspect.signature(found))
    except (TypeError, ValueError):
        signature = ""
    return f"{signature}\n{inspect.getdoc(found)}"


@pytest.mark.parametrize("row", rows(QUESTIONS), ids=lambda row: row["symbol"])
def test_each_fact_stands_in_the_documentation_and_not_in_its_question(row: dict[str, str]):
    assert re.search(row["fact"], documented(row["symbol"]), re.I | re.S)
    assert not re.search(row["fact"], row["question"], re.I | re.S)


def test_training_and_held_out_questions_are_different_ones():
    training, held_out = rows(QUESTIONS), rows(HELD_OUT)
    assert len({row["question"] for row in training}) == len(training) >= 70
    assert len(held_out) == 24
    assert not {row["symbol"] for row in training} & {row["symbol"] for row in held_out}


@pytest.mark.parametrize("sizes", [Sizes(), QUICK])
def test_the_committed_configurations_are_ones_that_train_takes(tmp_path: Path, sizes: Sizes):
    plan = Plan(tmp_path, sizes)
    sft = build_job(plan.sft(), tmp_path, "sft")
    job = build_job(plan.rounds(), tmp_path, "ss-grpo")
    assert job.rounds is not None and job.rounds.lag <= job.rounds.max_staleness
    assert (sft.config.rank, sft.config.alpha) == (job.config.rank, job.config.alpha)
    assert len(plan.training()) == sizes.questions and len(plan.held_out()) == sizes.held_out


def asking(name: str, facts: list[bool], score: float) -> Asking:
    asked = [Asked(f"q{n}", True, fact, {Stage.ANSWER: score}) for n, fact in enumerate(facts)]
    return Asking(name, tuple(asked))


def test_shares_have_intervals_and_changes_are_paired(tmp_path: Path):
    before = asking("before", [False, False, True, False], 0.25)
    after = asking("after_sft", [True, False, True, False], 0.5)
    told = values([before, after])
    assert (told["before_fact_share"], told["after_sft_fact_share"]) == (0.25, 0.5)
    # Wilson's interval of 1 in 4 by hand: (0.0456, 0.6994).
    assert (told["before_fact_share_low"], told["before_fact_share_high"]) == (0.046, 0.699)
    assert told["after_sft_fact_change"] == 0.25
    assert told["before_answer_score"] == told["before_answer_score_low"] == 0.25
    assert "before_plan_score" not in told, "nobody scored it"
    rounds = values([before, after, asking("round_1", [True, True, True, True], 0.75)])
    assert rounds["round_1_fact_since_sft"] == 0.5
    assert rounds["round_1_answer_score_since_sft"] == 0.25
    assert "round_1_plan_score_since_sft" not in rounds
    draw([before, after], tmp_path / "curve.svg")
    assert "<svg" in (tmp_path / "curve.svg").read_text()


async def test_only_finished_askings_are_counted(tmp_path: Path):
    assert askings(tmp_path) == [] and accepted(RunDirectory(tmp_path / "none")) == 0
    opened = Opened(tmp_path / "held", group_size=1, step_size=3)
    opened.close()
    assert askings(tmp_path) == []


def test_hours_of_work_need_a_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["learns", "--full"])
    with pytest.raises(SystemExit):
        main()
    assert "name a folder with --keep" in capsys.readouterr().err
