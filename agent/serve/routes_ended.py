"""What can be done with an ended run: exporting, judging, and rating it.

    /api/runs/{run}/export/{kind}        its report as a file, without this machine's paths and keys
    /api/runs/{run}/judge, /judgement    judging, and its result, criterion by criterion
    /api/runs/{run}/rate                 how good a person finds it

Judging is done in the background, one run after another; clients poll until it is done.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from rubricem.agent.learning.lessons import keep_rating
from rubricem.agent.learning.scoring import FILE
from rubricem.agent.reports.page import render
from rubricem.agent.serve import requests
from rubricem.agent.serve.requests import RequestBody, check_known, conflict, missing, too_many
from rubricem.agent.settings import Settings
from rubricem.memory.errors import RubricemError
from rubricem.memory.runs import BEST, MOST_CHARACTERS, RunStore, ratings_in, value_in
from rubricem.memory.schema import Judgement, StageScore, Trajectory, Verdict

Kind = Literal["md", "html", "pdf", "json", "bib", "ris"]
TYPES: dict[Kind, str] = {
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "json": "application/json",
    "bib": "application/x-bibtex; charset=utf-8",
    "ris": "application/x-research-info-systems; charset=utf-8",
}
Judge = Callable[[str], Awaitable[object]]
"""judges the run of a key and stores the result; raises RubricemError"""
Gate = Callable[[], Awaitable[None]]
MOST = 32


class Rated(RequestBody):
    """From 1, of no use, to 5, just what was asked for."""

    rating: Annotated[int, Field(strict=True, ge=1, le=BEST)]
    note: str = Field(default="", max_length=MOST_CHARACTERS)


def router(settings: Callable[[], Settings], judge: Judge, gate: Gate) -> APIRouter:
    """`settings`: those in force, whose keys are in no export; `gate` refuses what is not paid."""
    desk = _EndedRuns(settings, JudgingJobs(judge), gate)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        await desk.jobs.aclose()

    routes = APIRouter(prefix="/api/runs/{run}", lifespan=lifespan)
    routes.get("/export/{kind}")(desk.export)
    routes.get("/judgement")(desk.judgement)
    routes.post("/judge", status_code=HTTPStatus.ACCEPTED)(desk.judge)
    routes.get("/judge")(desk.state)
    routes.post("/rate")(desk.rate)
    return routes


class _EndedRuns:
    def __init__(self, settings: Callable[[], Settings], jobs: "JudgingJobs", gate: Gate) -> None:
        self.jobs, self._gate, self._settings = jobs, gate, settings
        self._store = RunStore(settings().data_dir)
        # A page set on paper takes a processor for a second: one at a time.
        self._turn = asyncio.Lock()

    async def export(self, run: str, kind: Kind) -> Response:
        async with self._turn:
            return await asyncio.to_thread(self._export, run, kind)

    def _export(self, run: str, kind: Kind) -> Response:
        shown = requests.for_others(self._load_ended(run), self._settings())
        return as_file(render(shown, f".{kind}"), run, kind)

    def judgement(self, run: str) -> dict[str, Any]:
        trajectory, folder = self._load_ended(run), self._store.folder_of(run)
        what = "The judgement of this run"
        found = value_in(folder / FILE, Judgement, "Have the run judged again.", what)
        if found is None:
            raise missing("The run was not judged.", "Have it judged, or learn from it.")
        stale = found.trajectory_id != trajectory.id
        return {
            "judge": found.judge,
            "rubric_version": found.rubric_version,
            "note": "The run has continued since it was judged." if stale else "",
            "stages": [_stage(score) for score in found.stages],
            "ratings": [rating.model_dump(mode="json") for rating in ratings_in(folder)],
        }

    async def judge(self, run: str) -> dict[str, str]:
        await asyncio.to_thread(self._load_ended, run)
        await self._gate()
        return self.jobs.start(run)

    def state(self, run: str) -> dict[str, str]:
        self._load_ended(run)
        return self.jobs.state(run)

    def rate(self, run: str, given: Rated) -> dict[str, Any]:
        self._load_ended(run)
        said = keep_rating(self._store, run, given.rating, given.note)
        return {"rating": given.rating, "said": said}

    def _load_ended(self, run: str) -> Trajectory:
        """The run of this key. Refused (404) if there is none, (409) if it has not ended."""
        check_known(self._store, run)
        if not self._store.has_ended(run):
            raise conflict("The run has not ended.", "Wait until it ends, or stop it.")
        return self._store.load(run)


class JudgingJobs:
    """Judges one run after another in the background; used on one event loop."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._tasks: dict[str, asyncio.Task[RubricemError | None]] = {}
        self._turn = asyncio.Lock()
        self._current = ""

    def start(self, run: str) -> dict[str, str]:
        """Have a run judged, unless it is already. Refused (429) if there are too many."""
        task = self._tasks.get(run)
        if task is None or task.done():
            if sum(not each.done() for each in self._tasks.values()) >= MOST:
                raise too_many(f"{MOST} runs wait to be judged already.", "Wait until some are.")
            self._tasks[run] = asyncio.create_task(self._work(run))
        return self.state(run)

    def state(self, run: str) -> dict[str, str]:
        """`state` is none, waiting, running, done, or failed by an `error` with its `remedy`."""
        task, error = self._tasks.get(run), None
        if task is None:
            state = "none"
        elif not task.done():
            state = "running" if run == self._current else "waiting"
        else:
            error = task.result()
            state = "failed" if error else "done"
        return {"state": state, "error": str(error or ""), "remedy": error.remedy if error else ""}

    async def aclose(self) -> None:
        """Stop the current job; replies of the model are kept, and not requested again."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _work(self, run: str) -> RubricemError | None:
        async with self._turn:
            self._current = run
            try:
                await self._judge(run)
            except RubricemError as error:
                return error
            except Exception as error:
                # Nobody awaits this task: a fault that is not told here is told nowhere.
                return RubricemError(f"rubricem itself failed: {error!r}")
            finally:
                self._current = ""
        return None


def _stage(score: StageScore) -> dict[str, Any]:
    """`score` is None if it is unscored, and `reason` says why."""
    told = {"stage", "score", "missing", "components"}
    return score.model_dump(mode="json", include=told) | {
        "reason": score.unscored_reason if score.score is None else score.justification,
        "criteria": [_criterion(verdict) for verdict in score.verdicts],
    }


def _criterion(verdict: Verdict) -> dict[str, Any]:
    """`points` from 0, absent, to 2, full; for a flaw, how much of the flaw there is."""
    criterion, told = verdict.criterion, {"title", "weight", "positive", "persistent"}
    said = {"why": verdict.justification, "by": verdict.justified_by}
    shown = criterion.model_dump(include=told) | {"text": criterion.description}
    return shown | {"points": verdict.points, **said}


def as_file(content: str | bytes, run: str, kind: Kind) -> Response:
    """A download; its name has only ASCII letters, digits and dashes."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", run).strip("-") or "run"
    named = {"Content-Disposition": f'attachment; filename="rubricem-{safe}.{kind}"'}
    return Response(content, media_type=TYPES[kind], headers=named)
