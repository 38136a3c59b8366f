"""Killed at random moments and gone on with, rounds are as if nothing had happened."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from memory.bank import RubricBank
from memory.buffers import BufferStore
from tests.conftest import ENVIRONMENT, ROOT
from tests.rounds_killed import ROUNDS
from tests.rounds_parts import ASKED, FileUpdates
from training.groups import Snapshot
from training.rounds.folders import RoundFolders

KILLS = 4


def left_by(folder: Path) -> dict[str, Any]:
    """What rounds leave, but for the names and times that no two runs share."""
    rounds = [RoundFolders(folder, folder / "data").round(n) for n in range(ROUNDS)]
    threads = {t.id: f"{n}:{t.thread}" for n, run in enumerate(rounds) for t in run.trajectories()}

    def named(row: str) -> str:
        trajectory, _, rest = row.partition(":")
        return f"{threads[trajectory]}:{rest}"

    lines = FileUpdates(folder).lines
    return {
        "transcripts": [t.transcript() for run in rounds for t in run.trajectories()],
        "versions": [run.manifest().policy_version for run in rounds],
        "pinned": [run.part(0, "snapshot", Snapshot) for run in rounds],
        "taken": [[[named(i) for i in part] for part in line["taken"]] for line in lines],
        "numbers": [
            {k: v for k, v in line.items() if k != "taken" and not k.startswith("seconds")}
            for line in lines
        ],
        "rubrics": [BufferStore(folder / "data" / "buffers").load(q.question).version
                    for q in ASKED[:ROUNDS]],
    }  # fmt: skip


async def test_rounds_killed_at_random_moments_repeat_nothing_and_train_the_same_rows(
    tmp_path: Path,
):
    seed = random.randrange(2**32)
    command = [sys.executable, "-m", "tests.rounds_killed", str(tmp_path), str(seed), str(KILLS)]
    environment = {**ENVIRONMENT, "HOME": os.environ["HOME"]}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole, kills = left_by(tmp_path / "whole"), 0
    assert [len(part) for part in whole["taken"][1]] == [2, 2]
    for number in range(KILLS):
        folder = tmp_path / f"killed{number}"
        told = f"with the seed {seed}, {folder.name}"
        assert left_by(folder) == whole, told
        log = folder / "kills.log"
        times = len(log.read_text().splitlines()) if log.exists() else 0
        kills += times
        calls = Counter((folder / "calls.log").read_text().splitlines())
        # In flight are at most two rollouts of a round, and a judgement of the one before.
        assert sum(calls.values()) - len(calls) <= 3 * times, f"calls were repeated {told}"
        kept = [i.reflection.question for i in await RubricBank(folder / "data").items()]
        assert kept == [q.question for q in ASKED[:ROUNDS]], told
    assert kills >= KILLS - 1, "nothing was killed"
