"""`/api/runs`, `/api/threads`, `/api/learning` and `/api/status`: runs over HTTP.

A run is asked, listed, read, watched, answered, stopped and resumed. Runs stand in threads, which
are named, branched and forgotten. Those that wait to be learnt from are learnt from in the
background; that state is looked at as often as somebody wants to know.

A run in a few words is read off the desk, its log and its folder. Its report for a page has the
answer as HTML, made by the same renderer as a report's own page: Markdown without HTML, links or
images, every mark a button that names its citation. All else is text for the page to show as text.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from rubricem.agent.reports.cited import CitedAnswer, cited_answer
from rubricem.agent.reports.page import answer_html
from rubricem.agent.reports.report import markdown, notes, quotes, stage_texts, verified_json
from rubricem.agent.research.threads import LONGEST_TITLE, Conversation
from rubricem.agent.serve.desk import RunDesk, Work
from rubricem.agent.serve.feed import END, checklist, citations_of, ended, usage_of
from rubricem.agent.serve.refusals import (
    RequestRefused,
    conflict,
    too_many,
    unknown_run,
    unknown_thread,
)
from rubricem.agent.serve.requests import (
    BUDGETS,
    Answered,
    BudgetsAsked,
    RunAsked,
    limits_of,
    shown_name,
    sources,
)
from rubricem.agent.serve.security import COOKIE, CSRF_HEADER, Security
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import AnswerFormat, Source, Trajectory
from rubricem.memory.text import one_line, printable


def router(desk: RunDesk, security: Security) -> APIRouter:
    """Everything that can be asked about runs."""
    runs, threads, server = _Runs(desk), _Threads(desk), _Server(desk, security)
    created, accepted = HTTPStatus.CREATED, HTTPStatus.ACCEPTED
    routes = APIRouter(prefix="/api")
    routes.get("/status")(server.status)
    routes.post("/login")(server.login)
    routes.post("/runs", status_code=created)(runs.ask)
    routes.get("/runs")(runs.listed)
    routes.get("/runs/{run}")(runs.one)
    routes.get("/runs/{run}/report")(runs.report)
    routes.get("/runs/{run}/events")(runs.events)
    routes.post("/runs/{run}/stop")(runs.stop)
    routes.post("/runs/{run}/resume")(runs.resume)
    routes.post("/runs/{run}/answer")(runs.answer)
    routes.get("/threads")(threads.listed)
    routes.post("/threads", status_code=created)(threads.create)
    routes.get("/threads/{thread}")(threads.one)
    routes.post("/threads/{thread}/branch", status_code=created)(threads.branch)
    routes.patch("/threads/{thread}")(threads.rename)
    routes.delete("/threads/{thread}", status_code=HTTPStatus.NO_CONTENT)(threads.delete)
    routes.get("/learning")(desk.lessons.state)
    routes.post("/learning", status_code=accepted)(server.learn)
    routes.post("/learning/stop")(server.stop_learning)
    return routes


BEAT = b":\n\n"
"""a comment: the connection stands, nothing happened"""
MOST_OPEN = 2000
"""streams at once, of all runs"""
MOST_DIGITS = 15
_STREAM = {"X-Accel-Buffering": "no"}


class _Runs:
    """What is asked about runs."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk
        self._open = 0
        """streams of events"""

    async def ask(self, asked: RunAsked) -> dict[str, Any]:
        work = await self._desk.start(asked)
        return {"run": work.run, "thread": work.conversation}

    async def listed(
        self, limit: Annotated[int, Query(ge=1, le=200)] = 50, before: str | None = None
    ) -> dict[str, Any]:
        """Runs that were asked before one (or all), the newest first."""
        runs = (await asyncio.to_thread(self._desk.store.threads))[::-1]
        start = runs.index(before) + 1 if before in runs else 0
        told = await asyncio.to_thread(conversations, self._desk)
        found = []
        for run in runs[start : start + limit]:
            # One that is deleted meanwhile is not listed.
            with suppress(RequestRefused):
                found.append(await summary(self._desk, run, told))
        return {"runs": found}

    async def one(self, run: str) -> dict[str, Any]:
        await self._desk.known(run)
        return await summary(self._desk, run, await asyncio.to_thread(conversations, self._desk))

    async def report(self, run: str) -> dict[str, Any]:
        await self._desk.known(run)
        if run in self._desk.live:
            raise conflict("The run has not ended.", "Watch its events, or stop it.")
        if await asyncio.to_thread(self._desk.store.ended, run):
            trajectory = await asyncio.to_thread(self._desk.store.load, run)
            return await asyncio.to_thread(report_of, trajectory)
        kept = await summary(self._desk, run, {})
        return without_answer(kept["question"], kept["status"], kept["reason"])

    async def events(
        self,
        run: str,
        after: str = "0",
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        number = _number_in(last_event_id or after)
        log = await self._desk.log(run)
        if log.ended and number >= log.last:
            # An EventSource that is told this does not come back.
            return Response(status_code=HTTPStatus.NO_CONTENT)
        if number > log.last:
            # Of another run, or lost with the machine: whoever sends it has nothing of this run.
            number = 0
        if log.last == 0:
            said = await past_events(self._desk, run)
            return Response(said, media_type="text/event-stream")
        if self._open >= MOST_OPEN:
            raise too_many("Too many event streams are open.", "Close some pages.")
        self._open += 1
        frames = self._frames(run, number)
        return StreamingResponse(frames, media_type="text/event-stream", headers=_STREAM)

    async def stop(self, run: str) -> dict[str, Any]:
        await self._desk.stop(run)
        return {"run": run}

    async def resume(self, run: str, budgets: BudgetsAsked | None = None) -> dict[str, Any]:
        work = await self._desk.resume(run, budgets)
        return {"run": work.run, "thread": work.conversation}

    async def answer(self, run: str, answered: Answered) -> dict[str, Any]:
        await self._desk.answer(run, answered)
        return {"run": run, "id": answered.id}

    async def _frames(self, run: str, after: int) -> AsyncIterator[bytes]:
        """What is told of a run; one open stream less once it ends or nobody reads it."""
        try:
            async for told in self._desk.follow(run, after):
                yield b"".join(event.frame for event in told) or BEAT
        finally:
            self._open -= 1


def _number_in(text: str) -> int:
    """The number of an event as a client sends it."""
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise SettingsError(
            f"{text[:40]!r} is not the number of an event.",
            "Send the last id that was received, or none.",
        )
    return int(text)


async def past_events(desk: RunDesk, run: str) -> str:
    """The end of a run that was asked elsewhere, as events; Refused (409) where it has none."""
    if not await asyncio.to_thread(desk.store.ended, run):
        raise conflict("Nothing is told of this run.", "Resume it to go on with it here.")
    trajectory = await asyncio.to_thread(desk.store.load, run)
    said = await asyncio.to_thread(ended, trajectory)
    frames = [
        f"id: {number}\nevent: {name}\ndata: {json.dumps({'t': trajectory.seconds, **held})}\n\n"
        for number, (name, held) in enumerate([*said, (END, {})], start=1)
    ]
    return "".join(frames)


LONGEST_PASSAGE = 4000
"""characters"""


def report_of(trajectory: Trajectory) -> dict[str, Any]:
    """The whole report; takes a while for a long one."""
    answer = cited_answer(trajectory)
    stages = stage_texts(trajectory)
    return {
        "question": trajectory.question,
        "status": trajectory.status.value,
        "reason": trajectory.reason,
        "notes": notes(trajectory, answer),
        "html": answer_html(answer),
        "markdown": markdown(trajectory),
        "sources": [_source(answer, source) for source in answer.sources],
        "citations": citations_of(trajectory),
        "verified": verified_json(trajectory),
        "recalled": [item.model_dump(mode="json") for item in trajectory.recollections],
        "stages": [
            {"stage": stage.value, "text": printable(text)} for stage, text in stages.items()
        ],
        "rubric": checklist(trajectory.transcript()),
    }


def without_answer(question: str, status: str, reason: str) -> dict[str, Any]:
    """The report of a run that ended before anything was written."""
    empty: dict[str, Any] = {
        name: [] for name in ("notes", "sources", "citations", "recalled", "stages", "rubric")
    }
    head = {"question": question, "status": status, "reason": reason, "verified": None}
    return {**head, "html": "", "markdown": "", **empty}


def _source(answer: CitedAnswer, source: Source) -> dict[str, Any]:
    return {
        "id": source.id,
        "number": answer.of(source)[0].number,
        "title": one_line(source.title),
        "url": one_line(source.location),
        "place": one_line(source.place),
        "passage": printable(source.text)[:LONGEST_PASSAGE],
        "quotes": quotes(answer, source),
        "copies": list(source.copies),
    }


UNFINISHED, UNREADABLE, ELSEWHERE = "unfinished", "unreadable", "elsewhere"
"""statuses of a run without a trajectory: to be resumed, damaged, worked on by another process"""


def conversations(desk: RunDesk) -> dict[str, str]:
    """The conversation of each run that is in one; reads files."""
    found = desk.conversations.listed().conversations
    return {run: each.id for each in found for run in each.own_runs}


async def summary(desk: RunDesk, run: str, told: dict[str, str]) -> dict[str, Any]:
    """The run with what it took so far; what cannot be read of it is left out.

    Raises Refused (404) where its folder is gone and nobody works on it.
    """
    kept, trajectory = await asyncio.to_thread(_kept, desk, run)
    work = desk.live.get(run)
    head = {"run": run, "thread": told.get(run), **kept}
    if work is not None:
        return head | _at_work(desk, work)
    if trajectory is not None:
        return head | _ended(trajectory)
    status, reason = await _how_it_ended(desk, run)
    state = "running" if status == ELSEWHERE else "ended"
    return head | {"state": state, "status": status, "reason": reason}


def _kept(desk: RunDesk, run: str) -> tuple[dict[str, Any], Trajectory | None]:
    """What was asked, and how it ended if it did."""
    head: dict[str, Any] = {
        "question": "",
        "status": "",
        "reason": "",
        "started_at": _asked_at(desk, run).isoformat(timespec="milliseconds"),
        "seconds": None,
        "model": None,
    }
    try:
        request = desk.store.request(run)
        head["question"] = request["ask"]["question"]
        head["format"] = request["ask"]["answer_format"]
        head["model"] = request["choices"]["model"]
        head["budgets"] = limits_of(request)
        return head, desk.store.load(run) if desk.store.ended(run) else None
    except (RubricemError, KeyError, TypeError):
        return head, None


def _asked_at(desk: RunDesk, run: str) -> datetime:
    if (work := desk.live.get(run)) is not None:
        return datetime.fromtimestamp(work.began, UTC)
    try:
        return desk.store.asked_at(run)
    except OSError as error:
        raise unknown_run(run) from error


def _at_work(desk: RunDesk, work: Work) -> dict[str, Any]:
    return {
        "state": work.state,
        "status": "",
        "reason": "",
        "seconds": round(work.seconds, 1),
        "model": desk.researchers.model,
        "usage": work.telling.usage,
        "tool_calls": work.telling.calls,
        "limits": work.limits,
    }


def _ended(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "state": "ended",
        "status": trajectory.status.value,
        "reason": trajectory.reason,
        "ended_by": BUDGETS.get(trajectory.ended_by, trajectory.ended_by),
        "seconds": round(trajectory.seconds, 1),
        "model": trajectory.policy,
        "usage": usage_of(trajectory.usage, trajectory.tool_calls),
        "cost": trajectory.usage.cost,
        "tool_calls": trajectory.tool_calls,
    }


async def _how_it_ended(desk: RunDesk, run: str) -> tuple[str, str]:
    """Status and reason of a run that has no trajectory."""
    if await asyncio.to_thread(desk.store.running, run):
        return ELSEWHERE, "another process works on it"
    log = await desk.logs.of(run)
    for event in await log.read(max(log.told - 2, 0)):
        if event.name == "finished":
            return str(event.data["status"]), str(event.data["reason"])
    return UNFINISHED, ""


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


class _Threads:
    """What is asked about threads of questions."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk
        self._store = desk.conversations

    async def listed(self, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> dict[str, Any]:
        listing = await asyncio.to_thread(self._store.listed)
        shown = listing.conversations[:limit]
        told = await asyncio.to_thread(lambda: [self._told(each) for each in shown])
        return {"threads": told, "problems": listing.problems}

    async def create(self, begun: Begun) -> dict[str, Any]:
        if begun.run is None:
            made = await asyncio.to_thread(self._store.create, begun.title)
        else:
            await self._desk.known(begun.run)
            made = await asyncio.to_thread(self._store.after, begun.run)
        return await asyncio.to_thread(self._told, made)

    async def one(self, thread: str) -> dict[str, Any]:
        found = await asyncio.to_thread(self._desk.conversation, thread)
        runs = [await self._run(run, thread) for run in found.runs]
        return {**await asyncio.to_thread(self._told, found), "runs": runs}

    async def branch(self, thread: str, branched: Branched) -> dict[str, Any]:
        await asyncio.to_thread(self._desk.conversation, thread)
        made = await asyncio.to_thread(self._store.branch, thread, branched.run)
        return await asyncio.to_thread(self._told, made)

    async def rename(self, thread: str, titled: Titled) -> dict[str, Any]:
        await asyncio.to_thread(self._desk.conversation, thread)
        named = await asyncio.to_thread(self._store.rename, thread, titled.title)
        return await asyncio.to_thread(self._told, named)

    async def delete(self, thread: str) -> Response:
        with unknown_thread():
            await asyncio.to_thread(self._store.delete, thread)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def _told(self, thread: Conversation) -> dict[str, Any]:
        """A thread by its title, or by its first question; reads files."""
        first = ""
        if not thread.title and thread.runs:
            with suppress(RubricemError, KeyError, TypeError):
                first = self._desk.store.request(thread.runs[0])["ask"]["question"]
        return {
            "id": thread.id,
            "title": thread.title or one_line(first, LONGEST_TITLE),
            "named": bool(thread.title),
            "runs": list(thread.runs),
            "parent": thread.parent.model_dump() if thread.parent else None,
            "created_at": thread.created_at.isoformat(timespec="seconds"),
            "updated_at": thread.changed_at.isoformat(timespec="seconds"),
        }

    async def _run(self, run: str, thread: str) -> dict[str, Any]:
        """A run of the thread; one whose folder is gone is only named."""
        try:
            await self._desk.known(run)
            return await summary(self._desk, run, {run: thread})
        except RubricemError as error:
            gone = {"run": run, "thread": thread, "question": "", "state": "ended"}
            return {**gone, "status": UNREADABLE, "reason": str(error)}


VERIFY = ("off", "mark", "repair")
MONTH = 30 * 86400
"""seconds"""


class Login(BaseModel):
    """The token, as somebody typed it."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    token: str = Field(max_length=200)


class _Server:
    """What the server is and can, the way in where a token is required, and its learning."""

    def __init__(self, desk: RunDesk, security: Security) -> None:
        self._desk = desk
        self._security = security

    def status(self) -> dict[str, Any]:
        desk, settings = self._desk, self._desk.settings
        model = self._desk.setup.model.name
        states = [work.state for work in desk.live.values()]
        return {
            "version": version("rubricem"),
            "model": desk.researchers.model or model,
            "sources": list(sources(settings)),
            "source": [shown_name(name) for name in settings.source],
            "formats": [each.value for each in AnswerFormat],
            "verify": list(VERIFY),
            "defaults": {
                "format": settings.answer_format.value,
                "verify": settings.verify,
                "approve_plan": settings.approve_plan,
                "clarify": settings.clarify,
                "tool_calls": settings.tool_calls,
                "max_seconds": settings.max_seconds,
                "max_total_tokens": settings.max_total_tokens,
                "max_cost": settings.max_cost,
            },
            "memory": settings.memory,
            "csrf": CSRF_HEADER,
            "login": self._security.token is not None,
            "limits": {"running": desk.capacity.running, "waiting": desk.capacity.waiting},
            "runs": {state: states.count(state) for state in ("waiting", "running", "asking")},
        }

    def login(self, given: Login, response: Response) -> dict[str, Any]:
        if not self._security.admits(given.token):
            raise RequestRefused(
                HTTPStatus.UNAUTHORIZED,
                "That is not the token of this server.",
                "rubricem serve printed it, and keeps it in the data directory.",
            )
        kept = self._security.cookie()
        response.set_cookie(COOKIE, kept, MONTH, path="/", httponly=True, samesite="strict")
        return {"login": True}

    async def learn(self) -> dict[str, Any]:
        """Learn from all that wait; those that are at it already stay where they are."""
        await self._desk.lessons.begin()
        return await self._desk.lessons.state()

    async def stop_learning(self) -> dict[str, Any]:
        await self._desk.lessons.stop()
        return await self._desk.lessons.state()
