"""The checklist over a chat server: one call checks many items; what it leaves out is asked again.

Every item ends as met, not met or unparsed. Only the items without a usable verdict are asked
for again, with what was wrong, a bounded number of times.

The checklist on a local model: an item is met where "Yes" is likelier than "No".

The request and the answer are one prefix that stays in the model's cache; each item is one short
read after it, beside the sentence of the answer that shares most words with it.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from rubricem.judge.base import CHARACTERS, QUESTION_CHARACTERS, fitted, prompt
from rubricem.judge.checklist import Checked, ChecklistItem, ItemFinding
from rubricem.judge.transcripts import closest_span
from rubricem.memory.asking import MOST_TOKENS, TRIES, Forgetting, counted, parsed, schema_of, spent
from rubricem.memory.errors import RubricemError
from rubricem.memory.interfaces import ChatModel, ChoiceReader, Completion, Message, Sampling
from rubricem.memory.schema import NO_USAGE, Usage
from rubricem.memory.text import cut, fenced, without_markers

BATCH = 12
"""items in one call"""
_TRUTHS = {"true": True, "yes": True, "met": True, "false": False, "no": False, "not met": False}


def _truth(value: object) -> object:
    """Words for true and false; a number is neither, whatever Python makes of it."""
    if isinstance(value, bool):
        return value
    known = _TRUTHS.get(value.strip().casefold()) if isinstance(value, str) else None
    if known is None:
        raise ValueError("it must be true or false")
    return known


class GivenMark(BaseModel):
    number: int
    explanation: str = ""
    criteria_met: Annotated[bool, BeforeValidator(_truth)] = Field(
        validation_alias=AliasChoices("criteria_met", "criteria met", "met")
    )


class GivenMarks(BaseModel):
    """The reply that is asked for."""

    verdicts: list[GivenMark]


class AnyMarks(BaseModel):
    """The reply as it is read: each entry is then looked at by itself."""

    verdicts: list[Any]


@dataclass(frozen=True, slots=True)
class _Batch:
    given: Mapping[int, GivenMark]
    fault: str
    usage: Usage


class ChatItemChecker:
    """A `Checker` over a chat server."""

    def __init__(self, model: ChatModel, tries: int = TRIES, characters: int = CHARACTERS) -> None:
        self._model = model
        self._tries = tries
        self._characters = characters

    @property
    def name(self) -> str:
        return self._model.name

    async def check(self, question: str, answer: str, items: Sequence[ChecklistItem]) -> Checked:
        numbered = list(enumerate(items, start=1))
        shown = fenced(
            {"request": cut(question, QUESTION_CHARACTERS), "reply": cut(answer, self._characters)}
        )
        batches = await asyncio.gather(
            *(
                self._batch(shown, dict(numbered[at : at + BATCH]))
                for at in range(0, len(numbered), BATCH)
            )
        )
        given = {number: mark for batch in batches for number, mark in batch.given.items()}
        return Checked(
            findings=tuple(_finding(item, given.get(number)) for number, item in numbered),
            fault=next((batch.fault for batch in batches if batch.fault), ""),
            usage=sum((batch.usage for batch in batches), NO_USAGE),
        )

    async def _batch(self, shown: str, items: Mapping[int, ChecklistItem]) -> _Batch:
        """Ask until each item has a verdict, or the tries are used up, or the server is down."""
        given, used, fault = dict[int, GivenMark](), NO_USAGE, ""
        for attempt in range(self._tries):
            missing = {n: item for n, item in items.items() if n not in given}
            messages = _messages(shown, missing, fault)
            sampling = Sampling(
                max_tokens=MOST_TOKENS, temperature=0.0, seed=attempt, json_schema=_SCHEMA
            )
            try:
                reply, used = await counted(self._model, messages, sampling, used)
            except RubricemError as error:
                return _Batch(given, error.told(), spent(error))
            new, fault = _marks(reply, missing)
            given |= new
            if not fault:
                break
            if isinstance(self._model, Forgetting):
                await self._model.forget(messages, sampling)
        return _Batch(given, fault, used)


def _messages(shown: str, items: Mapping[int, ChecklistItem], fault: str) -> list[Message]:
    listed = "\n".join(f"{n}. {' '.join(item.criterion.split())}" for n, item in items.items())
    again = (
        f"\n\nAn earlier reply could not be used ({fault}). These items are left." if fault else ""
    )
    asked = f"{shown}\n\nItems:\n{without_markers(listed)}{again}"
    return [Message("system", prompt("checklist_check")), Message("user", asked)]


def _marks(
    reply: Completion, items: Mapping[int, ChecklistItem]
) -> tuple[dict[int, GivenMark], str]:
    """The usable verdicts on the items, and what is wrong with the rest, or ""."""
    try:
        entries = parsed(reply, AnyMarks).verdicts
    except ValueError as error:
        return {}, str(error)
    given, fault, torn = dict[int, GivenMark](), "", set[int]()
    for entry in entries:
        try:
            mark = GivenMark.model_validate(entry)
        except ValidationError as error:
            fault = fault or error.errors(include_url=False)[0]["msg"]
            continue
        before = given.setdefault(mark.number, mark)
        if before.criteria_met != mark.criteria_met:
            torn.add(mark.number)
    usable = {n: mark for n, mark in given.items() if n in items and n not in torn}
    missing = [str(n) for n in items if n not in usable]
    lacking = f"it has no single usable verdict for {', '.join(missing)}"
    return usable, "; ".join(filter(None, (lacking, fault))) if missing else ""


def _finding(item: ChecklistItem, mark: GivenMark | None) -> ItemFinding:
    if mark is None:
        return ItemFinding(item=item, met=None)
    return ItemFinding(item=item, met=mark.criteria_met, explanation=mark.explanation)


_SCHEMA = json.dumps(schema_of(GivenMarks), sort_keys=True)


OPTIONS = ("Yes", "yes", "No", "no")
ITEM_TOKENS = 400
"""left free for the longest item and the answer"""
ITEM_CHARACTERS = 600
QUESTION_SHARE = 4
"""the request gets one part in so many"""


class ChoiceItemChecker:
    """A `Checker` over a `ChoiceReader`."""

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader
        # Items of two answers in turns would have each prefix read again for every item.
        self._place = asyncio.Semaphore(1)

    @property
    def name(self) -> str:
        return self._reader.name

    async def check(self, question: str, answer: str, items: Sequence[ChecklistItem]) -> Checked:
        findings, used, fault, characters = list[ItemFinding](), NO_USAGE, "", 0
        async with self._place:
            for item in items:
                try:
                    characters = characters or await self._fitted(question, answer)
                    finding, usage = await self._read(question, answer, item, characters)
                except RubricemError as error:
                    fault = fault or error.told()
                    finding, usage = ItemFinding(item=item, met=None), error.usage or NO_USAGE
                findings.append(finding)
                used += usage
        return Checked(tuple(findings), fault, used)

    async def _fitted(self, question: str, answer: str) -> int:
        """Characters of both that leave room for an item."""
        messages_of = partial(_choice_messages, question, answer, "")
        return (await fitted(self._reader, messages_of, ITEM_TOKENS))[0]

    async def _read(
        self, question: str, answer: str, item: ChecklistItem, characters: int
    ) -> tuple[ItemFinding, Usage]:
        span = closest_span(item.criterion, answer)
        asked = _asked(item, span)
        prefix = await self._reader.render(_choice_messages(question, answer, asked, characters))
        upper, lower, *_ = await self._reader.weigh(prefix, OPTIONS)
        met = None if upper + lower == 0.5 else upper + lower > 0.5
        usage = Usage(prompt_tokens=len(prefix), cost=0.0, calls=1)
        return ItemFinding(item=item, met=met, explanation=span, by="code"), usage


def _asked(item: ChecklistItem, span: str) -> str:
    closest = f'"{span}"' if span else "(no sentence speaks of it)"
    return without_markers(
        f"Statement: {cut(item.criterion, ITEM_CHARACTERS)}\n"
        f"The closest sentence of the reply: {closest}\n"
        "Does the statement hold of the reply? Yes or No?"
    )


def _choice_messages(question: str, answer: str, asked: str, characters: int) -> list[Message]:
    request = cut(question, characters // QUESTION_SHARE)
    reply = cut(answer, max(characters - len(request), 1))
    text = f"{fenced({'request': request, 'reply': reply})}\n\n{asked}"
    return [Message("system", prompt("checklist_choice")), Message("user", text)]
