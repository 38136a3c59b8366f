"""`/api/runs/{run}/judgement`, `/judge` and `/rate`: how good a run was, by a judge and a person.

Judging is asked for and goes on in the background; its state is looked at until it is done.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from agent.judged_runs import find_run
from agent.rating import rated
from agent.serve.ended_runs import ended_run
from agent.serve.judgements import judgement_json, kept_judgement
from agent.serve.judging_jobs import JudgingJobs
from agent.serve.refusals import Refused
from agent.settings import Settings
from judge.building import LocalModel
from judge.composed_judge import GroupJudge
from memory.bank import RubricBank
from memory.ratings import BEST, MOST_CHARACTERS, ratings_in
from memory.runs import RunStore

OpenJudge = Callable[[], AbstractAsyncContextManager[GroupJudge]]
"""A stage judge for as long as it is needed."""


class Rated(BaseModel):
    """1, of no use, to 5, just what was asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rating: Annotated[int, Field(strict=True, ge=1, le=BEST)]
    note: str = Field(default="", max_length=MOST_CHARACTERS)


def router(
    settings: Settings,
    bank: RubricBank,
    shared: Callable[[], LocalModel | None] = lambda: None,
    open_judge: OpenJudge | None = None,
) -> APIRouter:
    """The routes; `shared` gives the embedded model where one is open already.

    `open_judge`: another judge than the one that the settings name.
    """
    desk = _JudgeDesk(settings, bank, open_judge or partial(_opened, settings, shared))

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

    def __init__(self, settings: Settings, bank: RubricBank, open_judge: OpenJudge) -> None:
        self.jobs = JudgingJobs(self._judged)
        self._data_dir = settings.data_dir
        self._store = RunStore(settings.data_dir)
        self._bank = bank
        self._open_judge = open_judge

    async def judgement(self, run: str) -> dict[str, Any]:
        trajectory = await ended_run(self._store, run)
        folder = self._store.folder / run
        found = await asyncio.to_thread(kept_judgement, folder)
        if found is None:
            message = "The run was not judged."
            raise Refused(HTTPStatus.NOT_FOUND, message, "Have it judged, or learn from it.")
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
        from agent.judging_runs import check_scored, judged_groups, tell_bank

        found = await asyncio.to_thread(find_run, str(self._store.folder / run), self._data_dir)
        async with self._open_judge() as judge:
            judged = await judged_groups(judge, found, self._data_dir)
        check_scored(judged)
        await asyncio.to_thread(found.save, [j for group in judged for j in group.judgements])
        await tell_bank(self._bank, found, judged)


@asynccontextmanager
async def _opened(
    settings: Settings, shared: Callable[[], LocalModel | None]
) -> AsyncIterator[GroupJudge]:
    from agent.judging import open_group_judge
    from judge.building import Wanted

    async with open_group_judge(settings, Wanted("stage"), shared=shared()) as judge:
        yield judge
