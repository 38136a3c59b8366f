"""What reflections cost in time: rounds with them against rounds without, on a slow server.

    python -m benchmarks.reflection_overlap [--quick | --full] [--rounds R] [--candidates M]
        [--out FILE]

Rounds of `rubricem train ss-grpo` on a tiny random model, whose rollouts, judge and reflections
are a loopback server's (`benchmarks.rounds_server`) that takes at least three times as long for
each reply as an update takes. Reflections are written and judged, two calls after the judgement,
while the next rollouts and updates go on, and trained a round later. Runs with and without them
are taken in turn, in pairs whose order alternates. Wall clock is from the third update, when all
models are loaded (the bank's embedder too), to the last (`rounds`, which has the target); from
the beginning to the last update (`updates`); and to the end of everything, the last round's
reflections included (`whole`). `--full` keeps the report and every run in benchmarks/results; run
it on an idle machine.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.judged import buffer_of
from benchmarks.report import RESULTS, emit
from benchmarks.rounds_server import serving
from rubricem.memory.rubrics import BufferStore
from rubricem.training.rounds.rounds import run_rounds
from rubricem.training.rounds.rounds_config import build_job
from rubricem.training.rounds.update import TOLD
from rubricem.training.show.training import SAVED_AT
from tests.support.tiny import write_tiny

SLOWER, LEAST_DELAY = 3.5, 0.3
ROUNDS, QUICK_ROUNDS, LEAST_ROUNDS = 14, 9, 4
PAIRS, QUICK_PAIRS = 5, 3
CANDIDATES, QUICK_CANDIDATES = 8, 2
QUESTIONS, GROUP = 1, 2
TARGET = 1.05
REFRESH = ("sh", "-c", "cksum < {checkpoint}/adapter.gguf | tr ' ' -")
"""the server's name of each checkpoint"""


@dataclass(frozen=True, slots=True)
class Timed:
    """One run."""

    rounds: float
    """seconds from the third update to the last"""
    updates: float
    """seconds from the beginning to the last update"""
    whole: float
    update: float
    """seconds of a round's updates, median"""
    reflect_rows: int


def time_rounds(folder: Path, address: str, rounds: int, candidates: int) -> Timed:
    """Do all rounds in a folder of their own."""
    job = build_job(_configuration(folder, address, rounds, candidates), folder, "ss-grpo")
    assert job.rounds is not None
    buffers = BufferStore(folder / "out" / "data" / "buffers")
    for number in range(QUESTIONS * rounds):
        buffers.save(buffer_of(_question(number)).model_copy(update={"version": 1}))
    began = time.time()
    asyncio.run(run_rounds(job.config, job.rounds, job.rule, unseen))
    ended = time.time()
    lines = (folder / "out" / TOLD).read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    at = [line[SAVED_AT] for line in metrics]
    return Timed(
        rounds=at[-1] - at[2],
        updates=at[-1] - began,
        whole=ended - began,
        # The first one also loads the model.
        update=statistics.median(line["seconds/train"] for line in metrics[1:]),
        reflect_rows=int(sum(line["rows/reflect"] for line in metrics)),
    )


def unseen(line: str) -> None:
    """Nobody reads what the rounds tell."""


def _configuration(folder: Path, address: str, rounds: int, candidates: int) -> dict[str, Any]:
    lines = [json.dumps({"question": _question(n)}) + "\n" for n in range(QUESTIONS * rounds)]
    (folder / "questions.jsonl").write_text("".join(lines))
    return {
        "out": "out",
        "model": str(write_tiny(folder / "tiny.gguf")),
        "rank": 4,
        "alpha": 8.0,
        "threads": 1,
        "dtype": "float32",
        "max_row_tokens": 8192,
        "rounds": {
            "questions": "questions.jsonl",
            "rounds": rounds,
            "questions_per_round": QUESTIONS,
            "group_size": GROUP,
            "base_url": address,
            "model": "policy",
            "refresh": list(REFRESH),
            "source": [f"searxng:{address.removesuffix('/v1')}"],
            "reflections": candidates,
            "max_staleness": 2,
        },
    }


def _question(number: int) -> str:
    return f"Which rule is number {number}?"


def once(delay: float, rounds: int, candidates: int) -> Timed:
    with tempfile.TemporaryDirectory() as folder, serving(delay) as address:
        return time_rounds(Path(folder), address, rounds, candidates)


def report(
    pairs: Sequence[tuple[Timed, Timed]], delay: float, rounds: int, load: str, out: Path | None
) -> None:
    steady = [one.rounds / other.rounds for one, other in pairs]
    updates = [one.updates / other.updates for one, other in pairs]
    whole = [one.whole / other.whole for one, other in pairs]
    update = statistics.median(one.update for one, _ in pairs)
    rows = min(one.reflect_rows for one, _ in pairs)
    met = statistics.median(steady) <= TARGET and delay >= 3 * update and rows > 0
    emit(
        "reflection_overlap",
        {
            "rounds": rounds,
            "pairs": len(pairs),
            "delay_s": round(delay, 3),
            "update_s_median": round(update, 3),
            "delay_over_update": round(delay / update, 2),
            "rounds_ratio_median": round(statistics.median(steady), 4),
            "rounds_ratio_min": round(min(steady), 4),
            "rounds_ratio_max": round(max(steady), 4),
            "updates_ratio_median": round(statistics.median(updates), 4),
            "whole_ratio_median": round(statistics.median(whole), 4),
            "reflection_rows_trained": rows,
            "with_s_median": round(statistics.median(one.rounds for one, _ in pairs), 2),
            "without_s_median": round(statistics.median(other.rounds for _, other in pairs), 2),
        },
        {"rounds_ratio_median": f"<= {TARGET}", "delay_over_update": ">= 3",
         "reflection_rows_trained": "> 0"},
        met,
        f"tiny random model, {QUESTIONS} question x {GROUP} a round, policy, judge and search on "
        f"loopback; interleaved pairs, order alternating; {os.cpu_count()} cores, one for torch, "
        f"{load}",
        out,
        [[asdict(run) for run in pair] for pair in pairs],
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK_PAIRS} pairs (the default)")
    size.add_argument("--full", action="store_true", help=f"{PAIRS} pairs of longer runs")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--candidates", type=int)
    parser.add_argument("--out", type=Path, help="where to write the report and every run (JSON)")
    asked = parser.parse_args()
    out = asked.out or (RESULTS / "reflection_overlap.json" if asked.full else None)
    load = f"load {os.getloadavg()[0]:.1f} at the beginning"
    rounds = asked.rounds or (ROUNDS if asked.full else QUICK_ROUNDS)
    candidates = asked.candidates or (CANDIDATES if asked.full else QUICK_CANDIDATES)
    torch.set_num_threads(1)
    tried = once(0.05, LEAST_ROUNDS, candidates)
    delay = max(SLOWER * tried.update, LEAST_DELAY)
    print(f"an update takes {tried.update:.2f} s, so a reply {delay:.2f} s", flush=True)
    pairs = []
    for number in range(PAIRS if asked.full else QUICK_PAIRS):
        arms = [candidates, 0] if number % 2 else [0, candidates]
        runs = {count: once(delay, rounds, count) for count in arms}
        pairs.append((runs[candidates], runs[0]))
        print(f"pair {number + 1}: {pairs[-1]}", file=sys.stderr, flush=True)
    report(pairs, delay, rounds, load, out)


if __name__ == "__main__":
    main()
