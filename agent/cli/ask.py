"""`rubricem ask`: answers one question on the terminal, in a file or as JSON.

If a decision is needed, the person at the terminal is asked; without one, the run goes on and says
so. An earlier run is resumed by its name: the settings that shape its answer stay as they were;
budgets stay unless new ones are given, which is how a run that exhausted one continues.

What is about to be done is printed before the packages that do it are imported.
"""

import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli import options
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.text import one_line, printable

if TYPE_CHECKING:
    from rubricem.agent.research.setup import Setup
    from rubricem.memory.runs import RunStore
    from rubricem.memory.schema import Trajectory


async def answer_here(
    setup: "Setup", question: str, run: str, quiet: bool, announced: bool = False
) -> "Trajectory":
    """Answer it; ^C once gives what there is, twice raises KeyboardInterrupt.

    `announced`: the question stands on the terminal.
    """
    import asyncio

    from rubricem.agent.cli.terminal import Interrupts, TypedRemarks, person_here
    from rubricem.agent.reports.display import live_view
    from rubricem.agent.research.deep.parts import Steering
    from rubricem.agent.research.setup import ask_once

    interrupts = Interrupts(lambda line: click.echo(line, err=True))
    steering, (person, said) = Steering(), person_here(interrupts)
    here = sys.stdin.isatty() and sys.stderr.isatty() and setup.template.leads and not quiet
    if said and (setup.template.approve_plan or setup.template.clarify):
        click.echo(said, err=True)
    try:
        with interrupts.catch(), live_view(question, quiet=quiet, named=announced) as listener:
            running = interrupts.running()
            heard = TypedRemarks(steering, listener) if here else listener
            return await ask_once(setup, question, run, heard, running, person, steering)
    except asyncio.CancelledError:
        click.echo(f"\nStopped. Continue with: rubricem ask --resume {run}", err=True)
        raise KeyboardInterrupt from None
    except StoreError as error:
        store = setup.stores.runs
        if not store.holds(run) or store.running(run):
            raise
        remedy = f"{error.remedy} Then continue with: rubricem ask --resume {run}"
        raise StoreError(str(error), remedy) from error


LATEST = "-"
"""in the place of a run: the latest that has not come to its end"""
LOOKED_THROUGH = 1000
"""runs, the latest, among which that is sought: each is read"""


def read_earlier(run: str, question: str, given: dict[str, Any]) -> "tuple[str, Setup]":
    """The name and the setup of an earlier run, with its question."""
    from rubricem.agent.models.limits import Endpoint
    from rubricem.agent.settings import load_settings
    from rubricem.agent.settings.door import CHOICES, setup_of_run
    from rubricem.agent.transcript.question import Ask
    from rubricem.memory.runs import RunStore

    settings = load_settings(given)
    store = RunStore(settings.data_dir)
    run = latest(store) if run == LATEST else run
    request = store.request(run)
    if question and question != store.question(run):
        raise SettingsError(
            f"The run {run!r} holds another question.", "Resume it without a question."
        )
    # What does not shape an answer, such as keys, prices and allowed hosts, may be named again.
    kept = {*CHOICES, *(field.name for field in fields(Ask))} - {"max_tokens"}
    if others := kept.intersection(given):
        raise SettingsError(
            f"A resumed run keeps its settings: {', '.join(sorted(others))} cannot be changed.",
            "Leave them out, or ask again; its budgets and --max-tokens may be changed.",
        )
    if store.is_restored(run):
        from rubricem.agent.serve.requests import read_request

        return run, read_request(settings, store, run, None)[0]
    named = {name: request.get("choices", {}).get(name) for name in ("model", "base_url")}
    if settings.base_url and Endpoint.parse(settings.base_url).url == named["base_url"]:
        named["base_url"] = settings.base_url  # it may hold a password, which a run does not
    beside = request.get("beside", {})
    beside = {each: beside[each] for each in ("allow_hosts", "prices") if beside.get(each)}
    return run, setup_of_run(settings, request, [named], {**beside, **given})


def latest(store: "RunStore") -> str:
    """The run asked last of those that ended early, were killed, or failed with a model's reply."""
    going = list[str]()
    for run in reversed(store.threads()[-LOOKED_THROUGH:]):
        if store.running(run):
            going.append(run)
            continue
        ended = store.load(run) if store.has_ended(run) else None
        over = ended and (ended.status.whole or (ended.failed and not ended.usage.calls))
        if not over:
            return run
    if going:
        raise SettingsError(
            f"There is no run to resume: {going[0]!r} goes on in another process.",
            "Wait for its end; rubricem runs lists them.",
        )
    raise SettingsError(
        f"There is no run to resume: the last {LOOKED_THROUGH:,} have ended.",
        "rubricem runs lists them; name one by --resume RUN.",
    )


DEEPER = "Go deeper into the question before: what is open in its report, or thin?"


def begin_deepened(run: str, question: str, name: str, given: dict[str, Any]) -> "Setup":
    """Write down a question after a run that ended, in its conversation; gives its setup.

    Over the sources of that run and of the same model, where no others are named, and deeply; a
    restored one names neither.
    """
    from rubricem.agent.record.conversations import ConversationStore
    from rubricem.agent.research.researcher import ask_of
    from rubricem.agent.research.setup import reserve
    from rubricem.agent.settings import load_settings
    from rubricem.agent.settings.door import setup_of, with_default_source
    from rubricem.memory.runs import RunStore

    store = RunStore(load_settings(given).data_dir)
    request = store.request(run)
    if not store.has_ended(run):
        raise SettingsError(
            f"The run {run!r} has not ended.", f"Go on with it: rubricem ask --resume {run}"
        )
    kept = {name: request["choices"].get(name) for name in ("model", "base_url", "source")}
    kept = {name: value for name, value in kept.items() if value and not store.is_restored(run)}
    settings = load_settings({"effort": "deep", **kept, **given})
    setup = setup_of(with_default_source(settings))
    reserve(setup, name, question, (*ask_of(request).earlier, run))
    conversations = ConversationStore(setup.stores.data_dir)
    conversations.take_in(conversations.after(run).id, name, store)
    return setup


ASK_AGAIN = "Nothing was answered yet: once that is mended, ask again."
FAILED, PARTIAL, INTERRUPTED = 1, 3, 130
"""exit statuses; the others are those of every command"""


@click.command()
@click.argument("question", nargs=-1)
@options.setting_flags(
    "model", "base_url", "source", "effort", "format", "length", "memory", "checker"
)
@options.setting_flags(*options.BUDGET_FLAGS, "max_tokens")
@click.option(
    "--approve-plan", is_flag=True, default=None, help="Decide on the plan first, at a terminal."
)
@options.REPORT_OUT
@options.AS_JSON
@options.QUIET
@click.option("--run", help="Name the run; asking again under that name resumes it.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[RUN]",
    help="Resume a run that was interrupted or ran out of a budget; the latest if none is named.",
)
@click.option("--deepen", metavar="RUN", help="Ask after a run that ended, and go deeper.")
@options.set_option
def ask(
    question: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    quiet: bool,
    run: str | None,
    resume: str | None,
    deepen: str | None,
    **flags: Any,
) -> None:
    """Answer a research question with checked citations.

    The question is read from standard input where it is - or missing.
    """
    asked, quiet = " ".join(question), quiet or as_json
    flags = {name: value for name, value in flags.items() if value not in (None, ())}
    if asked == "-" or not (asked or resume or deepen or sys.stdin.isatty()):
        asked = sys.stdin.read()
    asked = asked or (DEEPER if deepen else "")
    if resume and deepen:
        raise SettingsError("A run is resumed or deepened, not both.", "Name one of the two.")
    announced = bool(asked.strip() and not quiet and not resume)
    if announced:
        click.echo(one_line(asked), err=True)

    import asyncio

    from rubricem.agent.research.researcher import new_thread
    from rubricem.agent.settings import load_settings
    from rubricem.agent.settings.door import setup_of, with_default_source
    from rubricem.agent.transcript.question import check_question

    if out is not None:
        from rubricem.agent.reports.page import check_report_path

        check_report_path(out)
    if resume:
        run, setup = read_earlier(resume, asked, flags)
        asked = setup.template.question
    else:
        asked, run = check_question(asked), run or new_thread()
        if deepen:
            setup = begin_deepened(deepen, asked, run, flags)
        else:
            setup = setup_of(with_default_source(load_settings(flags)))
    trajectory = asyncio.run(answer_here(setup, asked, run, quiet, announced))
    _deliver(trajectory, out, as_json, quiet)
    if setup.memory == "on":
        from rubricem.agent.cli.learn import learn_after

        learn_after(setup, trajectory, quiet=quiet)
    _tell_end(trajectory)


def _deliver(trajectory: "Trajectory", out: Path | None, as_json: bool, quiet: bool) -> None:
    from rubricem.agent.cli.terminal import tell_spent
    from rubricem.agent.reports.page import write_report
    from rubricem.agent.reports.report import as_json as report_json
    from rubricem.memory.schema import Status

    if out is not None:
        write_report(trajectory, out)
        if not quiet:
            click.echo(f"written: {out}", err=True)
    if as_json:
        import json

        click.echo(json.dumps(report_json(trajectory), ensure_ascii=False))
    elif trajectory.status is not Status.FAILED:
        from rubricem.agent.reports.cited import cited_answer
        from rubricem.agent.reports.display import print_report

        if quiet and (bare := cited_answer(trajectory).bare):
            click.echo(printable(bare))
        else:
            print_report(trajectory)
    tell_spent(trajectory)
    if trajectory.status is Status.FAILED:
        if as_json:
            raise SystemExit(FAILED)
        again = f"Try again from where it ended: --resume {trajectory.thread}"
        raise RubricemError(trajectory.reason, again if trajectory.usage.calls else ASK_AGAIN)


def _tell_end(trajectory: "Trajectory") -> None:
    """Exit with the status of a run that was ended early, and say how it goes on."""
    from rubricem.agent.settings import BUDGETS
    from rubricem.memory.schema import Status

    if trajectory.status is Status.NO_EVIDENCE and trajectory.missed:
        raise SystemExit(FAILED)
    if trajectory.status is not Status.PARTIAL:
        return
    interrupted = trajectory.ended_by == "interrupt"
    resume = f"rubricem ask --resume {trajectory.thread}"
    if setting := BUDGETS.get(trajectory.ended_by):
        flag = f"--{setting.replace('_', '-')}"
        click.echo(f"Continue with a larger budget: {resume} {flag} ...", err=True)
    elif trajectory.ended_by == "max_tokens":
        click.echo(f"Go on with the answer: {resume} --max-tokens ...", err=True)
    elif interrupted or trajectory.ended_by == "failure":
        click.echo(f"Continue with: {resume}", err=True)
    raise SystemExit(INTERRUPTED if interrupted else PARTIAL)
