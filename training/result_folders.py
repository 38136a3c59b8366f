"""Where collected and trained runs lie, found by what they hold, each under a name of its own.

Folders are looked for under the data directory and under those that somebody named; a name from
outside is only ever compared with the names that were found.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["collected", "trained"]
DEPTH = 3
"""folders below a root in which is looked"""
MOST = 2000
"""folders that are looked at below one root"""
ROUNDS = "rounds"
_MARKS: dict[Kind, tuple[str, ...]] = {
    "collected": ("questions.jsonl", "manifest.json"),
    "trained": ("run.json", "metrics.jsonl"),
}
"""files that make a folder what it is: all of a collected run's, any of a trained one's"""
_FOR_TRAINING = {ROUNDS: "round", "held_out": "held out"}
"""folders of a training that hold collecting runs"""
_OTHERS = frozenset(
    {"runs", "bank", "uploads", "replies", "buffers", "cache", "checkpoints", "steps"}
)
"""of the data directory and of runs: nothing is collected or trained in them"""


@dataclass(frozen=True, slots=True)
class Result:
    """A folder of results."""

    name: str
    path: Path


def results(kind: Kind, roots: Sequence[Path]) -> list[Result]:
    """Those of a kind, the latest changed first; of equal names the later ones are numbered."""
    paths = dict.fromkeys(path for root in roots for path in _found(kind, root))
    named: dict[str, Path] = {}
    for path in sorted(paths, key=_changed, reverse=True):
        name = name_of(path)
        number = next(n for n in range(1, len(paths) + 1) if _numbered(name, n) not in named)
        named[_numbered(name, number)] = path
    return [Result(name, path) for name, path in named.items()]


def name_of(path: Path) -> str:
    """A folder's own name; what is collected for a training is called after that, too."""
    if told := _FOR_TRAINING.get(path.parent.name):
        return f"{path.parent.parent.name}, {told} {path.name}"
    return path.name


def rounds_of(trained: Path) -> list[Path]:
    """The collecting runs between a training's updates, in order."""
    folder = trained / ROUNDS
    return sorted(path for path in _folders(folder) if _is("collected", path))


def _found(kind: Kind, root: Path) -> Iterator[Path]:
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
    """Those in a folder that may hold results; links are not followed."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [path / name for name in sorted(names) if name[0] != "." and name not in _OTHERS]


def _is(kind: Kind, path: Path) -> bool:
    having = [(path / mark).is_file() for mark in _MARKS[kind]]
    return all(having) if kind == "collected" else any(having)


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} ({number})"
