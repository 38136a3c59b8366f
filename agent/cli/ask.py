"""`rubricem ask`: one question, answered on the terminal, in a file or as JSON.

One question of the command line, from its settings to its trajectory.

What needs a person finds one on the terminal, or goes on without and says so.

Going on with an earlier run: its question, what shaped its answer, and its budgets.

What shapes the answer is kept as it was; budgets are kept unless others are given now, which is
how a run that ran out of one goes on.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from rubricem.agent.cli.options import (
    ALLOW_HOST,
    BASE_URL,
    DECODING,
    MEMORY,
    MODEL,
    ONLY_JSON,
    RETRIEVAL,
    SOURCE,
    VERIFY,
    budgets,
)
from rubricem.agent.cli.terminal import Interrupts
from rubricem.agent.research.events import Event, Listener
from rubricem.agent.research.question import Ask, checked
from rubricem.agent.settings import Settings, load_settings
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Status, Trajectory


async def answered(
    settings: Settings, question: str, thread: str | None, quiet: bool, best_of: int = 1
) -> Trajectory:
    """Answer it; ^C once gives what there is, twice raises CancelledError.

    `best_of`: it is run so often, and a judge picks one; ^C then ends the run it is at.
    """
    from rubricem.agent.research.researcher import new_thread

    thread = thread or new_thread()
    interrupts = Interrupts(lambda line: click.echo(line, err=True))
    with interrupts.caught():
        try:
            return await _answered(settings, question, thread, quiet, interrupts, best_of)
        except asyncio.CancelledError:
            click.echo(f"\nStopped. Go on with: rubricem ask --resume {thread}", err=True)
            raise


async def _answered(
    settings: Settings,
    question: str,
    thread: str,
    quiet: bool,
    interrupts: Interrupts,
    best_of: int,
) -> Trajectory:
    from rubricem.agent.reports.display import live_view
    from rubricem.agent.research.setup import decoding_of, reserve, settled, with_default_source
    from rubricem.agent.settings import choose_policy

    told: list[Event] = []
    # A mistake in the flags is told before the web is probed.
    decoding_of(settings, choose_policy(settings))
    settings = await settled(with_default_source(settings), thread, told.append)
    wanted = reserve(settings, thread, question) if best_of == 1 else None
    with live_view(question, quiet=quiet) as listener:
        for event in told:
            listener(event)
        if wanted is None:
            from rubricem.agent.research.best_of import ask_best

            return await ask_best(settings, question, thread, best_of, listener)
        return await _researched(settings, wanted, thread, listener, interrupts)


async def _researched(
    settings: Settings, wanted: Ask, thread: str, listener: Listener, interrupts: Interrupts
) -> Trajectory:
    from rubricem.agent.research.setup import open_researcher

    async with AsyncExitStack() as stack:
        researcher = await stack.enter_async_context(open_researcher(settings, listener))
        if wanted.approve_plan or wanted.clarify:
            from rubricem.agent.cli.terminal import person_here

            researcher.person, said = person_here(interrupts)
            if said:
                click.echo(said, err=True)
        if settings.checkpoints:
            from rubricem.agent.research.setup import open_saver

            saver = open_saver(settings.checkpoints.get_secret_value())
            researcher.saver = await stack.enter_async_context(saver)
        with interrupts.running() as stop:
            return await researcher.ask(wanted, thread, listener, stop)


LATEST = "-"
"""in the place of a thread: the latest run that has not come to its end"""
LIMITS = ("answer_format", "tool_calls", "max_tokens", "seed", "approve_plan", "clarify")
"""the settings that are part of what was asked"""
BUDGETS = {"tokens": "max_total_tokens", "seconds": "max_seconds", "cost": "max_cost"}
"""budget -> its setting"""
_OVER = (Status.FINISHED, Status.NO_EVIDENCE)


def resumed(thread: str, question: str, flags: dict[str, Any]) -> tuple[str, Settings, str]:
    """The thread, the settings and the question of an earlier run."""
    from rubricem.agent.research.setup import choices_of

    store = RunStore(load_settings(flags).data_dir)
    thread = latest(store) if thread == LATEST else thread
    request = store.request(thread)
    if question and question != request["ask"]["question"]:
        raise SettingsError(
            f"The thread {thread!r} holds another question.", "Resume it without a question."
        )
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    limits = {name: request["ask"][name] for name in LIMITS if name in request["ask"]}
    settings = load_settings({**_kept(request), **limits, **given})
    choices = choices_of(settings)
    same = all(choices.get(name) == value for name, value in request["choices"].items())
    if not same or any(given.get(name, value) != value for name, value in limits.items()):
        raise SettingsError(
            f"The thread {thread!r} was asked with other settings, and a resume keeps them.",
            "Resume it without flags but those of its budgets, or ask the question anew.",
        )
    return thread, settings, request["ask"]["question"]


def latest(store: RunStore) -> str:
    """The run begun last of those that failed, ended early or were killed."""
    for thread in reversed(store.threads()):
        if not store.ended(thread) or store.load(thread).status not in _OVER:
            return thread
    raise SettingsError(
        "There is no run to go on with: all have come to their end.",
        "rubricem runs lists them; name one by --resume THREAD.",
    )


def _kept(request: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request, as if all had been named now.

    What was not named then is not named now, whatever the environment has come to say.
    """
    choices = request["choices"]
    kept = {name: "" if value is None else value for name, value in choices.items()}
    budgets = request.get("budgets", {})
    limits = {BUDGETS[name]: 0 if value is None else value for name, value in budgets.items()}
    return {**kept, "temperature": choices["temperature"], **limits}


PARTIAL, INTERRUPTED = 3, 130
"""exit statuses; the others are those of every command"""


@click.command()
@click.argument("question", nargs=-1)
@MODEL
@BASE_URL
@SOURCE
@click.option("--format", "answer_format", type=click.Choice(["long", "short", "exact"]))
@DECODING
@RETRIEVAL
@MEMORY
@ALLOW_HOST
@budgets
@click.option("--approve-plan", is_flag=True, default=None, help="Decide on the plan first.")
@click.option("--clarify", is_flag=True, default=None, help="Let the model ask you one question.")
@VERIFY
@click.option("--temperature", type=float)
@click.option("--seed", type=int)
@click.option(
    "--best-of",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Run the question N times and have a judge pick the best.",
)
@click.option(
    "--out", type=Path, metavar="FILE", help="Write the report: .md, .html, .pdf or .json."
)
@ONLY_JSON
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--thread", help="Name the run; the same name goes on with it.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[THREAD]",
    help="Go on with a run that was interrupted or ran out of a budget; the latest without a name.",
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
    if out is not None:
        from rubricem.agent.reports.page import check_report_path

        check_report_path(out)
    asked = " ".join(question)
    if best_of > 1 and resume:
        raise SettingsError(
            "A resume goes on with one run, not with several.",
            "Leave out --best-of, or ask again with --thread and the name of before.",
        )
    if resume:
        thread, settings, asked = resumed(resume, asked, flags)
    else:
        settings = load_settings(flags)
    try:
        trajectory = asyncio.run(
            answered(settings, checked(asked), thread, quiet or as_json, best_of)
        )
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    _deliver(trajectory, out, as_json)
    if settings.memory == "on":
        from rubricem.agent.cli.learn import learn_after

        learn_after(settings, trajectory, quiet=quiet or as_json)
    _tell_end(trajectory)


def _deliver(trajectory: Trajectory, out: Path | None, as_json: bool) -> None:
    from rubricem.agent.reports.page import write_report
    from rubricem.agent.reports.report import as_json as report_json

    if out is not None:
        write_report(trajectory, out)
    if as_json:
        import json

        click.echo(json.dumps(report_json(trajectory), ensure_ascii=False))
    elif trajectory.status is not Status.FAILED:
        from rubricem.agent.reports.display import print_report

        print_report(trajectory)
    if trajectory.status is Status.FAILED:
        if as_json:
            raise SystemExit(1)
        raise RubricemError(
            trajectory.reason, f"Try again from where it ended: --resume {trajectory.thread}"
        )


def _tell_end(trajectory: Trajectory) -> None:
    """Exit with the status of a run that was ended early, and say how it goes on."""
    if trajectory.status is not Status.PARTIAL:
        return
    interrupted = trajectory.ended_by == "interrupt"
    resume = f"rubricem ask --resume {trajectory.thread}"
    if setting := BUDGETS.get(trajectory.ended_by):
        flag = f"--{setting.replace('_', '-')}"
        click.echo(f"Go on with a larger budget: {resume} {flag} ...", err=True)
    elif interrupted:
        click.echo(f"Go on with: {resume}", err=True)
    raise SystemExit(INTERRUPTED if interrupted else PARTIAL)
