"""`/api/learning`: the runs that wait to be learnt from, learnt from now, and what came of it.

It goes on in the background; its state is looked at as often as somebody wants to know.
"""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter

from agent.serve.desk import RunDesk


def router(desk: RunDesk) -> APIRouter:
    routes = APIRouter(prefix="/api/learning")

    @routes.get("")
    async def state() -> dict[str, Any]:
        return await desk.lessons.state()

    @routes.post("", status_code=HTTPStatus.ACCEPTED)
    async def begin() -> dict[str, Any]:
        """Learn from all that wait; those that are at it already stay where they are."""
        await desk.lessons.begin()
        return await desk.lessons.state()

    @routes.post("/stop")
    async def stop() -> dict[str, Any]:
        await desk.lessons.stop()
        return await desk.lessons.state()

    return routes
