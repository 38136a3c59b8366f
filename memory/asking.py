"""Asking a chat model until its reply is usable, above all for JSON of a given form.

If the server can constrain a model to a schema, it is given the form's; replies are parsed
tolerantly all the same, since many servers ignore it. A reply that does not fit is asked for again,
with a note on what was wrong, a bounded number of times. The usage of every call is counted, even
if no usable reply came: the error then carries it as `usage`.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    model_validator,
)

from rubricem.memory.errors import JudgeError, RubricemError
from rubricem.memory.schema import (
    NO_USAGE,
    ChatModel,
    ChoiceReader,
    Completion,
    Message,
    Sampling,
    Stage,
    Usage,
)
from rubricem.memory.text import cut

Form = TypeVar("Form", bound=BaseModel)
Entry = TypeVar("Entry")
Usable = TypeVar("Usable")

TRIES = 3
"""replies requested before a judge that writes no usable JSON counts as failed"""
MOST_TOKENS = 8192
"""of one reply"""
SHOWN_CHARACTERS = 20_000
"""of a bad reply that is shown to the model again"""
_COLD = Sampling(temperature=0.0)
_KEPT = frozenset({"type", "properties", "items", "required", "enum", "const", "anyOf", "$ref"})


@runtime_checkable
class Forgetting(Protocol):
    """A model that caches its replies, and can be told that one was unusable."""

    async def forget(self, messages: Sequence[Message], sampling: Sampling) -> None: ...


async def ask_json(
    model: ChatModel,
    messages: Sequence[Message],
    form: type[Form],
    *,
    check: Callable[[Form], None] = lambda reply: None,
) -> tuple[Form, Usage]:
    """The model's reply as a value of `form`, and the cost of all calls for it.

    `check` examines the whole reply: the model is told the ValueError that it raises. Raises
    JudgeError after `TRIES` of them, PolicyError if the server gave no reply at all; both carry the
    usage of the calls that were paid for.
    """

    def again(reply: str, fault: str) -> list[Message]:
        told = f"That reply cannot be used ({fault}). Write the whole JSON object again."
        return [*messages, *correction(reply, told, SHOWN_CHARACTERS)]

    value, fault, used = await ask_until(
        model,
        messages,
        lambda reply: parse_reply(reply, form, check),
        again,
        Sampling(temperature=0.0, json_schema=unbounded_schema(form)),
    )
    if value is None:
        raise JudgeError(
            f"{model.name} gave no usable JSON in {TRIES} tries: {fault}",
            "Use a stronger model for it.",
            used,
        )
    return value, used


@dataclass(frozen=True, slots=True)
class Entries:
    """An entry for each name, in order; None for one of which no usable entry came."""

    found: tuple[Any, ...]
    fault: str
    """why some are None"""
    usage: Usage = NO_USAGE


async def ask_entries(
    model: ChatModel,
    messages: Sequence[Message],
    form: type[BaseModel],
    names: Sequence[str],
    *,
    seed: int = 0,
    check: Callable[[Sequence[Any]], object] = lambda entries: None,
    failure: type[RubricemError] = JudgeError,
) -> Entries:
    """The entries of a reply by their names; what is missing is asked for again, by name.

    `form` has one field, a list of entries with an `id`; of several the last that has all entries
    counts, since others may quote what is judged. `check` examines those that came together: the
    model is told the ValueError that it raises. Raises `failure` where no usable entry came in
    `TRIES` replies, PolicyError as `ask_until` does.
    """
    (listed,) = form.model_fields
    known = dict[str, Any]()

    def has_all(reply: BaseModel) -> None:
        if {*names} - known.keys() - _agreed(getattr(reply, listed), names).keys():
            raise ValueError("it lacks an entry")

    def take(reply: Completion) -> bool:
        dropped: list[str] = []
        try:
            read = parse_reply(reply, form, has_all, dropped)
        except ValueError:
            read = parse_reply(reply, form, dropped=dropped)
        known.update(_agreed(getattr(read, listed), names))
        try:
            check([known[name] for name in names if name in known])
        except ValueError:
            known.clear()
            raise
        if missing := [name for name in names if name not in known]:
            told = "".join(f"; {fault}" for fault in dict.fromkeys(dropped))
            raise ValueError(f"it needs an entry for each id; missing: {', '.join(missing)}{told}")
        return True

    def again(reply: str, fault: str) -> list[Message]:
        missing = ", ".join(name for name in names if name not in known)
        told = f"That reply cannot be used whole ({fault}). Write a JSON object of the same form"
        told += f" with an entry for each of these: {missing}."
        return [*messages, *correction(reply, told, SHOWN_CHARACTERS)]

    sampling = Sampling(temperature=0.0, seed=seed, json_schema=unbounded_schema(form))
    _, fault, used = await ask_until(model, messages, take, again, sampling)
    if not known:
        said = f"{model.name} gave no usable JSON in {TRIES} tries: {fault}"
        raise failure(said, "Use a stronger model for it.", used)
    if missing := [name for name in names if name not in known]:
        fault = f"nothing usable came on {', '.join(missing)}: {fault}"
    return Entries(tuple(known.get(name) for name in names), fault, used)


def _agreed(entries: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The entries by name, without those of no name asked for, and those that contradict."""
    found: dict[str, list[Any]] = {}
    for entry in entries:
        if name := name_in(str(entry.id), names):
            found.setdefault(name, []).append(entry)
    if names[-1] not in found and any(name_in(str(entry.id), ("0",)) for entry in entries):
        return {}  # counted from 0, each would be given to the one before it
    alike = {name for name, given in found.items() if _verdict(given[0]) == _verdict(given[-1])}
    return {name: found[name][-1] for name in alike}


def _verdict(entry: BaseModel) -> list[Any]:
    fields = type(entry).model_fields.items()
    return [getattr(entry, name) for name, field in fields if field.annotation is not str]


def name_in(said: str, names: Sequence[str]) -> str | None:
    """The number that an id begins with, or its only one: as in "Attempt 1" or "1 - Title 2"."""
    said = re.sub(r"(?:\bof|/)\s*\d+", "", said.removesuffix(".0"))
    first = re.match(r"\W*(\d+)\b(?!\.\d)", said)
    meant = {str(int(n)) for n in ([first[1]] if first else re.findall(r"\d+", said))} & {*names}
    return meant.pop() if len(meant) == 1 else None


async def ask_until(
    model: ChatModel,
    messages: Sequence[Message],
    usable: Callable[[Completion], Usable],
    again: Callable[[str, str], Sequence[Message]],
    sampling: Sampling = _COLD,
) -> tuple[Usable | None, str, Usage]:
    """The result of `usable` for a reply, or None with the last fault; and the cost of all calls.

    `usable` raises ValueError with the fault of a reply; `again` makes the next messages from the
    reply and its fault. The length in `sampling` is set, and each try has a separate seed. Raises
    PolicyError if the server gave no reply at all, with the usage of the calls before.
    """
    used, fault = NO_USAGE, ""
    for attempt in range(TRIES):
        seed = (sampling.seed or 0) * TRIES + attempt
        this = replace(sampling, max_tokens=MOST_TOKENS, seed=seed)
        reply, used = await chat_once(model, messages, this, used)
        try:
            return usable(reply), "", used
        except ValueError as error:
            fault = str(error)
        if isinstance(model, Forgetting):
            await model.forget(messages, this)
        messages = again(reply.text, fault)
    return None, fault, used


async def weigh_options(
    reader: ChoiceReader, messages: Sequence[Message], options: Sequence[str]
) -> tuple[tuple[float, ...], Usage]:
    """The probability that the reader continues with each option, among these; and the cost."""
    prefix = await reader.render(messages)
    return await reader.weigh(prefix, options), read_usage(prefix)


async def chance_of_yes(reader: ChoiceReader, messages: Sequence[Message]) -> tuple[float, Usage]:
    """The probability in [0, 1] that the reader continues with Yes, not No; and the cost."""
    (upper, lower, *_), used = await weigh_options(reader, messages, ("Yes", "yes", "No", "no"))
    return upper + lower, used


def read_usage(prefix: Sequence[int]) -> Usage:
    """The cost of having a prefix read and nothing written."""
    return Usage(prompt_tokens=len(prefix), cost=0.0, calls=1)


def correction(reply: str, told: str, characters: int) -> list[Message]:
    """The bad reply and the comment on it; servers refuse a message without a text."""
    said = [Message("assistant", cut(reply, characters))] if reply.strip() else []
    return [*said, Message("user", told)]


async def chat_once(
    model: ChatModel, messages: Sequence[Message], sampling: Sampling, before: Usage = NO_USAGE
) -> tuple[Completion, Usage]:
    """One reply, and its usage added to the earlier one; an error carries the sum too."""
    try:
        reply = await model.chat(messages, sampling)
    except RubricemError as error:
        error.usage = before + usage_of_error(error)
        raise
    return reply, before + reply.usage


def usage_of_error(error: BaseException) -> Usage:
    """The cost of the calls before the error, as far as it was noted on it."""
    return getattr(error, "usage", None) or NO_USAGE


def failure_before(end: BaseException) -> str:
    """Why the tries before failed of a call that was then cancelled; "" for its first try."""
    return getattr(end, "failed", "")


@dataclass
class Bill:
    """The cost of a series of calls; an error that ends it inside carries the cost so far."""

    usage: Usage = NO_USAGE

    def __enter__(self) -> "Bill":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RubricemError):
            error.usage = self.usage + usage_of_error(error)


_FIELDS = """
justification explanation reason reasoning rationale evidence analysis comment
number id index criterion item trajectoryid trajectory attempt review candidate criterionid no
points score weight rating grade verdict finalscore pointsawarded reward
criteriamet criterionmet met holds verdict passed satisfied
positive positiverubrics positivecriteria strengths good
negative negativerubrics negativecriteria flaws faults bad
description criterion item
rubrics items checklist criteria
"""
SAME = (
    *(frozenset(line.split()) for line in _FIELDS.strip().splitlines()),
    *(frozenset({s, f"{s}stage", f"stage{n}", f"stage{n}{s}"}) for n, s in enumerate(Stage, 1)),
)
"""names that judges give to the same field, as letters and digits"""


class ReplyForm(BaseModel, coerce_numbers_to_str=True):
    """A form that is read in whatever case and spacing its fields' names are written, under others
    of the `SAME`, and out of a wrapper, which may hold some of them; a bare list, or objects under
    other names, are those of its only field.
    """

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return cls._find_fields(given)

    @classmethod
    def _find_fields(cls, given: Any) -> Any:
        names = {_bare(n): n for f, info in cls.model_fields.items() for n in (info.alias or f,)}
        only = next(iter(names.values())) if len(names) == 1 else None
        if isinstance(given, list) and len(given) == 1 and isinstance(given[0], dict):
            given = given[0] if names.keys() & set(map(_bare, given[0])) else given
        if not given or not isinstance(given, dict):
            return {only: given} if only and isinstance(given, list) else given
        given = {key: value for key, value in given.items() if value is not None}
        found = dict[str, Any]()
        for key in sorted(given, key=lambda key: _bare(key) not in names):
            same = next(
                (s & names.keys() for s in SAME if _bare(key) in s and s & names.keys()), ()
            )
            for name in [_bare(key)] if _bare(key) in names else same:
                found.setdefault(names[name], given[key])
        inside = [value for value in given.values() if isinstance(value, dict | list)]
        if len(inside) == 1 and inside[0] not in found.values():
            more = cls._find_fields(inside[0])
            if isinstance(more, dict):
                found = {name: more[name] for name in names.values() if name in more} | found
        if not found and only and (len(inside) == len(given) or _is_by_number(given)):
            return {only: given}
        return found or given


def _is_by_number(given: dict[str, Any]) -> bool:
    return bool(given) and all(key[-1:].isdigit() for key in given)


def _bare(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _keep_valid(given: Any, validate: Callable[[Any], Any], info: ValidationInfo) -> Any:
    """The valid items of a list; what is wrong with others goes to the context's `dropped`."""
    if isinstance(given, dict) and given:
        held = [*chain(*(v.values() if isinstance(v, dict) else [v] for v in given.values()))]
        by_name = {*map(type, given.values())} == {dict} or _is_by_number(given)
        told = {k: v if isinstance(v, dict) else {"verdict": v} for k, v in given.items()}
        named = [{"id": k} | v for k, v in told.items()] if by_name else [given]
        given = [*chain(*held)] if {*map(type, held)} == {list} else named  # as by stages
    kept, faults = list[Any](), list[str]()
    for item in given if isinstance(given, list) else [given] if given else []:
        try:
            kept += validate([item])
        except ValidationError as error:
            faults.append(first_fault(error).removeprefix("0."))
    if faults and not kept:
        return validate(given)
    if info.context is not None:
        info.context["dropped"] += faults
    return kept


Valid = Annotated[list[Entry], WrapValidator(_keep_valid)]
"""a list whose invalid items are dropped: one bad item does not void the others"""


WHOLE: Any = {"type": "integer"}
"""what a server is asked for; other numbers and texts are read as well"""


class Numbered(ReplyForm):
    """An entry for a numbered thing."""

    id: str = Field(alias="number", json_schema_extra=WHOLE)


class Verdicts(ReplyForm, Generic[Entry]):
    """A reply with an entry for each thing that is judged."""

    verdicts: Valid[Entry]


def parse_reply(
    reply: Completion,
    form: type[Form],
    check: Callable[[Form], None] = lambda reply: None,
    dropped: list[str] | None = None,
) -> Form:
    """The last JSON object in a reply that fits the form: earlier ones may be quotes.

    Objects without a name in common are parts of one. Where none fits, all together may be a
    list's. `dropped` gets the faults of items that were left out. Raises ValueError with the fault.
    """
    fault = ""
    values = list(json_objects(reply.text))
    objects = [one for one in values if isinstance(one, dict)]
    whole = {name: value for one in objects for name, value in one.items()}
    apart = [whole] if len(objects) > 1 and len(whole) == sum(map(len, objects)) else []
    other = [value for value in _python_objects(reply.text) if value not in values]
    for value in (*apart, *reversed(values), objects, *other):
        if value == []:
            continue
        faults: list[str] = []
        try:
            found = form.model_validate(value, context={"dropped": faults})
            check(found)
            if dropped is not None:
                dropped += faults
            return found
        except ValidationError as error:
            fault = fault or first_fault(error)
        except ValueError as error:
            fault = fault or f"Value error, {error}"
            if len(values) == 1:  # another reading of it would be checked twice
                break
    if reply.stop_reason == "length":
        raise ValueError("it was cut off at the longest length allowed; write less")
    # An object inside a broken one is not what was asked for, so its own fault misleads.
    raise ValueError(broken(reply.text) or fault or "there is no JSON object in it")


def json_objects(text: str) -> Iterator[Any]:
    """The complete JSON objects in a text, and lists of them, from left to right, none in another.

    Strings may run over lines.
    """
    end = 0
    while begun := _OPENING.search(text, end):
        try:
            value, end = _DECODER.raw_decode(text, begun.start())
        except (ValueError, RecursionError):
            end = begun.start() + 1
        else:
            yield value


def _python_objects(text: str) -> Iterator[Any]:
    """The outermost object of a text, read as Python writes it: other quotes, a comma at an end."""
    inside = _COMMENT.sub("", text[text.find("{") : text.rfind("}") + 1].replace("\u00a0", " "))
    with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        yield ast.literal_eval(_CONSTANT.sub(lambda one: _CONSTANTS[one[0]], inside))


def broken(text: str) -> str:
    """What is wrong with the JSON in a text, from its first brace that opens a name."""
    opening = next((at.start() for at in re.finditer(r'\{(?=\s*["}])', text)), -1)
    if opening < 0:
        return ""
    try:
        _DECODER.raw_decode(text, opening)
    except json.JSONDecodeError as error:
        return f"the JSON is malformed: {error.msg} at character {error.pos - opening}"
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


@lru_cache(maxsize=64)
def unbounded_schema(form: type[BaseModel]) -> str:
    """The form's JSON schema without bounds: grammars of bounded lengths take servers minutes.

    Its fields stand in the order of the form, in which a server that holds to it writes them: a
    reason before the verdict that rests on it.
    """
    full = form.model_json_schema()
    shapes = {name: _plain(shape) for name, shape in full.get("$defs", {}).items()}
    return json.dumps(_plain(full) | ({"$defs": shapes} if shapes else {}))


def _plain(shape: dict[str, Any]) -> dict[str, Any]:
    """A schema reduced to its fields and their types."""
    kept = {name: value for name, value in shape.items() if name in _KEPT}
    if "properties" in kept:
        kept["properties"] = {k: _plain(v) for k, v in kept["properties"].items()}
        # What a form can do without is asked for all the same, above all a reason.
        kept["required"] = list(kept["properties"])
    if isinstance(kept.get("items"), dict):
        kept["items"] = _plain(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [_plain(one) for one in kept["anyOf"]]
    return kept


def first_fault(error: ValidationError) -> str:
    """The first reason why a value does not fit its form."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number that JSON knows")


_DECODER = json.JSONDecoder(parse_constant=_no_number, strict=False)
_CONSTANTS = {"true": "True", "false": "False", "null": "None"}
_CONSTANT = re.compile(r"(?<=[:,\[\s])(?:true|false|null)(?=\s*[,}\]])")
_COMMENT = re.compile(r"(?<=[\s,\[{])//[^\n]*")
_OPENING = re.compile(r"\{|\[(?=\s*\{)")
