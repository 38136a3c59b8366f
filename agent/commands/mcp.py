"""`rubricem mcp`: the agent's tools for programs that speak the Model Context Protocol."""

from importlib.util import find_spec
from typing import Any

import click

from agent.settings import load_settings
from memory.errors import SettingsError

PORT = 8422


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve HTTP on this machine, not standard input.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, help=f"Port ({PORT}); 0: a free one."
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
    from agent.mcp_server.running import run

    run(load_settings(flags), port if http else None)
