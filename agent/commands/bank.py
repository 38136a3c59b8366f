"""`rubricem bank`: what earlier runs have taught."""

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from agent.settings import load_settings
from memory.bank import RubricBank
from memory.errors import SettingsError
from memory.schema import Reflection


def _bank() -> RubricBank:
    from agent.banking import open_bank

    return open_bank(load_settings())


@click.group()
def bank() -> None:
    """List, show and search what earlier runs have taught."""


@bank.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_(as_json: bool) -> None:
    """List the reflection that counts for each question, the latest last."""
    items = [item.reflection for item in asyncio.run(_bank().items())]
    if as_json:
        _print_json({"reflections": [item.model_dump(mode="json") for item in items]})
        return
    for item in items:
        click.echo(_line(item))
    click.echo(f"{len(items)} reflection{'' if len(items) == 1 else 's'}")


@bank.command()
@click.argument("identifier")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(identifier: str, as_json: bool) -> None:
    """Show the reflection whose id begins with IDENTIFIER, and what it replaced."""
    item, history = asyncio.run(_found(_bank(), identifier))
    if as_json:
        earlier = [r.model_dump(mode="json") for r in history]
        _print_json({"reflection": item.model_dump(mode="json"), "history": earlier})
        return
    click.echo(_line(item))
    click.echo(f"written by {_one_line(item.policy)} on {item.written_at:%Y-%m-%d %H:%M} UTC")
    click.echo(f"\n{_text(item.rubrics)}\n\n{_text(item.takeaways)}")
    others = [r for r in history if r.id != item.id]
    if others:
        click.echo("\nof the same question:")
    for other in others:
        click.echo(_line(other))


@bank.command()
@click.argument("text", nargs=-1, required=True)
@click.option("-k", "count", type=click.IntRange(1), default=5, help="Reflections at most (5).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def search(text: Sequence[str], count: int, as_json: bool) -> None:
    """Find the reflections whose questions are nearest to TEXT in meaning."""
    matches = asyncio.run(_bank().search(" ".join(text), count))
    if as_json:
        found = [
            {"similarity": m.similarity, "reflection": m.reflection.model_dump(mode="json")}
            for m in matches
        ]
        _print_json({"matches": found})
        return
    for match in matches:
        click.echo(f"{match.similarity:5.2f}  {_line(match.reflection)}")
    if not matches:
        click.echo("The bank is empty.")


async def _found(bank: RubricBank, identifier: str) -> tuple[Reflection, list[Reflection]]:
    items = [item.reflection for item in await bank.find(identifier)]
    if len(items) != 1:
        many = f"{len(items)} reflections begin" if items else "no reflection begins"
        raise SettingsError(f"{many} with {identifier!r}.", "Give an id from: rubricem bank list")
    history = await bank.history(items[0].question)
    return items[0], [item.reflection for item in history]


def _line(item: Reflection) -> str:
    return f"{item.id}  {item.score:.2f}  {_one_line(item.question)}"


def _one_line(text: str) -> str:
    from agent.reports.printable import one_line

    return one_line(text)


def _text(text: str) -> str:
    from agent.reports.printable import printable

    return printable(text)


def _print_json(value: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=1))
