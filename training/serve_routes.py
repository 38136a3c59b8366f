"""`/api/collected` and `/api/trained`: what was collected and trained, in numbers.

What `rubricem runs show` tells of a collected run, as JSON; of a training the metrics of its
steps and the rounds between them. The numbers of a run are read once for each state of it.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from agent.serve.refusals import Refused
from memory.asking import told
from memory.errors import RubricemError
from training.result_folders import Kind, Result, results, rounds_of
from training.run_directory import RunDirectory
from training.run_page_json import run_json
from training.run_page_numbers import run_numbers
from training.trained_numbers import steps_of, training_record

Numbers = dict[str, Any]
KEPT = 32
"""collected runs whose numbers are kept in memory"""


def router(data_dir: Path, folders: Sequence[Path] = ()) -> APIRouter:
    """The routes over what lies under the data directory and under further folders."""
    shelf = _Shelf((data_dir, *folders))
    routes = APIRouter()

    @routes.get("/api/collected")
    async def every_collected() -> Numbers:
        return {"collected": await asyncio.to_thread(shelf.listed, "collected", _collected)}

    @routes.get("/api/collected/{name}")
    async def collected(name: str) -> Numbers:
        return await asyncio.to_thread(shelf.collected, name)

    @routes.get("/api/trained")
    async def every_trained() -> Numbers:
        return {"trained": await asyncio.to_thread(shelf.listed, "trained", _trained)}

    @routes.get("/api/trained/{name}")
    async def trained(name: str) -> Numbers:
        return await asyncio.to_thread(shelf.trained, name)

    return routes


class _Shelf:
    """The folders of results below some roots. Blocks."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._numbers: OrderedDict[tuple[Path, int], Numbers] = OrderedDict()

    def listed(self, kind: Kind, shown: Callable[[Path], Numbers]) -> list[Numbers]:
        return [{"name": one.name, **_or_problem(shown, one.path)} for one in self._found(kind)]

    def collected(self, name: str) -> Numbers:
        one = self._named("collected", name)
        return {"name": one.name, **self._numbers_of(one.path)}

    def trained(self, name: str) -> Numbers:
        one = self._named("trained", name)
        record, rounds = training_record(one.path), rounds_of(one.path)
        told: Numbers = finite(
            {
                "name": one.name,
                **_facts(record),
                "record": record,
                "steps": steps_of(one.path),
                "rounds": [
                    {"round": number, **_or_problem(self._round, path)}
                    for number, path in enumerate(rounds)
                ],
            }
        )
        return told

    def _round(self, path: Path) -> Numbers:
        """A round's mean scores and what was spent on it, without its further numbers."""
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
            self._numbers[state] = held
        # Another thread may have let go of it.
        self._numbers[state] = held
        while len(self._numbers) > KEPT:
            self._numbers.popitem(last=False)
        return held

    def _named(self, kind: Kind, name: str) -> Result:
        for one in self._found(kind):
            if one.name == name:
                return one
        raise Refused(
            HTTPStatus.NOT_FOUND,
            f"There is no {kind} run {name[:80]!r}.",
            "Name a folder with it when the server is started: rubricem serve --results FOLDER",
        )

    def _found(self, kind: Kind) -> list[Result]:
        return results(kind, self._roots)


def finite(value: Any) -> Any:
    """The value with None for what is no finite number, which JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [finite(held) for held in value]
    return value


def _collected(path: Path) -> Numbers:
    run = RunDirectory(path)
    manifest = run.manifest()
    return {
        "policy": manifest.policy,
        "judge": manifest.judge,
        "questions": len(run.questions()),
        "steps": run.finished_steps(),
    }


def _trained(path: Path) -> Numbers:
    facts = _facts(training_record(path))
    return {**facts, "steps": len(steps_of(path)), "rounds": len(rounds_of(path))}


def _facts(record: Numbers) -> Numbers:
    """What a training is known by."""
    names: tuple[str, ...] = ("method", "model")
    return {name: record[name] for name in names if isinstance(record.get(name), str)}


def _or_problem(shown: Callable[[Path], Numbers], path: Path) -> Numbers:
    """What is shown of a folder; what cannot be read says so and holds nothing else up."""
    try:
        return shown(path)
    except RubricemError as error:
        return {"problem": told(error)}
