"""A learning curve on a real model: the 0.5B, in free mode, on held-out questions.

    python -m benchmarks.learns [--quick] [--task facts | hops]
    python -m benchmarks.learns --full --keep FOLDER [--task ...] [--only PHASE] [--minutes N]
        [--teacher 1.5b] [--model 0.5b] [--judge-model 1.5b | --judge-base-url URL]
        [--replicate N] [--arms NAME,...] [--sizes NAME=N,...] [--recipe FOLDER]
        [--plot FILE] [--out FILE]
    python -m benchmarks.learns --task hops --pool [FOLDER] [--plot FILE]

Phases: `traces` (forced traces of the teacher), `before`, `sft`, `rounds`; see
`benchmarks.learns.phases`. Each goes on where it was ended, so that hours of work fit into many
sittings: `--minutes` ends a sitting when the calls in flight are kept (a step of imitation or an
update is finished first). 24 held-out questions with checkable facts are asked before, after the
imitation, between the rounds and after them: the share of valid runs, the share of facts, the
mean score of each stage, each with its 95% interval (Wilson; bootstrap). There is no target: the
curve is stated as it is. Questions, configurations and seeds are committed beside this file.

`--task hops` holds credit by stage against credit by the answer where a program scores every stage,
in the phases `traces`, `sft`, `before`, `arms` and `test`, a replicate at a time, each with its
number for a seed; `--pool` says what all of a folder came to, by default those that are committed.
`--arms` names some of them, `--sizes` those of `HopsSizes` that are to be others; a replicate goes
on with what it was begun with. See `benchmarks.learns.hops` and `benchmarks.learns.replicates`.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.learns.figures import askings, values
from benchmarks.learns.hops import (
    HOPS_QUICK,
    RECIPE,
    HopsPhases,
    HopsPlan,
    HopsSizes,
    replicate_of,
)
from benchmarks.learns.phases import Phases, accepted
from benchmarks.learns.plan import QUICK, Plan, Sizes
from benchmarks.learns.plot import draw
from benchmarks.learns.replicates import (
    ARMS,
    Replicate,
    draw_arms,
    kept_replicates,
    kind_of,
    pooled,
    table_lines,
)
from benchmarks.report import RESULTS, emit
from rubricem.memory.errors import RubricemError
from rubricem.memory.runs import write_atomically
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.gate import RunStopped

REPLICATES = RESULTS / "learns_hops"
PHASES = ("traces", "before", "sft", "rounds", "arms", "test")


async def work(plan: Plan, only: str | None, minutes: float | None) -> bool:
    """Do what is left of the phases; whether all that was asked for is done."""
    stop, tell = asyncio.Event(), partial(print, flush=True)
    phases = (
        HopsPhases(plan, tell, stop) if isinstance(plan, HopsPlan) else Phases(plan, tell, stop)
    )
    if minutes is not None:
        asyncio.get_running_loop().call_later(60 * minutes, stop.set)
    try:
        for name, phase in phases.all().items():
            if only in (None, name):
                print(f"{name} begins", flush=True)
                await phase()
    except RunStopped as stopped:
        print(stopped.told(), flush=True)
        return False
    return True


def report(plan: Plan, done: bool, plot: Path | None, out: Path | None) -> None:
    found = askings(plan.keep / "rounds" / "held_out")
    told = {"traces_accepted": accepted(RunDirectory(plan.keep / "traces")), **values(found)}
    if found:
        draw(found, plot or plan.keep / "learns.svg")
    if out is not None:
        write_atomically(out, json.dumps(told, indent=1))
    sizes = plan.sizes
    emit(
        "learns",
        {"all_done": done, **told},
        {},
        True,
        f"{plan.model} taught by {plan.teacher}, judged by {plan.judge_model or 'a server'}; "
        f"{sizes.rounds} rounds of {sizes.per_round} x {sizes.group}, {sizes.held_out} held-out "
        "questions asked once at temperature 1 and the same seeds; no targets",
    )


def report_hops(
    replicates: Sequence[Replicate], done: bool, plot: Path, how: str, out: Path | None = None
) -> None:
    plot.parent.mkdir(parents=True, exist_ok=True)
    draw_arms(replicates, plot)
    values = pooled(replicates)
    print("\n".join(table_lines(values)), flush=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, replicates[0].model_dump_json() + "\n")
    emit(
        "learns",
        {"task": "hops", "all_done": done, **values},
        {},
        True,
        f"taught by the facts; the dev split at temperature 1; {how}; no targets",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="very few of each (the default)")
    size.add_argument("--full", action="store_true", help="all of it: hours")
    parser.add_argument("--task", choices=("facts", "hops"), default="facts")
    parser.add_argument("--keep", type=Path, help="goes on with what lies here; for --full needed")
    parser.add_argument("--only", choices=PHASES, help="this phase alone")
    parser.add_argument("--minutes", type=float, help="end the sitting after so long")
    parser.add_argument("--teacher", help="of facts: 1.5b; 0.5b with --quick")
    parser.add_argument("--model", default="0.5b")
    parser.add_argument("--judge-model", help="1.5b; 0.5b with --quick")
    parser.add_argument("--judge-base-url", metavar="URL")
    parser.add_argument("--replicate", type=int, default=0, help="of hops: its number and seed")
    parser.add_argument("--arms", type=arms_of, default=ARMS, help="of hops: some of them; all")
    parser.add_argument("--sizes", default="", help="of hops: rounds=12,test=60 and the like")
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="of hops: another's folder")
    parser.add_argument("--pool", type=Path, nargs="?", const=REPLICATES, metavar="FOLDER")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.pool:
        found = kept_replicates(asked.pool)
        if not found:
            parser.error(f"no replicate lies in {asked.pool}")
        if len({*map(kind_of, found)}) > 1:
            parser.error("replicates of other models, sizes or recipes: pool them from folders")
        done = all(one.done for one in found)
        report_hops(found, done, asked.plot or asked.pool / "arms.svg", "all replicates so far")
        return
    if asked.full and asked.keep is None:
        parser.error("--full takes hours and many sittings: name a folder with --keep")
    with nullcontext(asked.keep) if asked.keep else TemporaryDirectory() as keep:
        try:
            measure(asked, Path(keep).absolute())
        except RubricemError as error:
            sys.exit(error.told())


def measure(asked: argparse.Namespace, keep: Path) -> None:
    larger = "1.5b" if asked.full else "0.5b"
    if asked.task == "hops":
        sizes = sized(HopsSizes() if asked.full else HOPS_QUICK, asked.sizes)
        number = asked.replicate
        own = keep / f"replicate-{number}"
        hops = HopsPlan(
            keep=own, sizes=sizes, model=asked.model, replicate=number, arms=asked.arms,
            recipe=asked.recipe,
        )  # fmt: skip
        asyncio.run(work(hops, asked.only, asked.minutes))
        found = replicate_of(hops)
        out = asked.out or (REPLICATES / f"{number}.json" if asked.full else None)
        how = (
            f"replicate {number} of {asked.model}: at most {sizes.rounds} rounds of "
            f"{sizes.per_round} x {sizes.group} an arm"
        )
        report_hops([found], found.done, asked.plot or own / "arms.svg", how, out)
        return
    plan = Plan(
        keep=keep,
        sizes=Sizes() if asked.full else QUICK,
        teacher=asked.teacher or larger,
        model=asked.model,
        judge_model=asked.judge_model or (None if asked.judge_base_url else larger),
        judge_base_url=asked.judge_base_url,
    )
    done = asyncio.run(work(plan, asked.only, asked.minutes))
    report(plan, done, asked.plot, asked.out)


def arms_of(named: str) -> tuple[str, ...]:
    """Those of a list of names, in the order of `ARMS`. Raises ArgumentTypeError for others."""
    names = named.split(",")
    if set(names) - set(ARMS):
        raise argparse.ArgumentTypeError(f"some of {', '.join(ARMS)}")
    return tuple(name for name in ARMS if name in names)


def sized(sizes: HopsSizes, changed: str) -> HopsSizes:
    """Sizes with some of them changed, as `rounds=2,test=24`. Raises SystemExit for others."""
    known = [field.name for field in fields(HopsSizes)]
    pairs = [pair.partition("=") for pair in changed.split(",") if pair]
    if not all(name in known and value.isdecimal() for name, _, value in pairs):
        raise SystemExit(f"--sizes is NAME=N,... with NAME of {', '.join(known)}")
    return replace(sizes, **{name: int(value) for name, _, value in pairs})


if __name__ == "__main__":
    main()
