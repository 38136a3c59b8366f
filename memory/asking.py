"""Ask a chat model for JSON of a given form, and again while the reply is none.

Where the server can hold a model to a schema it is told the form's; whatever comes is read
tolerantly all the same, since many servers ignore it. A reply that does not fit is asked for
again, with what was wrong, a bounded number of times. What was paid is counted for every call,
also where no usable reply came: the error then carries it as `usage`.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ValidationError

from rubricem.memory.errors import JudgeError, RubricemError
from rubricem.memory.interfaces import ChatModel, Completion, Message, Sampling
from rubricem.memory.schema import NO_USAGE, Usage
from rubricem.memory.text import cut

Form = TypeVar("Form", bound=BaseModel)

TRIES = 3
"""replies asked for before a judge that writes no usable JSON has failed"""
MOST_TOKENS = 8192
"""of one reply"""
SHOWN_CHARACTERS = 20_000
"""of a bad reply that is shown to the model again"""
_KEPT = frozenset({"type", "properties", "items", "required", "enum", "const", "anyOf", "$ref"})


@runtime_checkable
class Forgetting(Protocol):
    """A model that keeps its replies, and can be told that one was of no use."""

    async def forget(self, messages: Sequence[Message], sampling: Sampling) -> None: ...


async def ask_json(
    model: ChatModel,
    messages: Sequence[Message],
    form: type[Form],
    tries: int = TRIES,
    *,
    seed: int = 0,
    temperature: float = 0.0,
    failure: type[RubricemError] = JudgeError,
) -> tuple[Form, Usage]:
    """The model's reply as a value of `form`, and what all calls for it cost.

    `form` may check the whole reply by a validator: what that raises is told to the model.
    Raises `failure` after so many tries, PolicyError where the server gave no reply at all;
    both carry the usage of the calls that were paid for.
    """
    talk, used, fault = list(messages), NO_USAGE, ""
    schema = _written_schema(form)
    for attempt in range(tries):
        sampling = Sampling(
            max_tokens=MOST_TOKENS,
            temperature=temperature,
            seed=seed * tries + attempt,
            json_schema=schema,
        )
        reply, used = await counted(model, talk, sampling, used)
        try:
            return parsed(reply, form), used
        except ValueError as error:
            fault = str(error)
        if isinstance(model, Forgetting):
            await model.forget(talk, sampling)
        talk = [*messages, *_correction(reply.text, fault)]
    raise failure(
        f"{model.name} gave no usable JSON in {tries} tries: {fault}",
        "Use a stronger model for it.",
        used,
    )


async def counted(
    model: ChatModel, messages: Sequence[Message], sampling: Sampling, before: Usage = NO_USAGE
) -> tuple[Completion, Usage]:
    """One reply, and its usage added to what was paid before; an error carries the sum too."""
    try:
        reply = await model.chat(messages, sampling)
    except RubricemError as error:
        error.usage = before + spent(error)
        raise
    return reply, before + reply.usage


def spent(error: RubricemError) -> Usage:
    """What had been paid when the error came."""
    return error.usage or NO_USAGE


def parsed(reply: Completion, form: type[Form]) -> Form:
    """The last JSON object in a reply that fits the form: earlier ones may be quoted by it.

    Raises ValueError saying the fault.
    """
    fault = ""
    for value in reversed(list(json_objects(reply.text))):
        try:
            return form.model_validate(value)
        except ValidationError as error:
            fault = fault or _first(error)
    if reply.stop_reason == "length":
        raise ValueError("it was cut off at the longest length allowed; write less")
    # An object inside a broken one is not what was asked for, so its own fault misleads.
    raise ValueError(broken(reply.text) or fault or "there is no JSON object in it")


def json_objects(text: str) -> Iterator[Any]:
    """The whole JSON objects in a text from left to right, none inside another."""
    at = text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield value
        at = text.find("{", end)


def broken(text: str) -> str:
    """What is wrong with the JSON that a text holds from its first brace that opens a name."""
    opening = next((at for at in range(len(text)) if _opens(text, at)), -1)
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
def _written_schema(form: type[BaseModel]) -> str:
    return json.dumps(schema_of(form), sort_keys=True)


def schema_of(form: type[BaseModel]) -> dict[str, Any]:
    """The form's JSON schema without bounds: grammars of bounded lengths take servers minutes."""
    full = form.model_json_schema()
    shapes = {name: _plain(shape) for name, shape in full.get("$defs", {}).items()}
    return _plain(full) | ({"$defs": shapes} if shapes else {})


def _plain(shape: dict[str, Any]) -> dict[str, Any]:
    """Of a schema what says which fields there are, and of which type."""
    kept = {name: value for name, value in shape.items() if name in _KEPT}
    if "properties" in kept:
        kept["properties"] = {k: _plain(v) for k, v in kept["properties"].items()}
    if isinstance(kept.get("items"), dict):
        kept["items"] = _plain(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [_plain(one) for one in kept["anyOf"]]
    return kept


def _correction(reply: str, fault: str) -> list[Message]:
    """The bad reply and what is wrong with it; servers refuse a message without a text."""
    again = f"That reply cannot be used ({fault}). Write the whole JSON object again."
    said = [Message("assistant", cut(reply, SHOWN_CHARACTERS))] if reply.strip() else []
    return [*said, Message("user", again)]


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


def _opens(text: str, at: int) -> bool:
    return text[at] == "{" and text[at + 1 :].lstrip().startswith(('"', "}"))


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number that JSON knows")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
