"""`rubricem export`: what a run collected, in the form that a trainer reads."""

import asyncio
from pathlib import Path
from typing import Any

import click

FORMS = ("rows", "sft", "pairs", "parquet", "hf", "jsonl")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    type=click.Choice(FORMS),
    default="rows",
    show_default=True,
    help="Training rows, accepted conversations, preference pairs, a table, a Hugging Face "
    "dataset, or trajectories with their judgements.",
)
@click.option("--out", type=Path, metavar="PATH", help="Where (beside the run's own files).")
@click.option(
    "--of",
    type=click.Choice(["rows", "trajectories"]),
    default="rows",
    show_default=True,
    help="parquet, hf: what the table holds.",
)
@click.option(
    "--credit",
    type=click.Choice(["ss-grpo", "answer-only", "dr-grpo", "identity"]),
    default="ss-grpo",
    show_default=True,
    help="Which scores a stage is credited with.",
)
@click.option(
    "--scaffold-ratio",
    type=click.Choice(["unscaffolded", "behaviour", "scaffolded"]),
    default="unscaffolded",
    show_default=True,
    help="rows: what the ratio of a rollout under a rubric scaffold is formed of.",
)
@click.option("--model", help="The model to train, for text that has no token ids.")
@click.option(
    "--by",
    type=click.Choice(["return", "plan", "research", "review", "answer"]),
    default="return",
    show_default=True,
    help="pairs: what the best and the worst of a group are found by.",
)
@click.option(
    "--margin",
    type=click.FloatRange(0),
    default=0.1,
    show_default=True,
    help="pairs: how far apart they are at least.",
)
@click.option(
    "--rule",
    "rules",
    type=click.Choice(["citation", "support"]),
    multiple=True,
    help="of what is imitated: also reject cites of what was never found, or answers with no "
    "supported cite.",
)
def export(run: Path, form: Any, out: Path | None, rules: tuple[str, ...], **flags: Any) -> None:
    """Write what the collecting run RUN has finished in the form that a trainer reads."""
    from agent.rejection import Rule
    from training.export_forms import ExportOptions, export_run, place_of

    options = ExportOptions(rules=frozenset(map(Rule, rules)), **flags)
    path = out or place_of(run, form, options)
    for line in asyncio.run(export_run(run, form, path, options)):
        click.echo(line)
    click.echo(f"in {path}")
