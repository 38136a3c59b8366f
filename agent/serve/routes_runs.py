"""Runs over HTTP: asked, listed, read."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query

from agent.serve.asked import RunAsked
from agent.serve.desk import RunDesk
from agent.serve.refusals import conflict
from agent.serve.reporting import report_of, without_answer
from agent.serve.summaries import conversations, listed, summary


def router(desk: RunDesk) -> APIRouter:
    routes = APIRouter(prefix="/api/runs")

    @routes.post("", status_code=HTTPStatus.CREATED)
    async def ask(asked: RunAsked) -> dict[str, Any]:
        work = await desk.start(asked)
        return {"run": work.run, "thread": work.conversation}

    @routes.get("")
    async def runs(
        limit: Annotated[int, Query(ge=1, le=200)] = 50, before: str | None = None
    ) -> dict[str, Any]:
        return {"runs": await listed(desk, limit, before)}

    @routes.get("/{run}")
    async def one(run: str) -> dict[str, Any]:
        await desk.known(run)
        return await summary(desk, run, await asyncio.to_thread(conversations, desk))

    @routes.get("/{run}/report")
    async def report(run: str) -> dict[str, Any]:
        await desk.known(run)
        if run in desk.live:
            raise conflict("The run has not ended.", "Watch its events, or stop it.")
        if await asyncio.to_thread(desk.store.ended, run):
            trajectory = await asyncio.to_thread(desk.store.load, run)
            return await asyncio.to_thread(report_of, trajectory)
        kept = await summary(desk, run, {})
        return without_answer(kept["question"], kept["status"], kept["reason"])

    return routes
