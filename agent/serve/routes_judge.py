"""`/api/runs/{run}/judgement`, `/judge` and `/rate`: how good a run was, by a judge and a person.

Judging is asked for and goes on in the background, one run after another; its state is looked at
until it is done. A judgement is shown stage by stage, criterion by criterion.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem.agent.learning.lessons import rated
from rubricem.agent.learning.scoring import FILE, find_run, open_group_judge, score
from rubricem.agent.research.setup import Setup, Stores
from rubricem.agent.serve.desk import ended_run
from rubricem.agent.serve.refusals import RequestRefused, too_many
from rubricem.judge.build import Wanted
from rubricem.judge.composed import InnerJudge
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import RubricemError, StoreError
from rubricem.memory.interfaces import LocalModel
from rubricem.memory.runs import BEST, MOST_CHARACTERS, RunStore, ratings_in, unusable
from rubricem.memory.schema import Judgement, StageScore, Verdict


def kept_judgement(folder: Path) -> Judgement | None:
    """What lies in a run's folder, also where nothing was scored; None where nothing lies there."""
    path = folder / FILE
    try:
        return Judgement.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(path, error) from error
    except ValidationError as error:
        raise StoreError(
            f"The judgement of this run cannot be read: {error.errors()[0]['msg']}.",
            "Have the run judged anew.",
        ) from error


def judgement_json(judgement: Judgement, trajectory_id: str) -> dict[str, Any]:
    """`note` says where it is about an earlier end of the run."""
    stale = judgement.trajectory_id != trajectory_id
    return {
        "judge": judgement.judge,
        "rubric_version": judgement.rubric_version,
        "note": "The run has gone on since it was judged." if stale else "",
        "stages": [_stage(score) for score in judgement.stages],
    }


def _stage(score: StageScore) -> dict[str, Any]:
    """`score` is None where it is unscored, and `reason` says why."""
    return {
        "stage": score.stage.value,
        "score": score.score,
        "reason": score.unscored_reason if score.score is None else score.justification,
        "missing": score.missing,
        "spread": score.spread,
        "components": score.components,
        "criteria": [_criterion(verdict) for verdict in score.verdicts],
    }


def _criterion(verdict: Verdict) -> dict[str, Any]:
    """`points` from 0, absent, to 2, full; of a flaw they are the flaw's."""
    criterion = verdict.criterion
    return {
        "title": criterion.title,
        "text": criterion.description,
        "weight": criterion.weight,
        "positive": criterion.positive,
        "persistent": criterion.persistent,
        "points": verdict.points,
        "why": verdict.justification,
        "by": verdict.justified_by,
    }


State = Literal["none", "waiting", "running", "done", "failed"]
MOST = 32
"""runs that wait to be judged, or are judged"""
KEPT = 200
"""states of ended judgings that are kept"""


@dataclass(slots=True)
class JudgingJob:
    """Judging of one run."""

    state: State = "waiting"
    error: str = ""
    remedy: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ("none", "done", "failed")

    def as_json(self) -> dict[str, Any]:
        return {"state": self.state, "error": self.error, "remedy": self.remedy}


class JudgingJobs:
    """Jobs by the run that is judged; used on one event loop."""

    def __init__(self, judge: Callable[[str], Awaitable[None]]) -> None:
        """`judge` judges the run of a key and keeps what it gave; it raises RubricemError."""
        self._judge = judge
        self._jobs: dict[str, JudgingJob] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(1)

    def start(self, run: str) -> JudgingJob:
        """The job of this run: the one that goes on, or a new one. Refused (429) for too many."""
        job = self.of(run)
        if not job.ended:
            return job
        if len(self._tasks) >= MOST:
            raise too_many(f"{MOST} runs wait to be judged already.", "Wait until some are.")
        self._jobs.pop(run, None)
        job = self._jobs[run] = JudgingJob()
        task = asyncio.create_task(self._work(run, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def of(self, run: str) -> JudgingJob:
        return self._jobs.get(run, JudgingJob("none"))

    async def aclose(self) -> None:
        """Break off what goes on; replies that a model gave are kept, and not asked for again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, run: str, job: JudgingJob) -> None:
        async with self._turn:
            job.state = "running"
            try:
                await self._judge(run)
            except RubricemError as error:
                job.error, job.remedy = str(error), error.remedy
            except Exception as error:
                # Nobody awaits this task: a fault that is not told here is told nowhere.
                job.error = f"rubricem itself failed: {error!r}"
            job.state = "failed" if job.error else "done"
        ended = [run for run, job in self._jobs.items() if job.ended]
        for oldest in ended[: max(0, len(ended) - KEPT)]:
            del self._jobs[oldest]


OpenJudge = Callable[[], AbstractAsyncContextManager[InnerJudge]]
"""A stage judge for as long as it is needed."""


class Rated(BaseModel):
    """1, of no use, to 5, just what was asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rating: Annotated[int, Field(strict=True, ge=1, le=BEST)]
    note: str = Field(default="", max_length=MOST_CHARACTERS)


def router(
    setup: Setup,
    bank: RubricBank,
    shared: Callable[[], LocalModel | None] = lambda: None,
    open_judge: OpenJudge | None = None,
) -> APIRouter:
    """The routes; `shared` gives the embedded model where one is open already.

    `open_judge`: another judge than the one that the settings name.
    """
    desk = _JudgeDesk(setup.stores, bank, open_judge or partial(_open_judge, setup, shared))

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        await desk.jobs.aclose()

    routes = APIRouter(prefix="/api/runs/{run}", lifespan=lifespan)
    routes.get("/judgement")(desk.judgement)
    routes.post("/judge", status_code=HTTPStatus.ACCEPTED)(desk.judge)
    routes.get("/judge")(desk.state)
    routes.post("/rate")(desk.rate)
    return routes


class _JudgeDesk:
    """What the routes do."""

    def __init__(self, stores: Stores, bank: RubricBank, open_judge: OpenJudge) -> None:
        self.jobs = JudgingJobs(self._judged)
        self._stores = stores
        self._store = RunStore(stores.data_dir)
        self._bank = bank
        self._open_judge = open_judge

    async def judgement(self, run: str) -> dict[str, Any]:
        trajectory = await ended_run(self._store, run)
        folder = self._store.folder / run
        found = await asyncio.to_thread(kept_judgement, folder)
        if found is None:
            message = "The run was not judged."
            raise RequestRefused(HTTPStatus.NOT_FOUND, message, "Have it judged, or learn from it.")
        ratings = await asyncio.to_thread(ratings_in, folder)
        return judgement_json(found, trajectory.id) | {
            "ratings": [rating.model_dump(mode="json") for rating in ratings]
        }

    async def judge(self, run: str) -> dict[str, Any]:
        await ended_run(self._store, run)
        return self.jobs.start(run).as_json()

    async def state(self, run: str) -> dict[str, Any]:
        await ended_run(self._store, run)
        return self.jobs.of(run).as_json()

    async def rate(self, run: str, given: Rated) -> dict[str, Any]:
        await ended_run(self._store, run)
        said = await asyncio.to_thread(rated, self._store, run, given.rating, given.note)
        return {"rating": given.rating, "said": said}

    async def _judged(self, run: str) -> None:
        """Judge a run and keep what came of it."""
        folder, data_dir = str(self._store.folder / run), self._stores.data_dir
        found = await asyncio.to_thread(find_run, folder, data_dir)
        async with self._open_judge() as judge:
            await score(judge, found, self._stores, self._bank)


def _open_judge(
    setup: Setup, shared: Callable[[], LocalModel | None]
) -> AbstractAsyncContextManager[InnerJudge]:
    replies = setup.stores.data_dir / "replies"
    return open_group_judge(setup.model, Wanted("stage"), replies, shared=shared())
