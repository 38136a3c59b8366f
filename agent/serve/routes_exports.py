"""`/api/runs/{run}/export/{kind}`: the report of a run as a file to be kept elsewhere."""

import asyncio
import re
from typing import Literal

from fastapi import APIRouter, Response

from agent.reports.report import rendered
from agent.serve.ended_runs import ended_run
from agent.serve.exporting import for_others
from agent.settings import Settings
from memory.runs import RunStore
from memory.schema import Trajectory

Kind = Literal["md", "html", "pdf", "json"]
TYPES: dict[Kind, str] = {
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "json": "application/json",
}


def router(settings: Settings) -> APIRouter:
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
