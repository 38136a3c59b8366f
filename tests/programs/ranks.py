"""What two processes of torchrun do in the tests: the same steps in every way, told as JSON.

python -m torch.distributed.run ... tests/programs/ranks.py MODEL FOLDER
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import torch

from rubricem.memory.errors import SettingsError
from rubricem.training.local.load import load_learner
from rubricem.training.local.local_config import EngineConfig, TrainConfig, check_config
from rubricem.training.local.ranks import Ranks
from rubricem.training.rounds.fit import train
from rubricem.training.rows.row import TrainRow
from tests.support.rows import policy_rows, row

PADDED: dict[str, Any] = {"micro_batch": 2, "gradient_checkpointing": True}
DIVERGING: dict[str, Any] = {"objective": {"beta": 0.1}}
CASES: dict[str, dict[str, Any]] = {
    "lora ddp": {"rank": 4, "parallel": "ddp"},
    "lora fsdp": {"rank": 4, "parallel": "fsdp", **DIVERGING},
    "full ddp": {"adaptation": "full", "parallel": "ddp", **PADDED},
    "full fsdp": {"adaptation": "full", "parallel": "fsdp", **PADDED},
    "full fsdp bfloat16": {"adaptation": "full", "parallel": "fsdp", "dtype": "bfloat16"},
}
"""every way to share the work; five rows make three and two on two ranks"""
Steps = dict[str, list[tuple[float, float]]]


def window() -> list[TrainRow]:
    """Five rows that begin alike, the last of another length."""
    rows, short = policy_rows(5), 17
    rows = [each.model_copy(update={"ids": (*rows[0].ids[:10], *each.ids[10:])}) for each in rows]
    names = ("ids", "loss_mask", "advantages", "behaviour_logprobs", "stages")
    cut = {name: getattr(rows[4], name)[:short] for name in names}
    return [*rows[:4], row(4, "policy", **cut)]


def steps(tiny: Path, ranks: Ranks) -> Steps:
    """Of each case, loss and gradient norm of three steps."""
    found: Steps = {}
    for name, settings in CASES.items():
        config = EngineConfig.model_validate({"out": "unused", "dtype": "float32", **settings})
        learner = load_learner(config, tiny, ranks)
        metrics = [learner.ss_grpo_step(window(), 0.01) for _ in range(3)]
        found[name] = [(step["loss"], step["grad_norm"]) for step in metrics]
    return found


def run_settings(tiny: Path) -> dict[str, Any]:
    """Of a whole run of three steps."""
    files = {"rows": ["rows.jsonl"], "model": str(tiny)}
    sizes = {"rank": 4, "batch": 1, "dtype": "float32"}
    return {**files, **sizes, "learning_rate": 0.01, "schedule": "linear"}


async def refused(config: TrainConfig) -> str:
    """Why a run is not gone on with."""
    try:
        await train(config, "ss-grpo", print)
    except SettingsError as error:
        return str(error)
    return ""


def main(tiny: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    settings = {"out": "sharded", "parallel": "fsdp", **run_settings(tiny)}
    ranks = Ranks.join()
    found = steps(tiny, ranks)
    if ranks.first:
        (folder / "steps.json").write_text(json.dumps(found), encoding="utf-8")
    asyncio.run(train(check_config(settings, folder, TrainConfig), "ss-grpo", print))
    if not ranks.first:
        settings["out"] = "elsewhere"
    told = asyncio.run(refused(check_config(settings, folder, TrainConfig)))
    (folder / f"refused{ranks.rank}").write_text(told, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
