"""The numbers of a collected run, worked by hand, and how answers differ within its groups."""

import json
import sys
from pathlib import Path

import pytest

from rubricem.memory.errors import SettingsError, install_of
from rubricem.memory.schema import ScaffoldedPrompt, Stage
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.rows.compile import JudgedTrajectory, judged_groups
from rubricem.training.show.collected import (
    MOST,
    RunNumbers,
    RunVariety,
    malformed_share,
    numbers_of,
    run_json,
    run_numbers,
    unscored_share,
)
from tests.support.collected import NASTY, change, judgement, show, written_run
from tests.support.values import WHOLE, run_of


@pytest.fixture
def run(tmp_path: Path) -> RunNumbers:
    return run_numbers(written_run(tmp_path / "run"))


def test_a_branch_is_no_whole_run_and_breaks_no_rule(tmp_path: Path):
    judged = [one for g in judged_groups(written_run(tmp_path / "run")) for one in g.each()]
    faulty = [one for one in judged if numbers_of(one).fault]
    assert faulty
    assert not any(numbers_of(one.model_copy(update={"shared": 1})).fault for one in faulty)


def test_scores_shares_spreads_spending_and_extremes_are_those_worked_by_hand(run: RunNumbers):
    assert [run.scores(place) for place in range(len(Stage))] == [
        [0.5, 0.5], [0.5, 0.25], [0.5], [1.0, 0.25],
    ]  # fmt: skip
    assert run.steps[1].scores(0) == []
    # Eight stages of two judged rollouts, one of them unscored; the third was not judged.
    assert unscored_share(run.steps[0].rollouts) == 1 / 8
    assert unscored_share(run.steps[1].rollouts) is None
    assert [malformed_share(step.rollouts) for step in run.steps] == [0, 1]
    assert dict(run.failures) == {f"The server is down. {NASTY}": 1}
    assert dict(run.early) == {f"cut {NASTY}": 1}
    assert dict(run.faults) == {"no closed answer with text in it": 1}
    assert dict(run.unscored) == {f"the judge failed {NASTY}": 1}
    # Deviations of (0.5, 0.5), (0.5, 0.25), one score alone, (1, 0.25).
    assert [run.spreads(place) for place in range(4)] == [[0.0], [0.125], [], [0.375]]
    usage = run.usage()
    assert (usage["rollouts"].prompt_tokens, usage["rollouts"].cost) == (300, 0.75)
    assert (usage["judge"].calls, usage["judge"].cost) == (2, 0.25)
    assert (usage["failed rollouts"].prompt_tokens, usage["failed rollouts"].cost) == (50, 0.5)
    assert (usage["reflections"].calls, usage["reflections"].cost) == (3, 0.0625)
    assert run.steps[0].usage.cost == 0.5 + 0.25 + 0.5 + 0.0625
    assert run.seconds == 105
    # The worst has no review score, and so no return: the answers are compared.
    (found,) = run.extremes
    assert (found.by, found.values, found.gap) == ("answer", (1.0, 0.25), 0.75)
    assert (found.best.id, found.worst.id) == ("best", "worst")


def test_changes_of_another_runs_step_are_not_this_ones(run: RunNumbers):
    assert [c.criterion.title for _, c in run.steps[0].changes] == ["new", "of no use"]
    assert (run.steps[0].count_changes("added"), run.steps[0].count_changes("retired")) == (1, 1)
    assert run.steps[1].changes == []


def test_changes_count_from_the_version_that_the_judge_was_handed(tmp_path: Path):
    folder = written_run(tmp_path / "run").folder
    path = folder / "steps" / "000" / "a-judged.json"
    judged = json.loads(path.read_text())
    for before, titles in ((4, []), (3, ["of no use"]), (2, ["new", "of no use"])):
        path.write_text(json.dumps(judged | {"version_before": before}))
        changes = run_numbers(RunDirectory(folder)).steps[0].changes
        assert [change.criterion.title for _, change in changes] == titles
    # One that leaves rubrics alone has changed none; an older run did not note the version.
    path.write_text(json.dumps(judged))
    groups = folder / "groups.jsonl"
    kept = groups.read_text()
    assert '"rubric_version":"3-' in kept
    groups.write_text(kept.replace('"rubric_version":"3-', '"rubric_version":"r-'))
    assert run_numbers(RunDirectory(folder)).steps[0].changes == []


def test_a_run_as_json(run: RunNumbers):
    run.steps[1].changes.append(("Two?", change(5, 1, "pinned", "kept by a person")))
    told = run_json(run)
    assert (told["rollouts"], told["groups"], told["accepted"]) == (3, 2, 1)
    first, second = told["steps"]
    assert first["scores"] == {"plan": 0.5, "research": 0.375, "review": 0.5, "answer": 0.625}
    assert (first["failed"], first["criteria_added"], first["criteria_retired"]) == (1, 1, 1)
    assert second["scores"]["plan"] is None and second["tool_calls"] == 2
    assert second["criteria_added"] == 1, "as on the page"
    assert told["extremes"][0]["best"] == {"thread": "best", "value": 1.0}


def test_a_folder_without_a_run_is_told(tmp_path: Path):
    with pytest.raises(SettingsError, match="is no collecting run"):
        run_numbers(RunDirectory(tmp_path))


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


def test_variety_is_told_of_what_there_is_to_tell():
    assert filled(*TWO).as_dict()["by_place"] == []
    lines = filled(*TWO).describe()
    assert lines == ["best answer of n, in 1 whole groups: 1: 0.50, 2: 0.75",
                     "1 - Self-BLEU of the last 1 groups: 0.41"]  # fmt: skip
    lines = filled(("a b", None), ("c d", 0.5), shown=2).describe()
    assert "place 0: 2.0 criteria shown, answers unscored" in lines
    assert len(filled(*TWO, groups=MOST + 3).answers) == MOST


def test_without_sacrebleu_the_reason_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    told = filled(*TWO).as_dict()
    assert told["words_apart"] is None and install_of("metrics") in told["words_apart_unknown"]
    assert "not measured, This needs sacrebleu" in filled(*TWO).describe()[-1]


def test_a_collected_run_shows_them_on_the_terminal_and_as_json(tmp_path: Path):
    written_run(tmp_path / "run")
    shown = show(tmp_path / "run")
    assert shown.exit_code == 0 and "in 1 whole groups: 1: 0.62, 2: 1.00" in shown.output
    done = show(tmp_path / "run", "--json")
    assert json.loads(done.stdout)["variety"]["best_of"] == [0.625, 1.0]
