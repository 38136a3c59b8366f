"""The whole line on a tiny random model: it trains, collects, is judged, trains again, answers."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agent.weights.checkpoints import read_checkpoint
from memory.errors import SettingsError
from memory.schema import Decoding
from tests.collected import manifest
from tests.scripted_server import Scripted, ScriptedServer
from tests.test_collect_command import scripted
from tests.test_recasting import traced
from tests.tiny_model import write_tiny
from training.loop.plan import LoopPlan, LoopQuestion, default_plan
from training.loop.running import run_loop
from training.loop.steps import Steps
from training.run_directory import GroupRecord, Question, RunDirectory

ASKED = {
    "imitate": ("What is read?",),
    "measure": ("What is measured?",),
    "collect": ("What is the first?", "What is the second?"),
    "ask": ("What is asked?",),
}
STEPS = ("trace", "before", "warm", "after", "collect", "train", "ask")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    held = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(held)


def judging(body: dict[str, Any], number: int) -> Scripted:
    """A judge that proposes one criterion and likes some random texts better than others."""
    said = body["messages"][1]["content"]
    if "Criteria:" not in said:
        return scripted(body, number)
    points = zlib.crc32(said.encode()) % 3
    given = [{"number": n, "justification": "so it is", "points": points} for n in (1, 2)]
    return json.dumps({"verdicts": given})


def plan_of(folder: Path, server: ScriptedServer) -> LoopPlan:
    (folder / "documents").mkdir(exist_ok=True)
    (folder / "documents" / "a.md").write_text("# One\nWhat is asked is measured and read first.\n")
    return LoopPlan(
        model=str(write_tiny(folder / "tiny.gguf")),
        judge="scripted",
        judge_base_url=server.base_url,
        source=(str(folder / "documents"),),
        questions=tuple(
            LoopQuestion(use=use, question=q) for use, asked in ASKED.items() for q in asked
        ),
        group_size=2,
        tool_calls=1,
        max_tokens=40,
        candidates=1,
        imitation_epochs=1,
    )


async def begun(folder: Path) -> None:
    """A loop that was interrupted when its traces stood: a random model fills no slot sensibly."""
    (folder / "fakes").mkdir(parents=True)
    trajectory = await traced(folder / "fakes")
    questions = [Question(id="0", question=trajectory.question)]
    kept = RunDirectory(folder / "trace")
    kept.begin(manifest(questions, decoding=Decoding.FORCED, step_size=1), questions)
    record = GroupRecord(
        id="s0",
        step=0,
        question_id="0",
        question=trajectory.question,
        trajectories=(trajectory.id,),
    )
    kept.commit(0, {"trajectories": [trajectory], "groups": [record]})


async def test_the_whole_line_runs_and_a_second_run_repeats_nothing(tmp_path: Path):
    told: list[str] = []
    folder = tmp_path / "loop"
    with ScriptedServer(judging) as server:
        plan = plan_of(tmp_path, server)
        await begun(folder)
        page = await run_loop(folder, plan, told.append)
        asked = len(server.requests)
        again = await run_loop(folder, plan, told.append)
        assert len(server.requests) == asked
    assert [line for line in told if "done before" in line] == [f"{s}: done before" for s in STEPS]
    assert again == page
    found = {step: json.loads((folder / "steps" / f"{step}.json").read_text()) for step in STEPS}
    assert found["collect"]["rollouts"] == 4
    assert any(score is not None for t in found["collect"]["groups"][0]["trajectories"]
               for score in t["scores"])  # fmt: skip
    assert found["train"]["steps"][-1]["grad_norm"] > 0
    warm, trained = (read_checkpoint(Path(found[s]["checkpoint"])) for s in ("warm", "train"))
    assert trained.lineage == (warm.version,)
    text = page.read_text()
    assert "What is asked?" in text and "<script" not in text


async def test_another_plan_needs_another_folder(tmp_path: Path):
    Steps(tmp_path, default_plan(), print)
    with pytest.raises(SettingsError, match="another plan"):
        Steps(tmp_path, default_plan().model_copy(update={"seed": 1}), print)
