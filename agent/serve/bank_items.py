"""Reflections of the bank as the page shows them, and words by which they are looked up."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from memory.bank import RubricBank
from memory.bank_catalogue import Standing
from memory.items import NEVER, BankItem

_BATCH = 500
"""items that are looked through at once"""


def state_of(item: BankItem) -> str:
    """What became of it, in a word that can be asked for."""
    if item.until != NEVER:
        return "replaced"
    if item.quarantined:
        return "quarantine"
    return "disabled" if item.disabled else "active"


def version_of(item: BankItem) -> str:
    """Changes with every decision on the item: who saw another one decides on something else."""
    standing = (item.until, item.pinned, item.disabled, item.released)
    text = f"{item.reflection.id} {item.since} {standing}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def item_json(item: BankItem, similarity: float | None = None) -> dict[str, Any]:
    """The reflection's fields and its standing, as one object."""
    standing = item.model_dump(mode="json", exclude={"reflection", "until", "removed", "recalled"})
    found = {} if similarity is None else {"similarity": similarity}
    return {
        **item.reflection.model_dump(mode="json"),
        **standing,
        "until": None if item.until == NEVER else item.until,
        "uses": item.recalled,
        "state": state_of(item),
        "version": version_of(item),
        **found,
    }


async def with_words(
    bank: RubricBank, words: str, standing: Standing, limit: int, before: int
) -> list[BankItem]:
    """The latest items that hold all the words somewhere, in whatever case."""
    wanted = words.casefold().split()
    found: list[BankItem] = []
    async for item in _items(bank, standing, before):
        reflection = item.reflection
        text = " ".join((reflection.question, reflection.rubrics, reflection.takeaways))
        if _holds(text.casefold(), wanted):
            found.append(item)
        if len(found) == limit:
            break
    return found


async def _items(bank: RubricBank, standing: Standing, before: int) -> AsyncIterator[BankItem]:
    while page := await bank.page(standing, _BATCH, before):
        for item in page:
            yield item
        before = page[-1].since


def _holds(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)
