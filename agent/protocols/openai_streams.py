"""Replies as they are sent: streams of events, and whole ones that a client may not wait for."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

BEAT = b":\n\n"
"""a comment: the connection stands"""
DONE = b"data: [DONE]\n\n"
GONE = 499
"""the status of a reply that nobody waits for"""
PIECE = 400
"""characters of a report that are sent at once"""


def streamed(frames: AsyncIterator[bytes]) -> StreamingResponse:
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)


def frame(value: Mapping[str, Any], event: str = "") -> bytes:
    named = f"event: {event}\n" if event else ""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{named}data: {text}\n\n".encode()


def pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


async def unless_gone(request: Request, work: Awaitable[dict[str, Any]]) -> Response:
    """The reply that the work comes to; it is cancelled when the client goes away."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return Response(status_code=GONE)
        return JSONResponse(working.result())
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
