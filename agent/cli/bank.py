"""`rubricem bank`: read, decide on, edit, export and import what earlier runs taught.

Reflections are written by models that have read pages: none of their text reaches a terminal
unescaped. A person pins, disables, releases and removes them, and edits their text between the
policy's own tags. An export for another bank is a file of JSON lines:

    {"rubricem_bank": 1, "items": 2}      header: version of the format, number of items
    {"id": ..., "question": ..., ...}     one item and its standing, as `show --json` has it

A person's decisions are not carried over, since they concern another bank: pins and releases are
ignored, and items that were disabled there are left out. All subcommands are in this file, beyond
600 lines, since they describe items and count events in the same words.
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
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import ValidationError

from rubricem.agent.cli.options import (
    AS_JSON,
    EXISTING,
    FILE,
    YES,
    CommandGroup,
    confirm,
    open_text,
    print_json,
    read_text,
)
from rubricem.agent.cli.terminal import Interrupts, edit_in_place, show_progress
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import stores_of
from rubricem.agent.transcript.question import check_question
from rubricem.memory.bank import NEVER, BankItem, BankStats, Imported, Record, Released, RubricBank
from rubricem.memory.bank.events import kind_of
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Episode, ItemKind, Reflection, Stage, Value
from rubricem.memory.screening import flag_suspicious, orders, screen
from rubricem.memory.text import one_line, pluralise, printable, storable


def open_own() -> RubricBank:
    """The bank of the data directory, for what needs no embedder."""
    return stores_of(load_settings()).open_bank()


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
    """The item's fields and its standing, as one object."""
    standing = item.model_dump(mode="json", exclude={"record", "until", "removed"})
    standing["until"] = None if item.until == NEVER else item.until
    kind = {"kind": item.kind} if item.kind == "episode" else {}
    return item.record.model_dump(mode="json") | standing | {"state": state(item)} | kind


_LISTED = 5
"""ids that are named where a beginning fits several"""


@contextmanager
def open_to_embed(doing: str) -> Iterator[RubricBank]:
    """The bank; on a terminal it is shown how its embedder is fetched and how far it has come."""
    with show_progress(doing) as tell:
        yield stores_of(load_settings()).open_bank(
            lambda line: tell(f"the embedding model: {line}"),
            lambda texts: tell(f"{texts:,} embedded"),
        )


async def find_one(bank: RubricBank, prefix: str) -> BankItem:
    """The one item whose id begins so, or is just that."""
    if (exact := await bank.item(storable(prefix))) is not None:
        return exact
    items = await bank.find(storable(prefix))
    if len(items) > 1:
        ids = ", ".join(one_line(item.record.id, 40) for item in items[:_LISTED])
        more = ", ..." if len(items) > _LISTED else ""
        raise SettingsError(
            f"{len(items)} items begin with {prefix!r}: {ids}{more}.", "Give more of the id."
        )
    if not items:
        raise SettingsError(
            f"No item begins with {prefix!r}.", "Give an id from: rubricem bank list --every"
        )
    return items[0]


EMPTY = (
    "Nothing was learnt yet. `rubricem ask --memory on` learns from its run, or later "
    "`rubricem learn RUN`."
)
HEADING = f"{'id':12}  score  written     recalled  mean  {'state':10}  question"


def line(item: BankItem) -> str:
    """One line of a list; `mean` is the mean score of the runs that recalled it."""
    record = item.record
    return (
        f"{one_line(record.id, 40):12}  {record.score:5.2f}  "
        f"{record.written_at:%Y-%m-%d}  {item.recalled:8,}  {_score(item.mean_score)}  "
        f"{state(item):10}  {one_line(record.question, 80)}"
    )


def provenance(item: BankItem) -> list[tuple[str, str]]:
    """Where an item comes from and what became of it; facts that are unknown are left out."""
    record, mean = item.record, item.mean_score
    released = f", {release_note(item)}" if item.released else ""
    why = f": {item.note}" if item.disabled and item.note else ""
    origin = "in another bank" if record.origin == "import" else "after a run"
    if record.origin == "hand":
        where = f" at the {one_line(item.edited_by, 40)}" if item.edited_by else ""
        origin = f"by hand{where}, from {one_line(record.replaces, 40)}"
    average = f", which scored {mean or 0:.2f} on average"
    facts = [
        ("id", one_line(record.id, 80)),
        ("question", one_line(record.question)),
        ("state", state(item) + why + released),
        *(("flag", one_line(flag)) for flag in record.flags),
        ("written", f"{record.written_at:%Y-%m-%d %H:%M} UTC {origin}"),
        ("run", one_line(record.trajectory_id, 80)),
        ("policy", _name_with_version(record.policy, record.policy_version)),
        *(_judge_lines(item) if isinstance(record, Reflection) else _count_lines(item)),
        ("recalled by", pluralise(item.recalled, "run") + ("" if mean is None else average)),
    ]
    return [(name, value) for name, value in facts if value]


def _judge_lines(item: BankItem) -> Iterator[tuple[str, str]]:
    reflection = item.reflection
    stages = zip(Stage, reflection.stage_scores, strict=False)
    yield "judge", _name_with_version(reflection.judge, reflection.judge_version)
    named = (f"{basis.kind} {one_line(basis.name, 80)}" for basis in reflection.rests_on)
    yield "rests on", "; ".join(named)
    for told in item.counts:
        in_runs = f"{told.used} of {told.shown} held up in {pluralise(told.runs, 'run')}"
        yield "lessons", f"{in_runs} on its question"
    yield "stages", ", ".join(f"{stage} {_score(score).strip()}" for stage, score in stages)
    yield from _scores(item)


OFFERED = {
    "pointer": "passages offered",
    "query": "queries tried",
    "miss": "searches left out",
    "vain": "vain pages passed over",
    "plan": "plans followed",
    "reading": "pages read as before",
}


def _count_lines(item: BankItem) -> Iterator[tuple[str, str]]:
    """What an episode found, and what came of its uses."""
    yield "found", f"{item.record.score:.0%} of what it looked up"
    for told in item.counts:
        failed = f", {told.failed} that led nowhere" if told.failed else ""
        in_runs = f"{told.shown} in {pluralise(told.runs, 'run')}, {told.used} of use{failed}"
        yield OFFERED.get(told.use, told.use), in_runs


def episode_lines(episode: Episode) -> Iterator[str]:
    """What a run asked, found and missed, for people; every text is one printable line."""
    titles = {pointer.source: pointer.title for pointer in episode.pointers}
    if episode.names:
        yield f"names: {', '.join(one_line(name, 60) for name in episode.names)}"
    for look in episode.lookups:
        where = f" ({one_line(titles[look.source], 60)})" if look.source in titles else ""
        yield f"looked up: {one_line(look.asked, 200)} {one_line(look.answer, 200) or '-'}{where}"
    for search in episode.searches:
        brought = f"{pluralise(search.passages, 'passage')}, {search.new} new"
        hit = "hit" if search.hit else "miss"
        yield f"searched: {one_line(search.query, 200)} ({hit}: {brought})"
    for pointer in episode.pointers:
        where = " ".join(filter(None, (pointer.location, pointer.place)))
        yield f"source: {one_line(pointer.title, 100)}, {one_line(where, 200)}"
        yield from (f"  held: {one_line(claim, 200)}" for claim in pointer.claims)
    yield from (f"missing: {one_line(what, 200)}" for what in episode.missing)
    yield from (f"failed: {one_line(what, 400)}" for what in episode.failures)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        click.echo(f"{name:{width}}  {value}")


def print_whole(item: BankItem) -> None:
    """Its facts and its words."""
    print_facts(provenance(item))
    record = item.record
    if isinstance(record, Episode):
        click.echo("\n".join(["", *episode_lines(record)]))
        return
    click.echo(f"\n{printable(record.rubrics)}\n\n{printable(record.takeaways)}")


def release_note(item: BankItem) -> str:
    """That a person released it, where and when."""
    where = f" at the {one_line(item.released_by, 40)}" if item.released_by else ""
    when = f", {item.released_at:%Y-%m-%d %H:%M} UTC" if item.released_at else ""
    return f"released by hand{where}{when}"


def _scores(item: BankItem) -> list[tuple[str, str]]:
    score, parts = f"{item.reflection.score:.2f}", item.reflection.reflection_score
    if parts is None:
        return [("score", score)]
    score += (
        f": diagnostic accuracy {parts.diagnostic_accuracy:.2f}, "
        f"specificity {parts.specificity:.2f}, scope and balance {parts.scope_and_balance:.2f}"
    )
    return [("score", score), ("", one_line(parts.justification, 400))]


def _name_with_version(name: str, version: str) -> str:
    return one_line(" ".join(part for part in (name, version and f"({version})") if part), 160)


def _score(score: float | None) -> str:
    return "   -" if score is None else f"{score:.2f}"


SORTS: dict[str, Callable[[BankItem], float]] = {
    "written": lambda item: item.record.written_at.timestamp(),
    "score": lambda item: item.record.score,
    "recalled": lambda item: item.recalled,
}


@click.group(cls=CommandGroup)
def bank() -> None:
    """Read and correct what earlier runs have taught.

    You can shorten an ID as long as it stays unique.
    """


EPISODES = click.option(
    "--episodes", is_flag=True, help="What runs did and found, and not what they taught."
)


@bank.command("list")
@EPISODES
@click.option("--every", is_flag=True, help="Also what is replaced, disabled or in quarantine.")
@click.option("--sort", type=click.Choice(list(SORTS)), help="Which comes last (written).")
@AS_JSON
def list_(episodes: bool, every: bool, sort: str | None, as_json: bool) -> None:
    """List the reflection, or the episode, that counts for each question."""
    held = open_own()
    kind: ItemKind = "episode" if episodes else "reflection"
    items = asyncio.run(held.items(every=every, kind=kind))
    items.sort(key=SORTS[sort or "written"])
    if as_json:
        print_json({f"{kind}s": [item_json(item) for item in items]})
        return
    stats = asyncio.run(held.stats())
    if not stats.generation:
        click.echo(EMPTY)
        return
    if items:
        click.echo(HEADING)
    for item in items:
        click.echo(line(item))
    hidden = (
        (stats.replaced, "replaced"),
        (stats.disabled, "disabled"),
        (stats.quarantined, "in quarantine"),
    )
    others = ", ".join(f"{count} {what}" for count, what in hidden if count)
    said = pluralise(len(items), kind)
    said += "" if items or episodes else " (`rubricem learn` writes them)"
    also = f"; with --episodes {pluralise(stats.episodes, 'episode')}"
    said += also if stats.episodes and not episodes else ""
    click.echo(f"{said}; with --every also {others}" if others and not every else said)


@bank.command()
@click.argument("identifier", metavar="ID")
@AS_JSON
def show(identifier: str, as_json: bool) -> None:
    """Show the item ID: where it comes from, what became of it, what it replaced."""
    held = open_own()
    item = asyncio.run(find_one(held, identifier))
    history = asyncio.run(held.history(item.record.question, item.kind))
    if as_json:
        versions = [item_json(version) for version in history]
        print_json({item.kind: item_json(item), "history": versions})
        return
    print_whole(item)
    if others := [each for each in history if each.record.id != item.record.id]:
        click.echo("\n".join(["\nof the same question:", HEADING, *map(line, others)]))


@bank.command()
@click.argument("words", metavar="TEXT", nargs=-1, required=True)
@click.option("-k", "count", type=click.IntRange(1), default=5, help="Items at most (5).")
@EPISODES
@AS_JSON
def search(words: Sequence[str], count: int, episodes: bool, as_json: bool) -> None:
    """Find the reflections, or the episodes, whose questions are nearest to TEXT in meaning."""
    sought = storable(" ".join(words)).strip()
    if not sought:
        raise SettingsError("There is nothing to look for.", "Say it in words.")
    with open_to_embed("looking it up") as bank:
        kind: ItemKind = "episode" if episodes else "reflection"
        matches = asyncio.run(bank.search(sought, count, kind))
    if as_json:
        nearest = [
            {"similarity": m.similarity, kind: m.record.model_dump(mode="json")} for m in matches
        ]
        print_json({"matches": nearest})
        return
    for match in matches:
        record = match.record
        click.echo(f"{match.similarity:5.2f}  {record.id}  {one_line(record.question, 80)}")
    if not matches:
        click.echo("The bank has nothing that could be recalled.")


@bank.command()
@AS_JSON
def stats(as_json: bool) -> None:
    """Count what the bank holds, how often it was used and what it takes on disk."""
    held = asyncio.run(open_own().stats())
    if as_json:
        print_json(asdict(held))
        return
    print_facts(
        [
            ("live", f"{held.live:,}, {held.episodes:,} of them episodes"),
            ("disabled", f"{held.disabled:,}"),
            ("in quarantine", f"{held.quarantined:,}"),
            ("replaced", f"{held.replaced:,}"),
            ("removed", f"{held.removed:,}"),
            ("uses", pluralise(held.uses, "run") + " given something"),
            ("lessons", _lessons(held)),
            ("embedder", one_line(held.embedder, 80) or "none yet: nothing was looked up"),
            ("generation", f"{held.generation:,}"),
            ("on disk", f"{_size(held.journal_bytes)} journal, {_size(held.index_bytes)} index"),
        ]
    )


def _lessons(held: BankStats) -> str:
    if not held.lessons:
        return "none was put to the test by a run on its own question"
    share = f"{held.lessons_held / held.lessons:.0%}"
    return f"{held.lessons_held:,} of {held.lessons:,} held up when asked again ({share})"


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


IDS = click.argument("identifiers", metavar="ID...", nargs=-1, required=True)
BY = "terminal"
"""where a person decided"""

Change = Callable[[RubricBank, str, bool], Awaitable[None]]
PIN = "Keep reflections: what later runs write on their questions goes to the history."
DISABLE = "Stop recalling reflections, until they are enabled again."
DECISIONS: tuple[tuple[str, str, Change, bool, str], ...] = (
    ("pin", "pinned", RubricBank.pin, True, PIN),
    ("unpin", "not pinned", RubricBank.pin, False, "Let later runs replace reflections again."),
    ("disable", "disabled", RubricBank.disable, True, DISABLE),
    ("enable", "enabled", RubricBank.disable, False, "Let disabled reflections be recalled again."),
)
"""commands that change one thing: what is said of it, the change, what it is set to, their help"""


def _decision(done: str, change: Change, on: bool) -> Callable[[Sequence[str]], None]:
    """What such a command does to the reflections that it is given."""

    async def decide(identifiers: Sequence[str]) -> None:
        held = open_own()
        for item in await _all(held, identifiers):
            await change(held, item.record.id, on)
            question = one_line(item.record.question, 80)
            click.echo(f"{done}: {item.record.id}  {question}")

    return lambda identifiers: asyncio.run(decide(identifiers))


for _name, _done, _change, _on, _help in DECISIONS:
    bank.command(_name, help=_help)(IDS(_decision(_done, _change, _on)))


@bank.command()
@IDS
@YES
def release(identifiers: Sequence[str], yes: bool) -> None:
    """Let reflections out of quarantine, after their text and flags have been read."""
    items = asyncio.run(_all(open_own(), identifiers))
    if free := [item.record.id for item in items if not item.quarantined]:
        raise SettingsError(
            f"The item {free[0]} is not in quarantine.",
            "List those that are: rubricem bank list --every",
        )
    for item in items:
        print_whole(item)
        click.echo()
        if confirm("Release it?", yes):
            click.echo(describe_release(asyncio.run(open_own().release(item.record.id, BY))))
        else:
            click.echo(f"stays in quarantine: {item.record.id}")


@bank.command()
@IDS
@YES
def rm(identifiers: Sequence[str], yes: bool) -> None:
    """Remove reflections for good, also their text in the bank's journal."""
    items = asyncio.run(_all(open_own(), identifiers))
    for item in items:
        click.echo(line(item))
    these = "it" if len(items) == 1 else f"these {len(items)}"
    if not confirm(f"Remove {these} for good?", yes):
        click.echo("nothing was removed")
        return
    for item in items:
        asyncio.run(open_own().remove(item.record.id))
        click.echo(f"removed: {item.record.id}")


@bank.command()
def rebuild() -> None:
    """Make the index anew from the journal, with the embedder that is set."""
    with open_to_embed("rebuilding") as bank:
        asyncio.run(bank.rebuild())
        stats = asyncio.run(bank.stats())
    live = pluralise(stats.live, "live reflection")
    click.echo(f"rebuilt: {live}, embedded by {one_line(stats.embedder, 80)}")


def describe_release(released: Released) -> str:
    """What became of a reflection that was released, in a line."""
    identifier, held = released.item.record.id, released.instead
    if held is not None:
        why = "is pinned" if held.pinned else "is newer"
        stands = f"{one_line(held.record.id, 40)} {why} and stands on its question"
        return f"released into the history: {identifier}; {stands}"
    if released.item.disabled:
        return f"released: {identifier}, which is disabled: rubricem bank enable {identifier}"
    return f"released: {identifier}"


async def _all(bank: RubricBank, identifiers: Sequence[str]) -> list[BankItem]:
    """The items of all these ids, each once; nothing is done where one of them fits nothing."""
    items = [await find_one(bank, identifier) for identifier in identifiers]
    return list({item.record.id: item for item in items}.values())


@bank.command()
@click.argument("identifier", metavar="ID")
@click.option("--file", type=EXISTING, help="Take the text from here, and open no editor.")
def edit(identifier: str, file: Path | None) -> None:
    """Correct the words of the reflection ID in $EDITOR; what they were stays in the history.

    The text is two blocks, <reflection_rubrics> and <reflection_takeaways>. Tags, addresses and
    hidden characters are taken out of them; of anything else that looks wrong you are only told.
    """
    held = open_own()
    item = asyncio.run(find_one(held, identifier))
    if item.kind == "episode":
        raise SettingsError(
            f"The episode {item.record.id} is a record of what a run did, and is not reworded.",
            f"Disable or remove it: rubricem bank disable {item.record.id}",
        )
    if item.until != NEVER:
        raise SettingsError(
            f"The reflection {item.reflection.id} was replaced.",
            f"Edit the one that counts; see: rubricem bank show {item.reflection.id}",
        )
    new = asyncio.run(
        _by_editor(held, item) if file is None else _keep_edit(held, item, read_text(file))
    )
    click.echo(line(new) if new else "nothing was changed")


def as_text(reflection: Reflection) -> str:
    """The two blocks, as a policy writes them."""
    from rubricem.agent.research.recall import RUBRICS, TAKEAWAYS

    blocks = ((RUBRICS, reflection.rubrics), (TAKEAWAYS, reflection.takeaways))
    return "".join(f"<{tag}>\n{printable(words)}\n</{tag}>\n" for tag, words in blocks)


async def _by_editor(bank: RubricBank, item: BankItem) -> BankItem | None:
    """What was written is left in its file for as long as it is not in the bank."""
    if not (sys.stdin.isatty() or os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        raise SettingsError("There is no terminal to edit at.", "Write the text and use --file.")
    before = as_text(item.reflection)
    descriptor, name = tempfile.mkstemp(prefix="rubricem-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(before)
    draft, interrupts = Path(name), Interrupts(tell=lambda said: None)
    with interrupts.catch(), interrupts.leave_to_person(cancelled=False):
        failed = await edit_in_place(draft)
    try:
        written = read_text(draft)
        if failed:
            raise SettingsError(failed, "Set EDITOR, or write the text and use --file.")
        new = await _keep_edit(bank, item, written) if written != before else None
    except RubricemError as error:
        if not draft.exists() or draft.read_bytes() == before.encode():
            draft.unlink(missing_ok=True)
            raise
        again = f"rubricem bank edit {item.reflection.id} --file {shlex.quote(name)}"
        raise type(error)(str(error), f"{error.remedy} What you wrote is kept: {again}") from error
    draft.unlink()
    return new


async def _keep_edit(bank: RubricBank, item: BankItem, written: str) -> BankItem | None:
    """The new version in the bank; None where the words are those that it has."""
    from rubricem.agent.learning.reflect import Parsed

    parsed = Parsed.of(written)
    if parsed.fault:
        raise SettingsError(parsed.fault, "Write both blocks, each once and between its own tags.")
    clean = screen(parsed.rubrics, parsed.takeaways, ())
    if not (clean.rubrics.strip() and clean.takeaways.strip()):
        raise SettingsError(
            "A block is empty once tags, addresses and hidden characters are taken out of it.",
            "Say in words what is to be learnt.",
        )
    old = item.reflection
    if (clean.rubrics, clean.takeaways) == (old.rubrics, old.takeaways):
        return None
    for flag in clean.flags:
        click.echo(f"warning: {one_line(flag)}", err=True)
    new = await bank.edit(old.id, clean.rubrics, clean.takeaways, BY)
    if (clean.rubrics, clean.takeaways) != (parsed.rubrics, parsed.takeaways):
        kept = f"rubricem bank show {new.reflection.id}"
        click.echo(f"Some of it was taken out or cut; what is kept: {kept}", err=True)
    return new


FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))


@bank.command()
@FOLDER
def snapshot(folder: Path) -> None:
    """Copy everything that cannot be made again into FOLDER, at one moment."""
    generation = asyncio.run(open_own().snapshot(folder))
    click.echo(f"{pluralise(generation, 'event')} copied to {folder}")


@bank.command()
@FOLDER
@click.option("--foreign", is_flag=True, help="Take another bank's copy, too.")
@YES
def restore(folder: Path, foreign: bool, yes: bool) -> None:
    """Go back to the copy in FOLDER. What was removed since stays removed."""
    held = open_own()
    now = asyncio.run(held.generation())
    if now and not confirm(f"Give up the bank as it is now ({pluralise(now, 'event')})?", yes):
        click.echo("the bank was left as it is")
        return
    generation = asyncio.run(held.restore(folder, foreign=foreign))
    click.echo(f"the bank holds {pluralise(generation, 'event')} again")


HEADER, VERSION = "rubricem_bank", 1
RULE = (
    "Of two for one question the pinned one wins, else the higher score, else the later; "
    "the other goes to the history."
)
_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
LONGEST_LINE = 400_000
"""characters of an exported item, of which one that is not ASCII may take six"""
MOST_ITEMS = 20_000
"""brought in unless more are allowed; screening them takes some 50 s"""


class _Standing(Value):
    """What an exported line says of an item beyond it, as far as an import heeds it."""

    kind: ItemKind = "reflection"
    disabled: bool = False


@bank.command()
@click.argument("file", type=FILE, required=False)
@click.option("--every", is_flag=True, help="Also what is replaced, disabled or in quarantine.")
def export(file: Path | None, every: bool) -> None:
    """Write reflections and episodes to FILE, or to standard output: one JSON object a line."""
    held = open_own()
    items = list(asyncio.run(held.export())) if every else asyncio.run(held.items(kind=None))
    lines = [{HEADER: VERSION, "items": len(items)}, *map(item_json, items)]
    text = "".join(json.dumps(entry) + "\n" for entry in lines)
    if file is None:
        click.echo(text, nl=False)
        return
    write_atomically(file, text)
    click.echo(f"{describe_kinds([item.kind for item in items])} exported to {file}")


@bank.command("import")
@click.argument("file", type=EXISTING)
@click.option("--dry-run", is_flag=True, help="Say what would become of them; change nothing.")
@click.option("--removed", is_flag=True, help="Also those that were removed here, under new ids.")
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=MOST_ITEMS,
    show_default=True,
    help="Refuse a FILE of more items.",
)
@AS_JSON
def import_(file: Path, dry_run: bool, removed: bool, most: int, as_json: bool) -> None:
    """Import the items of an exported FILE; one with a damaged line changes nothing.

    Of two for one question the pinned one wins, else the higher score, else the later; the other
    goes to the history. Whatever looks wrong stays in quarantine until it is released. What was
    removed here is skipped.
    """
    read = _read_export(file, most)
    records = [record for record, disabled in read if not disabled]
    left_out = len(read) - len(records)
    done = asyncio.run(_bring_in(records, dry_run, removed))
    if as_json:
        print_json(asdict(done) | {"left_out": left_out})
        return
    would = "would be " if dry_run else ""
    parts = (
        (done.added, f"{would}added"),
        (done.replaced, f"{would}put in the place of the bank's own"),
        (done.kept, f"{would}kept for the history or known already"),
        (done.quarantined, f"{would}put in quarantine"),
        (done.removed, f"{would}skipped, as removed here"),
        (left_out, "left out, as disabled there"),
    )
    said = ", ".join(f"{count} {what}" for count, what in parts if count)
    held = describe_kinds([kind_of(record) for record, _ in read])
    click.echo(f"{held} of {file}: {said or 'nothing to bring in'}")
    if done.replaced or done.kept:
        click.echo(RULE)
    if done.quarantined:
        click.echo("Read what waits in quarantine: rubricem bank list --every")
    if done.removed:
        again = f"rubricem bank import --removed {shlex.quote(str(file))}"
        click.echo(f"To bring back what was removed: {again}")


def describe_kinds(kinds: Sequence[ItemKind]) -> str:
    """`2 reflections and 1 episode`."""
    parts = [pluralise(kinds.count(kind), kind) for kind in get_args(ItemKind) if kind in kinds]
    return " and ".join(parts) or "0 reflections"


def _read_export(file: Path, most: int) -> list[tuple[Record, bool]]:
    """All items, and whether each was disabled; SettingsError numbers the line at fault."""
    with open_text(file, "Export it again.") as text:
        promised = _check_header(file, text.readline(LONGEST_LINE))
        if promised > most:
            raise SettingsError(
                f"{file} holds {promised:,} items; at most {most:,} are imported "
                "without your consent.",
                "If you trust their source, allow them: "
                f"rubricem bank import --most {promised} {shlex.quote(str(file))}",
            )
        # A line, and the file, may be without an end: no more is read than is taken.
        lines = iter(lambda: text.readline(LONGEST_LINE + 1), "")
        entries = ((n, line) for n, line in enumerate(lines, start=2) if line.strip())
        read = [_record(file, *entry) for entry in islice(entries, promised)]
        if len(read) < promised or next(entries, None):
            found = f"{len(read)} items" if len(read) < promised else "more items"
            raise _damage(file, f"it has {found}, and its header says {promised}")
        return read


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
    if not isinstance(items, int) or items < 0:
        raise _damage(file, "its header does not say how many items follow")
    return items


def _record(file: Path, number: int, line: str) -> tuple[Record, bool]:
    """A line's item, screened as if it had been written here; whether it was disabled."""
    if len(line) > LONGEST_LINE:
        raise _damage(file, f"line {number} has more than {LONGEST_LINE:,} characters")
    try:
        told = _Standing.model_validate_json(line)
        kind = Episode if told.kind == "episode" else Reflection
        read: Record = kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        what = ": ".join(part for part in (f"line {number}", where, first["msg"]) if part)
        raise _damage(file, what) from error
    if not _ID.fullmatch(read.id):
        raise _damage(file, f"line {number}: the id must be 1 to 64 letters, digits, . _ or -")
    return _screen(file, number, read), told.disabled


def _screen(file: Path, number: int, read: Record) -> Record:
    words, flags = dict[str, str](), tuple[str, ...]()
    if isinstance(read, Episode):
        flags = flag_suspicious(read.question, read.texts)
    else:
        clean = screen(read.rubrics, read.takeaways, ())
        words, flags = {"rubrics": clean.rubrics, "takeaways": clean.takeaways}, clean.flags
    if not all(text.strip() for text in words.values()):
        raise _damage(file, f"line {number}: its rubrics or takeaways are empty")
    try:
        question = check_question(read.question)
    except SettingsError as error:
        raise _damage(file, f"line {number}: {str(error).rstrip('.')}") from error
    written = read.written_at
    if written.tzinfo is None or not 1970 <= written.year < 9999:
        raise _damage(file, f"line {number}: written_at must name its zone and a year from 1970")
    flagged = tuple(dict.fromkeys((*read.flags, *flags, *orders(question, asked=True))))
    at = {"written_at": written.astimezone(UTC)}
    return read.model_copy(update={"question": question, "flags": flagged, **words, **at})


async def _bring_in(records: Sequence[Record], dry_run: bool, removed: bool) -> Imported:
    """What became of them; of a dry run in a copy of the journal, which is all that decides."""
    if not dry_run:
        return await open_own().bring_in(records, removed=removed)
    with tempfile.TemporaryDirectory() as folder:
        journal, copy = open_own().folder / "journal.jsonl", Path(folder, "bank")
        if journal.exists():
            copy.mkdir()
            await asyncio.to_thread(shutil.copy, journal, copy)
        return await RubricBank(Path(folder)).bring_in(records, removed=removed)


def _damage(file: Path, what: str) -> SettingsError:
    return SettingsError(f"{file} is damaged: {what}.", "Nothing was imported. Export it again.")
