"""What can happen to a bank: the lines of its journal.

    {"event": "put", "reflection": {...}}             one more reflection
    {"event": "blank", "id": ..., "key": ...}         where a put stood whose text was removed
    {"event": "pin", "id": ..., "on": true}           also disable, release and remove

A removal or release says by a hash of what words it is about: those of a removed reflection come
back under no other id, until a person brings them in, writes them or releases them.
A line of the first version is a bare reflection, which is a put.
"""

import hashlib
import json
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from memory.reflections import Reflection
from memory.values import Value

Decision = Literal["pin", "disable", "release", "remove"]


def question_key(question: str) -> str:
    """SHA-256 of the question: the same words are the same question."""
    return hashlib.sha256(question.strip().encode()).hexdigest()


def words_key(reflection: Reflection) -> str:
    """SHA-256 of the question and of the words, however they are spaced."""
    words = (reflection.question, reflection.rubrics, reflection.takeaways)
    return hashlib.sha256("\0".join(" ".join(w.split()) for w in words).encode()).hexdigest()


class Put(Value):
    """A reflection comes into the bank; `history`: to be kept, not to be the bank's word."""

    event: Literal["put"] = "put"
    reflection: Reflection
    history: bool = False
    by: str = ""
    """where a person wrote it; "": nobody did, or an earlier version kept it"""

    @property
    def id(self) -> str:
        return self.reflection.id

    @property
    def key(self) -> str:
        return question_key(self.reflection.question)

    @property
    def flagged(self) -> bool:
        return bool(self.reflection.flags)

    @property
    def replaces(self) -> str:
        return self.reflection.replaces


class Blank(Value):
    """A put whose text a person removed; what it did to other items stays done."""

    event: Literal["blank"] = "blank"
    id: str
    key: str
    flagged: bool = False
    history: bool = False
    replaces: str = ""

    @classmethod
    def of(cls, put: "Put | Blank") -> "Blank":
        return cls(
            id=put.id,
            key=put.key,
            flagged=put.flagged,
            history=put.history,
            replaces=put.replaces,
        )


class Decided(Value):
    """What a person decided about an item."""

    event: Decision
    id: str
    on: bool = True
    words: str = ""
    """of a removal or release, the key of the reflection's words; earlier versions kept none"""
    by: str = ""
    """where a person released it"""
    at: datetime | None = None
    """when a person released it"""


Event = Put | Blank | Decided


def line_of(event: Event) -> bytes:
    """One line of JSON; a blank one is as short as can be, to stand where a put stood."""
    text = event.model_dump_json(exclude_defaults=isinstance(event, Blank))
    if isinstance(event, Blank):
        text = '{"event":"blank",' + text[1:]
    return text.encode() + b"\n"


def event_of(line: bytes) -> Event:
    """Raises ValueError for what is no event."""
    value: Any = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("an event is a JSON object")
    kind = value.get("event")
    try:
        if kind is None:
            return Put(reflection=Reflection.model_validate(value))
        if kind == "put":
            return Put.model_validate(value)
        if kind == "blank":
            return Blank.model_validate(value)
        return Decided.model_validate(value)
    except ValidationError as error:
        raise ValueError(str(error)) from error
