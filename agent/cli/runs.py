"""`rubricem runs`: questions, outcomes and costs; finding, naming and deleting runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from rubricem.agent.cli import Lazy
from rubricem.agent.cli.options import AS_JSON, REPORT_OUT, YES, CommandGroup, confirm, print_json
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import Labels, RunStore, labels_of, set_labels
from rubricem.memory.schema import NO_USAGE, Trajectory, Usage
from rubricem.memory.text import one_line, pluralise, printable

SHOWN = Lazy("rubricem.training.cli.export:show_folder", "Show a collected run or a training.")
"""in the training package, and therefore loaded by its name"""
FOLDERS = ("manifest.json", "run.json")
"""files that identify the folders of a collected run and of a training"""
RESUME = "rubricem ask --resume"
RUNNING, UNFINISHED, UNREADABLE = "running", "unfinished", "unreadable"
"""states of a run without a trajectory to state its status"""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run in the list; `trajectory` is None if it has not ended."""

    name: str
    question: str
    status: str
    asked_at: datetime | None
    """None for one whose folder is gone"""
    trajectory: Trajectory | None
    labels: Labels

    def as_json(self) -> dict[str, Any]:
        ended = self.trajectory
        return {
            "thread": self.name,
            "question": self.question,
            "title": self.labels.title,
            "tags": list(self.labels.tags),
            "status": self.status,
            "ended_by": ended.ended_by if ended else "",
            "asked_at": self.asked_at and self.asked_at.isoformat(timespec="seconds"),
            "seconds": round(ended.seconds, 1) if ended else None,
            "usage": ended.usage.model_dump(mode="json") if ended else None,
        }

    @classmethod
    def of(cls, store: RunStore, name: str) -> "ListedRun":
        """One run; unreadable parts are left out, so that the others are listed."""
        question, trajectory, status, asked_at = "", None, UNFINISHED, None
        try:
            asked_at = store.asked_at(name)
            question = store.request(name)["ask"]["question"]
            if store.running(name):
                status = RUNNING
            elif store.has_ended(name):
                trajectory = store.load(name)
                status = trajectory.status.value
        except (RubricemError, OSError, KeyError, TypeError):
            status = UNREADABLE
        labels = labels_of(store, name)
        return cls(name, question, status, asked_at, trajectory, labels)


COUNT = click.option("-n", "count", type=click.IntRange(1), default=20, help="Runs at most (20).")


@click.group(cls=CommandGroup, invoke_without_command=True)
@COUNT
@AS_JSON
@click.pass_context
def runs(context: click.Context, count: int, as_json: bool) -> None:
    """List the runs of this data directory, the latest last."""
    if context.invoked_subcommand is not None:
        return
    store = _store()
    names = store.threads()
    shown = [ListedRun.of(store, name) for name in names[-count:]]
    spent = [run.trajectory.usage for run in shown if run.trajectory]
    if as_json:
        total = sum(spent, NO_USAGE).model_dump()
        print_json({"runs": [run.as_json() for run in shown], "usage": total})
        return
    for run in shown:
        click.echo(_line(run))
    click.echo(pluralise(len(names), "run") + _total(spent))


@runs.command()
@click.argument("name", metavar="RUN")
@REPORT_OUT
@AS_JSON
@click.pass_context
def show(context: click.Context, name: str, out: Path | None, as_json: bool) -> None:
    """Show the report of RUN, or what is known of one that has not ended.

    Where RUN is the folder of rubricem collect or of rubricem train, show what was collected, or
    how the training went.
    """
    if "/" in name or any((Path(name) / mark).is_file() for mark in FOLDERS):
        if out is not None:
            raise SettingsError(
                f"{name!r} is a folder, and --out writes the report of one question.",
                "Print its numbers by --json.",
            )
        context.invoke(SHOWN.load(), folder=Path(name), as_json=as_json)
        return
    store = _store()
    store.request(name)
    run = ListedRun.of(store, name)
    if out is not None:
        from rubricem.agent.reports.page import write_report

        write_report(store.load(name), out)
        click.echo(f"written: {out}", err=as_json)
    elif run.trajectory is None:
        going = run.status == RUNNING
        said = "Another process works on it." if going else f"Go on with it: {RESUME} {name}"
        print_json(run.as_json()) if as_json else click.echo(f"{_line(run)}\n{said}")
    elif as_json:
        from rubricem.agent.reports.report import as_json as report_json

        print_json(report_json(run.trajectory))
    else:
        from rubricem.agent.cli.terminal import tell_spent
        from rubricem.agent.reports.changes import changes_shown, told_changes
        from rubricem.agent.reports.display import print_report

        print_report(run.trajectory)
        if told := told_changes(store.folder_of(name)):
            said = f"Not compared, since {told.not_compared}" if told.not_compared else ""
            click.echo(printable(f"\n## What changed\n\n{said or changes_shown(told.changes)}"))
        tell_spent(run.trajectory)


@runs.command()
@click.argument("words", metavar="WORD...", nargs=-1)
@click.option("--tag", default="", help="Only runs with this tag.")
@COUNT
@AS_JSON
def search(words: Sequence[str], tag: str, count: int, as_json: bool) -> None:
    """Find runs by words of their question, report, name and tags; all of them must be there."""
    if not (words or tag):
        raise SettingsError("Nothing is sought.", "Give words, or --tag TAG.")
    from rubricem.agent.record.history import History

    store, sought = _store(), " ".join(words)
    past = History(store)
    past.follow(lambda line: click.echo(line, err=True))
    found, number = past.page(sought, tag, limit=count)[::-1], past.count(sought, tag)
    shown = [(ListedRun.of(store, each.thread), each.preview(sought)) for each in found]
    if as_json:
        rows = [{**run.as_json(), "preview": preview} for run, preview in shown]
        print_json({"runs": rows, "found": number})
        return
    for run, preview in shown:
        click.echo(_line(run))
        click.echo(f"{'':14}{one_line(preview, 100)}")
    click.echo(pluralise(number, "run"))


@runs.command()
@click.argument("name", metavar="RUN")
@click.argument("title", nargs=-1)
def rename(name: str, title: Sequence[str]) -> None:
    """Call the run RUN by TITLE; without one, by its question again."""
    kept = set_labels(_store(), name, title=" ".join(title))
    click.echo(f"{name}  {kept.title or 'is called by its question'}")


@runs.command()
@click.argument("name", metavar="RUN")
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Take this one away; repeatable.")
def tag(name: str, tags: Sequence[str], remove: Sequence[str]) -> None:
    """Give the run RUN these tags beside those that it has, and print them all."""
    store = _store()
    gone = {each.casefold() for each in remove}
    kept = (*labels_of(store, name).tags, *tags)
    wanted = [each for each in kept if each.casefold() not in gone]
    click.echo(", ".join(set_labels(store, name, tags=wanted).tags) or "no tags")


@runs.command()
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@YES
def rm(names: Sequence[str], yes: bool) -> None:
    """Delete runs for good: all their files. What was learnt from them stays in the bank."""
    from rubricem.agent.record.history import remove

    store = _store()
    for name in names:
        if not store.holds(name):
            store.request(name)  # which tells what is wrong
        click.echo(_line(ListedRun.of(store, name)))
    these = "it" if len(names) == 1 else f"these {len(names)}"
    if not confirm(f"Delete {these} for good?", yes):
        click.echo("nothing was deleted")
        return
    for name in names:
        remove(store, name)
        click.echo(f"deleted: {name}")


def _store() -> RunStore:
    return RunStore(load_settings().data_dir)


def _total(spent: Sequence[Usage]) -> str:
    """What the listed runs took, as the end of a line; "" if they took nothing."""
    from rubricem.agent.transcript.question import tokens_told

    total, money = sum(spent, NO_USAGE), sum(usage.cost or 0.0 for usage in spent)
    if not total.calls:
        return ""
    known = " where a price is known" if total.cost is None else ""
    paid = f", ${money:.4f}{known}" if money else ""
    return f"; those listed took {pluralise(total.calls, 'call')}, {tokens_told(total)}{paid}"


def _line(run: ListedRun) -> str:
    """One line of the list, with the cost in money if there was any, else in tokens."""
    cost = ""
    if run.trajectory is not None:
        from rubricem.agent.transcript.question import new_tokens

        usage = run.trajectory.usage
        spent = f"${usage.cost:.4f}" if usage.cost else f"{new_tokens(usage):,} new tokens"
        cost = f"{spent}, {run.trajectory.seconds:,.0f} s"
    when = f"{run.asked_at.astimezone():%Y-%m-%d %H:%M}" if run.asked_at else ""
    question = one_line(run.labels.title or run.question, 80)
    tags = "".join(f" #{each}" for each in run.labels.tags)
    return f"{run.name:<12}  {when}  {run.status.replace('_', ' '):<12}{cost:>22}  {question}{tags}"
