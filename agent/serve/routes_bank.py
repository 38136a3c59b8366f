"""`/api/bank`: search, correct, release and remove what judged runs have taught.

An edit makes a new item; who edits the one that it replaced is told so, and nothing is changed.
"""

import asyncio
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from rubricem.agent.serve.desk import Desk
from rubricem.agent.serve.requests import RequestBody, missing, refuse_as
from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.store import BankItem, Standing
from rubricem.memory.bank.tables import NEVER
from rubricem.memory.errors import RubricemError
from rubricem.memory.screening import LONGEST, screen_edit
from rubricem.memory.text import storable

BY = "web page"
_BATCH = 500
routes = APIRouter(prefix="/api/bank")


async def bank_of(desk: Desk) -> RubricBank:
    return desk.bank


Bank = Annotated[RubricBank, Depends(bank_of)]


async def with_words(
    bank: RubricBank, words: str, standing: Standing, limit: int, before: int
) -> list[BankItem]:
    """The latest items that contain all the words, ignoring case."""
    wanted = words.casefold().split()
    found: list[BankItem] = []
    while len(found) < limit and (page := await bank.page(standing, _BATCH, before)):
        for item in page:
            held = item.reflection
            text = " ".join((held.question, held.rubrics, held.takeaways)).casefold()
            if all(word in text for word in wanted):
                found.append(item)
        before = page[-1].added
    return found[:limit]


class Change(RequestBody):
    """A person's words in the place of an item's; None: unchanged."""

    rubrics: str | None = Field(default=None, max_length=LONGEST)
    takeaways: str | None = Field(default=None, max_length=LONGEST)


@routes.get("")
async def list_items(
    bank: Bank,
    query: Annotated[str, Query(max_length=2000)] = "",
    state: Standing = "current",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[int, Query(ge=1, lt=2**63)] = NEVER,
) -> dict[str, Any]:
    """Items, the latest first, or nearest to a query; `next` is the next page's `before`."""
    words, note = storable(query).strip(), ""
    if words and state in ("current", "active") and before == NEVER:
        try:
            near = [
                item.as_json() | {"similarity": match.similarity}
                for match in await bank.search(words, limit)
                if (item := await bank.item(match.reflection.id))
            ]
            return {"items": near, "next": "", "note": ""}
        except RubricemError as error:
            note = f"Found by its words alone: {error.told()}"
    items = await with_words(bank, words, state, limit + 1, before)
    more = str(items[limit - 1].added) if len(items) > limit else ""
    return {"items": [item.as_json() for item in items[:limit]], "next": more, "note": note}


@routes.get("/stats")
async def stats(bank: Bank) -> dict[str, Any]:
    return asdict(await bank.stats())


@routes.get("/{identifier}")
async def show(bank: Bank, identifier: str) -> dict[str, Any]:
    item = await _item(bank, identifier)
    history = await bank.history(item.reflection.question)
    others = [each.as_json() for each in history if each.added != item.added]
    return item.as_json() | {"history": others}


@routes.patch("/{identifier}")
async def change(bank: Bank, identifier: str, change: Change) -> dict[str, Any]:
    """The new version, with notes for the person on its words."""
    item = await _item(bank, identifier)
    old = item.reflection
    rubrics = old.rubrics if change.rubrics is None else change.rubrics
    takeaways = old.takeaways if change.takeaways is None else change.takeaways
    clean, told = await asyncio.to_thread(screen_edit, old, rubrics, takeaways)
    if clean:
        with refuse_as(HTTPStatus.CONFLICT):
            item = await bank.edit(old.id, clean.rubrics, clean.takeaways, BY)
    return item.as_json() | {"warnings": told}


@routes.post("/{identifier}/release")
async def release(bank: Bank, identifier: str) -> dict[str, Any]:
    item = await _item(bank, identifier)
    with refuse_as(HTTPStatus.CONFLICT):
        done = await bank.release(item.reflection.id, BY)
    instead = done.instead.as_json() if done.instead else None
    return done.item.as_json() | {"instead": instead}


@routes.delete("/{identifier}")
async def remove(bank: Bank, identifier: str) -> dict[str, Any]:
    item = await _item(bank, identifier)
    await bank.remove(item.reflection.id)
    return {"removed": item.reflection.id}


async def _item(bank: RubricBank, identifier: str) -> BankItem:
    if (item := await bank.item(storable(identifier))) is not None:
        return item
    message = f"There is no item {identifier[:80]!r} in the bank."
    raise missing(message, "It may have been removed: list them again.")
