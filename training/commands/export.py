"""`rubricem export`: what a run collected, in the form that a trainer reads."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from training.compiling import Compiled


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
    from training.tokenising import compiled_run

    path = out or run / f"{form}.jsonl"
    compiled = asyncio.run(compiled_run(run, dependence, model))
    write_rows(path, compiled.rows)
    for line in _told(compiled):
        click.echo(line)
    click.echo(f"in {path}")


def _told(compiled: "Compiled") -> list[str]:
    counts = Counter(row.objective for row in compiled.rows)
    tokens = sum(sum(row.loss_mask) for row in compiled.rows)
    rows: list[Any] = [f"{count} {objective}" for objective, count in sorted(counts.items())]
    told = [f"{len(compiled.rows)} rows ({', '.join(rows) or 'none'}), {tokens} trained tokens"]
    barred = sum(not row.ratio_allowed and row.objective != "sft" for row in compiled.rows)
    if barred:
        told.append(
            f"{barred} of them not sampled as they stand: no policy-gradient ratio may be formed"
        )
    return told + [f"{count} dropped: {reason}" for reason, count in compiled.dropped.items()]
