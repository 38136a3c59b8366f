"""`/api/bank`: search, correct, release and remove what judged runs have taught.

A change says which version of an item it concerns (in its body, or by `If-Match`); if that is not
the current version, somebody else was faster, and nothing is changed.
"""

import asyncio
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, Field

from rubricem.agent.serve.requests import RequestBody, RequestRefused, conflict, missing, refuse_as
from rubricem.memory.bank import NEVER, BankItem, RubricBank
from rubricem.memory.bank.catalogue import Standing
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import Episode, ItemKind
from rubricem.memory.screening import LONGEST, screen
from rubricem.memory.text import digest_of, storable

_BATCH = 500
"""items read at once"""


def version_of(item: BankItem) -> str:
    """Changes with every decision on the item, so that nobody decides on an outdated one."""
    standing = (item.until, item.pinned, item.disabled, item.released)
    return digest_of(f"{item.record.id} {item.since} {standing}", 12)


def item_json(item: BankItem, similarity: float | None = None) -> dict[str, Any]:
    """The item's fields and its standing, as one object."""
    standing = item.model_dump(mode="json", exclude={"record", "until", "removed", "recalled"})
    state = "disabled" if item.disabled else "active"
    if item.until != NEVER:
        state = "replaced"
    elif item.quarantined:
        state = "quarantine"
    found = {} if similarity is None else {"similarity": similarity}
    return {
        **item.record.model_dump(mode="json"),
        **standing,
        "kind": item.kind,
        "until": None if item.until == NEVER else item.until,
        "uses": item.recalled,
        "state": state,
        "version": version_of(item),
        **found,
    }


async def with_words(
    bank: RubricBank, words: str, standing: Standing, limit: int, before: int, kind: ItemKind
) -> list[BankItem]:
    """The latest items that contain all the words, ignoring case."""
    wanted = words.casefold().split()
    found: list[BankItem] = []
    while len(found) < limit and (page := await bank.page(standing, _BATCH, before, kind)):
        for item in page:
            told = item.record
            texts = told.texts if isinstance(told, Episode) else (told.rubrics, told.takeaways)
            text = " ".join((told.question, *texts)).casefold()
            if all(word in text for word in wanted):
                found.append(item)
        before = page[-1].since
    return found[:limit]


BY = "web page"
"""where a person decided"""
IfMatch = Annotated[str | None, Header()]


class Change(RequestBody):
    """A person's changes to an item; None: unchanged."""

    rubrics: str | None = Field(default=None, max_length=LONGEST)
    takeaways: str | None = Field(default=None, max_length=LONGEST)
    pinned: bool | None = None
    disabled: bool | None = None
    version: str | None = None
    """of the item as it was shown; None: the current one"""

    @property
    def words(self) -> bool:
        """Whether the item's text is changed."""
        return self.rubrics is not None or self.takeaways is not None


class Decision(BaseModel):
    """The version of an item that somebody decided on."""

    version: str | None = None


def router(bank: RubricBank) -> APIRouter:
    """The routes of one bank."""
    routes = APIRouter(prefix="/api/bank")
    desk = _BankDesk(bank)
    routes.get("")(desk.listed)
    routes.get("/stats")(desk.stats)
    routes.get("/{identifier}")(desk.shown)
    routes.patch("/{identifier}")(desk.changed)
    routes.delete("/{identifier}")(desk.removed)
    routes.post("/{identifier}/release")(desk.released)
    return routes


class _BankDesk:
    """The handlers; changes of this process are made one after another."""

    def __init__(self, bank: RubricBank) -> None:
        self._bank = bank
        self._deciding = asyncio.Lock()

    async def listed(
        self,
        query: Annotated[str, Query(max_length=2000)] = "",
        state: Standing = "current",
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        before: Annotated[int, Query(ge=1, lt=2**63)] = NEVER,
        kind: ItemKind = "reflection",
    ) -> dict[str, Any]:
        """Items, the latest first, or nearest to a query; `next` is the next page's `before`."""
        words, note = storable(query).strip(), ""
        if words and state in ("current", "active") and before == NEVER:
            try:
                near = [
                    item_json(item, match.similarity)
                    for match in await self._bank.search(words, limit, kind)
                    if (item := await self._bank.item(match.record.id))
                ]
                return {"items": near, "next": "", "note": ""}
            except RubricemError as error:
                note = f"Found by its words alone: {error.told()}"
        if words:
            items = await with_words(self._bank, words, state, limit + 1, before, kind)
        else:
            items = await self._bank.page(state, limit + 1, before, kind)
        more = str(items[limit - 1].since) if len(items) > limit else ""
        return {"items": [item_json(i) for i in items[:limit]], "next": more, "note": note}

    async def stats(self) -> dict[str, Any]:
        stats = asdict(await self._bank.stats())
        return {**stats, "active": stats["live"], "quarantine": stats["quarantined"]}

    async def shown(self, identifier: str) -> dict[str, Any]:
        item = await self._item(identifier)
        history = await self._bank.history(item.record.question, item.kind)
        others = [item_json(i) for i in history if i.record.id != item.record.id]
        return item_json(item) | {"history": others}

    async def changed(
        self, identifier: str, change: Change, if_match: IfMatch = None
    ) -> dict[str, Any]:
        """The changed item: an edit has an id of its own."""
        async with self._deciding:
            item = await self._standing(identifier, change.version or if_match)
            if change.pinned and item.quarantined and not change.words:
                raise conflict("The reflection is in quarantine.", "Release it first.")
            with refuse_as(HTTPStatus.CONFLICT):
                return await self._change(item, change)

    async def released(
        self, identifier: str, decision: Decision | None = None, if_match: IfMatch = None
    ) -> dict[str, Any]:
        """The item, and the result of its release."""
        async with self._deciding:
            version = decision.version if decision else None
            item = await self._standing(identifier, version or if_match)
            if not item.quarantined:
                raise conflict("The reflection is not in quarantine.", "Look at it again.")
            with refuse_as(HTTPStatus.CONFLICT):
                done = await self._bank.release(item.record.id, BY)
        said = "Released, but it is disabled." if done.item.disabled else "Released."
        if done.instead is not None:
            why = "is pinned" if done.instead.pinned else "is newer"
            said = f"Released into the history: {done.instead.record.id} {why} and stands."
        instead = item_json(done.instead) if done.instead else None
        return item_json(done.item) | {"said": said, "instead": instead}

    async def removed(self, identifier: str, if_match: IfMatch = None) -> dict[str, Any]:
        async with self._deciding:
            item = await self._item(identifier)
            _check_version(item, if_match)
            with refuse_as(HTTPStatus.CONFLICT):
                await self._bank.remove(item.record.id)
        return {"removed": item.record.id}

    async def _item(self, identifier: str) -> BankItem:
        if (item := await self._bank.item(storable(identifier))) is not None:
            return item
        message = f"There is no item {identifier[:80]!r} in the bank."
        raise missing(message, "It may have been removed: list them again.")

    async def _standing(self, identifier: str, version: str | None) -> BankItem:
        """The item, unless it was replaced or changed since it was shown."""
        item = await self._item(identifier)
        if item.until != NEVER:
            raise conflict(
                "The reflection was replaced by another one.",
                "Look at the one that stands, and change that.",
            )
        _check_version(item, version)
        return item

    async def _change(self, item: BankItem, change: Change) -> dict[str, Any]:
        warnings: list[str] = []
        if change.words:
            item, warnings = await self._edit_words(item, change)
        identifier = item.record.id
        if change.pinned is not None:
            await self._bank.pin(identifier, change.pinned)
        if change.disabled is not None:
            await self._bank.disable(identifier, change.disabled)
        return item_json(await self._item(identifier)) | {"warnings": warnings}

    async def _edit_words(self, item: BankItem, change: Change) -> tuple[BankItem, list[str]]:
        """The new version in the bank, and notes for the person on their words."""
        if item.kind == "episode":
            raise conflict("What a run did is not reworded.", "Disable or remove it instead.")
        old = item.reflection
        rubrics = old.rubrics if change.rubrics is None else change.rubrics
        takeaways = old.takeaways if change.takeaways is None else change.takeaways
        clean = await asyncio.to_thread(screen, rubrics, takeaways, ())
        if not (clean.rubrics.strip() and clean.takeaways.strip()):
            raise RequestRefused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "Nothing is left of it once tags, addresses and hidden characters are taken out.",
                "Say in words what is to be learnt.",
            )
        if (clean.rubrics, clean.takeaways) == (old.rubrics, old.takeaways):
            return item, []
        warnings = list(clean.flags)
        if (clean.rubrics, clean.takeaways) != (rubrics.strip(), takeaways.strip()):
            warnings.insert(0, "Some of it was taken out or cut; see what is kept.")
        return await self._bank.edit(old.id, clean.rubrics, clean.takeaways, BY), warnings


def _check_version(item: BankItem, version: str | None) -> None:
    if version is not None and version.strip('"') != version_of(item):
        raise conflict(
            "The reflection was changed in the meantime.",
            "Look at it again, and change what stands there now.",
        )
