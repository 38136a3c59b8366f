"""`rubricem watch`: one question asked again and again, and what changed since the last report.

Its runs are called watch-DIGEST-1, -2 and so on, by the question and its sources, and are tagged
`watched`: what was asked when is read from their folders alone. Each has its changes beside it,
written when they were delivered, so that a mail that could not be sent is sent the next time. A
report whose research was cut short is neither compared nor delivered, unless it is the first.
"""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
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
from rubricem.agent.reports.changes import (
    FILE,
    Delivered,
    changes_between,
    changes_shown,
    why_not_compared,
)
from rubricem.agent.reports.display import print_report
from rubricem.agent.reports.report import markdown
from rubricem.agent.research.setup import Setup
from rubricem.agent.settings import PREFIX, load_settings
from rubricem.agent.settings.door import setup_of, with_default_source
from rubricem.agent.transcript.question import check_question
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import RunStore, set_labels, write_atomically
from rubricem.memory.text import digest_of, printable

TAG = "watched"
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
@click.option("--mail", default="", metavar="COMMAND", help="Give them to it (no shell).")
@QUIET
@set_option
def watch(question: tuple[str, ...], once: bool, quiet: bool, **given: Any) -> None:
    """Ask a question anew when it is due, and say what changed since the last report."""
    every, out, mail = (given.pop(name) for name in ("every", "out", "mail"))
    watched = Watched(check_question(" ".join(question)), every, out, _command(mail), quiet)
    if out is not None and (out.suffix != ".md" or out.is_dir()):
        raise SettingsError(f"{out} is no file of Markdown.", "Name one: -o FILE.md")
    told = None
    while True:
        wait = LOOK
        try:
            due = watched.ask_if_due(setup_of(with_default_source(load_settings(given))))
            # cron mails what is said.
            if due != told and not quiet and (not once or sys.stderr.isatty()):
                click.echo(f"It is asked again from {_local(due)} on.", err=True)
            told = due
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
    mail: Sequence[str]
    quiet: bool

    def ask_if_due(self, setup: Setup) -> datetime:
        """Ask it if it is due, and deliver what changed; when it is due next.

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
            asked = store.asked_at(runs[-1])  # in the future, where the clock was set back
            if abs(datetime.now(UTC) - asked) < self.every:
                return asked + self.every
        if done or not runs or store.request(runs[-1])["choices"] != choices:
            runs.append(f"{name}{max(numbers, default=0) + 1}")
        trajectory = asyncio.run(answer_here(setup, self.question, runs[-1], self.quiet))
        set_labels(store, runs[-1], tags=[TAG])
        if trajectory.ended_by == "interrupt":
            raise KeyboardInterrupt
        if not _is_done(store, runs[-1]):
            raise RubricemError(trajectory.reason, "The run goes on when it is watched again.")
        self._deliver(store, runs)
        return store.asked_at(runs[-1]) + self.every

    def _deliver(self, store: RunStore, runs: Sequence[str]) -> None:
        """Deliver the report of the last of these runs, and note that it was."""
        now, place = store.load(runs[-1]), store.folder_of(runs[-1]) / FILE
        done = (run for run in reversed(runs[:-1]) if _is_done(store, run))
        earlier = next((run for run in done if not why_not_compared(store.load(run))), None)
        if earlier and (why := why_not_compared(now)):
            said = f"Not compared, since {why.rstrip('.')}: rubricem runs show {now.thread}"
            click.echo(printable(said), err=True)
            write_atomically(place, Delivered(not_compared=why).model_dump_json())
            return
        changes = changes_between(store.load(earlier), now) if earlier else ()
        told, (title, _, report) = "", markdown(now).partition("\n\n")
        if earlier:
            since = _local(store.asked_at(earlier))
            told = f"## What changed since {since}\n\n{changes_shown(changes)}\n\n"
        text = f"{title}\n\n{told}{report}"
        if out := self.out and self.out.resolve():
            if out.exists():
                click.echo(f"Before: {out.replace(out.with_suffix('.before.md'))}", err=True)
            write_atomically(out, text)
        if changes or not self.quiet:
            click.echo(printable(told), nl=False)
        if changes or not earlier:
            print_report(now)
        if self.mail and (changes or not earlier):
            self._send(text)
        write_atomically(place, Delivered(since=earlier, changes=changes).model_dump_json())

    def _send(self, text: str) -> None:
        """Give a text to the mail command; raises RubricemError where that fails."""
        # Programs of mail take `~` for a command, and a lone `.` for the end.
        lines = (" " * (e[:1] == "~" or e.strip() == ".") + e for e in text.split("\n"))
        own = (PREFIX, "OPENAI_")
        env = {n: e for n, e in os.environ.items() if not ("KEY" in n and n.startswith(own))}
        given = "\n".join(lines).encode()
        try:
            subprocess.run(
                self.mail, input=given, check=True, env=env, timeout=MAILING, stdout=DEVNULL
            )
        except (OSError, subprocess.SubprocessError) as error:
            remedy = "Correct --mail; the report is kept, and is sent the next time."
            said = f"The mail command failed: {str(error).rstrip('.')}."
            raise RubricemError(said, remedy) from error


def _is_done(store: RunStore, run: str) -> bool:
    """Whether there is a report, and the run is not to be gone on with."""
    return store.has_ended(run) and store.load(run).ended_by not in ("interrupt", "failure")


def _command(mail: str) -> list[str]:
    """The command by its words; raises SettingsError if there is none such."""
    try:
        words = shlex.split(mail)
    except ValueError:  # a quote is not closed
        words = [mail]
    if words and shutil.which(words[0]) is None:
        remedy = "Name a program with its arguments; for pipes: --mail \"sh -c '...'\""
        raise SettingsError(f"There is no program {words[0]!r} for --mail.", remedy)
    return words


def _local(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}"
