"""What a run brought in numbers, counted without holding the run."""

import tracemalloc
from pathlib import Path

from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.tally import tally
from tests.support.collected import QUESTIONS, manifest
from tests.training.rows.test_compile import rollout

TOKENS = 20_000


def test_a_runs_trajectories_are_not_held_together(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    run.begin(manifest(), QUESTIONS)
    bare = rollout("x")
    long = bare.segments[1].model_copy(
        update={"token_ids": (70_000,) * TOKENS, "logprobs": (-0.5,) * TOKENS}
    )
    segments = (bare.segments[0], long, *bare.segments[2:])
    many = (bare.model_copy(update={"id": f"{n}", "segments": segments}) for n in range(10))
    run.commit(0, {"trajectories": many})
    tracemalloc.start()
    try:
        found = tally(run)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.finished + found.partial == 10
    # One is 16 bytes a token as tuples and more as objects; ten together took 14.7 MB.
    assert most < 4e6, f"{most / 1e6:.1f} MB"
