"""`rubricem bank edit`: a reflection in a person's words, written between the policy's own tags."""

import asyncio
import os
import shlex
import sys
import tempfile
from pathlib import Path

import click

from agent.commands.bank_view import found, line, opened, text
from agent.commands.editor import edited_in_place
from agent.commands.interrupting import Interrupts
from memory.bank import RubricBank
from memory.errors import RubricemError, SettingsError
from memory.items import NEVER, BankItem
from memory.reflections import Reflection


@click.command()
@click.argument("identifier", metavar="ID")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the text from here instead of opening an editor.",
)
def edit(identifier: str, file: Path | None) -> None:
    """Correct the words of the reflection ID in $EDITOR; what they were stays in the history.

    The text is two blocks, <reflection_rubrics> and <reflection_takeaways>. Tags, addresses and
    hidden characters are taken out of them; of anything else that looks wrong you are only told.
    """
    asyncio.run(_edit(identifier, file))


async def _edit(identifier: str, file: Path | None) -> None:
    bank = opened()
    item = await found(bank, identifier)
    if item.until != NEVER:
        raise SettingsError(
            f"The reflection {item.reflection.id} was replaced.",
            f"Edit the one that counts; see: rubricem bank show {item.reflection.id}",
        )
    new = await (_by_editor(bank, item) if file is None else _kept(bank, item, _read(file)))
    click.echo(line(new) if new else "nothing was changed")


def as_text(reflection: Reflection) -> str:
    """The two blocks, as a policy writes them."""
    from agent.reflection_text import RUBRICS, TAKEAWAYS

    blocks = ((RUBRICS, reflection.rubrics), (TAKEAWAYS, reflection.takeaways))
    return "".join(f"<{tag}>\n{text(words)}\n</{tag}>\n" for tag, words in blocks)


async def _by_editor(bank: RubricBank, item: BankItem) -> BankItem | None:
    """What was written is left in its file for as long as it is not in the bank."""
    if not (sys.stdin.isatty() or os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        raise SettingsError("There is no terminal to edit at.", "Write the text and use --file.")
    before = as_text(item.reflection)
    descriptor, name = tempfile.mkstemp(prefix="rubricem-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(before)
    draft, interrupts = Path(name), Interrupts(tell=lambda said: None)
    with interrupts.caught(), interrupts.left_to(cancelled=False):
        failed = await edited_in_place(draft)
    try:
        written = _read(draft)
        if failed:
            raise SettingsError(failed, "Set EDITOR, or write the text and use --file.")
        new = await _kept(bank, item, written) if written != before else None
    except RubricemError as error:
        if not draft.exists() or draft.read_bytes() == before.encode():
            draft.unlink(missing_ok=True)
            raise
        again = f"rubricem bank edit {item.reflection.id} --file {shlex.quote(name)}"
        raise type(error)(str(error), f"{error.remedy} What you wrote is kept: {again}") from error
    draft.unlink()
    return new


async def _kept(bank: RubricBank, item: BankItem, written: str) -> BankItem | None:
    """The new version in the bank; None where the words are those that it has."""
    from agent.reflection_text import parse_reflection
    from memory.screening import screened

    parsed = parse_reflection(written)
    if parsed.fault:
        raise SettingsError(parsed.fault, "Write both blocks, each once and between its own tags.")
    clean = screened(parsed.rubrics, parsed.takeaways, ())
    if not (clean.rubrics.strip() and clean.takeaways.strip()):
        raise SettingsError(
            "A block is empty once tags, addresses and hidden characters are taken out of it.",
            "Say in words what is to be learnt.",
        )
    old = item.reflection
    if (clean.rubrics, clean.takeaways) == (old.rubrics, old.takeaways):
        return None
    for flag in clean.flags:
        click.echo(f"warning: {text(flag, 0)}", err=True)
    new = await bank.edit(old.id, clean.rubrics, clean.takeaways, "terminal")
    if (clean.rubrics, clean.takeaways) != (parsed.rubrics, parsed.takeaways):
        kept = f"rubricem bank show {new.reflection.id}"
        click.echo(f"Some of it was taken out or cut; what is kept: {kept}", err=True)
    return new


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read as text: {error}.", "Save it as UTF-8.") from (
            error
        )
