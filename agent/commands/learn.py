"""`rubricem learn`: runs that wait are judged, reflected on, and the best of it is kept."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from agent.settings import Settings, load_settings
from memory.errors import RubricemError
from memory.runs import RunStore

if TYPE_CHECKING:
    from agent.events import Event
    from agent.lessons import Lesson


@dataclass(frozen=True, slots=True)
class Tell:
    """Says what is being done on standard error, and what came of it on standard output."""

    quiet: bool = False
    beside: bool = False
    """standard output belongs to something else"""

    def lesson(self, lesson: "Lesson") -> None:
        from agent.reports.printable import one_line

        if not self.quiet:
            click.echo(f"{lesson.thread}: {one_line(lesson.said)}", err=self.beside)

    def event(self, event: "Event") -> None:
        from agent.events import SourceProgress
        from agent.reports.printable import one_line

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
@click.option("--model", help="Who reflects and judges, in place of each run's own model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
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
    from agent.learnable import queued

    for thread in threads:
        store.load(thread)
    return list(dict.fromkeys(threads)) or queued(store, every=every)


def skip_all(store: RunStore, threads: Sequence[str], tell: Tell) -> list["Lesson"]:
    from agent.learnable import Mark, set_mark
    from agent.lessons import skipped

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
    from agent.learnable import models_of

    given = {name: value for name, value in flags.items() if value is not None}
    groups: dict[tuple[str, str], list[str]] = {}
    for thread in threads:
        groups.setdefault(("", "") if given else models_of(store, thread), []).append(thread)
    lessons = []
    for (model, base_url), group in groups.items():
        named = given or {"model": model, "base_url": base_url}
        lessons += learn_with(load_settings(named), group, tell)
    return lessons


def learn_with(settings: Settings, threads: Sequence[str], tell: Tell) -> list["Lesson"]:
    """The same for runs of one model."""
    from agent.commands.interrupting import Interrupts

    async def run() -> "list[Lesson]":
        with Interrupts(tell.aside).caught():
            return await _learn_group(settings, threads, tell)

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _learn_group(settings: Settings, threads: Sequence[str], tell: Tell) -> list["Lesson"]:
    """The model is opened once; where it cannot be, all of the runs wait."""
    from agent.learning import learn as learn_one
    from agent.learning import open_learner
    from agent.lessons import failed

    lessons: list[Lesson] = []
    try:
        async with open_learner(settings, tell.event) as learner:
            for thread in threads:
                lessons.append(await learn_one(learner, thread))
                tell.lesson(lessons[-1])
    except RubricemError as error:
        for thread in threads[len(lessons) :]:
            lessons.append(failed(thread, error))
            tell.lesson(lessons[-1])
    return lessons
