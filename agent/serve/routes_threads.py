"""Threads of questions over HTTP: listed, read, named, branched, forgotten."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from agent.conversations.store import LONGEST_TITLE, Conversation
from agent.reports.printable import one_line
from agent.serve.desk import RunDesk
from agent.serve.refusals import unknown_thread
from agent.serve.summaries import summary
from memory.errors import RubricemError


class Titled(BaseModel):
    """A title; "": the first question stands for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(default="", max_length=1000)


class Begun(Titled):
    """A new thread, empty or one that goes on after a run."""

    run: str | None = Field(default=None, max_length=64)


class Branched(BaseModel):
    """The last run that the branch has in common with its thread."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str = Field(max_length=64)


def router(desk: RunDesk) -> APIRouter:
    routes, store = APIRouter(prefix="/api/threads"), desk.conversations

    @routes.get("")
    async def threads(limit: Annotated[int, Query(ge=1, le=500)] = 100) -> dict[str, Any]:
        listing = await asyncio.to_thread(store.listed)
        shown = listing.conversations[:limit]
        told = await asyncio.to_thread(lambda: [_told(desk, each) for each in shown])
        return {"threads": told, "problems": listing.problems}

    @routes.post("", status_code=HTTPStatus.CREATED)
    async def create(begun: Begun) -> dict[str, Any]:
        if begun.run is None:
            made = await asyncio.to_thread(store.create, begun.title)
        else:
            await desk.known(begun.run)
            made = await asyncio.to_thread(store.after, begun.run)
        return await asyncio.to_thread(_told, desk, made)

    @routes.get("/{thread}")
    async def one(thread: str) -> dict[str, Any]:
        found = await asyncio.to_thread(desk.conversation, thread)
        runs = [await _run(desk, run, thread) for run in found.runs]
        return {**await asyncio.to_thread(_told, desk, found), "runs": runs}

    @routes.post("/{thread}/branch", status_code=HTTPStatus.CREATED)
    async def branch(thread: str, branched: Branched) -> dict[str, Any]:
        await asyncio.to_thread(desk.conversation, thread)
        made = await asyncio.to_thread(store.branch, thread, branched.run)
        return await asyncio.to_thread(_told, desk, made)

    @routes.patch("/{thread}")
    async def rename(thread: str, titled: Titled) -> dict[str, Any]:
        await asyncio.to_thread(desk.conversation, thread)
        named = await asyncio.to_thread(store.rename, thread, titled.title)
        return await asyncio.to_thread(_told, desk, named)

    @routes.delete("/{thread}", status_code=HTTPStatus.NO_CONTENT)
    async def delete(thread: str) -> Response:
        with unknown_thread():
            await asyncio.to_thread(store.delete, thread)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    return routes


def _told(desk: RunDesk, thread: Conversation) -> dict[str, Any]:
    return {
        "id": thread.id,
        "title": thread.title or _first_question(desk, thread),
        "named": bool(thread.title),
        "runs": list(thread.runs),
        "parent": thread.parent.model_dump() if thread.parent else None,
        "created_at": thread.created_at.isoformat(timespec="seconds"),
        "updated_at": thread.changed_at.isoformat(timespec="seconds"),
    }


def _first_question(desk: RunDesk, thread: Conversation) -> str:
    for run in thread.runs[:1]:
        try:
            return one_line(desk.store.request(run)["ask"]["question"], LONGEST_TITLE)
        except (RubricemError, KeyError, TypeError):
            return ""
    return ""


async def _run(desk: RunDesk, run: str, thread: str) -> dict[str, Any]:
    """A run of the thread; one whose folder is gone is only named."""
    try:
        await desk.known(run)
        return await summary(desk, run, {run: thread})
    except RubricemError as error:
        gone = {"run": run, "thread": thread, "question": "", "state": "ended"}
        return {**gone, "status": "unreadable", "reason": str(error)}
