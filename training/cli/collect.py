"""`rubricem collect`: groups of scored rollouts of many questions, in steps that resume.

What most runs choose is an option; everything else is a key, in a TOML file or as KEY=VALUE.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rubricem.agent.cli.options import QUIET, setting_flags
from rubricem.agent.cli.terminal import Interrupts
from rubricem.memory.errors import SettingsError
from rubricem.training.cli.train import OVERRIDES, run_stoppable, tell
from rubricem.training.collect.collect_config import CollectConfig
from rubricem.training.tables import check_table, read_toml


def read_config(
    questions: Path, overrides: Sequence[str], given: dict[str, Any], flags: dict[str, Any]
) -> CollectConfig:
    """The configuration of a file of questions, or of a TOML file that names one.

    `given`: options, which come before the file; `flags`: those that are settings.
    """
    is_file = questions.suffix.lower() == ".toml"
    values = read_toml(questions if is_file else None, overrides)
    values |= {name: value for name, value in given.items() if value is not None}
    own = {name: value for name, value in flags.items() if value not in (None, ())}
    values["settings"] = {**values.get("settings", {}), **own}
    if not is_file:
        values["questions"] = str(questions)
    if not values.get("questions") or not values.get("out"):
        raise SettingsError(
            "A collecting run has questions and a folder.",
            "Name them: rubricem collect QUESTIONS --out RUN.",
        )
    config = check_table(values, CollectConfig, "the collecting run")
    if not is_file:
        return config
    out = given.get("out") or questions.parent / config.out.expanduser()
    return config.beside(questions.parent).model_copy(update={"out": out})


@click.command()
@click.argument("questions", type=click.Path(path_type=Path))
@OVERRIDES
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="RUN",
    help="The run's folder.",
)
@setting_flags("model", "base_url", "source")
@click.option(
    "--judge",
    metavar="KIND",
    help="stage (default), relative, pairwise, checklist, rubric:MODULE:NAME, or none.",
)
@click.option("--group-size", type=int, metavar="G", help="Rollouts of each question (4).")
@click.option("--limit", type=int, metavar="N", help="Questions at most.")
@QUIET
def collect(
    questions: Path,
    overrides: tuple[str, ...],
    out: Path | None,
    judge: str | None,
    group_size: int | None,
    limit: int | None,
    quiet: bool,
    **flags: Any,
) -> None:
    """Collect judged groups of rollouts of QUESTIONS into a run's folder.

    QUESTIONS is a .txt, .jsonl or .parquet file, or a TOML file of all that a run may be
    told, as docs/configuration.md lists it; KEY=VALUE sets one of these, as step_size=8 or
    settings.tool_calls=5. The same command goes on with an interrupted run.
    """
    from rubricem.agent.settings import load_settings
    from rubricem.memory.text import printable
    from rubricem.training.collect.directory import RunDirectory
    from rubricem.training.collect.questions import select_questions
    from rubricem.training.collect.setup import open_collector
    from rubricem.training.show.collected import run_numbers

    given = {"out": out, "judge": judge, "group_size": group_size, "limit": limit}
    config = read_config(questions, overrides, given, flags)
    settings = load_settings({"decoding": "free", **config.settings})
    asked = select_questions(config.questions, config.column, config.held_out, config.limit)
    folder = RunDirectory(config.out)

    async def collect_all(interrupts: Interrupts) -> None:
        def say(line: str) -> None:
            if not quiet:
                tell(line)

        say(asked.told)
        async with open_collector(settings, config, folder, asked, say) as collector:
            with interrupts.running() as stop:
                await collector.collect(stop)

    run_stoppable(collect_all, "Finishing the calls in flight")
    for line in run_numbers(folder).lines():
        click.echo(printable(line))
    click.echo(f"in {config.out}")
