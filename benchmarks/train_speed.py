"""How fast the engine takes a step, and in how much memory.

    python -m benchmarks.train_speed [--quick | --full] [--adaptation lora|full] [--out FILE]
    python -m benchmarks.train_speed --device cuda [--model 0.5b]

It trains a random Qwen2 on one window of rows of uneven lengths, in a process of its own
(`benchmarks.train_speed_arm`): rows padded side by side and one by one, and how a step grows with
their length and number. A step's time is in seconds of its process alone, which what else the
machine does hardly changes. Memory is the peak of the process's resident set over what it held when
the model was loaded. The first step is not counted. `--full` keeps the report in
benchmarks/results; run it on an idle machine.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.report import RESULTS, Value, emit, sized_parser
from benchmarks.train_speed_arm import Arm, Measured, write_model

QUICK = Arm(hidden=256, layers=4, words=4096, rows=6, shortest=120, longest=400, steps=4)
FULL = Arm(hidden=256, layers=6, words=8192, rows=8, shortest=200, longest=800, steps=6)
GROWTH = 2.5
"""by what a step may take longer with rows twice as long, or twice as many"""


def run(arm: Arm) -> tuple[float, Measured]:
    """The median of a counted step's seconds, and what all took. Raises where the process fails."""
    command = (sys.executable, "-m", "benchmarks.train_speed_arm", json.dumps(asdict(arm)))
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
    import torch

    from benchmarks.train_speed_gpu import LEAST, MOST, measure

    values = measure(model, "cuda")
    how = f"{model}, bfloat16, torch {torch.__version__}, {torch.cuda.get_device_name()}"
    emit("train_speed", values, how, out, least=LEAST, most=MOST)


def main() -> None:
    parser = sized_parser(__doc__, "a smaller model (the default)", "a larger one, and more steps")
    parser.add_argument("--adaptation", choices=("lora", "full"), default="lora")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="0.5b", help="what a GPU trains and samples from")
    parser.add_argument("--out", type=Path, help="where to write the report (JSON)")
    asked = parser.parse_args()
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
