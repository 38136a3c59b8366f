"""The numbers of a collected run, worked by hand."""

import json
from pathlib import Path

import pytest

from rubricem.agent.transcript.scaffold import Rule
from rubricem.memory.schema import Stage
from rubricem.training.show.collected import RunNumbers, run_numbers
from tests.support.collected import NASTY, show, written_run


@pytest.fixture
def run(tmp_path: Path) -> RunNumbers:
    return run_numbers(written_run(tmp_path / "run"))


def test_scores_shares_and_spending_are_those_worked_by_hand(run: RunNumbers):
    assert list(run.whole.scores.values()) == [[0.5, 0.5], [0.5, 0.25], [0.5], [1.0, 0.25]]
    assert run.steps[1].scores[Stage.PLAN] == []
    # Eight stages of two judged rollouts, one of them unscored; the third was not judged.
    assert [step.unscored_share for step in run.steps] == [1 / 8, None]
    assert [step.malformed_share for step in run.steps] == [0, 1]
    assert run.whole.why == {
        "failures": {f"The server is down. {NASTY}": 1},
        "ended_early": {f"cut {NASTY}": 1},
        "rules_broken": {Rule.NO_ANSWER: 1},
        "unscored": {f"the judge failed {NASTY}": 1},
        "lacking": {f"down {NASTY}": 1, f"no JSON {NASTY}": 1},
    }
    usage = run.as_json()["usage"]
    assert (usage["rollouts"]["prompt_tokens"], usage["rollouts"]["cost"]) == (300, 0.75)
    assert (usage["judge"]["calls"], usage["judge"]["cost"]) == (2, 0.25)
    assert (usage["failed rollouts"]["prompt_tokens"], usage["failed rollouts"]["cost"]) == (
        50,
        0.5,
    )
    assert (usage["reflections"]["calls"], usage["reflections"]["cost"]) == (3, 0.0625)
    assert run.seconds == 105


def test_a_run_is_told_as_json_and_in_lines_that_no_terminal_obeys(tmp_path: Path):
    folder = written_run(tmp_path / "run").folder
    told = json.loads(show(folder, "--json").stdout)
    assert (told["rollouts"], told["groups"], told["accepted"]) == (3, 2, 1)
    first, second = told["steps"]
    assert first["scores"] == {"plan": 0.5, "research": 0.375, "review": 0.5, "answer": 0.625}
    assert (first["failed"], first["tool_calls"]) == (1, 2)
    assert second["scores"]["plan"] is None and second["tool_calls"] == 2
    lines = show(folder).stdout
    assert "2 groups in 2 steps, 4 rollouts: 2 finished" in lines and "answer 0.62" in lines
    assert all(f"1 groups lack criteria or reflections: {s}" in lines for s in ("down", "no JSON"))
    assert "\x1b" not in lines and "\u202e" not in lines
