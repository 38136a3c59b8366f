"""The numbers of a collected run, worked by hand."""

import json
from pathlib import Path

import pytest

from memory.errors import SettingsError
from memory.schema import Stage
from tests.run_pages import NASTY, change, written_run
from training.run_directory import RunDirectory
from training.run_page import scaffold_means
from training.run_page_json import run_json
from training.run_page_numbers import RunNumbers, malformed_share, run_numbers, unscored_share


@pytest.fixture
def run(tmp_path: Path) -> RunNumbers:
    return run_numbers(written_run(tmp_path / "run"))


def test_scores_are_over_what_has_one(run: RunNumbers):
    assert [run.scores(place) for place in range(len(Stage))] == [
        [0.5, 0.5], [0.5, 0.25], [0.5], [1.0, 0.25],
    ]  # fmt: skip
    assert run.steps[1].scores(0) == []


def test_shares_of_what_went_wrong(run: RunNumbers):
    # Eight stages of two judged rollouts, one of them unscored; the third was not judged.
    assert unscored_share(run.steps[0].rollouts) == 1 / 8
    assert unscored_share(run.steps[1].rollouts) is None
    assert [malformed_share(step.rollouts) for step in run.steps] == [0, 1]
    assert dict(run.failures) == {f"The server is down. {NASTY}": 1}
    assert dict(run.early) == {f"cut {NASTY}": 1}
    assert dict(run.faults) == {"no closed answer with text in it": 1}
    assert dict(run.unscored) == {f"the judge failed {NASTY}": 1}


def test_members_of_a_group_are_apart_or_not(run: RunNumbers):
    # Deviations of (0.5, 0.5), (0.5, 0.25), one score alone, (1, 0.25).
    assert [run.spreads(place) for place in range(4)] == [[0.0], [0.125], [], [0.375]]


def test_every_token_and_dollar_is_counted_once(run: RunNumbers):
    usage = run.usage()
    assert (usage["rollouts"].prompt_tokens, usage["rollouts"].cost) == (300, 0.75)
    assert (usage["judge"].calls, usage["judge"].cost) == (2, 0.25)
    assert (usage["failed rollouts"].prompt_tokens, usage["failed rollouts"].cost) == (50, 0.5)
    assert (usage["reflections"].calls, usage["reflections"].cost) == (3, 0.0625)
    assert run.steps[0].usage.cost == 0.5 + 0.25 + 0.5 + 0.0625
    assert run.seconds == 105


def test_changes_of_another_runs_step_are_not_this_ones(run: RunNumbers):
    assert [c.criterion.title for _, c in run.steps[0].changes] == ["new", "of no use"]
    assert (run.steps[0].changed("added"), run.steps[0].changed("retired")) == (1, 1)
    assert run.steps[1].changes == []


def test_changes_count_from_the_version_that_the_judge_was_handed(tmp_path: Path):
    folder = written_run(tmp_path / "run").folder
    path = folder / "steps" / "000" / "a-judged.json"
    judged = json.loads(path.read_text())
    for before, titles in ((4, []), (3, ["of no use"]), (2, ["new", "of no use"])):
        path.write_text(json.dumps(judged | {"version_before": before}))
        changes = run_numbers(RunDirectory(folder)).steps[0].changes
        assert [change.criterion.title for _, change in changes] == titles


def test_a_judge_that_leaves_rubrics_alone_changed_none(tmp_path: Path):
    folder = written_run(tmp_path / "run").folder
    groups = folder / "groups.jsonl"
    kept = groups.read_text()
    assert '"rubric_version":"3-' in kept
    groups.write_text(kept.replace('"rubric_version":"3-', '"rubric_version":"r-'))
    assert run_numbers(RunDirectory(folder)).steps[0].changes == []


def test_the_best_and_worst_are_compared_by_what_both_have(run: RunNumbers):
    # The worst has no review score, and so no return: the answers are compared.
    (found,) = run.extremes
    assert (found.by, found.values, found.gap) == ("answer", (1.0, 0.25), 0.75)
    assert (found.best.id, found.worst.id) == ("best", "worst")


def test_what_was_shown_of_the_rubric_stands_beside_the_score(run: RunNumbers):
    assert scaffold_means(run) == [(3, 1, 1.0), (0, 2, 0.25)]


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
