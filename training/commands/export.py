"""`rubricem export`: what a run collected, in the form that a trainer reads."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memory.errors import SettingsError

if TYPE_CHECKING:
    from training.compiling import Compiled
    from training.run_directory import RunDirectory
    from training.sequences import Tokeniser


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["rows"]), default="rows", help="What to write.")
@click.option("--out", type=Path, metavar="FILE", help="Where (RUN/rows.jsonl).")
@click.option(
    "--dependence",
    type=click.Choice(["paper", "broadcast", "identity"]),
    default="paper",
    help="Which later stages an earlier one is credited with.",
)
@click.option("--model", help="The embedded model to train, for text that has no token ids.")
def export(run: Path, form: str, out: Path | None, dependence: str, model: str | None) -> None:
    """Compile the collecting run RUN into training rows, one JSON object a line."""
    from training.exporting import write_rows

    path = out or run / f"{form}.jsonl"
    compiled = asyncio.run(_compiled(run, dependence, model))
    write_rows(path, compiled.rows)
    for line in _told(compiled):
        click.echo(line)
    click.echo(f"in {path}")


async def _compiled(folder: Path, dependence: str, model: str | None) -> "Compiled":
    from training.exporting import run_rows
    from training.returns import PAPER, broadcast, identity
    from training.run_directory import RunDirectory

    matrix = {"paper": PAPER, "broadcast": broadcast(), "identity": identity()}[dependence]
    run = RunDirectory(folder)
    async with _tokeniser(run, model) as tokeniser:
        return await run_rows(run, tokeniser, matrix)


@asynccontextmanager
async def _tokeniser(run: "RunDirectory", model: str | None) -> "AsyncIterator[Tokeniser | None]":
    """The model that text without ids is encoded for: the one named, or the run's own."""
    from agent.choice import EmbeddedChoice, choose_policy
    from agent.clients import load_embedded
    from agent.events import ignore
    from agent.settings import load_settings
    from training.exporting import needs_tokeniser

    settings = load_settings({"model": model or run.manifest().settings["model"]})
    settings = settings.model_copy(update={"base_url": None})
    if not needs_tokeniser(run) or (run.manifest().settings["base_url"] and not model):
        yield None
        return
    choice = choose_policy(settings)
    if not isinstance(choice, EmbeddedChoice):
        raise SettingsError(
            f"{settings.model!r} is no embedded model.", "Name the one to train: --model 0.5b"
        )
    loaded = await load_embedded(settings, choice, ignore)
    try:
        yield loaded
    finally:
        await loaded.aclose()


def _told(compiled: "Compiled") -> list[str]:
    counts = Counter(row.objective for row in compiled.rows)
    tokens = sum(sum(row.loss_mask) for row in compiled.rows)
    rows: list[Any] = [f"{count} {objective}" for objective, count in sorted(counts.items())]
    told = [f"{len(compiled.rows)} rows ({', '.join(rows) or 'none'}), {tokens} trained tokens"]
    barred = sum(not row.ratio_allowed and row.objective != "sft" for row in compiled.rows)
    if barred:
        told.append(f"{barred} of them retokenised: no policy-gradient ratio may be formed of them")
    return told + [f"{count} dropped: {reason}" for reason, count in compiled.dropped.items()]
