"""`rubricem eval QUESTIONS`: one file of questions, any model and source, measured in one way.

Rows are stored as they come; ^C and a kill lose at most the runs in flight, and the same command
continues. Without --out the folder is named after the file and the settings, so that other settings
get another one.
"""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli import options
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import SettingsError
from rubricem.memory.text import digest_of, pluralise

if TYPE_CHECKING:
    from rubricem.agent.evaluate.experiment import EvalRow, Experiment
    from rubricem.agent.models.opening import PolicyChoice
    from rubricem.agent.settings import Settings

OWN = ("arms", "form", "judge", "judge_model", "judge_base_url", "limit", "out", "own_passages")
"""flags that are no settings"""
AT_ONCE = 8
"""runs at once on a server, at most"""


@click.command("eval")
@click.argument("questions", type=options.EXISTING)
@click.option(
    "--arms",
    default="stages",
    metavar="ARM,...",
    help="stages, plain, closed, and memory: stages with what earlier runs taught (stages).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["long", "short", "exact"]),
    help="Of the answers; without it exact where the file gives an answer.",
)
@click.option(
    "--judge", type=click.Choice(["checklist", "stage"]), help="Grade rubrics by this judge."
)
@click.option("--judge-model", metavar="NAME", help="Its model; else the one under test.")
@click.option("--judge-base-url", metavar="URL", help="The server of the judge's model.")
@click.option("--own-passages", is_flag=True, help="Search what came with the questions.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The first N questions.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder for rows, runs and results; an existing one continues.",
)
@options.setting_flags("model", "base_url", "source")
@options.set_option
@options.AS_JSON
@options.QUIET
def evaluation(questions: Path, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Measure how well questions are answered: by match, evidence, cites and rubrics.

    QUESTIONS is a file of JSON lines with question and any of answer, pattern, gold, rubric, type
    and unanswerable; or 2WikiMultihopQA, HotpotQA, MuSiQue, HealthBench or DeepResearch Bench as
    published.
    """
    from rubricem.agent.evaluate.questions import ungraded
    from rubricem.agent.evaluate.results import text_table, write_results

    def tell(line: str) -> None:
        if not (quiet or as_json):
            click.echo(line, err=True)

    experiment = experiment_of(questions, flags)
    asked = experiment.questions.questions
    if warning := ungraded(asked):
        click.echo(f"warning: {warning}", err=True)
    if experiment.judge is None and any(q.rubric for q in asked):
        click.echo("warning: no rubric is graded without --judge checklist or stage.", err=True)
    running = experiment.run(tell, lambda row, done, all_: tell(row_line(row, done, all_)))
    try:
        rows = asyncio.run(running)
    except KeyboardInterrupt:
        told = f"\nWhat has ended is kept in {experiment.out}: the same command goes on from there."
        click.echo(told, err=True)
        raise
    told_all = write_results(experiment, rows)
    if as_json:
        options.print_json(told_all)
        return
    click.echo("\n".join(text_table(told_all)))
    if told_all["comparable"]:
        click.echo(told_all["comparable"])
    click.echo(f"every answer: {experiment.out}")


def experiment_of(path: Path, flags: dict[str, Any]) -> "Experiment":
    """The experiment given by the flags; raises SettingsError for an impossible one."""
    from rubricem.agent.evaluate.arms import Arm
    from rubricem.agent.evaluate.experiment import Experiment
    from rubricem.agent.evaluate.questions import QuestionSet
    from rubricem.agent.settings.door import setup_of, with_default_source
    from rubricem.agent.sources.index import PassageCorpus
    from rubricem.memory.schema import AnswerFormat

    given = {name: flags.pop(name) for name in OWN}
    arms = Arm.parse(given["arms"])
    asked = QuestionSet.read(path).first(given["limit"])
    settings = _naming_its_model(load_settings({**flags, "memory": "off"}))
    setup = setup_of(settings if given["own_passages"] else with_default_source(settings))
    searched = None
    if given["own_passages"]:
        if not asked.passages:
            raise SettingsError(
                f"No passages came with the questions of {path}.",
                "Leave out --own-passages, and name what is searched with --source.",
            )
        searched = PassageCorpus(asked.passages, setup.stores.data_dir / "indexes" / "evaluated")
    experiment = Experiment(
        setup,
        asked,
        arms,
        given["out"] or Path(),
        AnswerFormat(given["form"]) if given["form"] else None,
        given["judge"],
        judge_model_of(settings, given["judge_model"], given["judge_base_url"]),
        setup.model.at_once if setup.model.embedded else min(AT_ONCE, setup.model.at_once),
        searched,
    )
    if given["out"] is None:
        told = json.dumps([experiment.row_inputs(), asked.digest()], sort_keys=True)
        name = f"{re.sub(r'[^A-Za-z0-9_.-]', '-', path.stem)}-{digest_of(told, 8)}"
        experiment = replace(experiment, out=settings.data_dir / "evaluations" / name)
    return experiment


def _naming_its_model(settings: "Settings") -> "Settings":
    """The settings with the model that a server has, where none is named: rows are one model's."""
    from rubricem.agent.models.opening import ServerChoice
    from rubricem.agent.settings.door import model_of

    choice = model_of(settings)
    if not isinstance(choice, ServerChoice) or choice.model:
        return settings
    return settings.model_copy(update={"model": asyncio.run(choice.resolve_model())})


def judge_model_of(
    settings: "Settings", name: str | None, url: str | None
) -> "PolicyChoice | None":
    """The judge's model, or None if it is the one under test."""
    from rubricem.agent.settings.door import judging, model_of

    if name is None and url is None:
        return None
    return model_of(_naming_its_model(judging(settings, name, url)))


def row_line(row: "EvalRow", done: int, total: int) -> str:
    score = row.grade.score
    graded = row.status.value if score is None else f"{score:.2f}"
    searches = pluralise(row.searches, "search")
    return f"{done}/{total} {row.arm} {graded} {row.seconds:.1f} s, {searches}: {row.question[:60]}"
