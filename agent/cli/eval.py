"""`rubricem eval QUESTIONS`: one file of questions, any model and source, measured in one way.

Rows are stored as they come; ^C and a kill lose at most the runs in flight, and the same command
continues. Without --out the folder is named after the file and the settings, so that other settings
get another one.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli.options import (
    BUDGET_FLAGS,
    EXISTING,
    ONLY_JSON,
    QUIET,
    print_json,
    setting_flags,
)
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import SettingsError
from rubricem.memory.text import digest_of, pluralise

if TYPE_CHECKING:
    from rubricem.agent.evaluate import EvalRow, Experiment
    from rubricem.agent.models.opening import PolicyChoice
    from rubricem.agent.reports.entailment import EntailmentChoice
    from rubricem.agent.settings import Settings

OWN = (
    *("arms", "best_of", "memory", "form", "answer_format", "judge", "judge_model", "judge_url"),
    *("limit", "at_once", "out", "checker", "own_passages"),
)
"""flags that are no settings"""
AT_ONCE = 8
"""default for simultaneous runs on a server"""


@click.command("eval")
@click.argument("questions", type=EXISTING, required=False)
@click.option("--arms", default="stages", metavar="ARM,...", help="stages, plain, closed (stages).")
@click.option("--best-of", type=click.IntRange(2, 64), metavar="N", help="An arm of N runs.")
@click.option(
    "--memory",
    type=click.Choice(["off", "on", "both"]),
    default="off",
    show_default=True,
    help="Put what earlier runs taught before the question; nothing is learnt.",
)
@click.option("--format", "form", metavar="NAME", help="Force the format of the file.")
@click.option("--answer-format", type=click.Choice(["auto", "long", "short", "exact"]),
              default="auto", help="auto: exact where an answer is given.")  # fmt: skip
@click.option("--judge", metavar="KIND", help="Grade rubrics by a judge: checklist or stage.")
@click.option("--judge-model", metavar="NAME", help="Its model; else the one under test.")
@click.option("--judge-url", metavar="URL", help="The server of the judge's model.")
@click.option("--claims", type=EXISTING, metavar="FILE", help="Check labelled claims instead.")
@click.option("--checker", metavar="NAME",
              help="Of claims: rules, a model such as 0.5b, or a classifier (rules).")  # fmt: skip
@click.option("--own-passages", is_flag=True, help="Search what came with the questions.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The first N questions.")
@click.option("--at-once", type=click.IntRange(min=1), metavar="N",
              help=f"Runs at once (server {AT_ONCE}, embedded its slots).")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Folder for rows, runs, JSON and page; an existing one continues.")  # fmt: skip
@setting_flags("model", "base_url", "source", "decoding", "retrieval", "allow_host")
@setting_flags(*BUDGET_FLAGS, "verify", "slots", "concurrency", "temperature", "seed")
@ONLY_JSON
@QUIET
def evaluation(
    questions: Path | None, as_json: bool, quiet: bool, claims: Path | None, **flags: Any
) -> None:
    """Measure how well questions are answered: by match, evidence, cites and rubrics.

    QUESTIONS is a file of JSON lines with question and any of answer, pattern, gold, rubric, type
    and unanswerable; or 2WikiMultihopQA, HotpotQA, MuSiQue, SimpleQA, HealthBench or DeepResearch
    Bench as published. With --claims FILE the check of citations is measured instead: on WiCE,
    AttributionBench or lines with claim, evidence and label.
    """
    quiet = quiet or as_json

    def tell(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    if (questions is None) == (claims is None):
        raise SettingsError(
            "Name a file of questions, or one of claims." if claims is None
            else "Questions and claims are measured one at a time.",
            "rubricem eval QUESTIONS, or rubricem eval --claims FILE.",
        )  # fmt: skip
    if claims is not None:
        _print_claims(claims, flags, as_json, tell)
    elif questions is not None:
        _print_answers(questions, flags, as_json, tell)


def _print_answers(
    questions: Path, flags: dict[str, Any], as_json: bool, tell: Callable[[str], None]
) -> None:
    from rubricem.agent.evaluate import PAGE, text_table, ungraded, write_results

    experiment = experiment_of(questions, flags)
    if warning := ungraded(experiment.questions.questions):
        click.echo(f"warning: {warning}", err=True)
    if experiment.judge is None and any(q.rubric for q in experiment.questions.questions):
        click.echo("warning: no rubric is graded without --judge checklist or stage.", err=True)
    with _say_where_kept(experiment.out):
        rows = asyncio.run(
            experiment.run(tell, lambda row, done, all_: tell(row_line(row, done, all_)))
        )
    told = write_results(experiment, rows)
    if as_json:
        print_json(told)
        return
    click.echo("\n".join(text_table(told)))
    if told["comparable"]:
        click.echo(told["comparable"])
    click.echo(f"every answer: {experiment.out / PAGE}")


@contextmanager
def _say_where_kept(out: Path) -> Iterator[None]:
    """Say on ^C how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        told = f"\nWhat has ended is kept in {out}: the same command goes on from there."
        click.echo(told, err=True)
        raise


def _print_claims(
    path: Path, flags: dict[str, Any], as_json: bool, tell: Callable[[str], None]
) -> None:
    """Check the labelled claims and print the result."""
    from rubricem.agent.evaluate import ClaimSet, claim_lines
    from rubricem.memory.runs import write_atomically

    given = {name: flags.pop(name) for name in OWN}
    claims = ClaimSet.read(path).first(given["limit"])
    named = given["checker"] or "rules"
    settings = load_settings(flags)
    choice = None if named == "rules" else checker_of(settings, named)
    out = given["out"] or _folder(settings, f"{path.stem}-{named}", [c.id for c in claims.claims])
    at_once = given["at_once"] or _at_once(choice)
    asked = claims.check(
        choice, out, at_once, lambda row, done, all_: tell(f"{done}/{all_} {row.verdict}")
    )
    with _say_where_kept(out):
        told = claims.figures(asyncio.run(asked), named)
    write_atomically(out / "claims.json", json.dumps(told, indent=1) + "\n")
    if as_json:
        print_json(told)
    else:
        click.echo("\n".join(claim_lines(told)))


def _folder(settings: "Settings", stem: str, what: object) -> Path:
    """The default folder of an evaluation: a different one for different settings."""
    digest = digest_of(json.dumps(what, sort_keys=True), 8)
    return settings.data_dir / "evaluations" / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', stem)}-{digest}"


def checker_of(settings: "Settings", name: str) -> "PolicyChoice | EntailmentChoice | None":
    """A classifier (MiniCheck or the like) if the name is one's, else a model."""
    from rubricem.agent.reports.entailment import EntailmentChoice

    found = (
        EntailmentChoice.from_name(name, settings.weights_dir) if not settings.base_url else None
    )
    return found or judge_model_of(settings, name, settings.base_url)


def _at_once(model: "PolicyChoice | EntailmentChoice | None") -> int:
    if model is None:
        return 1
    return model.at_once if model.embedded else min(AT_ONCE, model.at_once)


def experiment_of(path: Path, flags: dict[str, Any]) -> "Experiment":
    """The experiment given by the flags; raises SettingsError for an impossible one."""
    from rubricem.agent.evaluate import Arm, Experiment, QuestionSet
    from rubricem.agent.settings.door import setup_of, with_default_source
    from rubricem.agent.sources.index import PassageCorpus
    from rubricem.memory.schema import AnswerFormat

    given = {name: flags.pop(name) for name in OWN}
    arms = Arm.parse(given["arms"], given["best_of"], given["memory"])
    asked = QuestionSet.read(path, check_format(given["form"])).first(given["limit"])
    settings = _naming_its_model(load_settings({**flags, "memory": "off"}))
    if not given["own_passages"]:
        settings = with_default_source(settings)
    setup = setup_of(settings)
    if given["checker"] is not None:
        raise SettingsError("--checker belongs to claims.", "Name them with --claims FILE.")
    searched = None
    if given["own_passages"]:
        if not asked.passages:
            raise SettingsError(
                f"No passages came with the questions of {path}.",
                "Leave out --own-passages, and name what is searched with --source.",
            )
        searched = PassageCorpus(asked.passages, setup.stores.data_dir / "indexes" / "evaluated")
    form = given["answer_format"]
    experiment = Experiment(
        setup,
        asked,
        arms,
        given["out"] or Path(),
        None if form == "auto" else AnswerFormat(form),
        check_judge(given["judge"]),
        judge_model_of(settings, given["judge_model"], given["judge_url"]),
        given["at_once"] or _at_once(setup.model),
        searched,
    )
    if given["out"] is None:
        out = _folder(settings, path.stem, [experiment.row_inputs(), asked.digest()])
        experiment = replace(experiment, out=out)
    return experiment


def _naming_its_model(settings: "Settings") -> "Settings":
    """The settings with the model that a server has, where none is named: rows are one model's."""
    from rubricem.agent.models.opening import ServerChoice
    from rubricem.agent.settings.door import model_of

    choice = model_of(settings)
    if not isinstance(choice, ServerChoice) or choice.model:
        return settings
    return settings.model_copy(update={"model": asyncio.run(choice.resolve_model())})


def check_format(name: str | None) -> str | None:
    from rubricem.agent.evaluate import FORMATS

    if name is not None and name not in FORMATS:
        raise SettingsError(f"There is no format {name!r}.", f"Formats are {', '.join(FORMATS)}.")
    return name


def check_judge(kind: str | None) -> Any:
    from rubricem.agent.evaluate import JUDGES

    if kind is not None and kind not in JUDGES:
        raise SettingsError(
            f"A judge {kind!r} cannot grade one answer by a rubric.",
            f"Name one that can: {', '.join(JUDGES)}.",
        )
    return kind


def judge_model_of(
    settings: "Settings", name: str | None, url: str | None
) -> "PolicyChoice | None":
    """The judge's model, or None if it is the one under test."""
    from rubricem.agent.settings.door import model_of

    if name is None and url is None:
        return None
    wanted = settings.model_copy(update={"model": name, "base_url": url})
    return model_of(_naming_its_model(wanted))


def row_line(row: "EvalRow", done: int, total: int) -> str:
    """One line of progress."""
    score = row.grade.score
    graded = row.status.value if score is None else f"{score:.2f}"
    searches = pluralise(row.searches, "search" if row.searches == 1 else "searche")
    return f"{done}/{total} {row.arm} {graded} {row.seconds:.1f} s, {searches}: {row.question[:60]}"
