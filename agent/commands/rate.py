"""`rubricem rate`: what a person says of an answer, for whoever judges what it taught."""

import click

from agent.settings import load_settings
from memory.errors import SettingsError
from memory.ratings import BEST
from memory.runs import RunStore


@click.command()
@click.argument("thread")
@click.argument("score")
@click.option("--comment", default="", metavar="TEXT", help="What was good or bad about it.")
def rate(thread: str, score: str, comment: str) -> None:
    """Rate the answer of the run THREAD: SCORE is 1, of no use, to 5, just what was asked for.

    The last rating counts. The reflection judge is shown it; the policy never is.
    """
    from agent.rating import rated

    store = RunStore(load_settings().data_dir)
    given = _checked(score)
    waits = rated(store, thread, given, comment)
    click.echo(f"{thread}: rated {given} of {BEST}\n{waits}")


def _checked(score: str) -> int:
    if not (score.isascii() and score.isdigit()) or not 1 <= int(score) <= BEST:
        raise SettingsError(
            f"{score!r} is no rating.",
            f"Give a whole number from 1, of no use, to {BEST}, just what was asked for.",
        )
    return int(score)
