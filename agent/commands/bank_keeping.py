"""What a person decides about reflections: pinned, disabled, released, removed; and the index."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence

import click

from agent.commands.bank_view import (
    counted,
    found,
    line,
    opened,
    opened_to_embed,
    print_facts,
    text,
)
from agent.commands.bank_view import provenance as provenance_of
from memory.bank import RubricBank
from memory.errors import SettingsError
from memory.items import BankItem, Released

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
    print_facts(provenance_of(item))
    click.echo(f"\n{text(item.reflection.rubrics)}\n\n{text(item.reflection.takeaways)}\n")
