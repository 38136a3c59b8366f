"""`rubricem ask`: answers one question on the terminal, in a file or as JSON.

If a decision is needed, the person at the terminal is asked; without one, the run goes on and says
so. An earlier run is resumed by its name: the settings that shape its answer stay as they were;
budgets stay unless new ones are given, which is how a run that exhausted one continues.

What is about to be done is printed before the packages that do it are imported.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli.options import BUDGET_FLAGS, ONLY_JSON, QUIET, REPORT_OUT, setting_flags
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.text import one_line

if TYPE_CHECKING:
    from rubricem.agent.research.setup import Setup
    from rubricem.agent.settings import Settings
    from rubricem.memory.runs import RunStore
    from rubricem.memory.schema import Trajectory


async def _ask(
    setup: "Setup",
    question: str,
    thread: str,
    quiet: bool,
    best_of: int = 1,
    announced: bool = False,
) -> "Trajectory":
    """Answer it; ^C once gives what there is, twice raises CancelledError.

    `best_of`: it is run so often, and a judge picks one; ^C then ends it all at once.
    `announced`: the question stands on the terminal.
    """
    import asyncio

    from rubricem.agent.cli.terminal import Interrupts, person_here
    from rubricem.agent.reports.display import live_view
    from rubricem.agent.research.setup import ask_once

    if announced and _can_draw():
        click.echo(ABOVE_IS_WIPED, err=True, nl=False)

    interrupts = Interrupts(lambda line: click.echo(line, err=True))
    person = None
    if setup.template.approve_plan or setup.template.clarify:
        person, said = person_here(interrupts)
        if said:
            click.echo(said, err=True)
    try:
        with interrupts.catch(), live_view(question, quiet=quiet, named=announced) as listener:
            if best_of > 1:
                from rubricem.agent.learning.best_of import ask_best

                return await ask_best(setup, question, thread, best_of, listener)
            running = interrupts.running()
            return await ask_once(setup, question, thread, listener, running, person)
    except asyncio.CancelledError:
        again = f"with: rubricem ask --resume {thread}"
        if best_of > 1:  # THREAD-1, THREAD-2, ... are its runs, and it is none itself
            again = f"by the same command with --thread {thread}"
        click.echo(f"\nStopped. Continue {again}", err=True)
        raise
    except StoreError as error:
        from rubricem.memory.runs import RunStore

        store = RunStore(setup.stores.data_dir)
        if best_of > 1 or not store.holds(thread) or store.running(thread):
            raise
        remedy = f"{error.remedy} Then continue with: rubricem ask --resume {thread}"
        raise StoreError(str(error), remedy) from error


ABOVE_IS_WIPED = "\033[1A\033[2K"


def _can_draw() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") not in (None, "dumb", "unknown")


def _announce(line: str) -> None:
    """Tell what begins; where it will be drawn in place, on one row that makes way for it."""
    line = one_line(line)
    click.echo(line[: shutil.get_terminal_size().columns - 1] if _can_draw() else line, err=True)


LATEST = "-"
"""in the place of a thread: the latest run that has not come to its end"""
LOOKED_THROUGH = 1000
"""runs, the latest, among which that is sought: each is read"""


def read_earlier(thread: str, question: str, flags: dict[str, Any]) -> "tuple[str, Settings, str]":
    """The thread, the settings and the question of an earlier run."""
    from rubricem.agent.settings import LIMITS, limits_of, load_settings
    from rubricem.agent.settings.door import UNNAMED, choices_of
    from rubricem.memory.runs import RunStore

    here = load_settings(flags)
    store = RunStore(here.data_dir)
    thread = latest(store) if thread == LATEST else thread
    request = store.request(thread)
    if question and question != request["ask"]["question"]:
        raise SettingsError(
            f"The thread {thread!r} holds another question.", "Resume it without a question."
        )
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    limits = {name: request["ask"][name] for name in LIMITS if name in request["ask"]}
    # What was not named then is not named now, whatever the environment has come to say.
    kept = {name: "" if value is None else value for name, value in request["choices"].items()}
    kept |= {"temperature": request["choices"]["temperature"], **limits_of(request)}
    if kept.get("base_url") == here.base_url:
        # Whoever names the server now says which keys it gets: a folder's file, its own alone.
        del kept["base_url"]
    settings = load_settings({**UNNAMED, **kept, **limits, **given})
    choices = choices_of(settings)
    same = all(choices.get(name) == value for name, value in request["choices"].items())
    if not same or any(given.get(name, value) != value for name, value in limits.items()):
        raise SettingsError(
            f"The thread {thread!r} was asked with other settings, and a resume keeps them.",
            "Resume it without flags other than its budgets, or ask the question again.",
        )
    return thread, settings, request["ask"]["question"]


def latest(store: "RunStore") -> str:
    """The run asked last of those that failed, ended early or were killed.

    One that another process is at, or whose first call never ended, only where there is no other.
    """
    last = store.threads()[-LOOKED_THROUGH:]
    others = list[str]()
    for thread in (each for each in reversed(last) if not store.whole(each)):
        if store.has_begun(thread) and not store.running(thread):
            return thread
        others.append(thread)
    if others:
        return others[0]
    ended = f"the last {LOOKED_THROUGH:,} have" if len(last) == LOOKED_THROUGH else "all have"
    raise SettingsError(
        f"There is no run to resume: {ended} ended.",
        "rubricem runs lists them; name one by --resume THREAD.",
    )


PARTIAL, INTERRUPTED = 3, 130
"""exit statuses; the others are those of every command"""


@click.command()
@click.argument("question", nargs=-1)
@setting_flags("model", "base_url", "source", "format", "decoding", "retrieval", "memory")
@setting_flags("reflect_model", "allow_host", *BUDGET_FLAGS, "review_returns")
@click.option("--approve-plan", is_flag=True, default=None, help="Decide on the plan first.")
@click.option("--clarify", is_flag=True, default=None, help="Let the model ask you one question.")
@setting_flags("verify", "temperature", "seed")
@click.option(
    "--best-of",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Run the question N times and have a judge pick the best.",
)
@REPORT_OUT
@ONLY_JSON
@QUIET
@click.option("--thread", help="Name the run; asking again under that name resumes it.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[THREAD]",
    help="Resume a run that was interrupted or ran out of a budget; the latest if none is named.",
)
def ask(
    question: tuple[str, ...],
    best_of: int,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Answer a research question with checked citations."""
    thread, resume = flags.pop("thread"), flags.pop("resume")
    asked, quiet = " ".join(question), quiet or as_json
    announced = bool(asked.strip() and not quiet and not resume)
    if announced:
        _announce(asked)

    import asyncio

    from rubricem.agent.research.researcher import new_thread
    from rubricem.agent.settings import load_settings
    from rubricem.agent.settings.door import setup_of, with_default_source
    from rubricem.agent.transcript.question import check_question

    if out is not None:
        from rubricem.agent.reports.page import check_report_path

        check_report_path(out)
    if best_of > 1 and resume:
        raise SettingsError(
            "Only one run can be resumed, not several.",
            "Leave out --best-of, or ask again with --thread and the earlier name.",
        )
    if resume:
        thread, settings, asked = read_earlier(resume, asked, flags)
    else:
        thread, settings = thread or new_thread(), load_settings(flags)
    asked = check_question(asked)
    setup = setup_of(with_default_source(settings))
    try:
        trajectory = asyncio.run(_ask(setup, asked, thread, quiet, best_of, announced))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    _deliver(trajectory, out, as_json)
    if setup.memory == "on":
        from rubricem.agent.cli.learn import learn_after

        learn_after(setup, trajectory, quiet=quiet)
    _tell_end(trajectory)


def _deliver(trajectory: "Trajectory", out: Path | None, as_json: bool) -> None:
    from rubricem.agent.cli.terminal import tell_spent
    from rubricem.agent.reports.page import write_report
    from rubricem.agent.reports.report import as_json as report_json
    from rubricem.memory.schema import Status

    if out is not None:
        write_report(trajectory, out)
    if as_json:
        import json

        click.echo(json.dumps(report_json(trajectory), ensure_ascii=False))
    elif trajectory.status is not Status.FAILED:
        from rubricem.agent.reports.display import print_report

        print_report(trajectory)
    tell_spent(trajectory)
    if trajectory.status is Status.FAILED:
        if as_json:
            raise SystemExit(1)
        raise RubricemError(
            trajectory.reason, f"Try again from where it ended: --resume {trajectory.thread}"
        )


def _tell_end(trajectory: "Trajectory") -> None:
    """Exit with the status of a run that was ended early, and say how it goes on."""
    from rubricem.agent.settings import BUDGETS
    from rubricem.memory.schema import Status

    if trajectory.status is not Status.PARTIAL:
        return
    interrupted = trajectory.ended_by == "interrupt"
    resume = f"rubricem ask --resume {trajectory.thread}"
    if setting := BUDGETS.get(trajectory.ended_by):
        flag = f"--{setting.replace('_', '-')}"
        click.echo(f"Continue with a larger budget: {resume} {flag} ...", err=True)
    elif interrupted:
        click.echo(f"Continue with: {resume}", err=True)
    raise SystemExit(INTERRUPTED if interrupted else PARTIAL)
