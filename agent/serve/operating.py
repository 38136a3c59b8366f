"""For whoever operates the server: health, and the log.

    /healthz       200 while the process answers
    /readyz        200 while runs can be begun and kept, else 503 with what prevents it

These need no token. A log has addresses without their queries, never a header or a body,
and every key of the settings is removed from it, whoever wrote the line.
"""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import IO, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from rubricem.agent.serve.desk import RunDesk
from rubricem.memory.text import printable

LogLevel = Literal["debug", "info", "warning", "error"]
OURS = ("rubricem", "uvicorn")
"""loggers that the level applies to: at `debug` other libraries would log whole requests"""
ACCESS = "uvicorn.access"


class LogFormatter(logging.Formatter):
    """A record as text, with the given keys removed."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.hidden = set(secrets)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        if record.name == ACCESS and isinstance(record.args, tuple):
            record.args = tuple(
                each.partition("?")[0] if isinstance(each, str) else each for each in record.args
            )
        text = super().format(record)
        for secret in sorted(self.hidden, key=len, reverse=True):
            text = text.replace(secret, "***")
        return "\n".join(map(printable, text.split("\n")))


def log_to(stream: IO[str], level: LogLevel, secrets: Iterable[str]) -> None:
    """Send this process's log to a stream; from `info` on with a line for each request."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter(secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())


def hide(secrets: Collection[str]) -> None:
    """Remove keys, which came while the server runs, from what is logged from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, LogFormatter):
            handler.formatter.hidden |= set(secrets)


SPARE = 64 << 20


def hindrances(desk: RunDesk) -> dict[str, str]:
    """What prevents runs from being begun, by subject; writes and removes a file."""
    found = {}
    if desk.closing.is_set():
        found["server"] = "it is about to end"
    folder = desk.settings.data_dir
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        if shutil.disk_usage(folder).free < SPARE:
            found["disk"] = "it is full"
    except OSError as error:
        found["data directory"] = f"it cannot be written: {error.strerror}"
    if len(desk.live) >= desk.capacity.running + desk.capacity.waiting:
        found["runs"] = "no more may wait"
    return found


def router(desk: RunDesk) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/healthz")
    async def alive() -> dict[str, bool]:
        return {"alive": True}

    @routes.get("/readyz")
    async def ready() -> Response:
        found = await asyncio.to_thread(hindrances, desk)
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return JSONResponse({"ready": not found, "hindrances": found}, status)

    return routes
