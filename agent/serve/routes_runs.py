"""Runs over HTTP: asked, listed, read.

Streams of events: how many are open, and what is told of a run that was never watched.

A run that goes on: watched, answered, stopped; and one that does not, resumed.

Threads of questions over HTTP: listed, read, named, branched, forgotten.

`/api/learning`: the runs that wait to be learnt from, learnt from now, and what came of it.

It goes on in the background; its state is looked at as often as somebody wants to know.

What the server is and can, and the way in where a token is required.

The report of a run for a page: HTML of the answer, and all that it stands on.

The answer's HTML is made by the same renderer as a report's own page: Markdown without HTML,
links or images, every mark a button that names its citation. All else is text for the page to
show as text.

A run in a few words, for lists and for its page; read off the desk, its log and its folder.

Runs made ready to leave this machine: without its folders' paths and without its keys.

`/api/runs/{run}/export/{kind}`: the report of a run as a file to be kept elsewhere.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from rubricem.agent.reports.cited import CitedAnswer, cited_answer, verified_json
from rubricem.agent.reports.report import (
    answer_html,
    markdown,
    notes,
    quotes,
    rendered,
    stage_texts,
)
from rubricem.agent.research.threads import LONGEST_TITLE, Conversation, ConversationStore
from rubricem.agent.serve.desk import (
    BUDGETS,
    Answered,
    BudgetsAsked,
    RunAsked,
    RunDesk,
    Work,
    ended_run,
    limits_of,
    shown_name,
    sources,
)
from rubricem.agent.serve.feed import END, checklist, citations_of, ended, usage_of
from rubricem.agent.serve.refusals import (
    RequestRefused,
    conflict,
    too_many,
    unknown_run,
    unknown_thread,
)
from rubricem.agent.serve.security import COOKIE, CSRF_HEADER, Security
from rubricem.agent.settings import ServerChoice, Settings, choose_policy
from rubricem.agent.sources.choice import SEARXNG
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import AnswerFormat, Source, Trajectory
from rubricem.memory.text import one_line, printable

MOST_OPEN = 2000
"""streams at once, of all runs"""


@dataclass
class Streams:
    """Counts the streams that are open."""

    open: int = 0

    def enter(self) -> bool:
        """Count one more, if there is room for it."""
        if self.open >= MOST_OPEN:
            return False
        self.open += 1
        return True

    async def counted(self, frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same frames; one stream less once they end or nobody reads them."""
        try:
            async for frame in frames:
                yield frame
        finally:
            self.open -= 1


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


async def listed(desk: RunDesk, limit: int, before: str | None) -> list[dict[str, Any]]:
    """Runs that were asked before one (or all), the newest first."""
    runs = (await asyncio.to_thread(desk.store.threads))[::-1]
    start = runs.index(before) + 1 if before in runs else 0
    told = await asyncio.to_thread(conversations, desk)
    found = []
    for run in runs[start : start + limit]:
        # One that is deleted meanwhile is not listed.
        with suppress(RequestRefused):
            found.append(await summary(desk, run, told))
    return found


def conversations(desk: RunDesk) -> dict[str, str]:
    """The conversation of each run that is in one; reads files."""
    found = ConversationStore(desk.settings.data_dir).listed().conversations
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
        "started_at": _began(desk, run).isoformat(timespec="milliseconds"),
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


def _began(desk: RunDesk, run: str) -> datetime:
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


def runs_router(desk: RunDesk) -> APIRouter:
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


BEAT = b":\n\n"
"""a comment: the connection stands, nothing happened"""
MOST_DIGITS = 15
_STREAM = {"X-Accel-Buffering": "no"}


def work_router(desk: RunDesk) -> APIRouter:
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


def threads_router(desk: RunDesk) -> APIRouter:
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


def learning_router(desk: RunDesk) -> APIRouter:
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


VERIFY = ("off", "mark", "repair")
MONTH = 30 * 86400
"""seconds"""


class Login(BaseModel):
    """The token, as somebody typed it."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    token: str = Field(max_length=200)


def status_router(desk: RunDesk, security: Security) -> APIRouter:
    routes = APIRouter(prefix="/api")

    @routes.get("/status")
    def status() -> dict[str, Any]:
        settings = desk.settings
        states = [work.state for work in desk.live.values()]
        return {
            "version": version("rubricem"),
            "model": desk.researchers.model or _model(desk),
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
            "login": security.token is not None,
            "limits": {"running": desk.capacity.running, "waiting": desk.capacity.waiting},
            "runs": {state: states.count(state) for state in ("waiting", "running", "asking")},
        }

    @routes.post("/login")
    def login(given: Login, response: Response) -> dict[str, Any]:
        if not security.admits(given.token):
            raise RequestRefused(
                HTTPStatus.UNAUTHORIZED,
                "That is not the token of this server.",
                "rubricem serve printed it, and keeps it in the data directory.",
            )
        kept = security.cookie()
        response.set_cookie(COOKIE, kept, MONTH, path="/", httponly=True, samesite="strict")
        return {"login": True}

    return routes


def _model(desk: RunDesk) -> str:
    choice = choose_policy(desk.settings)
    return (choice.model or "") if isinstance(choice, ServerChoice) else choice.model_name


_SHORTEST_KEY = 6
"""characters; what is shorter stands in any text"""


def for_others(trajectory: Trajectory, settings: Settings) -> Trajectory:
    """The run with this machine's folders and the settings' keys taken out of all its texts."""
    hidden = _hidden(settings)
    if not hidden:
        return trajectory
    pattern = re.compile("|".join(re.escape(text) for text in sorted(hidden, key=len)[::-1]))
    fields = _without(trajectory.model_dump(mode="json"), pattern, hidden)
    return Trajectory.model_validate(fields)


def _hidden(settings: Settings) -> dict[str, str]:
    """Text that is not to leave -> what stands in its place."""
    folders = {
        settings.data_dir: "DATA",
        settings.weights_dir: "WEIGHTS",
        Path.cwd(): "FOLDER",
        Path.home(): "~",
    }
    # A folder of one part, such as /, /root or /data, would be found in many an innocent text.
    shown = {str(path): name for path, name in folders.items() if len(path.parts) > 2}
    secrets = (
        secret for name in Settings.model_fields for secret in _held(getattr(settings, name))
    )
    return shown | {secret: "***" for secret in secrets if len(secret) >= _SHORTEST_KEY}


def _held(value: object) -> Iterator[str]:
    """The secrets in a setting's value: keys, headers and variables of programs, passwords."""
    match value:
        case SecretStr():
            whole = value.get_secret_value()
            # Of `Bearer KEY` the key may be told alone.
            yield from dict.fromkeys((whole, whole.rpartition(" ")[2]))
        case BaseModel():
            for name in type(value).model_fields:
                yield from _held(getattr(value, name))
        case Mapping():
            for held in value.values():
                yield from _held(held)
        case tuple():
            for held in value:
                yield from _held(held)
        case str() if "://" in value:
            yield from _in_address(value)


def _in_address(address: str) -> Iterator[str]:
    """Its password, and the values of its query, in which hosted servers want their keys."""
    parts = urlsplit(address.removeprefix(SEARXNG))
    yield from (part for part in (parts.password, unquote(parts.password or "")) if part)
    yield from (value for _, value in parse_qsl(parts.query))


def _without(value: object, pattern: re.Pattern[str], hidden: dict[str, str]) -> object:
    if isinstance(value, str):
        return pattern.sub(lambda found: hidden[found.group()], value)
    if isinstance(value, dict):
        return {name: _without(held, pattern, hidden) for name, held in value.items()}
    if isinstance(value, list):
        return [_without(held, pattern, hidden) for held in value]
    return value


Kind = Literal["md", "html", "pdf", "json"]
TYPES: dict[Kind, str] = {
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "json": "application/json",
}


def exports_router(settings: Settings) -> APIRouter:
    """The route over the runs of the settings' data directory."""
    store = RunStore(settings.data_dir)
    # A page set on paper takes a processor for a second: one at a time.
    turn = asyncio.Semaphore(1)
    routes = APIRouter()

    @routes.get("/api/runs/{run}/export/{kind}")
    async def export(run: str, kind: Kind) -> Response:
        trajectory = await ended_run(store, run)
        async with turn:
            content = await asyncio.to_thread(_exported, trajectory, kind, settings)
        named = {"Content-Disposition": f'attachment; filename="{file_name(run, kind)}"'}
        return Response(content, media_type=TYPES[kind], headers=named)

    return routes


def file_name(run: str, kind: Kind) -> str:
    """Letters, digits and dashes of ASCII alone: it goes into a header, then onto a disk."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", run).strip("-") or "run"
    return f"rubricem-{safe}.{kind}"


def _exported(trajectory: Trajectory, kind: Kind, settings: Settings) -> str | bytes:
    return rendered(for_others(trajectory, settings), f".{kind}")
