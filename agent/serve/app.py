"""One server from its settings to its end: the application, the socket, the token, the signals.

There is one server per data directory: two would not know what the other does to a run. Collected
and trained runs are served by the training package, which may not be imported here and is therefore
named by a string.
"""

import asyncio
import secrets
import socket
import ssl
import sys
import webbrowser
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from html import escape
from http import HTTPStatus
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from types import FrameType

import click
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Scope

from rubricem.agent.serve import (
    openai,
    operating,
    requests,
    routes_bank,
    routes_ended,
    routes_mcp,
    routes_runs,
    routes_settings,
    routes_uploads,
)
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.operating import LogLevel, ServerCounts, log_to
from rubricem.agent.serve.requests import OPENAI, RequestRefused, reply_of
from rubricem.agent.serve.security import LIMITS, OWNER, Guard, Redactor, Security, address_in
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of, with_default_source
from rubricem.agent.settings.ledger import SpendingLedger
from rubricem.agent.settings.users import UserBudget, Users
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.runs import hold_lock, keep_private, writable, write_atomically

RESULTS = "rubricem.training.show.routes"
MOST_BODY = 1 << 20
"""bytes of a request; the router of uploads takes more"""


class _Guarded(FastAPI):
    """Guarded around everything, also what the framework refuses by itself."""

    def build_middleware_stack(self) -> ASGIApp:
        return Guard(super().build_middleware_stack(), self.state.security)


def create_app(desk: RunDesk, security: Security, results: Sequence[Path] = ()) -> FastAPI:
    """The application; its lifespan opens and closes the desk.

    `results`: additional folders with collected or trained runs to show.
    """
    desk.results, tally, desks = results, ServerCounts(), Desks(desk)
    desk.on_end = tally.run_ended

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened(desk), desks.open():
            yield

    app = _Guarded(
        title="rubricem",
        version=version("rubricem"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        max_body_size=MOST_BODY,
    )
    app.state.desks, app.state.security, app.state.tally = desks, security, tally
    for module in (*ROUTES, import_module(RESULTS)):
        app.include_router(module.routes)
    tell_errors(app)

    def hides(scope: Scope) -> requests.Hide:
        # Where no desk was found for a request, what the server's own hides is hidden.
        asked: RunDesk = scope.get("state", {}).get("desk", desk)
        return asked.hides()

    app.add_middleware(Redactor, hides=hides)
    folder = Path(str(files("rubricem.agent.serve") / "static"))

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(folder / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/static", StaticFiles(directory=folder), name="static")
    return app


ROUTES = (
    routes_runs, routes_settings, openai, routes_mcp, routes_bank, routes_ended, routes_uploads,
    operating,
)  # fmt: skip


@asynccontextmanager
async def opened(desk: RunDesk) -> AsyncIterator[None]:
    """The desk with its tools."""
    async with desk.open(), routes_mcp.open_tools(desk):
        yield


class Desks:
    """The desk of each user, opened at their first request; the owner's is open already."""

    def __init__(self, owners: RunDesk) -> None:
        self._owners, self._users = owners, Users(owners.settings.data_dir)
        self._begun: dict[Path, asyncio.Future[RunDesk]] = {}
        """by their folders: one who is given a name of before is another user"""
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Also continues the unfinished runs of users."""
        for name in self._users.all():
            if (self._users.folder(name) / "runs").is_dir():
                await self.of(name)
        try:
            yield
        finally:
            self._ending.set()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def of(self, name: str) -> RunDesk:
        """Raises whatever opening raises."""
        if name == OWNER:
            return self._owners
        folder = self._users.folder(name)
        if folder not in self._begun:
            begun = self._begun[folder] = asyncio.get_running_loop().create_future()
            self._tasks.append(asyncio.create_task(self._keep(name, folder, begun)))
        return await asyncio.shield(self._begun[folder])

    async def _keep(self, name: str, folder: Path, begun: "asyncio.Future[RunDesk]") -> None:
        # A task of its own: what it opens is closed by whoever opened it.
        try:
            desk = self._make_desk(name, folder)
            desk.act()
            async with opened(desk):
                begun.set_result(desk)
                await self._ending.wait()
        except Exception as error:
            if begun.done():
                raise
            del self._begun[folder]
            begun.set_exception(error)

    def _make_desk(self, name: str, folder: Path) -> RunDesk:
        keep_private(folder)
        settings = self._owners.settings.model_copy(update={"data_dir": folder})

        def allowance() -> UserBudget:
            if self._users.folder(name) != folder:
                raise SettingsError(f"The user {name!r} was removed.", "Nothing more is asked.")
            return self._users.all()[name].allowance

        ledger = SpendingLedger(folder, allowance)
        return RunDesk(
            settings, self._owners.capacity, shared=self._owners, user=name, ledger=ledger
        )


def tell_errors(app: FastAPI) -> None:

    @app.exception_handler(RubricemError)
    async def ours(request: Request, error: RubricemError) -> JSONResponse:
        return JSONResponse(*reply_of(error, request.url.path))

    @app.exception_handler(RequestValidationError)
    async def answer_malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first, openai = error.errors()[0], request.url.path.startswith(OPENAI)
        place = ".".join(str(part) for part in first["loc"][1:])
        no_object = first["type"] == "json_invalid" or not place
        said = "The body must be a JSON object." if no_object else f"{place}: {first['msg']}."
        remedy = "Send one." if no_object else f"Correct {place}."
        status = HTTPStatus.BAD_REQUEST if openai or no_object else HTTPStatus.UNPROCESSABLE_ENTITY
        refused = RequestRefused(status, said, "" if openai else remedy, place or None)
        return await ours(request, refused)

    @app.exception_handler(HTTPException)
    async def answer_refused(request: Request, error: HTTPException) -> JSONResponse:
        said = f"{error.detail.rstrip('.')}."
        refused = RequestRefused(error.status_code, said, LIMITS)
        return JSONResponse(*reply_of(refused, request.url.path), headers=error.headers)

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> JSONResponse:
        said = "rubricem itself failed at this request."
        remedy = "Details are in the output of rubricem serve; please report them."
        return await ours(request, RequestRefused(500, said, remedy))


LOCK_FILE_NAME = "serve.lock"


def sole_server(data_dir: Path) -> AbstractContextManager[None]:
    """Hold the directory while the server runs; SettingsError if another one holds it."""
    busy = SettingsError(
        f"Another rubricem serve is using {data_dir}.",
        "Use that one, stop it, or name another directory by RUBRICEM_DATA_DIR.",
    )
    return hold_lock(data_dir / LOCK_FILE_NAME, busy)


def outward_address(host: str) -> str:
    """Where others open a server on `host`: this machine's own address if it is on all of them."""
    number = address_in(host)
    if host and (number is None or not number.is_unspecified):
        return host
    with suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
        # An address reserved for documentation: only the routing table is asked.
        probe.connect(("198.51.100.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


WARNING = (
    "Warning: others can reach this server. Whoever has its token can do everything here, and "
    "without TLS whoever is on the way can read the token."
)


def announce(
    security: Security, place: str, data_dir: Path, made: bool, terminal: bool
) -> Iterator[str]:
    """What the server prints when it starts at the URL `place`, line by line.

    `made`: its token is new, and so is shown this once; `terminal`: a person reads it, and no log
    keeps it.
    """
    yield f"Serving on {place} (^C stops it; unfinished runs continue at its next start)"
    if security.token is None:
        yield "Warning: without a token every user of this machine can do everything here."
        return
    kept = f"stored in {data_dir / TOKEN_FILE_NAME}"
    token = f"Token: {security.token} (it is {kept})"
    yield token if made and terminal else f"A token is required; it is {kept}"
    if terminal:
        yield f"This link logs one browser in, within the hour: {place}#token={security.ticket()}"
    if not security.alone and place.startswith("http:"):
        yield WARNING


def encryption(certificate: Path | None, key: Path | None) -> dict[str, str]:
    """TLS arguments for uvicorn, of PEM files; SettingsError if they cannot be used."""
    if certificate is None:
        return {}
    key = key or certificate
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except OSError as error:  # ssl's own among them
        raise SettingsError(
            f"TLS cannot be served with {certificate} and the key in {key}: "
            f"{error.strerror or error}.",
            "Name PEM files that belong together and can be read: --tls-cert, --tls-key.",
        ) from error
    return {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}


class PageServer(uvicorn.Server):
    """Lets watchers go as soon as the server is to end, so that it need not wait for them."""

    def __init__(self, config: uvicorn.Config, desk: RunDesk) -> None:
        super().__init__(config)
        self._desk = desk

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._desk.close()
        # Not passed on when it has ended, as uvicorn would: this is how a server ends.
        self.force_exit, self.should_exit = self.should_exit, True


async def run_server(
    settings: Settings,
    host: str,
    port: int,
    *,
    open_page: bool,
    results: Sequence[Path],
    with_token: bool,
    proxies: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    log_level: LogLevel,
) -> None:
    """Serve until ^C; unfinished runs continue when the next server starts.

    `tls_cert`: PEM, with the chain up to its issuer, and the key unless `tls_key` has it; None: no
    TLS.
    """
    settings = with_default_source(settings)
    # What cannot be is told before anybody waits for it.
    setup_of(settings).sources.check()
    encrypted = encryption(tls_cert, tls_key)
    listening = bind(host, port)
    port, data_dir = listening.getsockname()[1], settings.data_dir
    with sole_server(data_dir):
        shown = outward_address(host)
        shown = f"[{shown}]" if ":" in shown else shown
        place = f"{'https' if encrypted else 'http'}://{shown}:{port}/"
        wanted = Security(host, port=port, proxies=proxies, users=Users(data_dir))
        security, made = secure(data_dir, wanted, with_token)
        desk = RunDesk(settings)
        keys = {*requests.secrets_in(settings), *filter(None, [security.token])}
        log_to(sys.stderr, log_level, keys)
        app = create_app(desk, security, results)
        config = security.config(app, lifespan="on", **encrypted)
        for line in announce(security, place, data_dir, made, sys.stdout.isatty()):
            click.echo(line)
        with doorway(data_dir, place, security) as address:
            if open_page:
                await asyncio.to_thread(webbrowser.open, address)
            await PageServer(config, desk).serve([listening])


DOORWAY = "open-page.html"


@contextmanager
def doorway(data_dir: Path, place: str, security: Security) -> Iterator[str]:
    """An address for a browser, which every user of this machine may see among its arguments.

    It is of a file that only its owner can read, and that leads on with a ticket.
    """
    if security.token is None:
        yield place
        return
    path, link = data_dir / DOORWAY, f"{place}#token={security.ticket()}"
    write_atomically(
        path,
        '<!doctype html><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="0; url={escape(link)}">',
    )
    try:
        yield path.as_uri()
    finally:
        path.unlink(missing_ok=True)


def bind(host: str, port: int) -> socket.socket:
    """The socket to listen on; SettingsError if it is not available."""
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address[:2], family=family, backlog=2048, dualstack_ipv6=both)
    except OSError as error:
        raise SettingsError(
            f"Nothing can listen on {host} port {port}: {error.strerror or error}.",
            "Choose another --host, or another --port; 0 is any free one.",
        ) from error


def secure(data_dir: Path, wanted: Security, with_token: bool = True) -> tuple[Security, bool]:
    """`wanted` with its token, and whether the token is new.

    Raises SettingsError if no token is wanted although others can reach the server.
    """
    if not with_token:
        if not wanted.alone:
            raise SettingsError(
                f"A server on {wanted.host} can be reached from elsewhere, so it needs its token.",
                "Leave out --no-token, or --host.",
            )
        return wanted, False
    token, made = keep_token(data_dir)
    return replace(wanted, token=token), made


TOKEN_FILE_NAME = "serve-token"
BYTES = 32


def keep_token(data_dir: Path) -> tuple[str, bool]:
    """The token of a data directory, and whether it was made just now.

    Raises StoreError if its file cannot be used, or can be read by others.
    """
    path, remedy = data_dir / TOKEN_FILE_NAME, "Remove it; a new one is made at the next start."
    with writable(path):
        keep_private(data_dir)
        if made := not path.exists():
            write_atomically(path, secrets.token_urlsafe(BYTES) + "\n")
        if path.stat().st_mode & 0o077:
            raise StoreError(f"the token in {path} can be read by others", remedy)
        token = path.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < BYTES:
        raise StoreError(f"{path} holds no token", remedy)
    return token, made
