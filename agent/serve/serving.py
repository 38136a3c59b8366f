"""One server from its settings to its end: the socket, the token, the signals."""

import asyncio
import errno
import os
import socket
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click
import uvicorn

from agent.auto_source import with_default_source
from agent.choice import choose_policy
from agent.clients import decoding_of
from agent.serve.app import create_app
from agent.serve.desk import RunDesk
from agent.serve.reach import Machine, announced, here, listens_everywhere
from agent.serve.security import Security, is_loopback
from agent.serve.sole import sole_server
from agent.serve.token import FILE_NAME, kept_token
from agent.settings import Settings
from memory.errors import SettingsError

GRACE = 3
"""seconds that connections get to end"""
BACKLOG = 2048


class Server(uvicorn.Server):
    """Lets those who watch go as soon as the server is to end, so that it need not wait."""

    def __init__(self, config: uvicorn.Config, desk: RunDesk) -> None:
        super().__init__(config)
        self._desk = desk

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._desk.close()
        # Not passed on when it has ended, as uvicorn would: this is how a server ends.
        self.force_exit, self.should_exit = self.should_exit, True


async def served(
    settings: Settings, host: str, port: int, open_page: bool, results: Sequence[Path] = ()
) -> None:
    """Serve until ^C; what is not finished then goes on when the next server starts."""
    settings = with_default_source(settings)
    # What cannot be is told before anybody waits for it.
    decoding_of(settings, choose_policy(settings))
    listening = bound(host, port)
    with sole_server(settings.data_dir):
        await _served(settings, host, listening, open_page, results)


async def _served(
    settings: Settings,
    host: str,
    listening: socket.socket,
    open_page: bool,
    results: Sequence[Path],
) -> None:
    everywhere = listens_everywhere(host)
    machine = await asyncio.to_thread(Machine.found) if everywhere else Machine()
    security, made = secured(settings.data_dir, host, machine)
    desk = RunDesk(settings)
    config = uvicorn.Config(
        create_app(desk, security, results),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        lifespan="on",
    )
    port, kept = listening.getsockname()[1], settings.data_dir / FILE_NAME
    for line in announced(security, port, machine, kept, made):
        click.echo(line)
    if open_page:
        await asyncio.to_thread(webbrowser.open, here(host, port))
    await Server(config, desk).serve([listening])


def secured(data_dir: Path, host: str, machine: Machine) -> tuple[Security, bool]:
    """What the server requires, and whether its token is new: one where others can reach it."""
    if is_loopback(host):
        return Security(host), False
    token, made = kept_token(data_dir)
    names = (machine.name,) if machine.name and listens_everywhere(host) else ()
    return Security(host, token, names), made


def bound(host: str, port: int) -> socket.socket:
    """The socket to listen on; SettingsError where it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingsError(
            f"{host!r} is no address of this machine: {error.strerror or error}.",
            "Name another by --host, or leave it out for this machine alone.",
        ) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _unbound(host, port, error) from error
    listening.setblocking(False)
    return listening


def _unbound(host: str, port: int, error: OSError) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"Port {port} is in use.", "Choose another by --port, or 0 for any free one."
        )
    why = os.strerror(error.errno) if error.errno else str(error)
    return SettingsError(
        f"Nothing can listen on {host} port {port}: {why}.", "Choose another --host or --port."
    )
