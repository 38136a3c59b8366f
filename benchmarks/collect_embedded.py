"""What an embedded model collects in an hour, and whether its groups hold anything to learn from.

    python -m benchmarks.collect_embedded [--quick | --full] [--model 0.5b --model 1.5b]

Groups of four rollouts over `--source python`, judged stage by stage by the same model, as
`rubricem collect` does it without memory and reflections. Free decoding is what policy gradients
need; `--decoding forced` gives the traces that imitation begins with. Measured for each model:

    trajectories an hour    rollouts that gave a trajectory, over the whole time, judging included
    valid share             rollouts that finished with every turn accepted at the first try
    scored share            stages with a score, of all stages of all trajectories
    spread                  population standard deviation of a stage's score within its group, mean
    flat share              stages of groups whose members all have one score: they teach nothing
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.embedded import QUESTIONS
from benchmarks.report import Value, emit
from rubricem.agent.settings import load_settings
from rubricem.memory.schema import Stage
from rubricem.training.collect.directory import RunDirectory, RunTally
from rubricem.training.collect.questions import Question, Selected
from rubricem.training.collect.setup import CollectOptions, open_collector

QUICK, FULL, GROUP = 2, 12, 4
TOOL_CALLS, MAX_TOKENS = 2, 512
SAME = 1e-9


async def collect(model: str, decoding: str, folder: Path, count: int) -> dict[str, Value]:
    lines = [json.loads(line)["question"] for line in QUESTIONS.read_text().splitlines()]
    asked = tuple(
        Question(id=str(number), question=question)
        for number, question in enumerate(lines[:: len(lines) // count][:count])
    )
    settings = load_settings(
        {
            "model": model, "source": ("python",), "data_dir": folder / "data", "memory": "off",
            "decoding": decoding, "temperature": 1.0 if decoding == "free" else None,
            "attempts": 1, "tool_calls": TOOL_CALLS, "max_tokens": MAX_TOKENS,
        }
    )  # fmt: skip
    options = CollectOptions(group_size=GROUP, step_size=count, reflections=0)
    run = RunDirectory(folder / "run")
    async with open_collector(settings, options, run, Selected(asked), print) as collector:
        # Reading the sources and loading the weights is done once, whatever is collected.
        began = time.monotonic()
        await collector.collect()
        seconds = time.monotonic() - began
    return summarise(run, seconds)


def summarise(run: RunDirectory, seconds: float) -> dict[str, Value]:
    found = RunTally.of(run)
    rollouts = found.finished + found.partial + found.failed
    groups = list(spreads(run))
    known = [score for j in run.judgements() for s in j.stages if (score := s.score) is not None]
    stages = len(Stage) * (found.finished + found.partial)
    return {
        "rollouts": rollouts,
        "trajectories_an_hour": round((rollouts - found.failed) / seconds * 3600, 1),
        "finished_share": round(found.finished / rollouts, 3),
        "valid_share": round(found.first_try / rollouts, 3),
        "scored_share": round(len(known) / stages, 3) if stages else 0.0,
        "spread_mean": round(statistics.mean(groups), 4) if groups else None,
        "flat_share": round(sum(s < SAME for s in groups) / len(groups), 3) if groups else None,
    }


def spreads(run: RunDirectory) -> Iterator[float]:
    """The spread of each stage of each group that has at least two scores of it."""
    judged = {judgement.trajectory_id: judgement for judgement in run.judgements()}
    for group in run.groups():
        members = [judged[name] for name in group.trajectories if name in judged]
        for stage in Stage:
            scores = [score for m in members if (score := m.score(stage)) is not None]
            if len(scores) > 1:
                yield statistics.pstdev(scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK} questions (the default)")
    size.add_argument("--full", action="store_true", help=f"{FULL} questions")
    parser.add_argument("--model", action="append", help="0.5b or 1.5b; both if none is named")
    parser.add_argument("--decoding", choices=["free", "forced"], default="free")
    arguments = parser.parse_args()
    count = FULL if arguments.full else QUICK
    values: dict[str, Value] = {}
    for model in arguments.model or ["0.5b", "1.5b"]:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(collect(model, arguments.decoding, Path(folder), count))
        values |= {f"{name}_{model}": value for name, value in found.items()}
    emit(
        "collect_embedded",
        values,
        {},
        True,
        f"{count} questions over --source python, groups of {GROUP}, {arguments.decoding} "
        f"decoding, at most {TOOL_CALLS} searches and {MAX_TOKENS} tokens a turn, judged by the "
        "same model, seed 0; no targets",
    )


if __name__ == "__main__":
    main()
