"""How fast the engine takes a step, and in how much memory.

    python -m benchmarks.train_speed [--quick | --full] [--adaptation lora|full] [--out FILE]
    python -m benchmarks.train_speed --device cuda [--model 0.5b]

It trains a random Qwen2 on one window of rows of uneven lengths, in a process of its own for each
arm: rows padded side by side and one by one, and how a step grows with
their length and number. A step's time is in seconds of its process alone, which what else the
machine does hardly changes. Memory is the peak of the process's resident set over what it held when
the model was loaded. The first step is not counted. `--full` keeps the report in
benchmarks/results; run it on an idle machine.
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import RESULTS, Value, emit, sized_parser
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


QUICK = Arm(hidden=256, layers=4, words=4096, rows=6, shortest=120, longest=400, steps=4)
FULL = Arm(hidden=256, layers=6, words=8192, rows=8, shortest=200, longest=800, steps=6)
GROWTH = 2.5
"""by what a step may take longer with rows twice as long, or twice as many"""


def run(arm: Arm) -> tuple[float, Measured]:
    """The median of a counted step's seconds, and what all took. Raises where the process fails."""
    command = (sys.executable, "-m", "benchmarks.train_speed", "--arm", json.dumps(asdict(arm)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = Measured(**json.loads(done.stdout))
    print(f"{arm.layout}, {arm.rows} rows: {found}", file=sys.stderr, flush=True)
    return statistics.median(found.seconds[1:]), found


def layouts(arm: Arm) -> dict[str, Value]:
    """Rows padded side by side, and one by one."""
    found: dict[str, Value] = {}
    for layout in ("one_by_one", "padded"):
        seconds, taken = run(replace(arm, layout=layout))
        found[f"{layout}_step_cpu_s"] = round(seconds, 3)
        found[f"{layout}_tokens_per_cpu_s"] = round(taken.tokens / seconds)
        found[f"{layout}_padding_share"] = round(taken.padding, 3)
        found[f"{layout}_peak_mib"] = round(taken.peak_mib, 1)
    return found


def growth(arm: Arm) -> dict[str, Value]:
    """By what a step takes longer with rows twice as long, and with twice as many."""
    even = replace(arm, shortest=arm.longest // 2, longest=arm.longest // 2, rows=arm.rows // 2)
    once, of_once = run(even)
    others = {
        "twice_the_length": replace(even, shortest=arm.longest, longest=arm.longest),
        "twice_the_rows": replace(even, rows=arm.rows),
    }
    found: dict[str, Value] = {}
    for name, other in others.items():
        seconds, taken = run(other)
        found[f"{name}_cpu_ratio"] = round(seconds / once, 2)
        found[f"{name}_memory_ratio"] = round(taken.peak_mib / of_once.peak_mib, 2)
    return found


def measure_gpu(model: str, out: Path) -> None:
    """See `benchmarks.train_speed_gpu`."""
    from benchmarks.train_speed_gpu import LEAST, MOST, measure_on

    values = measure_on(model, "cuda")
    how = f"{model}, bfloat16, torch {torch.__version__}, {torch.cuda.get_device_name()}"
    emit("train_speed", values, how, out, least=LEAST, most=MOST)


def main() -> None:
    parser = sized_parser(__doc__, "a smaller model (the default)", "a larger one, and more steps")
    parser.add_argument("--adaptation", choices=("lora", "full"), default="lora")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="0.5b", help="what a GPU trains and samples from")
    parser.add_argument("--out", type=Path, help="where to write the report (JSON)")
    parser.add_argument("--arm", help="what one process is told to do; it prints a `Measured`")
    asked = parser.parse_args()
    if asked.arm:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            done = asyncio.run(measure(Arm(**json.loads(asked.arm)), Path(folder)))
        return print(json.dumps(asdict(done)))
    if asked.device == "cuda":
        return measure_gpu(asked.model, asked.out or RESULTS / "train_speed_gpu.json")
    kept = RESULTS / f"train_speed_{asked.adaptation}.json" if asked.full else None
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        base = FULL if asked.full else QUICK
        arm = replace(base, adaptation=asked.adaptation, model=str(Path(folder) / "model"))
        write_model(Path(arm.model), arm)
        values = layouts(arm) | growth(arm)
    most = {f"twice_the_{what}_cpu_ratio": GROWTH for what in ("length", "rows")}
    emit(
        "train_speed",
        {"adaptation": arm.adaptation, **values},
        f"random qwen2 of hidden {arm.hidden}, {arm.layers} layers, {arm.words} words, float32; "
        f"{arm.rows} rows of {arm.shortest} to {arm.longest} tokens a step, none counted of the "
        f"first, seed 0; one thread, {os.cpu_count()} cores, no GPU, load {load:.1f} at the "
        "beginning",
        asked.out or kept,
        most=most,
    )


if __name__ == "__main__":
    main()
