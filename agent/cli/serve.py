"""`rubricem serve` and `rubricem mcp`: the page and the tools of programs, on one's own host."""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from rubricem.agent.cli.options import BUDGET_FLAGS, Command, setting_flags
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import SettingsError

PORT, MCP_PORT = 8421, 8422


def port(default: int) -> Callable[[Command], Command]:
    kind, said = click.IntRange(0, 65535), f"Port ({default}); 0: a free one."
    return click.option("--port", type=kind, default=default, help=said)


@click.command()
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Listen here (127.0.0.1).")
@port(PORT)
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@setting_flags("model", "base_url", "source", "decoding", "retrieval", "memory", "allow_host")
@click.option(
    "--results",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    metavar="FOLDER",
    help="Show the collected and trained runs in it, too; repeatable.",
)
@setting_flags(*BUDGET_FLAGS, "verify")
def serve(host: str, port: int, open_page: bool, results: tuple[Path, ...], **flags: Any) -> None:
    """Serve the web page, and the same to programs.

    Only this machine can reach it. With --host elsewhere a token is asked for, which is printed
    when it is made. Runs go on when their page is closed; those that are not finished when the
    server ends go on when it starts again. Budgets are of each question that names none.
    """
    from rubricem.agent.serve.app import run_server

    settings = load_settings(flags)
    asyncio.run(run_server(settings, host, port, open_page, results))


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve HTTP on this machine, not standard input.")
@port(MCP_PORT)
@setting_flags("model", "base_url", "source", "allow_host")
def mcp(http: bool, port: int, **flags: Any) -> None:
    """Serve the tools research, search, open_page, judge, bank_search and bank_show."""
    if find_spec("mcp") is None:
        raise SettingsError(
            "The MCP server needs the extra `mcp`.", 'Install it: pip install "rubricem[mcp]"'
        )
    from rubricem.agent.mcp.server import HOST, run
    from rubricem.agent.serve.security import bind
    from rubricem.agent.settings.door import setup_of, with_default_source

    setup = setup_of(with_default_source(load_settings(flags)))
    run(setup, bind(HOST, port) if http else None)
