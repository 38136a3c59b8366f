"""The checklist over a chat server: one call checks many items; what it leaves out is asked again.

Every item ends as met, not met or unparsed. Only the items without a usable verdict are asked
for again, with what was wrong, a bounded number of times.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from judge.answers import CHARACTERS, QUESTION_CHARACTERS
from judge.checklist import Checked, ChecklistItem, Finding
from judge.prompting import prompt
from memory.asking import MOST_TOKENS, TRIES, Forgetting, counted, parsed, schema_of, spent
from memory.errors import RubricemError
from memory.interfaces import ChatModel, Completion, Message, Sampling
from memory.schema import NO_USAGE, Usage
from memory.text import cut, fenced, without_markers

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


class Marks(BaseModel):
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


class ChatChecker:
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
                return _Batch(given, f"{error} {error.remedy}".strip(), spent(error))
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


def _finding(item: ChecklistItem, mark: GivenMark | None) -> Finding:
    if mark is None:
        return Finding(item=item, met=None)
    return Finding(item=item, met=mark.criteria_met, explanation=mark.explanation)


_SCHEMA = json.dumps(schema_of(Marks), sort_keys=True)
