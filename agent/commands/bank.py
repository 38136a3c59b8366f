"""`rubricem bank`: what earlier runs have taught, to be read, corrected, carried and rebuilt."""

import asyncio
from collections.abc import Sequence

import click

from agent.commands import bank_copies, bank_files, bank_keeping, bank_words
from agent.commands.bank_view import (
    AS_JSON,
    counted,
    found,
    heading,
    history_view,
    item_json,
    line,
    opened,
    opened_to_embed,
    print_facts,
    print_json,
    provenance,
    text,
)
from memory.errors import SettingsError
from memory.items import BankItem, BankStats
from memory.text import storable

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
    *bank_keeping.COMMANDS,
    bank_words.edit,
    bank_files.export,
    bank_files.import_,
    *bank_copies.COMMANDS,
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
