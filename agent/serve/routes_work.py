"""A run that goes on: watched, answered, stopped; and one that does not, resumed."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse

from agent.serve.asked import Answered, BudgetsAsked
from agent.serve.desk import RunDesk
from agent.serve.refusals import too_many
from agent.serve.streams import Streams, past_events
from memory.errors import SettingsError

BEAT = b":\n\n"
"""a comment: the connection stands, nothing happened"""
MOST_DIGITS = 15
_STREAM = {"X-Accel-Buffering": "no"}


def router(desk: RunDesk) -> APIRouter:
    routes, streams = APIRouter(prefix="/api/runs"), Streams()

    @routes.get("/{run}/events")
    async def events(
        run: str,
        after: str = "0",
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        number = _number(last_event_id or after)
        log = await desk.log(run)
        if log.ended and number >= log.last:
            # An EventSource that is told this does not come back.
            return Response(status_code=HTTPStatus.NO_CONTENT)
        if number > log.last:
            # Of another run, or lost with the machine: whoever sends it has nothing of this run.
            number = 0
        if log.last == 0:
            return Response(await past_events(desk, run), media_type="text/event-stream")
        if not streams.enter():
            raise too_many("Too many event streams are open.", "Close some pages.")
        body = streams.counted(_frames(desk, run, number))
        return StreamingResponse(body, media_type="text/event-stream", headers=_STREAM)

    @routes.post("/{run}/stop")
    async def stop(run: str) -> dict[str, Any]:
        await desk.stop(run)
        return {"run": run}

    @routes.post("/{run}/resume")
    async def resume(run: str, budgets: BudgetsAsked | None = None) -> dict[str, Any]:
        work = await desk.resume(run, budgets)
        return {"run": work.run, "thread": work.conversation}

    @routes.post("/{run}/answer")
    async def answer(run: str, answered: Answered) -> dict[str, Any]:
        await desk.answer(run, answered)
        return {"run": run, "id": answered.id}

    return routes


async def _frames(desk: RunDesk, run: str, after: int) -> AsyncIterator[bytes]:
    async for told in desk.follow(run, after):
        yield b"".join(event.frame for event in told) or BEAT


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise SettingsError(
            f"{text[:40]!r} is not the number of an event.",
            "Send the last id that was received, or none.",
        )
    return int(text)
