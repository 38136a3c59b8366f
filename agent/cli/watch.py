"""`rubricem watch`: one question asked again and again, and what changed since the last report.

Its runs are called watch-DIGEST-1, -2 and so on, by the question and its sources, and are tagged
`watched`: what was asked when is read from their folders alone. Each has its changes beside it,
written when they were delivered, so that a mail that could not be sent is sent the next time.
"""

import asyncio
import json
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import click

from rubricem.agent.cli.ask import answer_here
from rubricem.agent.cli.options import QUIET, set_option, setting_flags
from rubricem.agent.reports.changes import changes_between, changes_shown
from rubricem.agent.reports.display import print_report
from rubricem.agent.reports.report import markdown
from rubricem.agent.research.setup import Setup
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of, with_default_source
from rubricem.agent.transcript.question import check_question
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import RunStore, set_labels, write_atomically
from rubricem.memory.text import digest_of, printable

FILE, TAG = "changes.json", "watched"
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LOOK, AGAIN, MAILING = 60.0, 600.0, 120.0
"""seconds between two looks, since a machine may sleep; after a failure; and of a mail command"""


def read_every(context: click.Context, param: click.Parameter, value: str) -> timedelta:
    if (found := re.fullmatch(r"([1-9]\d{0,3})([mhdw])", value)) is None:
        raise click.BadParameter("write a number and m, h, d or w, such as 12h")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


@click.command()
@click.argument("question", nargs=-1, required=True)
@setting_flags("model", "base_url", "source", "effort")
@click.option("--every", default="1d", callback=read_every, help="30m, 12h, 1d (default), 2w.")
@click.option("--once", is_flag=True, help="Ask if it is due, and end: for cron.")
@click.option("-o", "--out", type=Path, metavar="FILE", help="Write changes and report: .md.")
@click.option("--mail", default="", metavar="COMMAND", help="Give them to it, if any changed.")
@QUIET
@set_option
def watch(question: tuple[str, ...], once: bool, quiet: bool, **given: Any) -> None:
    """Ask a question anew when it is due, and say what changed since the last report."""
    every, out, mail = (given.pop(name) for name in ("every", "out", "mail"))
    watched = Watched(check_question(" ".join(question)), every, out, mail, quiet)
    if out is not None and (out.suffix != ".md" or out.is_dir()):
        raise SettingsError(f"{out} is no file of Markdown.", "Name one: -o FILE.md")
    while True:
        wait = LOOK
        try:
            watched.ask_if_due(setup_of(with_default_source(load_settings(given))))
        except RubricemError as error:
            if once or isinstance(error, SettingsError):
                raise
            wait = AGAIN
            click.echo(printable(f"error: {error}\n{error.remedy}"), err=True)
        if once:
            return
        time.sleep(wait)


@dataclass(frozen=True)
class Watched:
    """A question, how often it is asked, and where what changed goes beside the terminal."""

    question: str
    every: timedelta
    out: Path | None
    mail: str
    quiet: bool

    def ask_if_due(self, setup: Setup) -> None:
        """Ask it if it is due, and deliver what changed.

        Raises RubricemError where the run failed or something cannot be delivered.
        """
        store, choices = setup.stores.runs, setup.choices
        name = f"watch-{digest_of(repr((self.question, choices['source'])), 10)}-"
        ours = (run.removeprefix(name) for run in store.threads() if run.startswith(name))
        numbers = sorted(map(int, filter(str.isdecimal, ours)))
        runs = [f"{name}{number}" for number in numbers]
        if done := bool(runs) and _is_done(store, runs[-1]):
            if not (store.folder_of(runs[-1]) / FILE).exists():
                self._deliver(store, runs)
            if datetime.now(UTC) < store.asked_at(runs[-1]) + self.every:
                return
        if done or not runs or store.request(runs[-1])["choices"] != choices:
            runs.append(f"{name}{max(numbers, default=0) + 1}")
        answering = answer_here(setup, self.question, runs[-1], self.quiet)
        trajectory = asyncio.run(answering)
        set_labels(store, runs[-1], tags=[TAG])
        if trajectory.ended_by == "interrupt":
            raise KeyboardInterrupt
        if not _is_done(store, runs[-1]):
            raise RubricemError(trajectory.reason, "The run goes on when it is watched again.")
        self._deliver(store, runs)

    def _deliver(self, store: RunStore, runs: Sequence[str]) -> None:
        """Deliver the report of the last of these runs, and note that it was."""
        now = store.load(runs[-1])
        earlier = next((run for run in reversed(runs[:-1]) if _is_done(store, run)), None)
        changes = changes_between(store.load(earlier), now) if earlier else ()
        told, (title, _, report) = "", markdown(now).partition("\n\n")
        if earlier:
            since = f"{store.asked_at(earlier).astimezone():%Y-%m-%d %H:%M}"
            told = f"## What changed since {since}\n\n{changes_shown(changes)}\n\n"
        text = f"{title}\n\n{told}{report}"
        if self.out:
            write_atomically(self.out.resolve(), text)
        if changes or not self.quiet:
            click.echo(printable(told), nl=False)
        if changes or not earlier:
            print_report(now)
        if self.mail and (changes or not earlier):
            try:
                command, given = shlex.split(self.mail), text.encode()
                subprocess.run(command, input=given, check=True, timeout=MAILING, stdout=DEVNULL)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                remedy = "Correct --mail; the report is kept, and is sent the next time."
                raise RubricemError(f"The mail command failed: {error}.", remedy) from error
        found = {"since": earlier, "changes": [each.model_dump() for each in changes]}
        write_atomically(store.folder_of(now.thread) / FILE, json.dumps(found))


def _is_done(store: RunStore, run: str) -> bool:
    """Whether there is a report, and the run is not to be gone on with."""
    return store.has_ended(run) and store.load(run).ended_by not in ("interrupt", "failure")
