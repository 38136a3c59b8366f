"""The bank as files: copies of the whole to go back to, and exports for another bank.

An export is a file of JSON lines:

    {"rubricem_bank": 1, "items": 2}      the header: the version of the form, how many follow
    {"id": ..., "question": ..., ...}     one reflection and its standing, as `show --json` has it

What a person decided is not carried over, as it is about another bank: pins and releases are
passed over, and what was disabled there is left out.
"""

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC
from pathlib import Path
from shlex import quote
from typing import Any

import click
from pydantic import ValidationError

from rubricem.agent.cli.options import (
    AS_JSON,
    EXISTING,
    FILE,
    YES,
    counted,
    print_json,
    read_text,
)
from rubricem.agent.cli.terminal import confirmed
from rubricem.agent.research.question import checked
from rubricem.agent.research.setup import open_bank
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import stores_of
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import NEVER, BankItem, Imported, Reflection, Value
from rubricem.memory.screening import screened
from rubricem.memory.screening.orders import orders


def open_own() -> RubricBank:
    """The bank of the data directory, for what needs no embedder."""
    return open_bank(stores_of(load_settings()))


def state(item: BankItem) -> str:
    """What became of it, in a word."""
    if item.quarantined:
        return "quarantine"
    if item.until != NEVER:
        return "replaced"
    if item.disabled:
        return "disabled"
    return "pinned" if item.pinned else "live"


def item_json(item: BankItem) -> dict[str, Any]:
    """The reflection's fields and its standing, as one object."""
    standing = item.model_dump(mode="json", exclude={"reflection", "until", "removed"})
    until = None if item.until == NEVER else item.until
    return (
        item.reflection.model_dump(mode="json") | standing | {"until": until, "state": state(item)}
    )


FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))


@click.command()
@FOLDER
def snapshot(folder: Path) -> None:
    """Copy everything that cannot be made again into FOLDER, at one moment."""
    generation = asyncio.run(open_own().snapshot(folder))
    click.echo(f"{counted(generation, 'event')} copied to {folder}")


@click.command()
@FOLDER
@click.option("--foreign", is_flag=True, help="Take another bank's copy, too.")
@YES
def restore(folder: Path, foreign: bool, yes: bool) -> None:
    """Go back to the copy in FOLDER. What was removed since stays removed."""
    held = open_own()
    now = asyncio.run(held.generation())
    if now and not confirmed(f"Give up the bank as it is now ({counted(now, 'event')})?", yes):
        click.echo("the bank was left as it is")
        return
    generation = asyncio.run(held.restore(folder, foreign=foreign))
    click.echo(f"the bank holds {counted(generation, 'event')} again")


HEADER, VERSION = "rubricem_bank", 1
RULE = (
    "For one question the pinned one wins, else the higher score, else the later one; "
    "the other goes to the history."
)
_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a file holds: reflections screened anew, and how many of its lines are left out."""

    reflections: tuple[Reflection, ...]
    disabled: int


class _Standing(Value):
    """What an exported line says of a reflection beyond it, as far as an import heeds it."""

    disabled: bool = False


@click.command()
@click.argument("file", type=FILE, required=False)
@click.option("--every", is_flag=True, help="Also what is replaced, disabled or in quarantine.")
def export(file: Path | None, every: bool) -> None:
    """Write the reflections to FILE, or to standard output: one JSON object a line."""
    bank = open_own()
    items = list(asyncio.run(bank.export())) if every else asyncio.run(bank.items())
    lines = [{HEADER: VERSION, "items": len(items)}, *map(item_json, items)]
    text = "".join(json.dumps(entry) + "\n" for entry in lines)
    if file is None:
        click.echo(text, nl=False)
        return
    write_atomically(file, text)
    click.echo(f"{counted(len(items), 'reflection')} exported to {file}")


@click.command("import")
@click.argument("file", type=EXISTING)
@click.option("--dry-run", is_flag=True, help="Say what would become of them; change nothing.")
@click.option("--removed", is_flag=True, help="Also those that were removed here, under new ids.")
@AS_JSON
def import_(file: Path, dry_run: bool, removed: bool, as_json: bool) -> None:
    """Bring in the reflections of an exported FILE; of one with a damaged line, nothing.

    For one question the pinned one wins, else the higher score, else the later one; the other
    goes to the history. Whatever looks wrong stays in quarantine until it is released. What
    was removed here is passed over.
    """
    bundle = read_bundle(file)
    done = asyncio.run(_brought_in(bundle.reflections, dry_run, removed))
    if as_json:
        print_json(asdict(done) | {"left_out": bundle.disabled})
        return
    for line in _told(file, bundle, done, "would be " if dry_run else ""):
        click.echo(line)


def _told(file: Path, bundle: Bundle, done: Imported, would: str) -> Iterator[str]:
    """What became of the file's reflections, and what there is to do about it."""
    parts = (
        (done.added, f"{would}added"),
        (done.replaced, f"{would}put in the place of the bank's own"),
        (done.kept, f"{would}kept for the history or known already"),
        (done.quarantined, f"{would}put in quarantine"),
        (done.removed, f"{would}passed over, as removed here"),
        (bundle.disabled, "left out, as disabled there"),
    )
    said = ", ".join(f"{count} {what}" for count, what in parts if count)
    count = counted(len(bundle.reflections) + bundle.disabled, "reflection")
    yield f"{count} of {file}: {said or 'nothing to bring in'}"
    if done.replaced or done.kept:
        yield RULE
    if done.quarantined:
        yield "Read what waits in quarantine: rubricem bank list --every"
    if done.removed:
        yield f"To bring back what was removed: rubricem bank import --removed {quote(str(file))}"


def read_bundle(file: Path) -> Bundle:
    """Everything in an exported file; raises SettingsError that numbers the line at fault."""
    lines = read_text(file, "Export it again.").split("\n")
    promised = _check_header(file, lines[0])
    entries = [(n, line) for n, line in enumerate(lines[1:], start=2) if line.strip()]
    if len(entries) != promised:
        raise _damaged(file, f"it has {len(entries)} reflections, and its header says {promised}")
    read = [_reflection(file, number, line) for number, line in entries]
    kept = tuple(reflection for reflection, disabled in read if not disabled)
    return Bundle(kept, len(read) - len(kept))


def _check_header(file: Path, line: str) -> int:
    """How many reflections are said to follow."""
    try:
        header: Any = json.loads(line)
        version, items = header[HEADER], header["items"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SettingsError(
            f"{file} does not begin with the header of an exported bank.",
            "Name a file written by: rubricem bank export FILE",
        ) from error
    if version != VERSION:
        raise SettingsError(
            f"{file} is an export of version {version!r}; this program reads version {VERSION}.",
            "Import it with the version of rubricem that wrote it, or a later one.",
        )
    return items if isinstance(items, int) else -1


def _reflection(file: Path, number: int, line: str) -> tuple[Reflection, bool]:
    """A line's reflection, screened as if it had been written here; whether it was disabled."""
    try:
        read = Reflection.model_validate_json(line)
        disabled = _Standing.model_validate_json(line).disabled
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        what = ": ".join(part for part in (f"line {number}", where, first["msg"]) if part)
        raise _damaged(file, what) from error
    if not _ID.fullmatch(read.id):
        raise _damaged(file, f"line {number}: the id must be 1 to 64 letters, digits, . _ or -")
    return _screened(file, number, read), disabled


def _screened(file: Path, number: int, read: Reflection) -> Reflection:
    clean = screened(read.rubrics, read.takeaways, ())
    if not (clean.rubrics.strip() and clean.takeaways.strip()):
        raise _damaged(file, f"line {number}: its rubrics or takeaways say nothing")
    try:
        question = checked(read.question)
    except SettingsError as error:
        raise _damaged(file, f"line {number}: {str(error).rstrip('.')}") from error
    written = read.written_at
    if written.tzinfo is None or not 1970 <= written.year < 9999:
        raise _damaged(file, f"line {number}: written_at must name its zone and a year from 1970")
    flags = dict.fromkeys((*read.flags, *clean.flags, *orders(question, asked=True)))
    return read.model_copy(
        update={
            "question": question,
            "rubrics": clean.rubrics,
            "takeaways": clean.takeaways,
            "flags": tuple(flags),
            "written_at": written.astimezone(UTC),
        }
    )


async def _brought_in(reflections: Sequence[Reflection], dry_run: bool, removed: bool) -> Imported:
    """What became of them; of a dry run in a copy of the journal, which is all that decides."""
    if not dry_run:
        return await open_own().bring_in(reflections, removed=removed)
    with tempfile.TemporaryDirectory() as folder:
        journal, copy = open_own().folder / "journal.jsonl", Path(folder, "bank")
        if journal.exists():
            copy.mkdir()
            await asyncio.to_thread(shutil.copy, journal, copy)
        return await RubricBank(Path(folder)).bring_in(reflections, removed=removed)


def _damaged(file: Path, what: str) -> SettingsError:
    return SettingsError(f"{file} is damaged: {what}.", "Nothing was imported. Export it again.")


FILE_COMMANDS = (export, import_, snapshot, restore)
