"""`/api/collected` and `/api/trained`: what was collected and trained, in numbers.

For a collected run the content of `rubricem runs show`, as JSON; for a training the metrics of its
steps and the rounds between them; for both whether a process of this machine works on them. The
numbers of a run are read once for each state of it. Folders of runs are found by their files, under
the data directory and under those that somebody named, each under a name of its own; a name in a
request is only ever compared with those that were found.
"""

import asyncio
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter

from rubricem.agent.serve.requests import missing
from rubricem.memory.errors import RubricemError
from rubricem.memory.runs import in_use
from rubricem.memory.text import with_leaves
from rubricem.training.collect.directory import JOURNAL, RunDirectory
from rubricem.training.show.collected import groups_so_far, run_json, run_numbers
from rubricem.training.show.training import LOCK, steps_of, training_record

Kind = Literal["collected", "trained"]
DEPTH = 3
"""levels of folders below a root that are searched"""
MOST = 2000
"""folders searched below one root"""
ROUNDS = "rounds"
_MARKS: dict[Kind, tuple[str, ...]] = {
    "collected": ("questions.jsonl", "manifest.json"),
    "trained": ("run.json", "metrics.jsonl"),
}
"""files that identify such a folder: all of a collected run's, any of a trained one's"""
_HELD: dict[Kind, str] = {"collected": JOURNAL, "trained": LOCK}
"""the file in such a folder that a working process keeps locked"""
_FOR_TRAINING = {ROUNDS: "round", "held_out": "held out"}
"""folders of a training that hold collecting runs"""
_OTHERS = frozenset(
    {"runs", "bank", "uploads", "replies", "buffers", "cache", "checkpoints", "steps"}
)
"""in the data directory and in runs: nothing is collected or trained in them"""


def results(kind: Kind, roots: Sequence[Path]) -> dict[str, Path]:
    """The folders of a kind, the latest changed first; of equal names the later are numbered.

    What is collected for a training is named after that, too.
    """
    paths = dict.fromkeys(path for root in roots for path in _find_folders(kind, root))
    named: dict[str, Path] = {}
    for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        told = _FOR_TRAINING.get(path.parent.name)
        name = f"{path.parent.parent.name}, {told} {path.name}" if told else path.name
        others = (f"{name} ({number})" for number in count(2))
        named[next(one for one in chain([name], others) if one not in named)] = path
    return named


def rounds_of(trained: Path) -> list[Path]:
    """The collecting runs between a training's updates, in order."""
    folder = trained / ROUNDS
    return sorted(path for path in _folders(folder) if _is("collected", path))


def _find_folders(kind: Kind, root: Path) -> Iterator[Path]:
    waiting = [(root.absolute(), 0)]
    for _ in range(MOST):
        if not waiting:
            return
        path, depth = waiting.pop(0)
        if _is(kind, path):
            yield path
        if depth < DEPTH:
            waiting += [(below, depth + 1) for below in _folders(path)]


def _folders(path: Path) -> list[Path]:
    """Those in a folder that may contain results; links are not followed."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [path / name for name in sorted(names) if name[0] != "." and name not in _OTHERS]


def _is(kind: Kind, path: Path) -> bool:
    having = [(path / mark).is_file() for mark in _MARKS[kind]]
    return all(having) if kind == "collected" else any(having)


Numbers = dict[str, Any]
KEPT = 32
"""collected runs whose numbers are cached in memory"""


def router(data_dir: Path, folders: Sequence[Path] = ()) -> APIRouter:
    """The routes for results under the data directory and additional folders."""
    shelf = _Shelf((data_dir, *folders))
    routes = APIRouter()

    @routes.get("/api/collected")
    async def every_collected() -> Numbers:
        return {
            "collected": await asyncio.to_thread(shelf.list_runs, "collected", _summarise_collected)
        }

    @routes.get("/api/collected/{name}")
    async def read_collected(name: str) -> Numbers:
        return await asyncio.to_thread(shelf.read_collected, name)

    @routes.get("/api/trained")
    async def every_trained() -> Numbers:
        return {"trained": await asyncio.to_thread(shelf.list_runs, "trained", _summarise_trained)}

    @routes.get("/api/trained/{name}")
    async def read_trained(name: str) -> Numbers:
        return await asyncio.to_thread(shelf.read_trained, name)

    return routes


class _Shelf:
    """The folders of results below some roots. Blocking."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._numbers: OrderedDict[tuple[Path, int], Numbers] = OrderedDict()

    def list_runs(self, kind: Kind, shown: Callable[[Path], Numbers]) -> list[Numbers]:
        found = results(kind, self._roots)
        return [
            {"name": name, "running": in_use(path / _HELD[kind]), **_or_problem(shown, path)}
            for name, path in found.items()
        ]

    def read_collected(self, name: str) -> Numbers:
        path = self._path_of("collected", name)
        numbers = self._numbers_of(path)
        going_on = finite([asdict(group) for group in groups_so_far(RunDirectory(path))])
        running = in_use(path / JOURNAL)
        return {"name": name, **numbers, "grid": numbers["grid"] + going_on, "running": running}

    def read_trained(self, name: str) -> Numbers:
        path = self._path_of("trained", name)
        record = training_record(path)
        rounds = [
            {"round": n, **_or_problem(self._round, p)} for n, p in enumerate(rounds_of(path))
        ]
        told = {
            "record": record,
            "steps": steps_of(path),
            "rounds": rounds,
            "changed_at": _time_of_change(path),
            "running": in_use(path / LOCK),
        }
        shown: Numbers = finite({"name": name, **_facts(record), **told})
        return shown

    def _round(self, path: Path) -> Numbers:
        """A round's mean scores and its cost, without its other numbers."""
        numbers = self._numbers_of(path)
        shown = ("groups", "rollouts", "seconds", "unscored_share", "malformed_share", "accepted")
        scores = [step["scores"] for step in numbers["steps"]]
        return {name: numbers[name] for name in shown} | {"scores": scores[0] if scores else {}}

    def _numbers_of(self, path: Path) -> Numbers:
        run = RunDirectory(path)
        state = path, run.finished_steps()
        held = self._numbers.get(state)
        if held is None:
            held = finite(run_json(run_numbers(run)))
            # The settings name this machine's folders and servers.
            del held["manifest"]["settings"]
        # Another thread may have let go of it.
        self._numbers[state] = held
        while len(self._numbers) > KEPT:
            self._numbers.popitem(last=False)
        return held

    def _path_of(self, kind: Kind, name: str) -> Path:
        if (path := results(kind, self._roots).get(name)) is not None:
            return path
        raise missing(
            f"There is no {kind} run {name[:80]!r}.",
            "Name a folder with it when the server is started: rubricem serve --results FOLDER",
        )


def finite(value: Any) -> Any:
    """The value with None for numbers that are not finite, which JSON cannot express."""
    return with_leaves(
        value, lambda held: None if isinstance(held, float) and not math.isfinite(held) else held
    )


def _time_of_change(path: Path) -> str:
    """When the latest numbers of a training were written; "" before there are any."""
    with suppress(FileNotFoundError):
        changed = (path / "metrics.jsonl").stat().st_mtime
        return datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds")
    return ""


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
    facts = _facts(training_record(path))
    return {**facts, "steps": len(steps_of(path)), "rounds": len(rounds_of(path))}


def _facts(record: Numbers) -> Numbers:
    """The facts that identify a training."""
    names: tuple[str, ...] = ("method", "model")
    return {name: record[name] for name in names if isinstance(record.get(name), str)}


def _or_problem(shown: Callable[[Path], Numbers], path: Path) -> Numbers:
    """A folder as shown; an unreadable one says so and does not affect others."""
    try:
        return shown(path)
    except RubricemError as error:
        return {"problem": error.told()}
