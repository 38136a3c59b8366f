"""Whether a judge notices which stage of a run went wrong.

    python -m benchmarks.stage_sensitivity [--quick | --full] [--model 1.5b] [--base-url URL]
        [--out FILE]

Six runs of our own (`benchmarks/stage_runs.jsonl`), each good in all four stages, and four copies
of each in which one stage alone is damaged: the plan is another question's, the evidence is gone,
the review boasts, the answer has lost its citations. All are scored on criteria that were written
with the runs, two for each stage (`given`); `--full` also has the judge propose its own by
contrasting a run with its copies (`proposed`). Counted is how often the damaged stage's score
falls (`lower`), falls while no other does (`only`), and falls by more than any other (`most`), over
the runs in which the judge had criteria for that stage.
"""

import argparse
import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import Value, emit
from benchmarks.stage_damage import LEAST_DROP, StageSensitivity, damage, sensitivity
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import model_of
from rubricem.judge.build import stage_judge
from rubricem.judge.evaluation.report import share
from rubricem.judge.stage import StageJudge
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Criterion,
    Decoding,
    Judgement,
    RubricBuffer,
    Segment,
    Source,
    Stage,
    Status,
    Trajectory,
    TrajectoryGroup,
)

ROOT = Path(__file__).parent
RUNS = ROOT / "stage_runs.jsonl"
RESULTS = ROOT / "results" / "stage_sensitivity.json"
QUICK = 3
_CITED = re.compile(r"\bS\d+\b")
Found = Mapping[Stage, StageSensitivity]


def run_of(row: Mapping[str, Any]) -> Trajectory:
    """A row as a finished run."""
    research = [(Author(step["author"]), step["text"]) for step in row["research"]]
    written = [
        (Stage.PLAN, Author.POLICY, row["plan"]),
        *((Stage.RESEARCH, author, text) for author, text in research),
        (Stage.REVIEW, Author.POLICY, row["review"]),
        (Stage.ANSWER, Author.POLICY, row["answer"]),
    ]
    segments = [Segment(author=a, stage=s, turn=1, text=text) for s, a, text in written]
    found = " ".join(text for author, text in research if author is Author.TOOL)
    question: str = row["question"]
    return Trajectory(
        id=question[:40],
        thread="sensitivity",
        question=question,
        answer_format=AnswerFormat.LONG,
        decoding=Decoding.FREE,
        segments=(Segment(author=Author.PROMPT, text=question), *segments),
        sources=tuple(
            Source(id=name, title=name, location="x", text=found, tool="search", query="q")
            for name in sorted(set(_CITED.findall(row["answer"])))
        ),
        status=Status.FINISHED,
        policy="written by hand",
        started_at=datetime.now(UTC),
        seconds=0.0,
    )


def buffer_of(row: Mapping[str, Any]) -> RubricBuffer:
    """The criteria that were written with a run."""
    given = {
        stage: tuple(
            Criterion(title=text, description=text, persistent=True)
            for text in row["criteria"][stage.value]
        )
        for stage in Stage
    }
    return RubricBuffer(question=row["question"], persistent=given)


async def judge_versions(
    judge: StageJudge, versions: Sequence[Trajectory], buffer: RubricBuffer
) -> list[Judgement]:
    """On given criteria each version by itself, so that none is proposed; else all as a group."""
    size = 1 if buffer.persistent else len(versions)
    judgements: list[Judgement] = []
    for at in range(0, len(versions), size):
        members = tuple(versions[at : at + size])
        group = TrajectoryGroup(question=buffer.question, trajectories=members)
        result = await judge.judge(group, buffer)
        print(*result.notes, sep="\n", end="\n" if result.notes else "", flush=True)
        judgements += result.judgements
    return judgements


async def measure(judge: StageJudge, rows: Sequence[Mapping[str, Any]], *, given: bool) -> Found:
    runs = [run_of(row) for row in rows]
    intact: dict[str, Judgement] = {}
    hurt: dict[Stage, dict[str, Judgement]] = {stage: {} for stage in Stage}
    for place, (run, row) in enumerate(zip(runs, rows, strict=True)):
        other = runs[(place + 1) % len(runs)]
        buffer = buffer_of(row) if given else RubricBuffer(question=run.question)
        versions = [run, *(damage(run, stage, other) for stage in Stage)]
        first, *rest = await judge_versions(judge, versions, buffer)
        intact[run.id] = first
        for stage, judgement in zip(Stage, rest, strict=True):
            hurt[stage][run.id] = judgement
        print(f"{place + 1} of {len(runs)} runs, {'given' if given else 'proposed'}", flush=True)
    return sensitivity(intact, hurt)


def values_of(name: str, found: Found) -> dict[str, Value]:
    """Each stage's shares, and those over all stages with their interval."""
    values: dict[str, Value] = {}
    for kind in ("lower", "only", "most"):
        shares = {stage: getattr(one, kind) for stage, one in found.items()}
        for stage, of_stage in shares.items():
            values[f"{kind}_{stage}_{name}"] = of_stage.value
        whole = share(sum(s.hits for s in shares.values()), sum(s.n for s in shares.values()))
        values[f"{kind}_{name}"] = whole.value
        values[f"{kind}_{name}_interval"] = f"{whole.low:.3f} - {whole.high:.3f}"
    values[f"damaged_runs_{name}"] = sum(one.lower.n for one in found.values())
    return values


async def main(arguments: argparse.Namespace) -> None:
    rows = [json.loads(line) for line in RUNS.read_text(encoding="utf-8").splitlines()]
    rows = rows if arguments.full else rows[:QUICK]
    settings = load_settings({"model": arguments.model, "base_url": arguments.base_url})
    found: dict[str, Found] = {}
    async with model_of(settings).open_judge() as model:
        judge = stage_judge(model)
        found["given"] = await measure(judge, rows, given=True)
        if arguments.full:
            found["proposed"] = await measure(judge, rows, given=False)
    values: dict[str, Value] = {"runs": len(rows)}
    for name, one in found.items():
        values |= values_of(name, one)
    out = arguments.out or (RESULTS if arguments.full else None)
    if out:
        kept = {n: {s: v.model_dump(mode="json") for s, v in f.items()} for n, f in found.items()}
        out.write_text(json.dumps({"values": values, "stages": kept}, indent=1) + "\n")
    emit(
        "stage_sensitivity",
        values,
        {},
        True,
        f"{arguments.model}, a fall is more than {LEAST_DROP} of a score in [0, 1]; no target: the "
        "figures are stated as they are",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK} runs, given criteria")
    size.add_argument("--full", action="store_true", help="all runs, also on proposed criteria")
    parser.add_argument("--model", default="1.5b", help="the judge's model")
    parser.add_argument("--base-url", help="a server to ask instead of the embedded model")
    parser.add_argument("--out", type=Path, help="where to write all results (JSON)")
    asyncio.run(main(parser.parse_args()))
