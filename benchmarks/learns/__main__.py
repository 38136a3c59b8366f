"""Whether credit by stage beats credit by the answer: one small model, several arms, replicates.

    python -m benchmarks.learns [--quick]
    python -m benchmarks.learns --full --keep FOLDER [--minutes N] [--model 0.5b] [--replicate N]
        [--arms NAME,...] [--sizes NAME=N,...] [--recipe FOLDER] [--out FILE]
    python -m benchmarks.learns --pool [FOLDER]

A program scores every stage. A replicate goes through the phases `traces`, `sft`, `before`, `arms`
and `test`, each of which goes on where it was ended, so that hours of work fit into many sittings:
`--minutes` ends a sitting when the calls in flight are kept. `--pool` says what all replicates of a
folder came to, by default those that are committed. `--arms` names some of them, `--sizes` those of
`Sizes` that are to be others. There is no target: the differences are stated as they are. See
`benchmarks.learns.hops` and `benchmarks.learns.replicates`.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.learns.hops import QUICK, RECIPE, Phases, Plan, Sizes, replicate_of
from benchmarks.learns.replicates import ARMS, Replicate, kept_replicates, kind_of, pooled
from benchmarks.report import RESULTS, emit, sized_parser
from rubricem.memory.errors import RubricemError
from rubricem.memory.runs import write_atomically
from rubricem.training.collect.gate import RunStopped

REPLICATES = RESULTS / "learns_hops"


async def work(plan: Plan, minutes: float | None) -> None:
    """Do what is left of the phases."""
    stop, tell = asyncio.Event(), partial(print, flush=True)
    phases = Phases(plan, tell, stop)
    if minutes is not None:
        asyncio.get_running_loop().call_later(60 * minutes, stop.set)
    try:
        for name, phase in phases.all().items():
            print(f"{name} begins", flush=True)
            await phase()
    except RunStopped as stopped:
        print(stopped.told(), flush=True)


def report(replicates: Sequence[Replicate], done: bool, how: str, out: Path | None = None) -> None:
    values = pooled(replicates)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, replicates[0].model_dump_json() + "\n")
    emit(
        "learns",
        {"all_done": done, **values},
        f"taught by the facts; the dev split at temperature 1; {how}; no targets",
    )


def main() -> None:
    parser = sized_parser(__doc__, "very few of each (the default)", "all of it: hours")
    parser.add_argument("--keep", type=Path, help="goes on with what lies here; for --full needed")
    parser.add_argument("--minutes", type=float, help="end the sitting after so long")
    parser.add_argument("--model", default="0.5b")
    parser.add_argument("--replicate", type=int, default=0, help="its number and seed")
    parser.add_argument("--arms", type=arms_of, default=ARMS, help="some of them; all")
    parser.add_argument("--sizes", default="", help="rounds=12,test=60 and the like")
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="another's folder")
    parser.add_argument("--pool", type=Path, nargs="?", const=REPLICATES, metavar="FOLDER")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.pool:
        found = kept_replicates(asked.pool)
        if not found:
            parser.error(f"no replicate lies in {asked.pool}")
        if len({*map(kind_of, found)}) > 1:
            parser.error("replicates of other models, sizes or recipes: pool them from folders")
        done = all(one.done for one in found)
        report(found, done, "all replicates so far")
        return
    if asked.full and asked.keep is None:
        parser.error("--full takes hours and many sittings: name a folder with --keep")
    with nullcontext(asked.keep) if asked.keep else TemporaryDirectory() as keep:
        try:
            measure(asked, Path(keep).absolute())
        except RubricemError as error:
            sys.exit(error.told())


def measure(asked: argparse.Namespace, keep: Path) -> None:
    sizes, number = sized(Sizes() if asked.full else QUICK, asked.sizes), asked.replicate
    own = keep / f"replicate-{number}"
    plan = Plan(own, sizes, asked.model, number, asked.arms, asked.recipe)
    asyncio.run(work(plan, asked.minutes))
    found = replicate_of(plan)
    out = asked.out or (REPLICATES / f"{number}.json" if asked.full else None)
    how = (
        f"replicate {number} of {asked.model}: {sizes.rounds} rounds of "
        f"{sizes.per_round} x {sizes.group} an arm"
    )
    report([found], found.done, how, out)


def arms_of(named: str) -> tuple[str, ...]:
    """Those of a list of names, in the order of `ARMS`. Raises ArgumentTypeError for others."""
    names = named.split(",")
    if set(names) - set(ARMS):
        raise argparse.ArgumentTypeError(f"some of {', '.join(ARMS)}")
    return tuple(name for name in ARMS if name in names)


def sized(sizes: Sizes, changed: str) -> Sizes:
    """Sizes with some of them changed, as `rounds=2,test=24`. Raises SystemExit for others."""
    known = [field.name for field in fields(Sizes)]
    pairs = [pair.partition("=") for pair in changed.split(",") if pair]
    if not all(name in known and value.isdecimal() for name, _, value in pairs):
        raise SystemExit(f"--sizes is NAME=N,... with NAME of {', '.join(known)}")
    return replace(sizes, **{name: int(value) for name, _, value in pairs})


if __name__ == "__main__":
    main()
