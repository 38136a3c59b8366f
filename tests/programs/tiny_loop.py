"""A loop on a tiny random model with a scripted judge, and a process that runs it.

python -m tests.programs.tiny_loop FOLDER        goes on with the loop whose plan.json lies there
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from rubricem.memory.schema import Decoding
from rubricem.training.collect.directory import GroupRecord, RunDirectory
from rubricem.training.collect.questions import Question
from rubricem.training.loop import Story, default_plan, run_loop
from tests.support.collected import manifest
from tests.support.scripted_server import Scripted, ScriptedServer
from tests.support.tiny import write_tiny
from tests.training.cli.test_collect import scripted
from tests.training.rows.test_compile import traced

ASKED = {
    "imitate": ("What is read?",),
    "measure": ("What is measured?",),
    "collect": ("What is the first?", "What is the second?"),
    "ask": ("What is asked?",),
}

STEPS = ("trace", "before", "warm", "after", "collect", "train", "ask")

SEEN: dict[str, int] = {}


def judging(body: dict[str, Any], number: int) -> Scripted:
    """A judge that proposes one criterion and likes each text that it has not seen otherwise.

    Two rollouts of a question so never get the same scores, and one that is judged again, after
    a kill, gets what it had.
    """
    said = body["messages"][1]["content"]
    if "Criteria:" not in said:
        return scripted(body, number)
    points = SEEN.setdefault(said, len(SEEN)) % 3
    given = [{"number": n, "justification": "so it is", "points": points} for n in (1, 2)]
    return json.dumps({"verdicts": given})


def plan_of(folder: Path, server: ScriptedServer) -> dict[str, Any]:
    (folder / "documents").mkdir(exist_ok=True)
    (folder / "documents" / "a.md").write_text("# One\nWhat is asked is measured and read first.\n")
    return {
        **default_plan(),
        "model": str(write_tiny(folder / "tiny.gguf")),
        "judge": "scripted",
        "judge_base_url": server.base_url,
        "source": [str(folder / "documents")],
        "questions": [{"use": use, "question": q} for use, asked in ASKED.items() for q in asked],
        "group_size": 2,
        "tool_calls": 1,
        "max_tokens": 40,
        "candidates": 1,
        "imitation_epochs": 1,
    }


async def begun(folder: Path, plan: dict[str, Any]) -> None:
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
    Story(folder, plan, print).once("trace", lambda at: {})


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    print(run_loop(folder, json.loads((folder / "plan.json").read_text()), print))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
