"""`rubricem learn`: judges and reflects on waiting runs, and keeps the best reflection.

`rubricem rate` stores a person's rating of an answer, for the judge of reflections on it.

With `--memory on` a run is learnt from once its answer is on the screen. With a server's model this
happens at once. The embedded model takes a minute or more, so the run waits, and the command to use
is printed. Nothing here can affect the answer; if learning fails or is interrupted, the run keeps
waiting.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli.options import AS_JSON, setting_flags
from rubricem.agent.cli.terminal import Interrupts
from rubricem.agent.learning.lessons import (
    Lesson,
    enter,
    failed_lesson,
    find_queued,
    keep_rating,
    models_of,
    open_learner,
)
from rubricem.agent.learning.lessons import learn as learn_from
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.runs import BEST, RunStore
from rubricem.memory.schema import Trajectory
from rubricem.memory.text import one_line, pluralise

if TYPE_CHECKING:
    from rubricem.agent.research.setup import Setup


@click.command()
@click.argument("thread", metavar="RUN")
@click.argument("score", type=click.IntRange(1, BEST))
@click.option("--comment", default="", metavar="TEXT", help="What was good or bad about it.")
def rate(thread: str, score: int, comment: str) -> None:
    """Rate the answer of RUN: SCORE is 1, of no use, to 5, just what was asked for.

    The last rating counts. The reflection judge is shown it; the policy never is.
    """
    waits = keep_rating(RunStore(load_settings().data_dir), thread, score, comment)
    click.echo(f"{thread}: rated {score} of {BEST}\n{waits}")


@dataclass(frozen=True, slots=True)
class LessonPrinter:
    """Says what is being done on standard error, and what came of it on standard output."""

    quiet: bool = False
    beside: bool = False
    """standard output belongs to something else"""

    def lesson(self, lesson: Lesson) -> None:
        if not self.quiet:
            click.echo(f"{lesson.thread}: {one_line(lesson.said)}", err=self.beside)

    def doing(self, line: str) -> None:
        self.aside(f"  {one_line(line)}")

    def aside(self, line: str) -> None:
        if not self.quiet:
            click.echo(line, err=True)


NOTHING = "Nothing waits to be learnt from. Ask with --memory on, or name a run."


@click.command()
@click.argument("threads", metavar="[RUN]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All runs, also those asked without memory on.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Runs at most, oldest first.")
@click.option("--model", help="The model that reflects and judges, in place of each run's own.")
@setting_flags("base_url")
@AS_JSON
def learn(
    threads: tuple[str, ...], every: bool, limit: int | None, as_json: bool, **flags: Any
) -> None:
    """Learn from these runs, or from all that wait.

    A run asked with --memory on is pending until it was learnt from. What was finished before an
    interruption is not repeated.
    """
    store = RunStore(load_settings(flags).data_dir)
    for thread in threads:
        store.load(thread)  # they must have ended
    wanted = (list(dict.fromkeys(threads)) or find_queued(store, every=every))[:limit]
    printer = LessonPrinter(quiet=as_json)
    lessons = learn_all(store, wanted, flags, printer)
    if as_json:
        import json

        runs = [lesson.model_dump(mode="json") for lesson in lessons]
        click.echo(json.dumps({"runs": runs}, ensure_ascii=False))
    elif not wanted:
        click.echo(NOTHING)
    if any(lesson.outcome == "queued" for lesson in lessons):
        raise SystemExit(1)


def learn_all(
    store: RunStore, threads: Sequence[str], flags: Mapping[str, Any], printer: LessonPrinter
) -> list[Lesson]:
    """A lesson for each run, told as it comes; ^C raises KeyboardInterrupt and loses nothing."""
    given = {name: value for name, value in flags.items() if value is not None}
    groups: dict[tuple[str, str], list[str]] = {}
    settings, lessons = load_settings(), list[Lesson]()
    here = settings.base_url or ""
    for thread in threads:
        ours = given or store.is_restored(thread)
        try:
            served = (settings.model or "", here) if ours else models_of(store, thread)
        except StoreError as error:
            lessons += _failed([thread], error, printer)
        else:
            groups.setdefault(served, []).append(thread)
    for (model, base_url), group in groups.items():
        # Whoever names the server now says which keys it gets: a folder's file, its own alone.
        named = given or {"model": model} | ({"base_url": base_url} if base_url != here else {})
        setup = setup_of(load_settings(named))
        if given.get("model"):
            setup = replace(setup, reflecting=setup.model)
        elif replace(setup, model=setup.reflecting).lacks_model():
            name = setup.reflecting.name
            remedy = f"Fetch it: rubricem models fetch {name}; or name another with --model."
            missing = SettingsError(f"The model {name}, which is to reflect, is not here.", remedy)
            lessons += _failed(group, missing, printer)
            continue
        lessons += learn_with(setup, group, printer)
    return lessons


def _failed(threads: Sequence[str], error: RubricemError, printer: LessonPrinter) -> list[Lesson]:
    lessons = [failed_lesson(thread, error) for thread in threads]
    for lesson in lessons:
        printer.lesson(lesson)
    return lessons


def learn_with(setup: "Setup", threads: Sequence[str], printer: LessonPrinter) -> list[Lesson]:
    """The same for runs of one model, opened once; where it cannot be, all of the runs wait."""
    lessons: list[Lesson] = []

    def keep(lesson: Lesson) -> None:
        lessons.append(lesson)
        printer.lesson(lesson)

    async def run() -> None:
        with Interrupts(printer.aside).catch():
            async with open_learner(setup, printer.doing) as learner:
                for thread in threads:
                    keep(await learn_from(learner, thread))

    try:
        asyncio.run(run())
    except RubricemError as error:
        lessons += _failed(threads[len(lessons) :], error, printer)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    return lessons


def learn_after(setup: "Setup", trajectory: Trajectory, *, quiet: bool) -> None:
    """Learn from a run that has just been shown, or say how."""
    printer = LessonPrinter(quiet=quiet, beside=True)
    store = setup.stores.runs
    try:
        if why := enter(store, trajectory):
            printer.aside(why)
        elif setup.reflecting.embedded:
            waiting = len(find_queued(store))
            click.echo(f"{pluralise(waiting, 'run')} can be learnt from: rubricem learn", err=True)
        else:
            learn_with(setup, [trajectory.thread], printer)
    except RubricemError as error:
        printer.aside(f"nothing was learnt from this run: {error}")
    except KeyboardInterrupt:
        click.echo(
            "nothing was learnt from this run: it was interrupted. "
            f"Continue with: rubricem learn {trajectory.thread}",
            err=True,
        )
