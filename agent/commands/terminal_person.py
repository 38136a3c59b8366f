"""The person at the terminal: shown a plan or a question, answering on standard input.

Input is read by the event loop and not by a thread, so that ^C ends the waiting; text of the
model is printed as text.
"""

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from agent.approval import Plan
from agent.commands.editor import edited_in_place
from agent.commands.interrupting import Interrupts
from agent.person import Nobody, Person
from agent.plan_text import RUBRIC, as_text, from_text
from agent.reports.printable import one_line, printable

NOBODY_HERE = "There is no terminal to ask at: the plan is approved, and nothing is asked."


def person_here(interrupts: Interrupts) -> tuple[Person, str]:
    """Whoever sits at the terminal; without one nobody, and the sentence that says so."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        return TerminalPerson(interrupts), ""
    return Nobody(), NOBODY_HERE


class TerminalPerson:
    """A `Person` on standard input and standard error."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._interrupts.left_to(cancelled=True):
            if asked["ask"] == "clarify":
                return {"text": await self._line(f"\n{one_line(asked['doubt'])}\n(empty: skip) ")}
            return await self._plan(Plan.model_validate(asked))

    async def _plan(self, plan: Plan) -> dict[str, Any]:
        click.echo(f"\n{printable(as_text(plan))}", err=True)
        while True:
            said = (await self._line("Plan: [a]pprove, [e]dit, [r]eject? ")).strip().casefold()
            if said in ("a", "approve", "y", "yes"):
                return {"verdict": "approve"}
            if said in ("r", "reject", "n", "no"):
                return {"verdict": "reject", "reason": await self._line("Why? (may be empty) ")}
            if said in ("e", "edit") and (edited := await self._edited(plan)) is not None:
                return {"verdict": "edit", "plan": edited.model_dump(mode="json")}

    async def _line(self, prompt: str) -> str:
        """One line without its end; the end of input is taken for ^C."""
        click.echo(prompt, err=True, nl=False)
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(sys.stdin, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(sys.stdin)
        line = sys.stdin.readline()
        if not line:
            raise asyncio.CancelledError
        return line.rstrip("\n")

    async def _edited(self, plan: Plan) -> Plan | None:
        """The plan as the editor left it; None where it cannot be used, which is said."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "plan.md")
            path.write_text(as_text(plan), encoding="utf-8")
            with self._interrupts.left_to(cancelled=False):
                failed = await edited_in_place(path)
            text = path.read_text(encoding="utf-8", errors="replace")
        edited = from_text(text)
        if failed or not edited.rubric:
            why = failed or f"The rubric is empty; keep the line {RUBRIC!r} and an item below it."
            click.echo(why, err=True)
            return None
        return edited
