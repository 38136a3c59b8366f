"""`/api/runs`, `/api/threads`, `/api/learning` and `/api/status`: runs over HTTP.

A run's report for a page has the answer as HTML, made by the same renderer as a report's own page:
Markdown without HTML or images, every mark a button that names its citation. Everything else is
text for the page to show as text.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request, Response
from pydantic import Field

from rubricem.agent.record.conversations import LONGEST_TITLE, Conversation
from rubricem.agent.record.history import remove
from rubricem.agent.reports import report
from rubricem.agent.reports.changes import told_changes
from rubricem.agent.reports.cited import CitedAnswer, cited_answer
from rubricem.agent.reports.page import answer_html, draft_html, page
from rubricem.agent.serve import feed, requests
from rubricem.agent.serve.desk import STATES, Desk, RunDesk, Work
from rubricem.agent.serve.requests import (
    RequestBody,
    check_known,
    conflict,
    lead_of,
    missing,
    refuse_as,
)
from rubricem.agent.serve.routes_ended import as_file
from rubricem.agent.serve.routes_settings import is_chosen, lacking
from rubricem.agent.serve.security import BOUND, SecurityInForce
from rubricem.agent.settings import BUDGETS, Settings
from rubricem.agent.settings.door import budgets_of, models_on_offer
from rubricem.agent.transcript.question import LIMITS, SMALL, Effort
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import LONGEST_TAG, labels_of, set_labels
from rubricem.memory.schema import Source, Stage, Trajectory
from rubricem.memory.text import one_line, printable, storable

routes = APIRouter(prefix="/api")
created, accepted = HTTPStatus.CREATED, HTTPStatus.ACCEPTED

FOLLOW_UP = "Ask a follow-up when its report is there."
SOON = 0.2
"""seconds in which a list reads what changed; it reports how many runs are left"""


class Labelled(RequestBody):
    """A person's name for a run, and its tags; None: unchanged."""

    title: str | None = Field(default=None, max_length=1000)
    tags: tuple[str, ...] | None = Field(default=None, max_length=100)


@routes.post("/runs", status_code=created)
async def ask(desk: Desk, asked: requests.RunAsked) -> dict[str, Any]:
    work = await desk.start(asked)
    return {"run": work.run, "thread": work.conversation}


@routes.get("/runs")
def listed(
    desk: Desk,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: str | None = None,
    q: Annotated[str, Query(max_length=1000)] = "",
    tag: Annotated[str, Query(max_length=LONGEST_TAG)] = "",
) -> dict[str, Any]:
    """Runs before a given one (or all), the newest first; `q`: words that they contain.

    `threads` describes their conversations, and on the first page those that have none.
    """
    past = desk.history
    with desk.looking:
        told: dict[str, Any] = {"reading": past.follow(seconds=SOON)}
    if before is None:
        told.update({"found": past.count(q, tag), "tags": past.tags()})
    listing, runs = desk.conversations.list_all(), []
    threads = {run: each.id for each in listing.conversations for run in each.own_runs}
    for run in past.page(q, tag, before, limit):
        # One that is deleted meanwhile is not listed.
        with suppress(requests.RequestRefused):
            runs.append(summary(desk, run.thread, threads) | {"preview": run.preview(q)})
    shown, first = {run["thread"] for run in runs}, not (before or q or tag)
    described = {
        each.id: _describe(desk, each)
        for each in listing.conversations
        if each.id in shown or (first and not each.own_runs)
    }
    return {"runs": runs, **told, "problems": listing.problems, "threads": described}


@routes.patch("/runs/{run}")
def label(desk: Desk, run: str, given: Labelled) -> dict[str, Any]:
    """Name a run, or set its tags."""
    check_known(desk.store, run)
    return set_labels(desk.store, run, given.title, given.tags).model_dump(mode="json")


@routes.delete("/runs/{run}", status_code=HTTPStatus.NO_CONTENT)
def delete(desk: Desk, run: str) -> None:
    """Delete a run permanently. Refused (409) while it is in progress."""
    desk.check_run(run)
    if run in desk.live:
        raise conflict("The run goes on.", "Stop it first.")
    if lead_of(desk.store, run):
        raise conflict("This is a part of a larger research.", "Delete the whole of it.")
    with refuse_as(HTTPStatus.CONFLICT):
        remove(desk.store, run)


@routes.get("/runs/{run}")
def one(desk: Desk, run: str) -> dict[str, Any]:
    """The run, and those of its sources that a question may name here."""
    desk.check_run(run)
    own = desk.conversations.of_run(run)
    known, names = requests.sources(desk.settings), list[str]()
    with suppress(RubricemError, KeyError, TypeError):
        kept = desk.store.request(run)["choices"]["source"]
        stored = partial(requests.kept_sources, desk.settings)
        names = [name for name, each in known.items() if stored(each) <= {*kept}]
    return summary(desk, run, {run: own.id} if own else {}) | {"source": names}


@routes.get("/runs/{run}/report")
def whole_report(desk: Desk, run: str) -> dict[str, Any]:
    desk.check_run(run)
    if run in desk.live:
        raise conflict("The run has not ended.", "Watch its events, or stop it.")
    if desk.store.has_ended(run):
        return report_of(desk.store.load(run))
    kept = summary(desk, run, {})
    said = {name: kept[name] for name in ("question", "status", "reason")}
    # It ended before anything was written.
    lists = ("notes", "sources", "citations", "recalled", "stages", "rubric", "investigations")
    empty: dict[str, Any] = {name: [] for name in lists}
    return {**said, "verified": None, "answered": False, "html": "", "markdown": "", **empty}


@routes.get("/runs/{run}/draft")
def draft(desk: Desk, run: str) -> dict[str, str]:
    """The answer as far as it is written."""
    desk.check_run(run)
    if (work := desk.live.get(run)) is not None:
        return {"html": draft_html(work.telling.answer)}
    ended = desk.store.has_ended(run)
    return {"html": draft_html(desk.store.load(run).transcript() if ended else "")}


@routes.get("/runs/{run}/events")
async def events(
    desk: Desk,
    run: str,
    after: Annotated[int, Query(ge=0, lt=10**15)] = 0,
    last_event_id: Annotated[int, Header(ge=0, lt=10**15)] = 0,
) -> Response:
    """What is told of a run after the event of a number, as it comes."""
    number, log = last_event_id or after, await desk.log(run)
    if log.ended and number >= log.last:
        # An EventSource of a program's that is told this does not come back.
        return Response(status_code=HTTPStatus.NO_CONTENT)
    if number > log.last:
        # Of another run, or lost with the machine: whoever sends it has nothing of this run.
        number = 0

    async def frame_events() -> AsyncIterator[bytes]:
        async for events in desk.follow(run, number):
            yield b"".join(event.frame for event in events) or feed.BEAT

    return feed.event_stream(frame_events())


@routes.post("/runs/{run}/resume")
async def resume(
    desk: Desk, run: str, budgets: requests.BudgetsAsked | None = None
) -> dict[str, Any]:
    work = await desk.resume(run, budgets, attended=True)  # by whoever pressed the button
    return {"run": work.run, "thread": work.conversation}


@routes.post("/runs/{run}/stop")
async def stop(desk: Desk, run: str) -> dict[str, Any]:
    await desk.stop(run)
    return {"run": run}


@routes.post("/runs/{run}/answer")
async def answer(desk: Desk, run: str, answered: requests.Answered) -> dict[str, Any]:
    """Pass on a person's answer. Refused (409) if it was answered before."""
    (await desk.at_work(run)).answer(answered)
    return {"run": run, "id": answered.id}


@routes.post("/runs/{run}/remarks", status_code=accepted)
async def remark(
    desk: Desk, run: str, text: Annotated[str, Body(embed=True, max_length=2000)]
) -> dict[str, Any]:
    """Tell a lead something while it works. Refused (409) where nobody would hear it."""
    work, said = await desk.at_work(run), storable(text).strip()
    if not work.leads:
        raise conflict("Only deep research takes remarks while it goes on.", FOLLOW_UP)
    if work.telling.stage is Stage.ANSWER:
        raise conflict("The report is being written already.", FOLLOW_UP)
    if not said:
        raise SettingsError("There is no remark.", "Say what is to be looked at as well.")
    await work.steering.remark(said)
    return {"run": run}


@routes.post("/runs/{run}/investigations/{number}/stop")
async def stop_part(desk: Desk, run: str, number: int) -> dict[str, Any]:
    """End an investigation with what it has."""
    work = await desk.at_work(run)
    if (part := work.telling.parts.get(number)) is None:
        raise missing(f"There is no investigation {number} of this run.", "Look at its list.")
    if part.ended:
        raise conflict("The investigation has ended.", "Read it among the others.")
    await work.steering.stop(number)
    return {"run": run, "number": number}


LONGEST_PASSAGE = 4000


def report_of(trajectory: Trajectory) -> dict[str, Any]:
    """The whole report; takes a while for a long one."""
    answer, checks = cited_answer(trajectory), trajectory.verification
    stages = report.stage_texts(trajectory)
    return {
        "question": trajectory.question,
        "status": trajectory.status.value,
        "reason": report.end_reason(trajectory),
        "notes": report.notes(trajectory, answer),
        "end_notes": report.end_notes(trajectory, answer),
        "answered": bool(answer.pieces),
        "html": answer_html(answer),
        "markdown": report.markdown(trajectory),
        "sources": [_source(answer, source) for source in answer.sources],
        "citations": feed.citations_of(trajectory),
        "verified": checks.model_dump(mode="json") if checks else None,
        "recalled": [
            item.model_dump(mode="json")
            for item in trajectory.recollections
            if item.kind == "reflection"
        ],
        "stages": [
            {"stage": stage.value, "text": printable(text)} for stage, text in stages.items()
        ],
        "rubric": report.checklist(trajectory.transcript()),
        "investigations": [
            {
                "number": number,
                "run": part.thread,
                "state": part.status.value,
                "calls": part.tool_calls,
                **part.model_dump(include={"question", "reason"}),
                "cited": len(part.sources),
            }
            for number, part in enumerate(trajectory.investigations, start=1)
        ],
    }


def _source(answer: CitedAnswer, source: Source) -> dict[str, Any]:
    return {
        "id": source.id,
        "number": answer.of(source)[0].number,
        "title": one_line(source.title),
        "url": one_line(source.location),
        "place": one_line(source.place),
        "passage": printable(source.text)[:LONGEST_PASSAGE],
        "quotes": report.quotes(answer, source),
        "copies": list(source.copies),
    }


UNFINISHED, UNREADABLE, ELSEWHERE, PART = "unfinished", "unreadable", "elsewhere", "part"
"""statuses of a run without a trajectory: resumable, damaged, in progress in another process or as
a part of another run"""


def summary(desk: RunDesk, run: str, threads: Mapping[str, str]) -> dict[str, Any]:
    """The run with its figures so far; what cannot be read of it is left out. Reads files.

    `threads`: the conversations that runs were asked in. Raises Refused (404) if the run's folder
    is gone and it is not in progress.
    """
    work, store, trajectory = desk.live.get(run), desk.store, None
    try:
        asked_at = work.began if work else store.asked_at(run)
    except OSError:
        check_known(store, run)
        raise
    head: dict[str, Any] = {
        "run": run,
        "thread": threads.get(run),
        "part_of": lead_of(store, run),
        "question": "",
        **labels_of(store, run).model_dump(mode="json"),
        "started_at": asked_at.isoformat(timespec="milliseconds"),
        "seconds": None,
        "model": None,
    }
    with suppress(RubricemError, KeyError, TypeError):
        request = store.request(run)
        head["question"] = request["ask"]["question"]
        head["format"] = request["ask"]["answer_format"]
        head["model"] = request["choices"]["model"]
        kept = request.get("budgets", {})
        head["budgets"] = {BUDGETS[name]: value or 0 for name, value in kept.items()}
        trajectory = store.load(run) if store.has_ended(run) and not work else None
    if work is not None:
        return head | _at_work(desk, work)
    if trajectory is not None:
        told = told_changes(store.folder_of(run))
        return head | _outcome_of(trajectory) | {"changes": told and told.model_dump()}
    if head["part_of"] in desk.live:
        return head | {"state": "running", "status": PART, "reason": ""}
    if store.running(run):
        reason = "another process is working on it"
        return head | {"state": "running", "status": ELSEWHERE, "reason": reason}
    said = {"status": UNFINISHED, "reason": ""}
    log = feed.EventLog(store.folder_of(run) / feed.FILE_NAME)
    for event in log.read(max(log.last - 2, 0)):
        if event.name == "finished":
            said = {name: str(event.data.get(name, "")) for name in said}
    return head | {"state": "ended", **said}


def _at_work(desk: RunDesk, work: Work) -> dict[str, Any]:
    policy = desk.researchers.find_open(work.model)
    return {
        "state": work.state,
        "status": "",
        "reason": "",
        "ahead": desk.ahead(work),
        "seconds": round(work.seconds, 1),
        "model": policy.name if policy else None,
        "usual_seconds": usual.median if (usual := work.telling.usual) else None,
        "usage": work.telling.usage,
        "tool_calls": work.telling.calls,
        "limits": work.telling.limits,
    }


def _outcome_of(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "state": "ended",
        **trajectory.model_dump(include={"status", "reason", "cut_in", "tool_calls"}),
        "ended_by": BUDGETS.get(trajectory.ended_by, trajectory.ended_by),
        "seconds": round(trajectory.seconds, 1),
        "model": trajectory.policy,
        "usage": feed.usage_of(trajectory.usage, feed.calls_of(trajectory)),
        "cost": trajectory.usage.cost,
    }


class Titled(RequestBody):
    """A title; "": the first question is used."""

    title: str = Field(default="", max_length=1000)


After = Annotated[str, Body(embed=True, max_length=64)]
"""the run after which a thread goes on, or a branch of it"""


@routes.post("/threads", status_code=created)
def create(desk: Desk, run: After) -> dict[str, Any]:
    desk.check_run(run)
    return _describe(desk, desk.conversations.after(run))


@routes.get("/threads/{thread}")
def conversation(desk: Desk, thread: str) -> dict[str, Any]:
    found = desk.conversation(thread)
    runs = []
    for run in found.runs:
        try:
            desk.check_run(run)
            runs.append(summary(desk, run, {run: thread}))
        except RubricemError as error:
            # Its folder is gone.
            gone = {"run": run, "thread": thread, "question": "", "state": "ended"}
            runs.append({**gone, "status": UNREADABLE, "reason": str(error)})
    return {**_describe(desk, found), "runs": runs}


@routes.get("/threads/{thread}/export/html")
def share(desk: Desk, thread: str) -> Response:
    """The answered questions of a thread as one page, without this machine's paths and keys.

    Refused (409) if none is answered.
    """
    found, told = desk.conversation(thread), []
    for run in found.runs:
        # One that is unfinished, damaged or deleted is left out.
        with suppress(RubricemError):
            if desk.store.has_ended(run):
                told.append(requests.for_others(desk.store.load(run), desk.settings))
    if not told:
        raise conflict(
            "Nothing in this conversation is answered yet.", "Wait for its first report."
        )
    return as_file(page(*told, title=_describe(desk, found)["title"]), thread, "html")


@routes.post("/threads/{thread}/branch", status_code=created)
def branch(desk: Desk, thread: str, run: After) -> dict[str, Any]:
    desk.conversation(thread)
    return _describe(desk, desk.conversations.branch(thread, run))


@routes.patch("/threads/{thread}")
def rename(desk: Desk, thread: str, titled: Titled) -> dict[str, Any]:
    desk.conversation(thread)
    return _describe(desk, desk.conversations.rename(thread, titled.title))


@routes.delete("/threads/{thread}", status_code=HTTPStatus.NO_CONTENT)
def forget(desk: Desk, thread: str, runs: bool = False) -> None:
    """Forget a thread, and with `runs` delete its own for good.

    Refused (409) while one of them is in progress, and then nothing is deleted.
    """
    if runs:
        own = desk.conversation(thread).own_runs
        if any(run in desk.live for run in own):
            raise conflict("A question of it goes on.", "Stop it first.")
        for run in filter(desk.store.holds, own):
            with refuse_as(HTTPStatus.CONFLICT):
                remove(desk.store, run)
    with suppress(SettingsError) if runs else refuse_as(HTTPStatus.NOT_FOUND):
        desk.conversations.delete(thread)


def _describe(desk: RunDesk, conversation: Conversation) -> dict[str, Any]:
    first = desk.store.question(conversation.runs[0]) if conversation.runs else ""
    return {
        "id": conversation.id,
        "title": conversation.title or one_line(first, LONGEST_TITLE),
        "named": bool(conversation.title),
        "runs": list(conversation.runs),
        "own": len(conversation.own_runs),
        "parent": conversation.parent.model_dump() if conversation.parent else None,
        "created_at": conversation.created_at.isoformat(timespec="seconds"),
        "updated_at": conversation.changed_at.isoformat(timespec="seconds"),
    }


MONTH = 30 * 86400


def _efforts(settings: Settings, embedded: bool) -> dict[str, dict[str, float]]:
    """The efforts that a question may name, with what each may do and spend unless it says so."""
    found = {}
    for effort in [settings.effort] if embedded else Effort:
        named = settings.model_copy(update={"effort": effort})
        calls = settings.tool_calls or (SMALL if embedded else LIMITS[effort]).tool_calls
        found[effort.value] = {"tool_calls": calls, **feed.left_of(budgets_of(named))}
    return found


@routes.get("/status")
def status(desk: Desk, security: SecurityInForce) -> dict[str, Any]:
    settings = desk.settings
    policy, model = desk.researchers.policy, desk.setup.model
    states = [work.state for work in desk.live.values()]
    usual = desk.history.usual(desk.setup.choices["model"] or "").items()
    return {
        "version": version("rubricem"),
        "model": policy.name if policy else model.name or model.server,
        "models": list(models_on_offer(settings)),
        "sources": list(requests.sources(settings)),
        "source": [requests.shown_name(name) for name in settings.source],
        "efforts": _efforts(settings, desk.setup.model.embedded),
        "usual": [{"effort": e, "format": f, **asdict(u)} for (e, f), u in usual],
        "priced": bool(settings.prices),
        "defaults": settings.model_dump(include=requests.DEFAULTS)
        | {"format": settings.answer_format.value},
        "memory": settings.memory,
        "ready": desk.user != "" or is_chosen(settings) or not lacking(desk.setup.model),
        "user": desk.user,
        "login": security.token is not None,
        "limits": {"running": desk.capacity.running, "waiting": desk.capacity.waiting},
        "runs": {state: states.count(state) for state in STATES},
    }


@routes.post("/login")
def login(
    security: SecurityInForce,
    token: Annotated[str, Body(embed=True, max_length=200)],
    request: Request,
    response: Response,
) -> dict[str, Any]:
    """Exchange the token, as somebody typed it, for a cookie and a key."""
    if (who := security.enters(token)) is None:
        remedy = "It is in serve-token of the data directory of rubricem serve."
        raise requests.RequestRefused(401, "That is not the token of this server.", remedy)
    encrypted = request.url.scheme == "https"
    response.set_cookie(
        BOUND * encrypted + security.cookie_name,
        security.cookie(who),
        MONTH,
        path="/",
        secure=encrypted,
        httponly=True,
        samesite="strict",
    )
    return {"login": True, "key": security.key(who)}


@routes.post("/learning", status_code=accepted)
async def learn(desk: Desk) -> dict[str, Any]:
    await desk.see_budget()
    return await desk.lessons.begin()


@routes.get("/learning")
async def learning(desk: Desk) -> dict[str, Any]:
    return await desk.lessons.state()


@routes.post("/learning/stop")
async def stop_learning(desk: Desk) -> dict[str, Any]:
    return await desk.lessons.stop()
