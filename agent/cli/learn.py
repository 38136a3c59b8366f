"""`rubricem learn`: runs that wait are judged, reflected on, and the best of it is kept.

`rubricem rate` keeps what a person says of an answer, for whoever judges what it taught.

With `--memory on` a run is learnt from once the answer is on the screen. A server learns at once.
The embedded model takes a minute or more, so the run waits: whoever sits at the terminal is asked,
anybody else is told the command. Nothing here can take the answer back; what fails, or is
interrupted, leaves the run waiting.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli.options import BASE_URL, ONLY_JSON, model_flag
from rubricem.agent.learning.lessons import enter, queued
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import BEST, RunStore
from rubricem.memory.schema import Trajectory

if TYPE_CHECKING:
    from rubricem.agent.learning.lessons import Lesson
    from rubricem.agent.research.events import Event
    from rubricem.agent.research.setup import Setup


@click.command()
@click.argument("thread")
@click.argument("score")
@click.option("--comment", default="", metavar="TEXT", help="What was good or bad about it.")
def rate(thread: str, score: str, comment: str) -> None:
    """Rate the answer of the run THREAD: SCORE is 1, of no use, to 5, just what was asked for.

    The last rating counts. The reflection judge is shown it; the policy never is.
    """
    from rubricem.agent.learning.lessons import rated

    store = RunStore(load_settings().data_dir)
    given = _checked(score)
    waits = rated(store, thread, given, comment)
    click.echo(f"{thread}: rated {given} of {BEST}\n{waits}")


def _checked(score: str) -> int:
    if not (score.isascii() and score.isdigit()) or not 1 <= int(score) <= BEST:
        raise SettingsError(
            f"{score!r} is no rating.",
            f"Give a whole number from 1, of no use, to {BEST}, just what was asked for.",
        )
    return int(score)


@dataclass(frozen=True, slots=True)
class Tell:
    """Says what is being done on standard error, and what came of it on standard output."""

    quiet: bool = False
    beside: bool = False
    """standard output belongs to something else"""

    def lesson(self, lesson: "Lesson") -> None:
        from rubricem.memory.text import one_line

        if not self.quiet:
            click.echo(f"{lesson.thread}: {one_line(lesson.said)}", err=self.beside)

    def event(self, event: "Event") -> None:
        from rubricem.agent.research.events import SourceProgress
        from rubricem.memory.text import one_line

        if isinstance(event, SourceProgress):
            self.aside(f"  {one_line(event.message)}")

    def aside(self, line: str) -> None:
        if not self.quiet:
            click.echo(line, err=True)


NOTHING = "Nothing waits to be learnt from. Ask with --memory on, or name a run."


@click.command()
@click.argument("threads", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All runs, also those asked without memory on.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Runs at most, oldest first.")
@click.option("--skip", is_flag=True, help="Take them from the queue and learn nothing.")
@model_flag("Who reflects and judges, in place of each run's own model.")
@BASE_URL
@ONLY_JSON
def learn(
    threads: tuple[str, ...],
    every: bool,
    limit: int | None,
    skip: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Learn from the runs THREAD..., or from all that wait.

    A run asked with --memory on waits until it was learnt from. What was finished before an
    interruption is not done again.
    """
    store = RunStore(load_settings(flags).data_dir)
    wanted = chosen(store, threads, every)[:limit]
    tell = Tell(quiet=as_json)
    lessons = skip_all(store, wanted, tell) if skip else learn_all(store, wanted, flags, tell)
    if as_json:
        import json

        runs = [lesson.model_dump(mode="json") for lesson in lessons]
        click.echo(json.dumps({"runs": runs}, ensure_ascii=False))
    elif not wanted:
        click.echo(NOTHING)
    if any(lesson.outcome == "queued" for lesson in lessons):
        raise SystemExit(1)


def chosen(store: RunStore, threads: Sequence[str], every: bool) -> list[str]:
    """The named runs, which must have ended, or all that wait."""
    from rubricem.agent.learning.lessons import queued

    for thread in threads:
        store.load(thread)
    return list(dict.fromkeys(threads)) or queued(store, every=every)


def skip_all(store: RunStore, threads: Sequence[str], tell: Tell) -> list["Lesson"]:
    from rubricem.agent.learning.lessons import LearnMark as Mark
    from rubricem.agent.learning.lessons import set_mark, skipped

    lessons = []
    for thread in threads:
        set_mark(store.folder / thread, Mark(state="skipped", reason="a person skipped it"))
        lessons.append(skipped(thread, "it waits no longer"))
        tell.lesson(lessons[-1])
    return lessons


def learn_all(
    store: RunStore, threads: Sequence[str], flags: Mapping[str, Any], tell: Tell
) -> list["Lesson"]:
    """A lesson for each run, told as it comes; ^C raises KeyboardInterrupt and loses nothing."""
    from rubricem.agent.learning.lessons import models_of
    from rubricem.agent.settings.door import setup_of

    given = {name: value for name, value in flags.items() if value is not None}
    groups: dict[tuple[str, str], list[str]] = {}
    for thread in threads:
        groups.setdefault(("", "") if given else models_of(store, thread), []).append(thread)
    lessons = []
    for (model, base_url), group in groups.items():
        named = given or {"model": model, "base_url": base_url}
        lessons += learn_with(setup_of(load_settings(named)), group, tell)
    return lessons


def learn_with(setup: "Setup", threads: Sequence[str], tell: Tell) -> list["Lesson"]:
    """The same for runs of one model."""
    from rubricem.agent.cli.terminal import Interrupts

    async def run() -> "list[Lesson]":
        with Interrupts(tell.aside).caught():
            return await _learn_group(setup, threads, tell)

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _learn_group(setup: "Setup", threads: Sequence[str], tell: Tell) -> list["Lesson"]:
    """The model is opened once; where it cannot be, all of the runs wait."""
    from rubricem.agent.learning.lessons import failed, open_learner
    from rubricem.agent.learning.lessons import learn as learn_one

    lessons: list[Lesson] = []
    try:
        async with open_learner(setup, tell.event) as learner:
            for thread in threads:
                lessons.append(await learn_one(learner, thread))
                tell.lesson(lessons[-1])
    except RubricemError as error:
        for thread in threads[len(lessons) :]:
            lessons.append(failed(thread, error))
            tell.lesson(lessons[-1])
    return lessons


def learn_after(setup: "Setup", trajectory: Trajectory, *, quiet: bool) -> None:
    """Learn from a run that has just been shown, or say how."""
    tell = Tell(quiet=quiet, beside=True)
    store = RunStore(setup.stores.data_dir)
    try:
        if why := enter(store, trajectory):
            tell.aside(why)
        elif setup.model.embedded:
            _offer(store, tell)
        else:
            learn_with(setup, [trajectory.thread], tell)
    except RubricemError as error:
        tell.aside(f"nothing was learnt from this run: {error}")
    except KeyboardInterrupt:
        click.echo(
            "nothing was learnt from this run: it was interrupted. "
            f"Go on with: rubricem learn {trajectory.thread}",
            err=True,
        )


def _offer(store: RunStore, tell: Tell) -> None:
    waiting = queued(store)
    said = f"{len(waiting)} run{'' if len(waiting) == 1 else 's'} can be learnt from"
    if tell.quiet or not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"{said}: rubricem learn", err=True)
        return
    try:
        wanted = click.confirm(f"{said}: learn now?", err=True)
    except click.Abort:
        wanted = False
    if wanted:
        learn_all(store, waiting, {}, tell)
    else:
        click.echo("Later: rubricem learn", err=True)
