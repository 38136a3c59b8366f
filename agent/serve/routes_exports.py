"""`/api/runs/{run}/export/{kind}`: the report of a run as a file to be kept elsewhere.

What leaves this machine holds neither its folders' paths nor its keys.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from fastapi import APIRouter, Response
from pydantic import BaseModel, SecretStr

from rubricem.agent.reports.page import rendered
from rubricem.agent.serve.desk import ended_run
from rubricem.agent.settings import Settings
from rubricem.agent.sources.choice import SEARXNG
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Trajectory

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
            shown = await asyncio.to_thread(for_others, trajectory, settings)
            content = await asyncio.to_thread(rendered, shown, f".{kind}")
        named = {"Content-Disposition": f'attachment; filename="{file_name(run, kind)}"'}
        return Response(content, media_type=TYPES[kind], headers=named)

    return routes


def file_name(run: str, kind: Kind) -> str:
    """Letters, digits and dashes of ASCII alone: it goes into a header, then onto a disk."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", run).strip("-") or "run"
    return f"rubricem-{safe}.{kind}"


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
            # Its password, and its query, in which hosted servers want their keys.
            parts = urlsplit(value.removeprefix(SEARXNG))
            yield from filter(None, (parts.password, unquote(parts.password or "")))
            yield from (given for _, given in parse_qsl(parts.query))


def _without(value: object, pattern: re.Pattern[str], hidden: dict[str, str]) -> object:
    if isinstance(value, str):
        return pattern.sub(lambda found: hidden[found.group()], value)
    if isinstance(value, dict):
        return {name: _without(held, pattern, hidden) for name, held in value.items()}
    if isinstance(value, list):
        return [_without(held, pattern, hidden) for held in value]
    return value
