"""`rubricem loop`: one thin line through everything, on one machine without a key."""

import asyncio
import time
from pathlib import Path

import click


@click.command()
@click.option("--out", type=Path, default=Path("loop"), metavar="LOOP", help="Its folder (loop).")
def loop(out: Path) -> None:
    """Warm a small model up, collect, judge, reflect, train, and ask again; an hour or two.

    The same command goes on with an interrupted loop; what is finished is not repeated.
    """
    from training.loop.plan import default_plan
    from training.loop.running import run_loop

    began = time.monotonic()

    def tell(line: str) -> None:
        click.echo(f"{(time.monotonic() - began) / 60:6.1f} min  {line}", err=True)

    click.echo(asyncio.run(run_loop(out, default_plan(), tell)))
