"""One server from its settings to its end: the application, the socket, the token, the signals.

The application is routes over the desk and the page's static files, with the guard before both.
What was collected and trained is told by the room to the left, and therefore named by string.

There is one server for each data directory: what two of them did to one run, neither would know.
A token is made once and kept for its owner alone, unless who serves this machine alone wants none.
One that listens on all addresses is told by those that this machine has in its networks, since
nobody elsewhere can open 0.0.0.0 or a loopback address.
"""

import asyncio
import os
import secrets
import socket
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import FrameType

import click
import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from rubricem.agent.learning.scoring import score_run
from rubricem.agent.serve import (
    openai,
    routes_bank,
    routes_ended,
    routes_mcp,
    routes_runs,
    routes_uploads,
)
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.refusals import OPENAI, RequestRefused, reply_of, unfit
from rubricem.agent.serve.security import (
    Guard,
    Security,
    address_in,
    bind,
    config_of,
    throttle_accepts,
)
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of, with_default_source
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.runs import held_alone, keep_private, writable

RESULTS = "rubricem.training.show.routes"
"""its `router` takes the data directory and further folders"""


def create_app(desk: RunDesk, security: Security, results: Sequence[Path] = ()) -> FastAPI:
    """The application; its lifespan opens and closes the desk.

    `results`: folders with collected or trained runs that are shown, too.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with desk.open():
            yield

    app = FastAPI(
        title="rubricem", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.add_middleware(Guard, security=security)
    for routes in _routers(desk, security, results):
        app.include_router(routes)
    _tell_errors(app)
    folder = Path(str(files("rubricem.agent.serve") / "static"))

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(folder / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/static", StaticFiles(directory=folder), name="static")
    return app


def _routers(desk: RunDesk, security: Security, results: Sequence[Path]) -> Iterator[APIRouter]:
    settings = desk.settings

    async def judge(run: str) -> None:
        await score_run(desk.setup, run, desk.researchers.reader)

    yield routes_runs.router(desk, security)
    yield openai.router(desk)
    yield routes_mcp.router(desk)
    yield routes_bank.router(desk.setup.stores.open_bank())
    yield routes_ended.router(settings, judge)
    yield routes_uploads.router(settings.data_dir)
    yield import_module(RESULTS).router(settings.data_dir, results)


def _tell_errors(app: FastAPI) -> None:
    """Every error is a sentence and a remedy, and never a trace."""

    @app.exception_handler(RubricemError)
    async def ours(request: Request, error: RubricemError) -> JSONResponse:
        return JSONResponse(*reply_of(error, request.url.path))

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first, path = error.errors()[0], request.url.path
        place = ".".join(str(part) for part in first["loc"][1:])
        no_json = first["type"] == "json_invalid"
        if path.startswith(OPENAI):
            no_object = no_json or not place
            said = "The body must be a JSON object." if no_object else f"{place}: {first['msg']}."
            refused = unfit(said, None if no_object else place)
        elif no_json:
            said = "The body is not valid JSON."
            refused = RequestRefused(HTTPStatus.BAD_REQUEST, said, "Send one JSON object.")
        else:
            place = place or "the body"
            said, remedy = f"{place}: {first['msg']}.", f"Correct {place}."
            refused = RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, said, remedy)
        return await ours(request, refused)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        phrase = HTTPStatus(error.status_code).phrase
        body = {"error": f"{phrase}.", "remedy": "See the list of addresses in the documentation."}
        return JSONResponse(body, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> JSONResponse:
        body = {
            "error": "rubricem itself failed at this request.",
            "remedy": "What happened stands where rubricem serve was started; please report it.",
        }
        return JSONResponse(body, HTTPStatus.INTERNAL_SERVER_ERROR)


LOCK_FILE_NAME = "serve.lock"


def sole_server(data_dir: Path) -> AbstractContextManager[None]:
    """Hold the directory while the server lasts; SettingsError where another one holds it."""
    busy = SettingsError(
        f"Another rubricem serve works with {data_dir}.",
        "Use that one, end it, or name another directory by RUBRICEM_DATA_DIR.",
    )
    return held_alone(data_dir / LOCK_FILE_NAME, busy)


ELSEWHERE = ((socket.AF_INET, "198.51.100.1"), (socket.AF_INET6, "2001:db8::1"))
"""kept for documentation, so nobody's: the routing table is asked, and nothing is sent"""
NOT_FOUND = "No address of this machine in a network was found; that one opens it here alone."
TOKENLESS = "Warning: without a token every user of this machine can do everything here."
WARNING = (
    "Warning: others can reach this server. Whoever has its token can do everything here, and "
    "without TLS whoever is on the way can read the token."
)


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine as others can call it."""

    name: str = ""
    """"" where its name does not lead to one of its addresses"""
    addresses: tuple[str, ...] = ()
    """numbers, the one that is used most first"""

    @classmethod
    def found(cls) -> "Machine":
        """By the address that it shows to what lies beyond its networks, of each family."""
        name, named, routed = socket.gethostname(), list[str](), list[str]()
        for family, elsewhere in ELSEWHERE:
            with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                routed.append(str(probe.getsockname()[0]))
        with suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            named = [str(address[0]) for *_, address in found]
        return cls.of(name, named, routed)

    @classmethod
    def of(cls, name: str, named: Sequence[str], routed: Sequence[str]) -> "Machine":
        """From what its name leads to, and the addresses that it shows to others."""
        numbers = {text: address_in(text) for text in [*routed, *named]}
        addresses = tuple(
            text
            for text, number in numbers.items()
            if number and not (number.is_loopback or number.is_link_local or number.is_unspecified)
        )
        known = any(address in addresses for address in named)
        return cls(name.casefold() if known else "", addresses)


def listens_everywhere(host: str) -> bool:
    """Whether what listens there can be opened by any address of the machine."""
    number = address_in(host)
    return number.is_unspecified if number else not host


def places(host: str, port: int, machine: Machine) -> list[str]:
    """The addresses by which a server on `host` is opened; at least one."""
    if not listens_everywhere(host):
        return [_link("127.0.0.1" if host == "localhost" else host, port)]
    # What listens on :: mostly takes both families, what listens on 0.0.0.0 never does.
    own = [a for a in machine.addresses if ":" not in a or ":" in host]
    names = [machine.name] if machine.name and own else []
    return [_link(each, port) for each in [*own, *names]] or [here(host, port)]


def here(host: str, port: int) -> str:
    """The address by which this machine itself opens it."""
    if not listens_everywhere(host):
        return places(host, port, Machine())[0]
    return _link("::1" if ":" in host else "127.0.0.1", port)


def announce(
    security: Security, port: int, machine: Machine, kept: Path, made: bool, ticket: str = ""
) -> Iterator[str]:
    """What is said when the server starts, line by line.

    `kept`: the file of its token; `made`: whether that is new, and so is shown this once;
    `ticket`: what lets one browser in.
    """
    first, *others = places(security.host, port, machine)
    yield f"Serving on {first} (^C ends it; runs go on when it starts again)"
    yield from (f"and on {other}" for other in others)
    if security.token is None:
        yield TOKENLESS
        return
    if listens_everywhere(security.host) and first == here(security.host, port):
        yield NOT_FOUND
    if made:
        yield f"Token: {security.token} (it is kept in {kept})"
    else:
        yield f"A token is asked for; it is kept in {kept}"
    if ticket:
        yield f"This link lets one browser in, within the hour: {first}#token={ticket}"
    if not security.alone:
        yield WARNING


def _link(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class PageServer(uvicorn.Server):
    """Lets those who watch go as soon as the server is to end, so that it need not wait."""

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
    open_page: bool,
    results: Sequence[Path] = (),
    *,
    with_token: bool = True,
    proxies: tuple[str, ...] = (),
) -> None:
    """Serve until ^C; what is not finished then goes on when the next server starts."""
    settings = with_default_source(settings)
    # What cannot be is told before anybody waits for it.
    setup_of(settings)
    listening = bind(host, port)
    port = listening.getsockname()[1]
    with sole_server(settings.data_dir):
        everywhere = listens_everywhere(host)
        machine = await asyncio.to_thread(Machine.found) if everywhere else Machine()
        names = (machine.name,) if machine.name and everywhere else ()
        wanted = Security(host, names=names, port=port, proxies=proxies)
        security, made = secure(settings.data_dir, wanted, with_token)
        desk = RunDesk(settings)
        config = config_of(create_app(desk, security, results), security, lifespan="on")
        throttle_accepts(asyncio.get_running_loop())
        kept = settings.data_dir / TOKEN_FILE_NAME
        ticket = security.ticket() if security.token else ""
        for line in announce(security, port, machine, kept, made, "" if open_page else ticket):
            click.echo(line)
        if open_page:
            link = f"{here(host, port)}#token={ticket}" if ticket else here(host, port)
            await asyncio.to_thread(webbrowser.open, link)
        await PageServer(config, desk).serve([listening])


def served_here(
    data_dir: Path, port: int, path: str, with_token: bool
) -> Callable[[ASGIApp], Awaitable[None]]:
    """What serves another application at a path on loopback, behind the same guard, until ^C."""
    listening = bind(Security.host, port)
    port = listening.getsockname()[1]
    security, _ = secure(data_dir, Security(port=port), with_token)

    async def serve(app: ASGIApp) -> None:
        throttle_accepts(asyncio.get_running_loop())
        kept = f"Authorization: Bearer and the token in {data_dir / TOKEN_FILE_NAME} are asked for."
        address = _link(Security.host, port).rstrip("/") + path
        click.echo(f"Serving on {address} (^C ends it)", err=True)
        click.echo(kept if security.token else TOKENLESS, err=True)
        await uvicorn.Server(config_of(Guard(app, security), security)).serve([listening])

    return serve


def secure(data_dir: Path, wanted: Security, with_token: bool = True) -> tuple[Security, bool]:
    """The same with its token, and whether that is new.

    Raises SettingsError where none is wanted though others can reach the server.
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
    """The token of a data directory, and whether it was made now.

    Raises StoreError where its file cannot be used, or can be read by others.
    """
    path = data_dir / TOKEN_FILE_NAME
    with writable(path):
        keep_private(data_dir)
        if path.exists():
            return _token_in(path), False
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        token = secrets.token_urlsafe(BYTES)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        return token, True


def _token_in(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise StoreError(
            f"the token in {path} can be read by others",
            "Remove the file; a new one is made when the server starts.",
        )
    token = path.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < BYTES:
        raise StoreError(
            f"{path} holds no token", "Remove it; a new one is made when the server starts."
        )
    return token
