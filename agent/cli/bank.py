"""`rubricem bank`: read, search, correct, export and import what earlier runs taught.

Reflections are written by models that have read pages: none of their text reaches a terminal
unescaped. What `list --json` prints is what `import` reads. Whoever corrects or releases a
reflection decides for this bank alone: an import brings neither, and what looks wrong in it waits
in quarantine.
"""

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import click
from pydantic import ValidationError

from rubricem.agent.cli import options
from rubricem.agent.cli.terminal import Interrupts, edit_text, show_progress
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import stores_of
from rubricem.agent.transcript.question import check_question
from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.store import BankItem
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import Reflection, Stage
from rubricem.memory.screening import orders, screen, screen_edit
from rubricem.memory.text import one_line, pluralise, printable, storable

BY = "terminal"
HEADING = f"{'id':12}  score  written     recalled  mean  {'state':10}  question"
EMPTY = (
    "Nothing was learnt yet. `rubricem ask --memory on` learns from its run, or later "
    "`rubricem learn RUN`."
)
_FOUND = 20
_LISTED = 5
_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)

IDENTIFIER = click.argument("identifier", metavar="ID")
IDENTIFIERS = click.argument("identifiers", metavar="ID...", nargs=-1, required=True)


@click.group(cls=options.CommandGroup)
def bank() -> None:
    """Read and correct what earlier runs have taught.

    You can shorten an ID as long as it stays unique.
    """


@bank.command("list")
@click.argument("words", metavar="[TEXT]", nargs=-1)
@click.option("--every", is_flag=True, help="Also what is replaced or in quarantine.")
@options.AS_JSON
def list_(words: Sequence[str], every: bool, as_json: bool) -> None:
    """List the reflection that counts for each question, or those nearest to TEXT in meaning."""
    sought = storable(" ".join(words)).strip()
    if sought:
        with _open_to_search() as searched:
            matches = asyncio.run(searched.search(sought, _FOUND))
        if as_json:
            options.print_json({"matches": [m.reflection.model_dump(mode="json") for m in matches]})
        for match in () if as_json else matches:
            asked = one_line(match.reflection.question, 80)
            click.echo(f"{match.similarity:5.2f}  {one_line(match.reflection.id, 40)}  {asked}")
        return
    items = asyncio.run(_open().items(every=every))
    if as_json:
        options.print_json({"reflections": [item.as_json() for item in items]})
        return
    stats = asyncio.run(_open().stats())
    if not stats.generation:
        click.echo(EMPTY)
        return
    click.echo("\n".join([HEADING, *map(_line, items)]))
    hidden = ((stats.replaced, "replaced"), (stats.quarantined, "in quarantine"))
    others = ", ".join(f"{count} {what}" for count, what in hidden if count)
    said = pluralise(len(items), "reflection")
    click.echo(f"{said}; with --every also {others}" if others and not every else said)


@bank.command()
@click.argument("runs", type=click.Path(path_type=Path, exists=True), nargs=-1, metavar="[RUN]...")
@options.AS_JSON
def stats(runs: Sequence[Path], as_json: bool) -> None:
    """Tell which reflections help: judged runs with them and without, of the same question.

    RUN is the folder of a collected run; the data directory's own runs count as well.
    """
    from rubricem.agent.learning.helped import helped, judged_runs

    found = helped(judged_runs(load_settings().data_dir, runs))
    if as_json:
        options.print_json({name: asdict(one) for name, one in found.items()})
        return
    for name, one in sorted(found.items(), key=lambda each: -each[1].difference):
        click.echo(
            f"{one_line(name, 40):12}  better in {one.won} of {pluralise(one.pairs, 'pair')}, "
            f"by {one.difference:+.2f} in the mean"
        )
    if not found:
        click.echo("No question has judged runs with a reflection and without it.")


@bank.command()
@IDENTIFIER
@options.AS_JSON
def show(identifier: str, as_json: bool) -> None:
    """Show the reflection ID: where it comes from, what became of it, what it replaced."""
    held = _open()
    item = asyncio.run(_find(held, identifier))
    history = asyncio.run(held.history(item.reflection.question))
    if as_json:
        options.print_json(
            {"reflection": item.as_json(), "history": [one.as_json() for one in history]}
        )
        return
    _print_whole(item)
    if others := [each for each in history if each.added != item.added]:
        click.echo("\n".join(["\nof the same question:", HEADING, *map(_line, others)]))


@bank.command()
@IDENTIFIERS
@options.YES
def release(identifiers: Sequence[str], yes: bool) -> None:
    """Let reflections out of quarantine, after their text and flags have been read.

    One that is not in quarantine but was learnt from private sources may then go to any model.
    """
    items = asyncio.run(_find_all(_open(), identifiers))
    for item in items:
        if not item.quarantined and not item.reflection.private:
            raise SettingsError(
                f"The reflection {item.reflection.id} is not in quarantine.",
                "List those that are: rubricem bank list --every",
            )
    for item in items:
        _print_whole(item)
        if not item.quarantined:
            if options.confirm("\nIt tells nothing private, and may go to any model?", yes):
                asyncio.run(_open().publish(item.reflection.id))
                click.echo(f"no longer private: {item.reflection.id}")
            continue
        if not options.confirm("\nRelease it?", yes):
            click.echo(f"stays in quarantine: {item.reflection.id}")
            continue
        held = asyncio.run(_open().release(item.reflection.id, BY)).instead
        kept = f" into the history; {one_line(held.reflection.id, 40)} counts" if held else ""
        click.echo(f"released{kept}: {item.reflection.id}")


@bank.command()
@IDENTIFIERS
@options.YES
def rm(identifiers: Sequence[str], yes: bool) -> None:
    """Remove reflections for good, and their text from the disk."""
    items = asyncio.run(_find_all(_open(), identifiers))
    for item in items:
        click.echo(_line(item))
    if not options.confirm(f"Remove {pluralise(len(items), 'reflection')} for good?", yes):
        click.echo("nothing was removed")
        return
    for item in items:
        asyncio.run(_open().remove(item.reflection.id))
        click.echo(f"removed: {item.reflection.id}")


@bank.command()
@IDENTIFIER
@click.option("--file", type=options.EXISTING, help="Take the text from here, and open no editor.")
def edit(identifier: str, file: Path | None) -> None:
    """Correct the words of the reflection ID in $EDITOR. No run replaces what a person wrote.

    The text is two blocks, <reflection_rubrics> and <reflection_takeaways>. Tags, addresses and
    hidden characters are taken out of them; of anything else that looks wrong you are only told.
    """
    held = _open()
    item = asyncio.run(_find(held, identifier))
    if item.state == "replaced":
        raise SettingsError(
            f"The reflection {item.reflection.id} was replaced.",
            f"Edit the one that counts; see: rubricem bank show {item.reflection.id}",
        )
    written = (
        _keep_edit(held, item, options.read_text(file)) if file else _edit_in_editor(held, item)
    )
    new = asyncio.run(written)
    click.echo(_line(new) if new else "nothing was changed")


@bank.command("import")
@click.argument("file", type=options.EXISTING)
@options.AS_JSON
def import_(file: Path, as_json: bool) -> None:
    """Import the reflections of FILE, which `bank list --json` wrote; all of them or none.

    The bank's own stays where it has one on the question. What looks wrong waits in quarantine, and
    what was removed here is skipped.
    """
    read = [
        _screen(file, n, one) for n, one in enumerate(_exported(file, options.read_text(file)), 1)
    ]
    done = asdict(asyncio.run(_open().bring_in(read)))
    if as_json:
        options.print_json(done)
        return
    said = ", ".join(f"{count} {what}" for what, count in done.items() if count)
    click.echo(f"{pluralise(len(read), 'reflection')} of {file}: {said or 'nothing to bring in'}")


def _open() -> RubricBank:
    """The bank of the data directory, for what needs no embedder."""
    return stores_of(load_settings()).open_bank()


@contextmanager
def _open_to_search() -> Iterator[RubricBank]:
    """The bank; on a terminal it is shown how its embedder is fetched and how far it has come."""
    with show_progress("looking it up") as tell:
        yield stores_of(load_settings()).open_bank(
            lambda line: tell(f"the embedding model: {line}"),
            lambda texts: tell(f"{texts:,} embedded"),
        )


async def _find(bank: RubricBank, prefix: str) -> BankItem:
    """The one item whose id begins so, or is just that."""
    if (exact := await bank.item(storable(prefix))) is not None:
        return exact
    items = await bank.find(storable(prefix))
    if len(items) > 1:
        ids = ", ".join(one_line(item.reflection.id, 40) for item in items[:_LISTED])
        more = ", ..." if len(items) > _LISTED else ""
        raise SettingsError(
            f"{len(items)} items begin with {prefix!r}: {ids}{more}.", "Give more of the id."
        )
    if not items:
        raise SettingsError(
            f"No item begins with {prefix!r}.", "Give an id from: rubricem bank list --every"
        )
    return items[0]


async def _find_all(bank: RubricBank, identifiers: Sequence[str]) -> list[BankItem]:
    """The items of all these ids, each once; nothing is done where one of them fits nothing."""
    items = [await _find(bank, identifier) for identifier in identifiers]
    return list({item.added: item for item in items}.values())


def _line(item: BankItem) -> str:
    """One line of a list; `mean` is the mean score of the runs that recalled it."""
    held = item.reflection
    return (
        f"{one_line(held.id, 40):12}  {held.score:5.2f}  {held.written_at:%Y-%m-%d}  "
        f"{item.recalled:8,}  {_score(item.mean_score):>4}  {item.state:10}  "
        f"{one_line(held.question, 80)}"
    )


def _print_whole(item: BankItem) -> None:
    facts = [(name, value) for name, value in _provenance(item) if value]
    for name, value in facts:
        click.echo(f"{name:11}  {value}")
    click.echo(f"\n{printable(item.reflection.rubrics)}\n\n{printable(item.reflection.takeaways)}")


def _provenance(item: BankItem) -> Iterator[tuple[str, str]]:
    held, parts = item.reflection, item.reflection.reflection_score
    yield "id", one_line(held.id, 80)
    yield "question", one_line(held.question)
    yield "state", item.state
    for flag in held.flags:
        yield "flag", one_line(flag)
    if item.released_at:
        yield "released", f"{item.released_at:%Y-%m-%d %H:%M} UTC, {one_line(item.released_by, 40)}"
    yield "written", f"{held.written_at:%Y-%m-%d %H:%M} UTC"
    yield "origin", " ".join((held.origin, one_line(item.edited_by, 40)))
    yield "replaces", one_line(held.replaces, 40)
    yield "run", one_line(_run_of(held.trajectory_id), 80)
    yield "policy", one_line(f"{held.policy} {held.policy_version}", 160)
    yield "judge", one_line(f"{held.judge} {held.judge_version}", 160)
    stages = zip(Stage, held.stage_scores, strict=False)
    yield "stages", ", ".join(f"{stage} {_score(score)}" for stage, score in stages)
    yield "score", f"{held.score:.2f}"
    for name in ("diagnostic_accuracy", "specificity", "scope_and_balance") if parts else ():
        yield "", f"{name.replace('_', ' ')} {getattr(parts, name):.2f}"
    yield "", one_line(parts.justification, 400) if parts else ""
    mean = "" if item.mean_score is None else f", mean score {item.mean_score:.2f}"
    yield "recalled by", pluralise(item.recalled, "run") + mean


def _run_of(trajectory_id: str) -> str:
    """The name of the run, under which other commands know it, if it is still there."""
    for path in (load_settings().data_dir / "runs").glob("*/trajectory.json"):
        with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            if f'"id":"{trajectory_id}"' in file.read(200):
                return path.parent.name
    return trajectory_id


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


async def _edit_in_editor(bank: RubricBank, item: BankItem) -> BankItem | None:
    """What was written is kept in a file where it cannot be in the bank."""
    from rubricem.agent.research.recall import RUBRICS, TAKEAWAYS

    if not (sys.stdin.isatty() or os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        raise SettingsError("There is no terminal to edit at.", "Write the text and use --file.")
    blocks = ((RUBRICS, item.reflection.rubrics), (TAKEAWAYS, item.reflection.takeaways))
    before = "".join(f"<{tag}>\n{printable(words)}\n</{tag}>\n" for tag, words in blocks)
    interrupts = Interrupts(tell=lambda said: None)
    with interrupts.catch():
        written = await edit_text(before, ".txt", interrupts)
    try:
        return await _keep_edit(bank, item, written) if written != before else None
    except RubricemError as error:
        with NamedTemporaryFile("w", prefix="rubricem-", suffix=".txt", delete=False) as kept:
            kept.write(storable(written))
        again = f"rubricem bank edit {item.reflection.id} --file {shlex.quote(kept.name)}"
        raise type(error)(str(error), f"{error.remedy} What you wrote is kept: {again}") from error


async def _keep_edit(bank: RubricBank, item: BankItem, written: str) -> BankItem | None:
    """The new version in the bank; None where the words are those that it has."""
    from rubricem.agent.learning.reflect import Parsed
    from rubricem.agent.research.recall import RUBRICS, TAKEAWAYS

    parsed = Parsed.of(written)
    if parsed.fault:
        tags = " and ".join(f"<{tag}>...</{tag}>" for tag in (RUBRICS, TAKEAWAYS))
        raise SettingsError(parsed.fault, f"Write both blocks, each once: {tags}.")
    clean, told = screen_edit(item.reflection, parsed.rubrics, parsed.takeaways)
    for line in told:
        click.echo(f"warning: {one_line(line)}", err=True)
    if clean is None:
        return None
    return await bank.edit(item.reflection.id, clean.rubrics, clean.takeaways, BY)


def _exported(file: Path, text: str) -> list[Any]:
    """The reflections that a file holds."""
    try:
        found = json.loads(text)["reflections"]
        # What did not count there stays out.
        return [x for x in found if not (isinstance(x, dict) and x.get("state") == "replaced")]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise SettingsError(
            f"{file} holds no reflections of a bank.",
            "Name a file written by: rubricem bank list --every --json > FILE",
        ) from error


def _screen(file: Path, number: int, fields: Any) -> Reflection:
    """An exported item, screened as if it had been written here."""
    try:
        read = Reflection.model_validate_json(json.dumps(fields))
        question = check_question(read.question)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _damage(file, f"item {number}: {where}: {first['msg']}") from error
    except SettingsError as error:
        raise _damage(file, f"item {number}: {str(error).rstrip('.')}") from error
    clean = screen(read.rubrics, read.takeaways, ())
    if not (clean.rubrics.strip() and clean.takeaways.strip()):
        raise _damage(file, f"item {number}: its rubrics or takeaways are empty")
    if not _ID.fullmatch(read.id):
        raise _damage(file, f"item {number}: the id must be 1 to 64 letters, digits, . _ or -")
    if read.written_at.tzinfo is None or not 1970 <= read.written_at.year < 9999:
        raise _damage(file, f"item {number}: written_at must name its zone and a year from 1970")
    told = {
        "question": question,
        "rubrics": clean.rubrics,
        "takeaways": clean.takeaways,
        "flags": (*dict.fromkeys((*read.flags, *clean.flags, *orders(question, asked=True))),),
        "written_at": read.written_at.astimezone(UTC),
    }
    return read.model_copy(update=told)


def _damage(file: Path, what: str) -> SettingsError:
    return SettingsError(f"{file} is damaged: {what}.", "Nothing was imported. Export it again.")
