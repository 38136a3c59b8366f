"""`/api/bank`: search, correct, release and remove what judged runs have taught.

An edit makes a new item; who edits the one that it replaced is told so, and nothing is changed.
"""

import asyncio
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from rubricem.agent.serve.requests import RequestBody, conflict, missing, refuse_as
from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.store import NEVER, BankItem, Standing
from rubricem.memory.errors import RubricemError
from rubricem.memory.screening import LONGEST, screen_edit
from rubricem.memory.text import storable

BY = "web page"
_BATCH = 500


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


def router(bank: RubricBank) -> APIRouter:
    routes = APIRouter(prefix="/api/bank")
    desk = _BankDesk(bank)
    routes.get("")(desk.list_items)
    routes.get("/stats")(desk.stats)
    routes.get("/{identifier}")(desk.show)
    routes.patch("/{identifier}")(desk.change)
    routes.delete("/{identifier}")(desk.remove)
    routes.post("/{identifier}/release")(desk.release)
    return routes


class _BankDesk:
    """The handlers; changes of this process are made one after another."""

    def __init__(self, bank: RubricBank) -> None:
        self._bank = bank
        self._deciding = asyncio.Lock()

    async def list_items(
        self,
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
                    for match in await self._bank.search(words, limit)
                    if (item := await self._bank.item(match.reflection.id))
                ]
                return {"items": near, "next": "", "note": ""}
            except RubricemError as error:
                note = f"Found by its words alone: {error.told()}"
        items = await with_words(self._bank, words, state, limit + 1, before)
        more = str(items[limit - 1].added) if len(items) > limit else ""
        return {"items": [item.as_json() for item in items[:limit]], "next": more, "note": note}

    async def stats(self) -> dict[str, Any]:
        return asdict(await self._bank.stats())

    async def show(self, identifier: str) -> dict[str, Any]:
        item = await self._item(identifier)
        history = await self._bank.history(item.reflection.question)
        others = [each.as_json() for each in history if each.added != item.added]
        return item.as_json() | {"history": others}

    async def change(self, identifier: str, change: Change) -> dict[str, Any]:
        """The new version, with notes for the person on its words."""
        async with self._deciding:
            item = await self._current(identifier)
            old = item.reflection
            rubrics = old.rubrics if change.rubrics is None else change.rubrics
            takeaways = old.takeaways if change.takeaways is None else change.takeaways
            clean, told = await asyncio.to_thread(screen_edit, old, rubrics, takeaways)
            if clean:
                with refuse_as(HTTPStatus.CONFLICT):
                    item = await self._bank.edit(old.id, clean.rubrics, clean.takeaways, BY)
        return item.as_json() | {"warnings": told}

    async def release(self, identifier: str) -> dict[str, Any]:
        async with self._deciding:
            item = await self._current(identifier)
            with refuse_as(HTTPStatus.CONFLICT):
                done = await self._bank.release(item.reflection.id, BY)
        instead = done.instead.as_json() if done.instead else None
        return done.item.as_json() | {"instead": instead}

    async def remove(self, identifier: str) -> dict[str, Any]:
        async with self._deciding:
            item = await self._item(identifier)
            await self._bank.remove(item.reflection.id)
        return {"removed": item.reflection.id}

    async def _item(self, identifier: str) -> BankItem:
        if (item := await self._bank.item(storable(identifier))) is not None:
            return item
        message = f"There is no item {identifier[:80]!r} in the bank."
        raise missing(message, "It may have been removed: list them again.")

    async def _current(self, identifier: str) -> BankItem:
        """The item, unless it was replaced."""
        item = await self._item(identifier)
        if item.state == "replaced":
            raise conflict(
                "The reflection was replaced by another one.",
                "Look at the one that counts, and change that.",
            )
        return item
