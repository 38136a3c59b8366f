"""The engine's steps on one window of rows, in a process of its own; `train_speed` runs it.

The one line that it prints is an object, `Measured`.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rubricem.training.local.local_config import TrainConfig, check_config
from rubricem.training.local.session import open_session
from rubricem.training.objective.batch import cut
from rubricem.training.rows.row import TrainRow, Window

PROMPT_SHARE, TOOL_SHARE, GROUP = 4, 0.2, 4
"""a row's prompt is a quarter of it, a tool wrote a fifth of the rest; rows of a group"""
RATE = 1e-4


@dataclass(frozen=True, slots=True)
class Arm:
    """What one process does."""

    hidden: int
    layers: int
    words: int
    rows: int
    shortest: int
    longest: int
    """tokens of a row, in even steps from the shortest"""
    steps: int
    layout: str = "one_by_one"
    """or `padded`, four rows side by side"""
    adaptation: str = "lora"
    model: str = ""
    """the folder of the weights"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What all its steps took."""

    seconds: list[float]
    """of each step, of this process alone, which no other one on the machine adds to"""
    peak_mib: float
    """of the resident set, over what it was with the model loaded and nothing trained"""
    tokens: int
    """read in one step, padding not counted"""
    padding: float
    """share of the positions that were computed for no row"""


def window(arm: Arm) -> Window:
    """Rows of uneven lengths, in no order of them."""
    dice = random.Random(0)
    stride = (arm.longest - arm.shortest) / max(arm.rows - 1, 1)
    lengths = [round(arm.shortest + stride * number) for number in range(arm.rows)]
    dice.shuffle(lengths)
    return tuple(_row(number, length, arm, dice) for number, length in enumerate(lengths))


def _row(number: int, length: int, arm: Arm, dice: random.Random) -> TrainRow:
    prompt = length // PROMPT_SHARE
    middle = prompt + (length - prompt) // 2
    tool = range(middle, middle + round((length - prompt) * TOOL_SHARE))
    mask = tuple(int(place >= prompt and place not in tool) for place in range(length))
    advantage = 1.0 if number % 2 else -1.0
    return TrainRow(
        id=f"row{number}",
        group=f"group{number // GROUP}",
        trajectory=f"t{number}",
        objective="policy",
        policy_version="v",
        ids=tuple(dice.randrange(arm.words) for _ in range(length)),
        prompt_tokens=prompt,
        loss_mask=mask,
        advantages=tuple(advantage * on for on in mask),
        behaviour_logprobs=tuple(-9.0 * on for on in mask),
        stages=tuple(place * 4 // length for place in range(length)),
    )


def write_model(folder: Path, arm: Arm) -> None:
    """A random Qwen2 as transformers saves it."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=arm.words,
        hidden_size=arm.hidden,
        intermediate_size=arm.hidden * 11 // 4,
        num_hidden_layers=arm.layers,
        num_attention_heads=arm.hidden // 32,
        num_key_value_heads=arm.hidden // 64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def _config(arm: Arm, folder: Path) -> TrainConfig:
    (folder / "rows.jsonl").touch()
    lora = {"rank": 16, "alpha": 32.0} if arm.adaptation == "lora" else {}
    values: dict[str, Any] = {
        "out": "out",
        "rows": ["rows.jsonl"],
        "model": arm.model,
        "adaptation": arm.adaptation,
        "learning_rate": RATE,
        "dtype": "float32",
        "micro_batch": 4 if arm.layout == "padded" else 1,
        "save_every": arm.steps + 1,
    }
    return check_config(values | lora, folder, TrainConfig)


def memory_mib(line: str) -> float:
    """A line of this process's status: VmRSS, what is in memory, or VmHWM, the most that was."""
    told = Path("/proc/self/status").read_text(encoding="ascii")
    return int(told.partition(f"{line}:")[2].split()[0]) / 1024


async def measure(arm: Arm, folder: Path) -> Measured:
    config, rows, seconds = _config(arm, folder), window(arm), list[float]()
    async with open_session(config, "ss-grpo", lambda line: None) as session:
        _ = session.learner  # is loaded
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        base = memory_mib("VmRSS")
        for _ in range(arm.steps):
            began = time.process_time()
            await asyncio.to_thread(session.step, rows, RATE)
            seconds.append(time.process_time() - began)
        peak = memory_mib("VmHWM") - base
    return Measured(seconds, peak, sum(len(row.ids) for row in rows), _padding(rows, arm))


def _padding(rows: Window, arm: Arm) -> float:
    """The share of positions that no row has."""
    parts = cut(rows, 4 if arm.layout == "padded" else 1)
    computed = sum(len(part) * max(len(row.ids) for row in part) for part in parts)
    return 1 - sum(len(row.ids) for row in rows) / computed


def main() -> None:
    arm = Arm(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asdict(asyncio.run(measure(arm, Path(folder))))))


if __name__ == "__main__":
    main()
