"""`rubricem serve`, `mcp` and `users`: the web page, tools for programs, and who may use them."""

import asyncio
import math
from pathlib import Path
from typing import Any

import click

from rubricem.agent.cli import options
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import import_extra
from rubricem.memory.text import pluralise

OWN = ("host", "port", "open_page", "results", "with_token", "proxies", "tls_cert",
       "tls_key", "log_level")  # fmt: skip
"""parameters of serve that are no settings"""
PORT = 8421


class Finite(click.FloatRange):
    """A range of numbers without nan and infinity, which are in every range of click's."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


ABOVE_0 = Finite(min=0, min_open=True)


@click.command()
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Listen here (127.0.0.1).")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, help=f"Port ({PORT}); 0: a free one."
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@options.setting_flags("model", "base_url", "source")
@click.option(
    "--results",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    metavar="FOLDER",
    help="Show the collected and trained runs in it, too; repeatable.",
)
@click.option(
    "--no-token",
    "with_token",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Ask for no token: every user of this machine may do everything here.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Trust the X-Forwarded-For of this proxy; repeatable.",
)
@click.option("--tls-cert", type=options.EXISTING, help="Serve TLS with this PEM file.")
@click.option("--tls-key", type=options.EXISTING, help="Its key, if not in the same file.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    help="Lowest level that is logged (warning); info: also requests, and runs that end.",
)
@options.set_option
def serve(**given: Any) -> None:
    """Serve the web page, and interfaces for programs.

    Only this machine can reach it, and it needs a token. Open the page with --open, or with the
    link that is shown on a terminal. Runs go on when their page is closed; those
    that are unfinished when the server ends go on when it starts again. Budgets apply to each
    question that sets none.
    """
    from rubricem.agent.serve.app import run_server

    own = {name: given.pop(name) for name in OWN}
    asyncio.run(run_server(load_settings(given), **own))


@click.command("mcp")
@options.setting_flags("model", "base_url", "source")
@options.set_option
def mcp(**flags: Any) -> None:
    """Serve the tools research, search and open_page.

    They are served on standard input and output; `rubricem serve` has them at /mcp, over HTTP.
    """
    import_extra("mcp", "mcp", "The MCP server")
    from rubricem.agent.mcp.server import run
    from rubricem.agent.settings.door import setup_of, with_default_source

    setup = setup_of(with_default_source(load_settings(flags)))
    setup.sources.check()
    asyncio.run(run(setup))


@click.group(cls=options.CommandGroup, invoke_without_command=True)
@options.AS_JSON
@click.pass_context
def users(context: click.Context, as_json: bool) -> None:
    """List who has a token for `rubricem serve`, and what each may spend.

    Each has runs, memory, conversations and uploads of their own.
    """
    if context.invoked_subcommand is not None:
        return
    from rubricem.agent.settings.users import Users

    known = Users(load_settings().data_dir).all()
    told = {name: each.allowance.model_dump(exclude_none=True) for name, each in known.items()}
    if as_json:
        options.print_json({"users": told})
        return
    for name, allowance in told.items():
        limits = [f"{each.replace('_', ' ')} {value:g}" for each, value in allowance.items()]
        click.echo(f"{name:20}{', '.join(limits) or 'as the server has it'}")
    click.echo(pluralise(len(told), "user"))


@users.command("add")
@click.argument("name")
@click.option("--max-cost", type=ABOVE_0, help="US dollars of one question.")
@click.option("--max-total-tokens", type=click.IntRange(1), help="Tokens of one question.")
@click.option("--max-seconds", type=ABOVE_0, help="Seconds of one question.")
@click.option("--day-cost", type=ABOVE_0, help="US dollars in a day.")
@click.option("--day-tokens", type=click.IntRange(1), help="Tokens in a day.")
@click.option("--day-runs", type=click.IntRange(1), help="Questions in a day.")
def add_user(name: str, **allowance: Any) -> None:
    """Make a token for NAME, and print it this once.

    One who has a token gets another in its place, and keeps the limits that are not given anew.
    """
    from rubricem.agent.settings.users import UserBudget, Users

    wanted = UserBudget(**allowance)
    known = Users(load_settings().data_dir)
    again = "; the one before no longer works" if name in known.all() else ""
    click.echo(f"The token of {name}, shown this once{again}: {known.put(name, wanted)}")


@users.command("rm")
@click.argument("name")
def rm_user(name: str) -> None:
    """Revoke the token of NAME; what they asked stays, and no later NAME sees it."""
    from rubricem.agent.settings.users import Users

    left = Users(load_settings().data_dir).drop(name)
    click.echo(f"{name} has no token any more; what they asked is in {left}: delete it, or keep it")
