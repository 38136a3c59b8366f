"""`/api/collected` and `/api/trained`: what was collected and trained, in numbers.

Folders of runs are found by their files, under the data directory and under those that somebody
named, each under a name of its own; a name in a request is only ever compared with those that were
found. Whether a process of this machine works on one is told too.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends

from rubricem.agent.serve.desk import Desk
from rubricem.agent.serve.requests import missing
from rubricem.memory.errors import RubricemError
from rubricem.memory.runs import in_use
from rubricem.training.collect.directory import JOURNAL, RunDirectory
from rubricem.training.show.collected import groups_so_far, run_numbers
from rubricem.training.show.training import LOCK, RECORD, STEPS, read_numbers

Kind = Literal["collected", "trained"]
Numbers = dict[str, Any]
Show = Callable[[Path], Numbers]
DEPTH = 3
_OTHERS = frozenset(
    {"runs", "bank", "uploads", "replies", "buffers", "cache", "checkpoints", "steps"}
)
"""in the data directory and in runs: nothing is collected or trained in them"""
_FOR_TRAINING = {"rounds": "round", "held_out": "held out"}
"""folders of a training that hold collecting runs"""
_HELD: dict[Kind, str] = {"collected": JOURNAL, "trained": LOCK}
"""the file that a working process keeps locked"""


def _is(kind: Kind, path: Path) -> bool:
    if kind == "collected":
        return all((path / mark).is_file() for mark in ("questions.jsonl", "manifest.json"))
    return any((path / mark).is_file() for mark in (RECORD, STEPS))


def results(kind: Kind, roots: Sequence[Path]) -> dict[str, Path]:
    """The folders of a kind, the latest changed first; of equal names the later are numbered."""
    paths = dict.fromkeys(path for root in roots for path in _find(kind, root))
    named: dict[str, Path] = {}
    for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        told = _FOR_TRAINING.get(path.parent.name)
        name = f"{path.parent.parent.name}, {told} {path.name}" if told else path.name
        number = next(n for n in count(1) if (name if n == 1 else f"{name} ({n})") not in named)
        named[name if number == 1 else f"{name} ({number})"] = path
    return named


def _find(kind: Kind, root: Path) -> Iterator[Path]:
    """Links are not followed."""
    for place, below, _ in os.walk(root.absolute()):
        path = Path(place)
        if _is(kind, path):
            yield path
        deep = len(path.relative_to(root.absolute()).parts) >= DEPTH
        below[:] = [] if deep else sorted(n for n in below if n[0] != "." and n not in _OTHERS)


async def roots_of(desk: Desk) -> Sequence[Path]:
    """The data directory, and additional folders."""
    return (desk.settings.data_dir, *desk.results)


Roots = Annotated[Sequence[Path], Depends(roots_of)]
routes = APIRouter()


def _serve(kind: Kind, summarise: Show, read: Show) -> None:
    # Functions that are not async are called in threads.
    @routes.get(f"/api/{kind}")
    def every(roots: Roots) -> Numbers:
        return {
            kind: [
                {"name": name, "running": in_use(path / _HELD[kind])} | _or_problem(summarise, path)
                for name, path in results(kind, roots).items()
            ]
        }

    @routes.get(f"/api/{kind}/{{name}}")
    def one(roots: Roots, name: str) -> Numbers:
        if (path := results(kind, roots).get(name)) is None:
            raise missing(
                f"There is no {kind} run {name[:80]!r}.",
                "Name a folder with it when the server is started: rubricem serve --results FOLDER",
            )
        return {"name": name, **read(path), "running": in_use(path / _HELD[kind])}


@lru_cache(maxsize=32)
def _numbers_of(path: Path, finished: int) -> Numbers:
    numbers = run_numbers(RunDirectory(path)).as_json()
    # The settings name this machine's folders and servers.
    del numbers["manifest"]["settings"]
    return numbers


def _read_collected(path: Path) -> Numbers:
    run = RunDirectory(path)
    numbers = _numbers_of(path, run.finished_steps())
    return {**numbers, "grid": [*numbers["grid"], *groups_so_far(run)]}


def _read_trained(path: Path) -> Numbers:
    numbers = read_numbers(path)
    return {**_facts(numbers.record), **numbers.as_json()}


def _summarise_collected(path: Path) -> Numbers:
    run = RunDirectory(path)
    manifest = run.manifest()
    return {
        "policy": manifest.policy,
        "judge": manifest.judge,
        "questions": len(run.questions()),
        "steps": run.finished_steps(),
    }


def _summarise_trained(path: Path) -> Numbers:
    numbers = read_numbers(path)
    return {**_facts(numbers.record), f"{numbers.unit}s": len(numbers.steps)}


def _facts(record: Numbers) -> Numbers:
    names = ("method", "model")
    return {name: record[name] for name in names if isinstance(record.get(name), str)}


def _or_problem(shown: Show, path: Path) -> Numbers:
    """A folder as shown; an unreadable one says so and does not affect others."""
    try:
        return shown(path)
    except RubricemError as error:
        return {"problem": error.told()}


_serve("collected", _summarise_collected, _read_collected)
_serve("trained", _summarise_trained, _read_trained)
