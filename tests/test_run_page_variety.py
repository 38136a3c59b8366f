"""What `runs show` tells of how answers differ within their groups."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli import main
from memory.schema import ScaffoldedPrompt, Stage
from tests.collected import judgement
from tests.judged import WHOLE, run_of
from tests.run_pages import written_run
from training.export_judged import JudgedTrajectory
from training.run_page_rollouts import numbers_of
from training.run_page_variety import MOST, RunVariety


def filled(*answers: tuple[str, float | None], shown: int = 0, groups: int = 1) -> RunVariety:
    """Groups of the same answers and scores; the first member is shown so many criteria."""
    variety = RunVariety()
    for _ in range(groups):
        runs = [run_of({**WHOLE, Stage.ANSWER: text}, f"s000-q000-r{n}")
                for n, (text, _) in enumerate(answers)]  # fmt: skip
        if shown:
            scaffold = ScaffoldedPrompt(text="!", shown=shown, bare_ids=(1,))
            runs[0] = runs[0].model_copy(update={"scaffold": scaffold})
        numbers = [
            numbers_of(
                JudgedTrajectory(**dict(run), group="g", step=0, question_id="0",
                                 judgement=judgement(run, [0.0, 0.0, 0.0, score]))
            )
            for run, (_, score) in zip(runs, answers, strict=True)
        ]  # fmt: skip
        variety.add(runs, numbers)
    return variety


TWO = (("a b c d", 0.25), ("a b c e", 0.75))


def test_a_group_in_numbers_by_hand():
    told = filled(*TWO, shown=4).as_dict()
    assert told["best_of"] == [0.5, 0.75]
    assert told["words_apart"] == pytest.approx(1 - 0.125**0.25) and not told["words_apart_unknown"]
    assert told["by_place"] == [
        {"place": 0, "shown": 4.0, "reward": 0.25},
        {"place": 1, "shown": 0.0, "reward": 0.75},
    ]


def test_places_mean_nothing_where_nobody_was_shown_anything():
    assert filled(*TWO).by_place == []
    lines = filled(*TWO).told()
    assert lines == ["best answer of n, in 1 whole groups: 1: 0.50, 2: 0.75",
                     "1 - Self-BLEU of the last 1 groups: 0.41"]  # fmt: skip


def test_an_unscored_place_is_told_as_such():
    lines = filled(("a b", None), ("c d", 0.5), shown=2).told()
    assert "place 0: 2.0 criteria shown, answers unscored" in lines


def test_only_the_last_groups_are_compared_word_by_word():
    assert len(filled(*TWO, groups=MOST + 3).answers) == MOST


def test_without_sacrebleu_the_reason_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    told = filled(*TWO).as_dict()
    assert told["words_apart"] is None and "rubricem[metrics]" in told["words_apart_unknown"]
    assert "not measured, This needs sacrebleu" in filled(*TWO).told()[-1]


def test_a_collected_run_shows_them_on_the_terminal_and_as_json(tmp_path: Path):
    written_run(tmp_path / "run")
    shown = CliRunner().invoke(main, ["runs", "show", str(tmp_path / "run")])
    assert shown.exit_code == 0 and "in 1 whole groups: 1: 0.62, 2: 1.00" in shown.output
    done = CliRunner().invoke(main, ["runs", "show", str(tmp_path / "run"), "--json"])
    assert json.loads(done.stdout)["variety"]["best_of"] == [0.625, 1.0]
