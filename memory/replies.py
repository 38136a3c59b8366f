"""JSON that a chat model was asked for: found in its reply, checked, and asked for again."""

import json
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from memory.errors import RubricemError
from memory.interfaces import ChatModel, Message, Sampling
from memory.schema import NO_USAGE, Usage

Form = TypeVar("Form", bound=BaseModel)

MOST_TOKENS = 8192
"""of one reply"""


async def reply_as(
    model: ChatModel,
    messages: Sequence[Message],
    form: type[Form],
    tries: int,
    error: type[RubricemError],
) -> tuple[Form, Usage]:
    """The model's reply as a value of `form`; asked again, with the fault, while it is none.

    Raises `error` after so many tries, PolicyError where the server gave no reply at all.
    """
    talk, used, fault = list(messages), NO_USAGE, ""
    for attempt in range(tries):
        sampling = Sampling(max_tokens=MOST_TOKENS, temperature=0.0, seed=attempt)
        reply = await model.chat(talk, sampling)
        used += reply.usage
        try:
            return form.model_validate(json_object(reply.text)), used
        except ValidationError as wrong:
            first = wrong.errors(include_url=False, include_input=False)[0]
            fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        except ValueError as wrong:
            fault = str(wrong)
        again = f"That reply cannot be used ({fault}). Write the whole JSON object again."
        talk = [*messages, Message("assistant", reply.text), Message("user", again)]
    raise error(
        f"{model.name} gave no usable JSON in {tries} tries: {fault}",
        "Use a stronger model for it.",
    )


def json_object(text: str) -> object:
    """The first whole JSON object in a text, whatever stands around it. Raises ValueError."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            return decoder.raw_decode(text, at)[0]
        except ValueError:
            at = text.find("{", at + 1)
    raise ValueError("there is no JSON object in it")
