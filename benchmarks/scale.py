"""What one coordinator carries: many rollouts in flight over a pool of sampling servers.

    python -m benchmarks.scale [--quick | --full]

One wave of rollouts goes the whole way of `rubricem collect` in token ids, all in flight at once:
the pool over 8 loopback servers that take 20 s a turn, the graph, one journal with fsync for all,
every rollout in its folder, the step committed. Two sizes are collected, 100 and 1,000 rollouts
(--quick), or 1,000 and 10,000 (--full), and measured:

    share of the ideal   turns * delay, of the wall time
    CPU per turn         CPU time of the coordinator / (rollouts * turns)
    MB per rollout       growth of the resident size / rollouts in flight
    bytes per rollout    what the run's folder holds, and of it the journal
    lost                 rollouts that are not finished in the folder
    growth               CPU of the larger size / of the smaller, by their rollouts: 1 is linear

Some more are judged and reflected upon for the number of calls that this takes. A training is then
modelled by these numbers (docs/scale.md): a core of the coordinator carries latency / CPU per turn
rollouts, and a million rollouts take so many seconds, bytes and calls.

The refresh of all servers and a step on two ranks of torchrun against one, on the same global
batch of a tiny model, are timed besides.
"""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import uvloop

from benchmarks.ask_overhead import resident_mb
from benchmarks.judged import buffer_of
from benchmarks.loopback import TURNS
from benchmarks.report import Value, emit
from benchmarks.rounds_server import serving_several
from rubricem.agent.settings import load_settings
from rubricem.agent.weights.checkpoints import NOTE, Checkpoint
from rubricem.memory.rubrics import BufferStore
from rubricem.training.collect.directory import JOURNAL, RunDirectory, RunTally
from rubricem.training.collect.questions import Question, Selected
from rubricem.training.collect.setup import CollectOptions, open_collector
from rubricem.training.local.learner import Learner
from rubricem.training.local.load import load_learner
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.ranks import Ranks
from rubricem.training.rounds.rollouts import SamplingServer, SamplingServers
from rubricem.training.rows.row import TrainRow

SERVERS, DELAY, GROUP, JUDGED, REFLECTIONS = 8, 20.0, 4, 32, 2
VOCABULARY = 100_000
"""ids of the servers' tokenisers"""
LEAST_SHARE, MOST_MB, MOST_GROWTH = 0.8, 0.2, 1.1
MILLION = 1_000_000
STEPS, ROWS, TOKENS = 4, 8, 512
PRICES = (0.0, 0.25, 2.5)
"""US dollars a million tokens: of one's own server, of a small model and of a large one"""


@dataclass(frozen=True, slots=True)
class Collected:
    """One wave: seconds, CPU seconds, growth of the resident size in MB, bytes on disk."""

    rollouts: int
    finished: int
    wall: float
    cpu: float
    growth: float
    bytes: int
    journal: int

    @property
    def cpu_per_turn(self) -> float:
        return self.cpu / (self.rollouts * len(TURNS))

    def values(self) -> dict[str, Value]:
        found: dict[str, Value] = {
            "share_of_ideal": round(len(TURNS) * DELAY / self.wall, 3),
            "cpu_ms_per_turn": round(self.cpu_per_turn * 1e3, 2),
            "mb_per_rollout": round(max(self.growth, 0.0) / self.rollouts, 3),
            "bytes_per_rollout": self.bytes // self.rollouts,
            "journal_bytes_per_rollout": self.journal // self.rollouts,
            "lost": self.rollouts - self.finished,
        }
        return {f"{name}_{self.rollouts}": value for name, value in found.items()}


async def collect_wave(
    servers: Sequence[str], folder: Path, rollouts: int, judge: str = "none"
) -> Collected:
    """Collect one wave; all begin at once."""
    documents = folder / "documents"
    documents.mkdir(parents=True)
    (documents / "a.md").write_text("# Order\nThe rule decides the order, with one exception.\n")
    data, first, questions = folder / "data", servers[0], rollouts // GROUP
    asked = tuple(
        Question(id=f"{n}", question=f"Which rule is number {n}?") for n in range(questions)
    )
    buffers = BufferStore(data / "buffers")
    for question in asked if judge != "none" else ():
        buffers.save(buffer_of(question.question).model_copy(update={"version": 1}))
    settings = load_settings({
        "base_url": first, "more_servers": tuple(servers[1:]), "model": "policy",
        "source": (str(documents),), "decoding": "free", "memory": "off", "timeout": 600.0,
        "concurrency": max(rollouts // len(servers), 1) + 1, "data_dir": data, "temperature": 1.0,
    })  # fmt: skip
    options = CollectOptions(
        group_size=GROUP, step_size=questions, judge=judge,
        reflections=REFLECTIONS if judge != "none" else 0,
    )  # fmt: skip
    run = RunDirectory(folder / "run")
    gc.collect()
    before, sizes = resident_mb(), [0.0]
    sampler = asyncio.create_task(_sample(sizes))
    wall, cpu = time.perf_counter(), time.process_time()
    async with open_collector(settings, options, run, Selected(asked), _quiet) as collector:
        await collector.collect()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sampler.cancel()
    finished = RunTally.of(RunDirectory(run.folder)).finished
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    journal = sum(path.stat().st_size for path in files if path.name == JOURNAL)
    return Collected(rollouts, finished, wall, cpu, max(sizes) - before, size, journal)


def _quiet(line: str) -> None:
    """Nobody is told."""


async def _sample(sizes: list[float]) -> None:
    while True:
        sizes.append(resident_mb())
        await asyncio.sleep(1.0)


def _calls(address: str) -> int:
    with urlopen(address.removesuffix("/v1") + "/count") as reply:
        found: int = json.load(reply)["calls"]
    return found


def _tokens(folder: Path) -> int:
    """Read and written by all calls of a run, as its journal has them."""
    found: list[int] = []

    def hear(reply: Mapping[str, Any]) -> None:
        usage = reply.get("usage") or {}
        found.append(usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0))

    RunDirectory(folder).journal(hear).close()
    return sum(found)


async def refresh_seconds(servers: Sequence[str], folder: Path) -> float:
    """Until all have an adapter and have said so: what is not the engines' own time."""
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    note = Checkpoint(
        base="policy", base_sha256="", adapter_sha256="0" * 64, method="ss-grpo", step=1, rank=16,
        alpha=32.0,
    )  # fmt: skip
    (checkpoint / NOTE).write_text(note.model_dump_json())
    known = [SamplingServer(url, "vllm-lora", "policy") for url in servers]
    began = time.perf_counter()
    async with SamplingServers(known, folder, _quiet).serving(checkpoint) as (_, ready):
        taken = time.perf_counter() - began
        assert len(ready) == len(servers)
    return taken


def estimate_million(one: Collected, judging: float, tokens: float) -> dict[str, Value]:
    """What a million rollouts take on one coordinator core, by what was measured.

    `judging`: calls of judges and reflections for a rollout; `tokens`: of all its calls.
    """
    in_flight = DELAY / one.cpu_per_turn
    costs = {f"million_usd_at_{price:g}": round(MILLION * tokens * price / 1e6) for price in PRICES}
    return {
        "rollouts_in_flight_a_core": round(in_flight),
        "million_core_hours": round(MILLION * one.cpu_per_turn * len(TURNS) / 3600, 1),
        "million_gb": round(MILLION * one.bytes / one.rollouts / 1e9, 1),
        "million_judge_calls": round(MILLION * judging),
        **costs,
    }


def window(vocabulary: int) -> list[TrainRow]:
    """Rows of one window, all of one length."""
    prompt = TOKENS // 2
    mask = (0,) * prompt + (1,) * (TOKENS - prompt)
    return [
        TrainRow(
            id=f"row{n}", group=f"group{n // GROUP}", trajectory=f"t{n}", objective="policy",
            policy_version="", ids=tuple((n * 31 + at * 7) % vocabulary for at in range(TOKENS)),
            prompt_tokens=prompt, loss_mask=mask,
            advantages=tuple(bit * (1.0 if n % 2 else -1.0) for bit in mask),
            behaviour_logprobs=tuple(-4.0 * bit for bit in mask),
            stages=tuple(0 if bit else -1 for bit in mask),
        )
        for n in range(ROWS)
    ]  # fmt: skip


def write_model(folder: Path) -> None:
    """A random model of four layers."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=1024, max_position_embeddings=2 * TOKENS,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)


def steps(model: Path) -> None:
    """Take some steps as torchrun or nobody started it, and print the seconds of the quickest."""
    import torch

    torch.set_num_threads(1)
    config = EngineConfig(
        out=Path("unused"), dtype="float32", device="cpu", adaptation="full", parallel="fsdp",
        share_prefixes=False,
    )  # fmt: skip
    with Ranks.join("cpu") as ranks:
        learner: Learner = load_learner(config, model, ranks)
        taken = []
        for _ in range(STEPS):
            began = time.perf_counter()
            learner.ss_grpo_step(window(1024), 1e-5)
            taken.append(time.perf_counter() - began)
        if ranks.first:
            print(min(taken), flush=True)


def step_seconds(model: Path, ranks: int) -> float:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    command = [sys.executable, *(launch if ranks > 1 else ["-m"]), "benchmarks.scale"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--steps", str(model)], env=environment, stdout=subprocess.PIPE, text=True,
        check=True, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    return float(done.stdout.split()[-1])


async def all_measured(folder: Path, sizes: tuple[int, int]) -> dict[str, Any]:
    with serving_several(0.01, 2) as servers:  # what is loaded once belongs to no rollout
        await collect_wave(servers, folder / "warm", 2 * GROUP)
    waves = []
    for size in sizes:
        with serving_several(DELAY, SERVERS, VOCABULARY) as servers:
            waves.append(await collect_wave(servers, folder / f"{size}", size))
    few, many = waves
    with serving_several(0.01, SERVERS) as servers:
        judged = await collect_wave(servers, folder / "judged", JUDGED, judge="stage")
        calls = _calls(servers[0])
        refreshed = await refresh_seconds(servers, folder)
    judging = calls / JUDGED - len(TURNS)
    spent = _tokens(folder / "judged" / "run")
    values: dict[str, Value] = {**few.values(), **many.values()}
    values["growth"] = round(many.cpu_per_turn / few.cpu_per_turn, 3)
    values["refresh_s"] = round(refreshed, 3)
    values["judge_calls_per_rollout"] = round(judging, 2)
    values |= estimate_million(many, judging, spent / judged.rollouts)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="100 and 1,000 rollouts (default)")
    size.add_argument("--full", action="store_true", help="1,000 and 10,000 rollouts")
    parser.add_argument("--steps", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps:
        steps(options.steps)
        return
    sizes = (1000, 10_000) if options.full else (100, 1000)
    with tempfile.TemporaryDirectory(prefix="scale.", dir=Path.cwd()) as folder:
        write_model(Path(folder) / "model")
        alone, two = (step_seconds(Path(folder) / "model", ranks) for ranks in (1, 2))
        values = uvloop.run(all_measured(Path(folder), sizes))
    values |= {"step_s_one_rank": round(alone, 3), "step_s_two_ranks": round(two, 3)}
    most = sizes[1]
    told = {
        f"share_of_ideal_{most}": (values[f"share_of_ideal_{most}"] >= LEAST_SHARE, LEAST_SHARE),
        f"mb_per_rollout_{most}": (values[f"mb_per_rollout_{most}"] <= MOST_MB, MOST_MB),
        f"lost_{most}": (values[f"lost_{most}"] == 0, 0),
        "growth": (values["growth"] <= MOST_GROWTH, MOST_GROWTH),
    }
    signs = {f"share_of_ideal_{most}": ">="}
    emit(
        "scale",
        values,
        {name: f"{signs.get(name, '<=')} {limit:g}" for name, (_, limit) in told.items()},
        all(holds for holds, _ in told.values()),
        f"{sizes[0]} and {most} rollouts of {len(TURNS)} turns in flight over {SERVERS} servers, "
        f"{DELAY:g} s a turn in one piece; {os.cpu_count()} cores, which the servers share, with a "
        f"load of {os.getloadavg()[0]:.1f}",
    )


if __name__ == "__main__":
    main()
