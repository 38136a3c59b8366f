"""`rubricem serve`: the web page and the HTTP interfaces, on one's own host.

`rubricem mcp`: the agent's tools for programs that speak the Model Context Protocol.
"""

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from rubricem.agent.cli.terminal import budgets
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import SettingsError

PORT = 8421


@click.command()
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Listen here (127.0.0.1).")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, help=f"Port ({PORT}); 0: a free one."
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option("--model", help="1.5b, 0.5b, a .gguf file, org/repo of the hub, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
@click.option(
    "--source",
    multiple=True,
    help="`python`, `web`, `scholar`, `searxng:URL`, `auto`, or a folder of documents; repeatable.",
)
@click.option("--decoding", type=click.Choice(["auto", "forced", "free"]))
@click.option("--retrieval", type=click.Choice(["lexical", "hybrid"]))
@click.option("--memory", type=click.Choice(["on", "off", "read-only"]))
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="HOST",
    help="A private host whose pages may be read; repeatable.",
)
@click.option(
    "--results",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    metavar="FOLDER",
    help="Show the collected and trained runs in it, too; repeatable.",
)
@budgets
@click.option("--verify", type=click.Choice(["off", "mark", "repair"]))
def serve(host: str, port: int, open_page: bool, results: tuple[Path, ...], **flags: Any) -> None:
    """Serve the web page, and the same to programs.

    Only this machine can reach it. With --host elsewhere a token is asked for, which is printed
    when it is made. Runs go on when their page is closed; those that are not finished when the
    server ends go on when it starts again. Budgets are of each question that names none.
    """
    from rubricem.agent.serve.app import served

    settings = load_settings(flags)
    asyncio.run(served(settings, host, port, open_page, results))


MCP_PORT = 8422


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve HTTP on this machine, not standard input.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=MCP_PORT,
    help=f"Port ({MCP_PORT}); 0: a free one.",
)
@click.option("--model", help="1.5b, 0.5b, a .gguf file, org/repo of the hub, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
@click.option(
    "--source",
    multiple=True,
    help="`python`, `web`, `scholar`, `searxng:URL`, `auto`, or a folder of documents; repeatable.",
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="HOST",
    help="A private host whose pages may be read; repeatable.",
)
def mcp(http: bool, port: int, **flags: Any) -> None:
    """Serve the tools research, search, open_page, judge, bank_search and bank_show."""
    if find_spec("mcp") is None:
        raise SettingsError(
            "The MCP server needs the extra `mcp`.", 'Install it: pip install "rubricem[mcp]"'
        )
    from rubricem.agent.mcp.server import run

    run(load_settings(flags), port if http else None)
