"""`rubricem serve` and `rubricem mcp`: the page and the tools of programs, on one's own host."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rubricem.agent.cli.options import BUDGET_FLAGS, Command, setting_flags
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import needed

PORT, MCP_PORT = 8421, 8422


def port(default: int) -> Callable[[Command], Command]:
    kind, said = click.IntRange(0, 65535), f"Port ({default}); 0: a free one."
    return click.option("--port", type=kind, default=default, help=said)


NO_TOKEN = click.option(
    "--no-token",
    "with_token",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Ask for no token: every user of this machine may do everything here.",
)


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
@NO_TOKEN
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe this proxy on who asks (X-Forwarded-For); repeatable.",
)
@setting_flags("reflect_model", *BUDGET_FLAGS, "verify")
def serve(
    host: str,
    port: int,
    open_page: bool,
    results: tuple[Path, ...],
    with_token: bool,
    proxies: tuple[str, ...],
    **flags: Any,
) -> None:
    """Serve the web page, and the same to programs.

    Only this machine can reach it, and a token is asked for, which is printed when it is made; the
    page is opened by --open, or by the link that is printed. Runs go on when their page is closed;
    those that are not finished when the server ends go on when it starts again. Budgets are of each
    question that names none.
    """
    from rubricem.agent.serve.app import run_server

    settings = load_settings(flags)
    serving = run_server(
        settings, host, port, open_page, results, with_token=with_token, proxies=proxies
    )
    asyncio.run(serving)


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve HTTP on this machine, not standard input.")
@port(MCP_PORT)
@NO_TOKEN
@setting_flags("model", "base_url", "source", "allow_host")
def mcp(http: bool, port: int, with_token: bool, **flags: Any) -> None:
    """Serve the tools research, search, open_page, judge, bank_search and bank_show.

    By HTTP the token of `rubricem serve` is asked for.
    """
    needed("mcp", "mcp", "The MCP server")
    from rubricem.agent.mcp.server import PATH, run
    from rubricem.agent.settings.door import setup_of, with_default_source

    setup = setup_of(with_default_source(load_settings(flags)))
    if not http:
        run(setup, None)
        return
    from rubricem.agent.serve.app import served_here

    run(setup, served_here(setup.stores.data_dir, port, PATH, with_token))
