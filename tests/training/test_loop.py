"""The whole line on a tiny random model: it trains, collects, is judged, trains again, answers."""

import asyncio
import json
import random
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.memory.errors import SettingsError
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.loop import Story, default_plan, run_loop
from rubricem.training.show.collected import run_numbers
from tests.programs.killing import ran
from tests.programs.tiny_loop import STEPS, begun, judging, plan_of
from tests.support.scripted_server import ScriptedServer

pytestmark = pytest.mark.usefixtures("one_thread")


async def test_the_whole_line_runs_and_a_second_run_repeats_nothing(tmp_path: Path):
    told: list[str] = []
    folder = tmp_path / "loop"
    with ScriptedServer(judging) as server:
        plan = plan_of(tmp_path, server)
        await begun(folder, plan)
        page = await asyncio.to_thread(run_loop, folder, plan, told.append)
        asked = len(server.requests)
        told.clear()
        again = await asyncio.to_thread(run_loop, folder, plan, told.append)
        assert len(server.requests) == asked
    assert [line for line in told if "done before" in line] == [f"{s}: done before" for s in STEPS]
    assert again == page
    found = {step: json.loads((folder / "steps" / f"{step}.json").read_text()) for step in STEPS}
    collected = run_numbers(RunDirectory(folder / "collect"))
    assert len(collected.rollouts) == 4
    assert any(score is not None for run in collected.steps[0].rollouts for score in run.scores)
    assert found["train"]["steps"][-1]["grad_norm"] > 0
    warm, trained = (Checkpoint.for_llama(Path(found[s]["checkpoint"])) for s in ("warm", "train"))
    assert trained.lineage == (warm.version,)
    text = page.read_text()
    assert "What is asked?" in text and "<script" not in text
    assert "1 of 1 traces passed the rejection rules" in text
    assert re.search(r"[1-9] criteria proposed, \d retired", text)
    assert re.search(r"[1-9] written, \d in the right format", text)


async def test_another_plan_needs_another_folder(tmp_path: Path):
    Story(tmp_path, default_plan(), print)
    with pytest.raises(SettingsError, match="another plan"):
        Story(tmp_path, {**default_plan(), "seed": 1}, print)


KILLS = 5


def go_on(folder: Path, seconds: float | None) -> bool:
    """Run the loop in a process of its own; True if it came to its end before it was killed."""
    try:
        ran("tiny_loop", folder, seconds=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.slow
async def test_a_loop_killed_at_random_points_repeats_nothing_finished(tmp_path: Path):
    seed = random.randrange(2**32)
    draw, kills = random.Random(seed), 0
    with ScriptedServer(judging) as server:
        plan = plan_of(tmp_path, server)
        for name in ("whole", "killed"):
            await begun(tmp_path / name, plan)
        began = time.monotonic()
        assert go_on(tmp_path / "whole", None)
        lasts = time.monotonic() - began
        server.requests.clear()
        folder = tmp_path / "killed"
        for _ in range(KILLS):
            kills += not go_on(folder, draw.uniform(1.0, lasts))
        assert go_on(folder, None)
        asked = Counter(json.dumps(request.body, sort_keys=True) for request in server.requests)
    told = f"with the seed {seed}"
    assert kills, "nothing was killed"
    assert sum(asked.values()) - len(asked) <= kills, f"finished calls were repeated {told}"
    for part in ("before", "after", "collect"):
        ids = [t.thread for t in RunDirectory(folder / part).trajectories()]
        assert ids == [t.thread for t in RunDirectory(tmp_path / "whole" / part).trajectories()]
    for part in ("warm", "train"):
        lines = (folder / part / "training" / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line)["step"] for line in lines]
        assert steps == list(range(1, len(steps) + 1)), told
    # What is sampled after a kill may differ in the last digits; what is trained on does not.
    metrics = Path("warm", "training", "metrics.jsonl")
    losses = [
        [json.loads(line)["loss"] for line in (at / metrics).read_text().splitlines()]
        for at in (folder, tmp_path / "whole")
    ]
    assert losses[0] == losses[1], told


@pytest.mark.slow
@pytest.mark.model
async def test_the_line_runs_on_the_real_small_model(
    tmp_path: Path, weights_05b: Path, monkeypatch: pytest.MonkeyPatch
):
    torch.set_num_threads(2)
    uses = {"imitate": 3, "measure": 1, "collect": 1, "ask": 1}
    asked = default_plan()["questions"]
    plan = {
        **default_plan(),
        "model": str(weights_05b),
        "judge": str(weights_05b),
        "questions": [
            one for use in uses for one in [q for q in asked if q["use"] == use][: uses[use]]
        ],
        "group_size": 2,
        "candidates": 1,
        "imitation_epochs": 1,
    }
    page = await asyncio.to_thread(run_loop, tmp_path / "loop", plan, print)
    found = json.loads((tmp_path / "loop" / "steps" / "warm.json").read_text())
    assert found["rows"] > 0 and found["canary"]["mean"] < 0.5
    assert len(list(RunDirectory(tmp_path / "loop" / "collect").trajectories())) == 2
    assert "Asked again" in page.read_text()
