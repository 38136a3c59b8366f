"""Rows are kept through kills, and what runs at the same time."""

import json
from pathlib import Path
from typing import Any

from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import thread_of
from rubricem.agent.evaluate.questions import EvalQuestion
from tests.programs.killing import killed_runs


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows without what differs from run to run."""
    lines = (folder / "out" / "rows.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


def test_an_evaluation_killed_in_the_middle_goes_on_and_repeats_no_finished_call(tmp_path: Path):
    whole, killed = killed_runs("eval_killed", tmp_path, 4)
    assert len(rows_in(whole)) == 9
    assert {row["grade"]["em"] for row in rows_in(whole) if row["arm"] != "stages"} == {1}
    for one in killed:
        assert rows_in(one.folder) == rows_in(whole), one.told
        # One run at a time, so each kill finds at most one reply not yet in the journal.
        assert one.repeated <= one.kills, one.told


def test_a_run_is_called_by_its_arm_and_an_id_that_a_folder_can_have():
    plain = Arm("plain")
    assert thread_of(EvalQuestion(id="2hop__1_2", question="?"), plain) == "plain-2hop__1_2"
    odd = thread_of(EvalQuestion(id="a/b c", question="?"), Arm("stages", memory=True))
    assert odd.startswith("stages-memory-") and "/" not in odd
