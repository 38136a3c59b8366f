"""Killed at random moments and gone on with, a run is as if nothing had happened."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from rubricem.memory.bank import RubricBank
from rubricem.memory.rubrics import BufferStore
from rubricem.training.collect.directory import RunDirectory
from tests.conftest import ENVIRONMENT, ROOT
from tests.support.collected import QUESTIONS

KILLS = 5


def products(folder: Path) -> dict[str, object]:
    """All that a run leaves, but for the names and times that no two runs share."""
    run = RunDirectory(folder / "run")
    threads = {t.id: t.thread for t in run.trajectories()}
    return {
        "trajectories": [(t.thread, t.seed, t.transcript()) for t in run.trajectories()],
        "groups": [(g.id, [threads[i] for i in g.trajectories]) for g in run.groups()],
        "judged": [(threads[j.trajectory_id], j.stages) for j in run.judgements()],
        "reflected": [threads[c.trajectory_id] for c in run.reflections()],
        "rubrics": [BufferStore(folder / "rubrics").load(q.question).version for q in QUESTIONS],
    }


async def test_a_run_killed_at_random_moments_repeats_nothing_and_leaves_no_half_item(
    tmp_path: Path,
):
    seed = random.randrange(2**32)
    command = [
        sys.executable,
        "-m",
        "tests.programs.collect_killed",
        str(tmp_path),
        str(seed),
        str(KILLS),
    ]
    environment = {**ENVIRONMENT, "HOME": os.environ["HOME"]}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole = products(tmp_path / "whole")
    kills = 0
    for number in range(KILLS):
        folder = tmp_path / f"killed{number}"
        told = f"with the seed {seed}, {folder.name}"
        assert products(folder) == whole, told
        log = folder / "kills.log"
        times = len(log.read_text().splitlines()) if log.exists() else 0
        kills += times
        # One thing is done at a time, so each kill finds at most one reply not yet in the journal.
        calls = Counter((folder / "calls.log").read_text().splitlines())
        assert sum(calls.values()) - len(calls) <= times, f"finished calls were repeated {told}"
        kept = [i.reflection.question for i in await RubricBank(folder).items()]
        assert kept == [q.question for q in QUESTIONS], told
    assert kills >= KILLS - 1, "nothing was killed"
