"""`rubricem bank`: what earlier runs have taught, to be read, corrected, carried and rebuilt.

`rubricem bank snapshot` and `restore`: the bank as it stood, kept elsewhere.

`rubricem bank export` and `import`: a bank as a file of JSON lines.

    {"rubricem_bank": 1, "items": 2}      the header: the version of the form, how many follow
    {"id": ..., "question": ..., ...}     one reflection and its standing, as `show --json` has it

What a person decided is not carried over, as it is about another bank: pins and releases are
passed over, and what was disabled there is left out.

What a person decides about reflections: pinned, disabled, released, removed; and the index.

Reflections of the bank as its commands find and show them.

What they say comes from models that have read pages: nothing of it reaches a terminal as it is.

`rubricem bank edit`: a reflection in a person's words, written between the policy's own tags.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC
from pathlib import Path
from shlex import quote
from typing import Any

import click
from pydantic import ValidationError
from rich.markup import escape

from rubricem.agent.cli.terminal import Interrupts, edited_in_place
from rubricem.agent.research.events import Event, SourceProgress
from rubricem.agent.settings import load_settings
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import (
    NEVER,
    BankItem,
    BankStats,
    Imported,
    Reflection,
    Released,
    Stage,
    Value,
)
from rubricem.memory.text import storable

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_LISTED = 5
"""ids that are named where a beginning fits several"""


def opened() -> RubricBank:
    """The bank of the data directory, for what needs no embedder."""
    from rubricem.agent.research.setup import open_bank

    return open_bank(load_settings())


@contextmanager
def opened_to_embed(doing: str) -> Iterator[RubricBank]:
    """The bank; on a terminal it is shown how its embedder is fetched and how far it has come."""
    from rich.console import Console

    from rubricem.agent.research.setup import open_bank

    console = Console(stderr=True)
    with console.status(doing) if console.is_terminal else nullcontext() as status:

        def heard(event: Event) -> None:
            if status and isinstance(event, SourceProgress):
                status.update(escape(f"{doing}: the embedding model: {event.message}"))

        def counted(texts: int) -> None:
            if status:
                status.update(f"{doing}: {texts:,} embedded")

        yield open_bank(load_settings(), heard, counted)


async def found(bank: RubricBank, prefix: str) -> BankItem:
    """The one item whose id begins so, or is just that."""
    items = await bank.find(storable(prefix))
    exact = [item for item in items if item.reflection.id == prefix]
    if len(items) > 1 and not exact:
        ids = ", ".join(text(item.reflection.id, 40) for item in items[:_LISTED])
        more = ", ..." if len(items) > _LISTED else ""
        raise SettingsError(
            f"{len(items)} reflections begin with {prefix!r}: {ids}{more}.", "Give more of the id."
        )
    if not items:
        raise SettingsError(
            f"No reflection begins with {prefix!r}.", "Give an id from: rubricem bank list --every"
        )
    return (exact or items)[0]


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


def heading() -> str:
    return f"{'id':12}  score  written     recalled  mean  {'state':10}  question"


def line(item: BankItem) -> str:
    """One line of a list; `mean` is the mean score of the runs that recalled it."""
    reflection = item.reflection
    return (
        f"{text(reflection.id, 40):12}  {reflection.score:5.2f}  {reflection.written_at:%Y-%m-%d}  "
        f"{item.recalled:8,}  {_score(item.mean_score)}  {state(item):10}  "
        f"{text(reflection.question, 80)}"
    )


def provenance(item: BankItem) -> list[tuple[str, str]]:
    """Where a reflection comes from and what became of it; facts that are unknown are left out."""
    reflection = item.reflection
    released = f", {released_how(item)}" if item.released else ""
    facts = [
        ("id", text(reflection.id, 80)),
        ("question", text(reflection.question, 0)),
        ("state", state(item) + released),
        *(("flag", text(flag, 0)) for flag in reflection.flags),
        ("written", f"{reflection.written_at:%Y-%m-%d %H:%M} UTC {_origin(item)}"),
        ("run", text(reflection.trajectory_id, 80)),
        ("policy", _versioned(reflection.policy, reflection.policy_version)),
        ("judge", _versioned(reflection.judge, reflection.judge_version)),
        ("stages", _stages(reflection.stage_scores)),
        *_scores(item),
        ("recalled by", counted(item.recalled, "run") + _mean(item)),
    ]
    return [(name, value) for name, value in facts if value]


def history_view(item: BankItem, history: Sequence[BankItem]) -> Iterator[str]:
    """The other versions of its question, the latest last."""
    others = [version for version in history if version.reflection.id != item.reflection.id]
    if others:
        yield "\nof the same question:"
        yield heading()
    yield from map(line, others)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        click.echo(f"{name:{width}}  {value}")


def print_json(value: dict[str, Any]) -> None:
    import json

    from rubricem.memory.text import printable_json

    click.echo(printable_json(json.dumps(value, ensure_ascii=False, indent=1)))


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def text(value: str, limit: int | None = None) -> str:
    """Printable; on one line of at most `limit` characters where there is a limit."""
    from rubricem.memory.text import one_line, printable

    return printable(value) if limit is None else one_line(value, limit)


def released_how(item: BankItem) -> str:
    """That a person released it, where and when."""
    where = f" at the {text(item.released_by, 40)}" if item.released_by else ""
    when = f", {item.released_at:%Y-%m-%d %H:%M} UTC" if item.released_at else ""
    return f"released by hand{where}{when}"


def _origin(item: BankItem) -> str:
    reflection = item.reflection
    if reflection.origin == "hand":
        where = f" at the {text(item.edited_by, 40)}" if item.edited_by else ""
        return f"by hand{where}, from {text(reflection.replaces, 40)}"
    return "in another bank" if reflection.origin == "import" else "after a run"


def _scores(item: BankItem) -> Iterator[tuple[str, str]]:
    parts = item.reflection.reflection_score
    if parts is None:
        yield "score", f"{item.reflection.score:.2f}"
        return
    yield (
        "score",
        f"{item.reflection.score:.2f}: diagnostic accuracy {parts.diagnostic_accuracy:.2f}, "
        f"specificity {parts.specificity:.2f}, scope and balance {parts.scope_and_balance:.2f}",
    )
    yield "", text(parts.justification, 400)


def _stages(scores: Sequence[float | None]) -> str:
    return ", ".join(
        f"{stage} {_score(score).strip()}" for stage, score in zip(Stage, scores, strict=False)
    )


def _mean(item: BankItem) -> str:
    return "" if item.mean_score is None else f", which scored {item.mean_score:.2f} on average"


def _versioned(name: str, version: str) -> str:
    return text(" ".join(part for part in (name, version and f"({version})") if part), 160)


def _score(score: float | None) -> str:
    return "   -" if score is None else f"{score:.2f}"


IDS = click.argument("identifiers", metavar="ID...", nargs=-1, required=True)
BY = "terminal"
"""where a person decided"""
YES = click.option("--yes", is_flag=True, help="Do not ask.")

Change = Callable[[RubricBank, str], Awaitable[None]]


@click.command()
@IDS
def pin(identifiers: Sequence[str]) -> None:
    """Keep reflections: what later runs write on their questions goes to the history."""
    _decide(identifiers, lambda bank, identifier: bank.pin(identifier, True), "pinned")


@click.command()
@IDS
def unpin(identifiers: Sequence[str]) -> None:
    """Let later runs replace reflections again."""
    _decide(identifiers, lambda bank, identifier: bank.pin(identifier, False), "not pinned")


@click.command()
@IDS
def disable(identifiers: Sequence[str]) -> None:
    """Keep reflections from being recalled, until they are enabled again."""
    _decide(identifiers, lambda bank, identifier: bank.disable(identifier, True), "disabled")


@click.command()
@IDS
def enable(identifiers: Sequence[str]) -> None:
    """Let disabled reflections be recalled again."""
    _decide(identifiers, lambda bank, identifier: bank.disable(identifier, False), "enabled")


@click.command()
@IDS
@YES
def release(identifiers: Sequence[str], yes: bool) -> None:
    """Let reflections out of quarantine, after their text and flags have been read."""
    items = _found(identifiers)
    if free := [item.reflection.id for item in items if not item.quarantined]:
        raise SettingsError(
            f"The reflection {free[0]} is not in quarantine.",
            "List those that are: rubricem bank list --every",
        )
    for item in items:
        _print_whole(item)
        if confirmed("Release it?", yes):
            click.echo(told_of(asyncio.run(opened().release(item.reflection.id, BY))))
        else:
            click.echo(f"stays in quarantine: {item.reflection.id}")


@click.command()
@IDS
@YES
def rm(identifiers: Sequence[str], yes: bool) -> None:
    """Remove reflections for good, also their text in the bank's journal."""
    items = _found(identifiers)
    for item in items:
        click.echo(line(item))
    if not confirmed(f"Remove {_these(len(items))} for good?", yes):
        click.echo("nothing was removed")
        return
    for item in items:
        asyncio.run(opened().remove(item.reflection.id))
        click.echo(f"removed: {item.reflection.id}")


@click.command()
def rebuild() -> None:
    """Make the index anew from the journal, with the embedder that is set."""
    with opened_to_embed("rebuilding") as bank:
        asyncio.run(bank.rebuild())
        stats = asyncio.run(bank.stats())
    live = counted(stats.live, "live reflection")
    click.echo(f"rebuilt: {live}, embedded by {text(stats.embedder, 80)}")


COMMANDS = (pin, unpin, disable, enable, release, rm, rebuild)


def told_of(released: Released) -> str:
    """What became of a reflection that was released, in a line."""
    identifier, held = released.item.reflection.id, released.instead
    if held is not None:
        why = "is pinned" if held.pinned else "is newer"
        stands = f"{text(held.reflection.id, 40)} {why} and stands on its question"
        return f"released into the history: {identifier}; {stands}"
    if released.item.disabled:
        return f"released: {identifier}, which is disabled: rubricem bank enable {identifier}"
    return f"released: {identifier}"


def _decide(identifiers: Sequence[str], change: Change, done: str) -> None:
    async def every() -> None:
        bank = opened()
        for item in await _all(bank, identifiers):
            await change(bank, item.reflection.id)
            click.echo(f"{done}: {item.reflection.id}  {text(item.reflection.question, 80)}")

    asyncio.run(every())


def _found(identifiers: Sequence[str]) -> list[BankItem]:
    return asyncio.run(_all(opened(), identifiers))


async def _all(bank: RubricBank, identifiers: Sequence[str]) -> list[BankItem]:
    """The items of all these ids, each once; nothing is done where one of them fits nothing."""
    items = [await found(bank, identifier) for identifier in identifiers]
    return list({item.reflection.id: item for item in items}.values())


def confirmed(question: str, yes: bool) -> bool:
    """What the person at the terminal says; SettingsError where there is none to ask."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise SettingsError("There is no terminal to ask at.", "Say --yes, if you are sure.")
    return click.confirm(question)


def _these(count: int) -> str:
    return "it" if count == 1 else f"these {count}"


def _print_whole(item: BankItem) -> None:
    print_facts(provenance(item))
    click.echo(f"\n{text(item.reflection.rubrics)}\n\n{text(item.reflection.takeaways)}\n")


FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))


@click.command()
@FOLDER
def snapshot(folder: Path) -> None:
    """Copy everything that cannot be made again into FOLDER, at one moment."""
    generation = asyncio.run(opened().snapshot(folder))
    click.echo(f"{counted(generation, 'event')} copied to {folder}")


@click.command()
@FOLDER
@click.option("--foreign", is_flag=True, help="Take another bank's copy, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore(folder: Path, foreign: bool, yes: bool) -> None:
    """Go back to the copy in FOLDER. What was removed since stays removed."""
    bank = opened()
    now = asyncio.run(bank.generation())
    if now and not confirmed(f"Give up the bank as it is now ({counted(now, 'event')})?", yes):
        click.echo("the bank was left as it is")
        return
    generation = asyncio.run(bank.restore(folder, foreign=foreign))
    click.echo(f"the bank holds {counted(generation, 'event')} again")


COPY_COMMANDS = (snapshot, restore)


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
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--every", is_flag=True, help="Also what is replaced, disabled or in quarantine.")
def export(file: Path | None, every: bool) -> None:
    """Write the reflections to FILE, or to standard output: one JSON object a line."""
    items = asyncio.run(_exported(every))
    lines = [{HEADER: VERSION, "items": len(items)}, *map(item_json, items)]
    text = "".join(json.dumps(entry) + "\n" for entry in lines)
    if file is None:
        click.echo(text, nl=False)
        return
    from rubricem.memory.runs import write_atomically

    write_atomically(file, text)
    click.echo(f"{counted(len(items), 'reflection')} exported to {file}")


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
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
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read as text: {error}.", "Export it again.") from (
            error
        )
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
    from rubricem.agent.research.question import checked
    from rubricem.memory.screening import screened
    from rubricem.memory.screening.orders import orders

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


async def _exported(every: bool) -> list[BankItem]:
    bank = opened()
    return list(await bank.export()) if every else await bank.items()


async def _brought_in(reflections: Sequence[Reflection], dry_run: bool, removed: bool) -> Imported:
    if not dry_run:
        return await opened().bring_in(reflections, removed=removed)
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(_copy_journal, opened().folder, Path(folder, "bank"))
        return await RubricBank(Path(folder)).bring_in(reflections, removed=removed)


def _copy_journal(bank: Path, copy: Path) -> None:
    """The journal is all that decides what becomes of an import."""
    if (bank / "journal.jsonl").exists():
        copy.mkdir()
        shutil.copy(bank / "journal.jsonl", copy)


def _damaged(file: Path, what: str) -> SettingsError:
    return SettingsError(f"{file} is damaged: {what}.", "Nothing was imported. Export it again.")


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
    from rubricem.agent.research.recall import RUBRICS, TAKEAWAYS

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
    from rubricem.agent.research.recall import parse_reflection
    from rubricem.memory.screening import screened

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


SORTS = {
    "written": lambda item: item.reflection.written_at.timestamp(),
    "score": lambda item: item.reflection.score,
    "recalled": lambda item: item.recalled,
}


@click.group()
def bank() -> None:
    """Read and correct what earlier runs have taught.

    An ID may be cut short, as long as no other one begins so.
    """


for _command in (
    *COMMANDS,
    edit,
    export,
    import_,
    *COPY_COMMANDS,
):
    bank.add_command(_command)


@bank.command("list")
@click.option("--every", is_flag=True, help="Also what is replaced, disabled or in quarantine.")
@click.option("--sort", type=click.Choice(list(SORTS)), help="Which comes last (written).")
@AS_JSON
def list_(every: bool, sort: str | None, as_json: bool) -> None:
    """List the reflection that counts for each question."""
    items, stats = asyncio.run(_listed(every))
    items.sort(key=SORTS[sort or "written"])
    if as_json:
        print_json({"reflections": [item_json(item) for item in items]})
        return
    if items:
        click.echo(heading())
    for item in items:
        click.echo(line(item))
    click.echo(_count(len(items), stats, every))


@bank.command()
@click.argument("identifier", metavar="ID")
@AS_JSON
def show(identifier: str, as_json: bool) -> None:
    """Show the reflection ID: where it comes from, what became of it, what it replaced."""
    item, history = asyncio.run(_shown(identifier))
    if as_json:
        versions = [item_json(version) for version in history]
        print_json({"reflection": item_json(item), "history": versions})
        return
    print_facts(provenance(item))
    click.echo(f"\n{text(item.reflection.rubrics)}\n\n{text(item.reflection.takeaways)}")
    for version in history_view(item, history):
        click.echo(version)


@bank.command()
@click.argument("words", metavar="TEXT", nargs=-1, required=True)
@click.option("-k", "count", type=click.IntRange(1), default=5, help="Reflections at most (5).")
@AS_JSON
def search(words: Sequence[str], count: int, as_json: bool) -> None:
    """Find the reflections whose questions are nearest to TEXT in meaning."""
    sought = storable(" ".join(words)).strip()
    if not sought:
        raise SettingsError("There is nothing to look for.", "Say it in words.")
    with opened_to_embed("looking it up") as bank:
        matches = asyncio.run(bank.search(sought, count))
    if as_json:
        nearest = [
            {"similarity": m.similarity, "reflection": m.reflection.model_dump(mode="json")}
            for m in matches
        ]
        print_json({"matches": nearest})
        return
    for match in matches:
        reflection = match.reflection
        click.echo(f"{match.similarity:5.2f}  {reflection.id}  {text(reflection.question, 80)}")
    if not matches:
        click.echo("There is nothing in the bank that could be recalled.")


@bank.command()
@AS_JSON
def stats(as_json: bool) -> None:
    """Count what the bank holds, how often it was used and what it takes on disk."""
    import dataclasses

    held = asyncio.run(opened().stats())
    if as_json:
        print_json(dataclasses.asdict(held))
        return
    print_facts(
        [
            ("live", f"{held.live:,}"),
            ("disabled", f"{held.disabled:,}"),
            ("in quarantine", f"{held.quarantined:,}"),
            ("replaced", f"{held.replaced:,}"),
            ("removed", f"{held.removed:,}"),
            ("uses", counted(held.uses, "run") + " given something"),
            ("embedder", text(held.embedder, 80) or "none yet: nothing was looked up"),
            ("generation", f"{held.generation:,}"),
            (
                "on disk",
                f"{_size(held.journal_bytes)} journal, {_size(held.index_bytes)} index",
            ),
        ]
    )


async def _listed(every: bool) -> tuple[list[BankItem], BankStats]:
    bank = opened()
    return await bank.items(every=every), await bank.stats()


async def _shown(identifier: str) -> tuple[BankItem, list[BankItem]]:
    bank = opened()
    item = await found(bank, identifier)
    return item, await bank.history(item.reflection.question)


def _count(shown: int, stats: BankStats, every: bool) -> str:
    """How many are listed, and what is not."""
    said = counted(shown, "reflection")
    hidden = (
        (stats.replaced, "replaced"),
        (stats.disabled, "disabled"),
        (stats.quarantined, "in quarantine"),
    )
    others = ", ".join(f"{count} {what}" for count, what in hidden if count)
    return f"{said}; with --every also {others}" if others and not every else said


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"
