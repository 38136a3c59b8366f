"""For whoever operates the server: health, metrics, and the log.

    /healthz       200 while the process answers
    /readyz        200 while runs can be begun and kept, else 503 with what prevents it
    /metrics       counts in Prometheus' text format, behind the token

The first two need no token. A log has addresses without their queries, never a header or a body,
and every key of the settings is removed from it, whoever wrote the line.
"""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from typing import IO, Literal

import prometheus_client as prometheus
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from rubricem.agent.serve.desk import STATES, Desk, RunDesk
from rubricem.memory.schema import Trajectory
from rubricem.memory.text import printable

LogLevel = Literal["debug", "info", "warning", "error"]
OURS = ("rubricem", "uvicorn")
"""loggers that the level applies to: at `debug` other libraries would log whole requests"""
ACCESS = "uvicorn.access"
RUNS = logging.getLogger("rubricem.runs")


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


SECONDS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)


class ServerCounts:
    """Counts of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = prometheus.CollectorRegistry()
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._info = prometheus.Info("rubricem", "Version and model.", registry=registry)
        self._live = prometheus.Gauge(
            "rubricem_runs", "Runs at work.", ["state"], registry=registry
        )
        self._ended = prometheus.Counter(
            "rubricem_runs_ended", "Ended runs.", ["status"], registry=registry
        )
        self._seconds = prometheus.Histogram(
            "rubricem_run_seconds", "What ended runs took.", registry=registry, buckets=SECONDS
        )
        self._tokens = prometheus.Counter(
            "rubricem_tokens", "Of ended runs.", ["kind"], registry=registry
        )
        self._cost = prometheus.Counter(
            "rubricem_cost_dollars", "Of ended runs, if known.", registry=registry
        )
        self._calls = prometheus.Counter(
            "rubricem_tool_calls", "Searches and other calls.", registry=registry
        )
        prometheus.ProcessCollector(registry=registry)

    def run_ended(self, run: str, status: str, ended: Trajectory | None) -> None:
        self._ended.labels(status).inc()
        if ended is None:
            RUNS.info("run %s ended: %s", run, status)
            return
        used = ended.usage
        self._seconds.observe(ended.seconds)
        self._tokens.labels("prompt").inc(used.prompt_tokens)
        self._tokens.labels("completion").inc(used.completion_tokens)
        self._cost.inc(used.cost or 0.0)
        self._calls.inc(ended.tool_calls)
        RUNS.info("run %s ended: %s, %.1f s", run, status, ended.seconds)

    def exposition(self, main: RunDesk) -> bytes:
        """All counts in Prometheus' text format, with those of users; `main`: the server's own."""
        model = main.researchers.policy
        named = printable(str(model.name if model else main.setup.model.name))
        self._info.info({"version": version("rubricem"), "model": named})
        live = [work.state for desk in (main, *main.users) for work in desk.live.values()]
        for state in STATES:
            self._live.labels(state).set(live.count(state))
        return prometheus.generate_latest(self.registry)


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


routes = APIRouter(include_in_schema=False)


@routes.get("/healthz")
async def alive() -> dict[str, bool]:
    return {"alive": True}


@routes.get("/readyz")
async def ready(desk: Desk) -> Response:
    found = await asyncio.to_thread(hindrances, desk)
    status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
    return JSONResponse({"ready": not found, "hindrances": found}, status)


@routes.get("/metrics")
async def metrics(desk: Desk, request: Request) -> Response:
    return Response(
        request.app.state.tally.exposition(desk), media_type=prometheus.CONTENT_TYPE_LATEST
    )
