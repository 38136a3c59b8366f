"""What can be done with an ended run: exporting, judging, and rating it.

    /api/runs/{run}/export/{kind}        its report as a file, without this machine's paths and keys
    /api/runs/{run}/judge, /judgement    judging, and its result, criterion by criterion
    /api/runs/{run}/rate                 how good a person finds it

Judging is done in the background, one run after another; clients poll until it is done.
"""

import asyncio
import re
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Response

from rubricem.agent.learning.lessons import keep_rating
from rubricem.agent.learning.scoring import FILE
from rubricem.agent.reports.page import render
from rubricem.agent.serve import requests
from rubricem.agent.serve.desk import Desk, RunDesk
from rubricem.agent.serve.requests import check_known, conflict, missing
from rubricem.memory.runs import BEST, MOST_CHARACTERS, ratings_in, value_in
from rubricem.memory.schema import Judgement, Trajectory

Kind = Literal["md", "html", "pdf", "json", "bib", "ris"]
TYPES: dict[Kind, str] = {
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "json": "application/json",
    "bib": "application/x-bibtex; charset=utf-8",
    "ris": "application/x-research-info-systems; charset=utf-8",
}
routes = APIRouter(prefix="/api/runs/{run}")


@routes.get("/export/{kind}")
async def export(desk: Desk, run: str, kind: Kind) -> Response:
    def make() -> Response:
        shown = requests.for_others(_load_ended(desk, run), desk.settings)
        return as_file(render(shown, f".{kind}"), run, kind)

    # A page set on paper takes a processor for a second: one at a time.
    async with desk.turns["export"]:
        return await asyncio.to_thread(make)


@routes.get("/judgement")
def judgement(desk: Desk, run: str) -> dict[str, Any]:
    trajectory, folder = _load_ended(desk, run), desk.store.folder_of(run)
    what = "The judgement of this run"
    found = value_in(folder / FILE, Judgement, "Have the run judged again.", what)
    if found is None:
        raise missing("The run was not judged.", "Have it judged, or learn from it.")
    stale = found.trajectory_id != trajectory.id
    return found.model_dump(mode="json") | {
        "note": "The run has continued since it was judged." if stale else "",
        "ratings": [rating.model_dump(mode="json") for rating in ratings_in(folder)],
    }


@routes.post("/judge", status_code=HTTPStatus.ACCEPTED)
async def judge(desk: Desk, run: str) -> dict[str, str]:
    await asyncio.to_thread(_load_ended, desk, run)
    await desk.see_budget()
    return desk.judging.start(run)


@routes.get("/judge")
def state(desk: Desk, run: str) -> dict[str, str]:
    _load_ended(desk, run)
    return desk.judging.state(run)


@routes.post("/rate")
def rate(
    desk: Desk,
    run: str,
    rating: Annotated[int, Body(strict=True, ge=1, le=BEST)],
    note: Annotated[str, Body(max_length=MOST_CHARACTERS)] = "",
) -> dict[str, Any]:
    """`rating` from 1, of no use, to 5, just what was asked for."""
    _load_ended(desk, run)
    return {"rating": rating, "said": keep_rating(desk.store, run, rating, note)}


def _load_ended(desk: RunDesk, run: str) -> Trajectory:
    """The run of this key. Refused (404) if there is none, (409) if it has not ended."""
    check_known(desk.store, run)
    if not desk.store.has_ended(run):
        raise conflict("The run has not ended.", "Wait until it ends, or stop it.")
    return desk.store.load(run)


def as_file(content: str | bytes, run: str, kind: Kind) -> Response:
    """A download; its name has only ASCII letters, digits and dashes."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", run).strip("-") or "run"
    named = {"Content-Disposition": f'attachment; filename="rubricem-{safe}.{kind}"'}
    return Response(content, media_type=TYPES[kind], headers=named)
