"""For whoever operates the server: health, metrics, API documentation, and the log.

    /healthz       200 while the process answers
    /readyz        200 while runs can be begun and kept, else 503 with what prevents it
    /metrics       counts in Prometheus' text format, behind the token
    /api/docs      every address of the JSON interface, behind the token

The first two are for machines that have no token, and reveal nothing of anybody's runs. A log has
addresses without their queries, never a header or a body, and every key of the settings is removed
from it, whoever wrote the line.
"""

import asyncio
import html
import json
import logging
import os
import re
import resource
import shutil
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Literal

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.security import USER
from rubricem.memory.schema import Trajectory
from rubricem.memory.text import printable

LogLevel = Literal["debug", "info", "warning", "error"]
LogForm = Literal["text", "json"]
OURS = ("rubricem", "uvicorn")
"""loggers that the level applies to: at `debug` other libraries would log whole requests"""
ACCESS = logging.getLogger("rubricem.access")
RUNS = logging.getLogger("rubricem.runs")


class LogFormatter(logging.Formatter):
    """A record as one line of text, or as one JSON object, with the given keys removed."""

    def __init__(self, form: LogForm, secrets: Iterable[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._json = form == "json"
        longest = sorted(secrets, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, longest))) if longest else None

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        # Struck out before it becomes JSON, in which a key could be written in another way.
        if not self._json:
            first, *rest = self._struck(super().format(record)).split("\n")
            return "\n".join([printable(first), *map(printable, rest)])
        said: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._struck(record.getMessage()),
            **{name: self._struck(value) for name, value in getattr(record, "said", {}).items()},
        }
        if record.exc_info:
            said["error"] = self._struck(self.formatException(record.exc_info))
        return json.dumps(said, ensure_ascii=True)

    def _struck(self, value: Any) -> Any:
        if self._secrets is None or not isinstance(value, str):
            return value
        return self._secrets.sub("***", value)


def log_to(
    stream: IO[str], level: LogLevel, form: LogForm, secrets: Iterable[str], *, access: bool
) -> None:
    """Send this process's log to a stream; `access`: also a line for each request."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter(form, secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
    ACCESS.setLevel(logging.INFO if access else logging.CRITICAL)


SECONDS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""upper bounds of the buckets of runs' durations"""


@dataclass
class ServerCounts:
    """Counts of this process; used on one event loop."""

    began: float = field(default_factory=time.time)
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """by method and status"""
    request_seconds: float = 0.0
    runs: Counter[str] = field(default_factory=Counter)
    """ended ones, by status"""
    run_seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    tokens: Counter[str] = field(default_factory=Counter)
    cost: float = 0.0
    tool_calls: int = 0

    def run_ended(self, run: str, status: str, ended: Trajectory | None) -> None:
        """Count an ended run; None: one without results."""
        self.runs[status] += 1
        if ended is None:
            RUNS.info("run %s ended: %s", run, status, extra={"said": {"run": run}})
            return
        used = ended.usage
        self.run_seconds += ended.seconds
        self.buckets[bisect_left(SECONDS, ended.seconds)] += 1
        self.tokens["prompt"] += used.prompt_tokens
        self.tokens["completion"] += used.completion_tokens
        self.cost += used.cost or 0.0
        self.tool_calls += ended.tool_calls
        told = {"run": run, "status": status, "seconds": round(ended.seconds, 3)}
        RUNS.info("run %s ended: %s, %.1f s", run, status, ended.seconds, extra={"said": told})

    def exposition(self, desks: Iterable[RunDesk]) -> str:
        """All counts in Prometheus' text format, version 0.0.4."""
        return "".join(f"{line}\n" for line in self._lines(list(desks)))

    def _lines(self, desks: list[RunDesk]) -> Iterator[str]:
        model = desks[0].researchers.policy
        named = model.name if model else desks[0].setup.model.name
        info = {(("model", str(named)), ("version", version("rubricem"))): 1.0}
        live = Counter(work.state for desk in desks for work in desk.live.values())
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield from _family("rubricem_info", "gauge", "Version and model.", info)
        now = {(("state", s),): float(live[s]) for s in ("waiting", "running", "asking")}
        yield from _family("rubricem_runs", "gauge", "Runs at work.", now)
        ended = {(("status", status),): float(n) for status, n in self.runs.items()}
        yield from _family("rubricem_runs_ended_total", "counter", "Runs that ended.", ended)
        yield from self._histogram()
        tokens = {(("kind", kind),): float(n) for kind, n in self.tokens.items()}
        yield from _family("rubricem_tokens_total", "counter", "Tokens of ended runs.", tokens)
        for name, said, value in (
            ("rubricem_cost_dollars_total", "Cost of ended runs, where known.", self.cost),
            ("rubricem_tool_calls_total", "Searches and other calls.", float(self.tool_calls)),
            ("rubricem_http_request_seconds_total", "Until replies began.", self.request_seconds),
            ("process_cpu_seconds_total", "Of all threads.", usage.ru_utime + usage.ru_stime),
        ):
            yield from _family(name, "counter", said, {(): value})
        asked = {(("code", str(c)), ("method", m)): float(n) for (m, c), n in self.requests.items()}
        yield from _family("rubricem_http_requests_total", "counter", "Requests.", asked)
        for name, said, value in (
            ("process_start_time_seconds", "Since the epoch.", self.began),
            ("process_resident_memory_bytes", "Now.", _resident()),
        ):
            yield from _family(name, "gauge", said, {(): value})

    def _histogram(self) -> Iterator[str]:
        name, total = "rubricem_run_seconds", 0
        yield f"# HELP {name} What ended runs took."
        yield f"# TYPE {name} histogram"
        for bound, number in zip((*map(str, SECONDS), "+Inf"), self.buckets, strict=True):
            total += number
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self.run_seconds!r}"
        yield f"{name}_count {total}"


def _family(name: str, kind: str, said: str, samples: Mapping[Any, float]) -> Iterator[str]:
    """`samples`: by pairs of a label and its value."""
    yield f"# HELP {name} {said}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples.items():
        # A model's name may hold anything.
        shown = ",".join(f"{key}={json.dumps(printable(each))}" for key, each in labels)
        yield f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}"


def _resident() -> float:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:  # another system than Linux: the most that it ever was
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    return float(pages) * os.sysconf("SC_PAGE_SIZE")


class Observed:
    """Counts and logs every request to an application, also those that its guard refused."""

    def __init__(self, app: ASGIApp, tally: ServerCounts) -> None:
        self._app = app
        self._tally = tally

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, sent = time.perf_counter(), 0, 0

        async def send_counted(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                self._tally.request_seconds += time.perf_counter() - began
            sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            # A method that nobody knows would be a label of its own for each who makes one up.
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            self._tally.requests[method, status] += 1
            if ACCESS.isEnabledFor(logging.INFO):
                self._log(scope, status, sent, time.perf_counter() - began)

    def _log(self, scope: Scope, status: int, sent: int, seconds: float) -> None:
        path = scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
        said = {
            "client": (scope.get("client") or ("",))[0],
            "user": scope.get(USER, ""),
            "method": scope["method"],
            "path": path,
            "status": status,
            "bytes": sent,
            "ms": round(seconds * 1000, 1),
        }
        ACCESS.info(
            " ".join(["%s"] * len(said)), *(v or "-" for v in said.values()), extra={"said": said}
        )


METHODS = frozenset(("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"))
SPARE = 64 << 20
"""bytes that have to be free before runs are begun"""


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


def router(app: FastAPI, desks: Mapping[str, RunDesk], tally: ServerCounts) -> APIRouter:
    """The routes of one server; `desks` by the names of their users, the server's own first."""
    routes = APIRouter(include_in_schema=False)

    async def alive() -> Response:
        return JSONResponse({"alive": True})

    async def ready() -> Response:
        found = await asyncio.to_thread(hindrances, desks[""])
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return JSONResponse({"ready": not found, "hindrances": found}, status)

    async def metrics() -> Response:
        text = tally.exposition(desks.values())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def docs(request: Request) -> Response:
        return HTMLResponse(await asyncio.to_thread(docs_page, app.openapi()))

    routes.get("/healthz")(alive)
    routes.get("/readyz")(ready)
    routes.get("/metrics")(metrics)
    routes.get("/api/docs")(docs)
    return routes


def docs_page(schema: Mapping[str, Any]) -> str:
    """The interface as a page without scripts: requests are shown as JSON schemas."""
    rows = []
    models = schema.get("components", {}).get("schemas", {})
    for path, methods in schema["paths"].items():
        for method, told in methods.items():
            head = f"<code>{method.upper()} {html.escape(path)}</code>"
            said = html.escape(told.get("description", told.get("summary", "")))
            takes = [
                f"<li><code>{html.escape(p['name'])}</code> ({p['in']}): "
                f"<code>{html.escape(json.dumps(p['schema']))}</code></li>"
                for p in told.get("parameters", ())
            ]
            body = told.get("requestBody", {}).get("content", {})
            names = re.findall(r"schemas/(\w+)", json.dumps(body))
            takes += [
                f"<li>{name}<pre>{html.escape(json.dumps(models[name], indent=1))}</pre></li>"
                for name in dict.fromkeys(names)
            ]
            rows.append(
                f"<details class=item><summary>{head}</summary><p>{said}</p>"
                f"<ul>{''.join(takes)}</ul></details>"
            )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<title>rubricem: the JSON interface</title><link rel="stylesheet" href="/static/base.css">'
        '<link rel="stylesheet" href="/static/parts.css"></head><body><div class="view wide">'
        '<header class="view-head"><h1>The JSON interface</h1><p class="lead">Send '
        "<code>Authorization: Bearer</code> and the token, and with every change "
        '<code>X-Rubricem: 1</code>. For programs: <a href="/api/openapi.json">OpenAPI</a>.</p>'
        f"</header>{''.join(rows)}</div></body></html>"
    )
