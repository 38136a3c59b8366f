"""How fast the local engine takes a step, and in how much memory, beside TRL on the same rows.

    python -m benchmarks.train_speed [--quick | --full] [--pairs N] [--even]
        [--adaptation lora|full] [--out FILE]

Both engines train a random Qwen2 on one window of rows of uneven lengths; the objective's
importance weight is off, for which TRL would need a pass of its own. Each engine runs in a process
of its own (`benchmarks.train_speed_arm`), and they take their steps in turn, pair by pair, the
order alternating; the first pair is not counted. A step's time is also given in seconds of its
process alone, which what else the machine does hardly changes. Memory is the peak of the process's
resident set over what it held when the model was loaded. In the same way the local engine that
reads once what a group begins with, half of its tokens, stands beside itself on whole rows. Then
the local engine alone: packed against padded and one by one, and how a step grows with the rows'
length and with their number.
`--full` keeps the report and every step in benchmarks/results, by adaptation and kind of rows; run
it on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.report import RESULTS, Value, emit
from benchmarks.train_speed_arm import Arm, Measured, Step, write_model

QUICK = Arm(hidden=256, layers=4, words=4096, rows=6, shortest=120, longest=400, steps=6)
FULL = Arm(hidden=256, layers=6, words=8192, rows=8, shortest=200, longest=800, steps=11)
ALONE = 3
"""steps of the local engine alone, the first of them not counted"""
TIME, MEMORY, SHARED, PAIRS = 1.1, 1.0, 0.6, 5
GROUP = 8
"""rows that begin alike: as many as the paper samples for a question"""


class Engine:
    """One engine in a process of its own. Raises RuntimeError where that ends early."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        command = (sys.executable, "-m", "benchmarks.train_speed_arm", json.dumps(asdict(arm)))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, text=True
        )
        self._line()

    def step(self) -> Step:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Step(*json.loads(self._line()))

    def end(self) -> Measured:
        """After all its steps."""
        found = Measured(**json.loads(self._line()))
        self._process.communicate()
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"{self.arm.engine} ended early, exit {self._process.wait()}")
        return line


@dataclass(frozen=True, slots=True)
class Run:
    """An engine's counted steps, and what all of them took."""

    steps: tuple[Step, ...]
    measured: Measured

    @property
    def seconds(self) -> float:
        """Of this process, median of a step."""
        return statistics.median(step.cpu for step in self.steps)


def pairs(one: Arm, other: Arm) -> tuple[Run, Run]:
    """Step by step in turn."""
    engines = [Engine(one), Engine(other)]
    taken: tuple[list[Step], list[Step]] = ([], [])
    for number in range(one.steps):
        for place in (0, 1) if number % 2 else (1, 0):
            taken[place].append(engines[place].step())
        print(f"pair {number}: {taken[0][-1]}, {taken[1][-1]}", file=sys.stderr, flush=True)
    first, second = (engine.end() for engine in engines)
    return Run(tuple(taken[0][1:]), first), Run(tuple(taken[1][1:]), second)


def beside_whole_rows(arm: Arm) -> tuple[dict[str, Value], tuple[Run, Run]]:
    """The local engine on groups that begin alike: with that read once, and row by row.

    What a group begins with is half of its mean row, and half of the rest is a tool's.
    """
    least = arm.longest * 5 // 8
    arm = replace(
        arm, shortest=least, common=(least + arm.longest) // 4, rows=GROUP, group=GROUP, tool=0.5
    )
    shared, whole = runs = pairs(replace(arm, shares=True), arm)
    ratios = [a.cpu / b.cpu for a, b in zip(shared.steps, whole.steps, strict=True)]
    norms = zip(shared.measured.grad_norms, whole.measured.grad_norms, strict=True)
    found: dict[str, Value] = {
        "shared_step_cpu_ratio_median": round(statistics.median(ratios), 3),
        "shared_step_cpu_ratio_min": round(min(ratios), 3),
        "shared_step_cpu_ratio_max": round(max(ratios), 3),
        "shared_memory_ratio": round(shared.measured.peak_mib / whole.measured.peak_mib, 3),
        "shared_grad_norm_apart_max": float(f"{max(abs(a / b - 1) for a, b in norms):.2g}"),
    }
    return found, runs


def alone(arm: Arm) -> Run:
    """The local engine by itself."""
    engine = Engine(replace(arm, steps=ALONE))
    steps = [engine.step() for _ in range(ALONE)]
    run = Run(tuple(steps[1:]), engine.end())
    print(f"{arm.layout}, {arm.rows} rows: {run}", file=sys.stderr, flush=True)
    return run


def beside_trl(local: Run, trl: Run) -> dict[str, Value]:
    """What the pairs came to."""
    both = list(zip(local.steps, trl.steps, strict=True))
    walls = [mine.wall / theirs.wall for mine, theirs in both]
    norms = zip(local.measured.grad_norms, trl.measured.grad_norms, strict=True)
    return {
        "pairs": len(both),
        "step_ratio_median": round(statistics.median(walls), 3),
        "step_ratio_min": round(min(walls), 3),
        "step_ratio_max": round(max(walls), 3),
        "step_cpu_ratio_median": round(statistics.median(m.cpu / t.cpu for m, t in both), 3),
        "local_step_cpu_s": round(local.seconds, 3),
        "trl_step_cpu_s": round(trl.seconds, 3),
        "memory_ratio": round(local.measured.peak_mib / trl.measured.peak_mib, 3),
        "local_peak_mib": round(local.measured.peak_mib, 1),
        "trl_peak_mib": round(trl.measured.peak_mib, 1),
        "trl_padding_share": round(trl.measured.padding, 3),
        "grad_norm_apart_max": float(f"{max(abs(m / t - 1) for m, t in norms):.2g}"),
    }


def layouts(arm: Arm, one_by_one: Run) -> dict[str, Value]:
    """The local engine's rows packed, padded side by side, and one by one."""
    names = ("packed", "padded")
    runs = {name: alone(replace(arm, layout=name)) for name in names} | {"one_by_one": one_by_one}
    found: dict[str, Value] = {}
    for layout, run in runs.items():
        found[f"{layout}_tokens_per_cpu_s"] = round(run.measured.tokens / run.seconds)
        found[f"{layout}_padding_share"] = round(run.measured.padding, 3)
        found[f"{layout}_peak_mib"] = round(run.measured.peak_mib, 1)
    return found


def growth(arm: Arm) -> dict[str, Value]:
    """By what a step takes longer with rows twice as long, and with twice as many."""
    even = replace(arm, shortest=arm.longest // 2, longest=arm.longest // 2, rows=arm.rows // 2)
    once = alone(even)
    others = {
        "twice_the_length": alone(replace(even, shortest=arm.longest, longest=arm.longest)),
        "twice_the_group": alone(replace(even, rows=arm.rows)),
    }
    found: dict[str, Value] = {}
    for name, run in others.items():
        found[f"{name}_cpu_ratio"] = round(run.seconds / once.seconds, 2)
        found[f"{name}_memory_ratio"] = round(run.measured.peak_mib / once.measured.peak_mib, 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a smaller model (the default)")
    size.add_argument("--full", action="store_true", help="a larger one, and more steps")
    parser.add_argument("--pairs", type=int, help=f"at least {PAIRS} for the targets to count")
    parser.add_argument("--adaptation", choices=("lora", "full"), default="lora")
    parser.add_argument("--even", action="store_true", help="rows of one length: no padding")
    parser.add_argument("--out", type=Path, help="where to write the report and every step (JSON)")
    asked = parser.parse_args()
    rows = "even" if asked.even else "uneven"
    kept = RESULTS / f"train_speed_{asked.adaptation}_{rows}.json" if asked.full else None
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        base = FULL if asked.full else QUICK
        arm = replace(base, adaptation=asked.adaptation, model=str(Path(folder) / "model"))
        arm = replace(arm, shortest=arm.longest if asked.even else arm.shortest)
        arm = replace(arm, steps=asked.pairs + 1 if asked.pairs else arm.steps)
        write_model(Path(arm.model), arm)
        local, trl = pairs(arm, replace(arm, engine="trl"))
        found, runs = beside_whole_rows(arm)
        values = beside_trl(local, trl) | found | layouts(arm, local) | growth(arm)
    met = _meets_targets(values)
    report(
        arm,
        values,
        met,
        f"load {load:.1f} at the beginning",
        asked.out or kept,
        (local, trl, *runs),
    )


def _meets_targets(values: dict[str, Value]) -> bool:
    time, memory, counted = (values[n] for n in ("step_ratio_median", "memory_ratio", "pairs"))
    shared, held = (values[n] for n in ("shared_step_cpu_ratio_median", "shared_memory_ratio"))
    assert isinstance(time, float) and isinstance(memory, float) and isinstance(counted, int)
    assert isinstance(shared, float) and isinstance(held, float)
    within = time <= TIME and memory <= MEMORY and shared <= SHARED and held <= MEMORY
    return within and counted >= PAIRS


def report(
    arm: Arm,
    values: dict[str, Value],
    met: bool,
    load: str,
    out: Path | None = None,
    runs: tuple[Run, ...] = (),
) -> None:
    emit(
        "train_speed",
        {"adaptation": arm.adaptation, **values},
        {
            "step_ratio_median": f"<= {TIME}",
            "memory_ratio": f"<= {MEMORY}",
            "shared_step_cpu_ratio_median": f"<= {SHARED}",
            "shared_memory_ratio": f"<= {MEMORY}",
            "pairs": f">= {PAIRS}",
        },
        met,
        f"random qwen2 of hidden {arm.hidden}, {arm.layers} layers, {arm.words} words, float32; "
        f"{arm.rows} rows of {arm.shortest} to {arm.longest} tokens a step, none counted of the "
        f"first, seed 0; one thread each, {os.cpu_count()} cores, no GPU, {load}",
        out,
        [asdict(run) for run in runs],
    )


if __name__ == "__main__":
    main()
