"""A run in a few words, for lists and for its page; read off the desk, its log and its folder."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from agent.conversations.store import ConversationStore
from agent.serve.desk import RunDesk
from agent.serve.refusals import Refused, unknown_run
from agent.serve.resuming import BUDGETS, limits_of
from agent.serve.telling import usage_of
from agent.serve.work import Work
from memory.errors import RubricemError
from memory.schema import Trajectory

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
        with suppress(Refused):
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
