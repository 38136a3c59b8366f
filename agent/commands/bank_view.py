"""Reflections of the bank as its commands find and show them.

What they say comes from models that have read pages: nothing of it reaches a terminal as it is.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import click
from rich.markup import escape

from agent.events import Event, SourceProgress
from agent.settings import load_settings
from memory.bank import RubricBank
from memory.errors import SettingsError
from memory.items import NEVER, BankItem
from memory.schema import Stage
from memory.text import storable

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_LISTED = 5
"""ids that are named where a beginning fits several"""


def opened() -> RubricBank:
    """The bank of the data directory, for what needs no embedder."""
    from agent.banking import open_bank

    return open_bank(load_settings())


@contextmanager
def opened_to_embed(doing: str) -> Iterator[RubricBank]:
    """The bank; on a terminal it is shown how its embedder is fetched and how far it has come."""
    from rich.console import Console

    from agent.banking import open_bank

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

    from memory.printable import printable_json

    click.echo(printable_json(json.dumps(value, ensure_ascii=False, indent=1)))


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def text(value: str, limit: int | None = None) -> str:
    """Printable; on one line of at most `limit` characters where there is a limit."""
    from memory.printable import one_line, printable

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
