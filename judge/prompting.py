"""The judge's prompts, one Markdown file each, and the JSON that comes back for them."""

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from memory.errors import JudgeError
from memory.interfaces import ChatModel, Message, Sampling
from memory.schema import NO_USAGE, Usage

Form = TypeVar("Form", bound=BaseModel)

MOST_TOKENS = 8192
"""of one reply"""


@cache
def prompt(name: str) -> str:
    """The text of `judge/prompts/NAME.md`."""
    return (files("judge") / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()


async def ask_json(
    model: ChatModel, messages: Sequence[Message], form: type[Form], tries: int
) -> tuple[Form, Usage]:
    """The model's reply as a value of `form`; asked again, with the fault, while it is none.

    Raises JudgeError after so many tries, PolicyError where the server gave no reply at all.
    """
    talk, used, fault = list(messages), NO_USAGE, ""
    for attempt in range(tries):
        sampling = Sampling(max_tokens=MOST_TOKENS, temperature=0.0, seed=attempt)
        reply = await model.chat(talk, sampling)
        used += reply.usage
        try:
            return form.model_validate(json_object(reply.text)), used
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        except ValueError as error:
            fault = str(error)
        again = f"That reply cannot be used ({fault}). Write the whole JSON object again."
        talk = [*messages, Message("assistant", reply.text), Message("user", again)]
    raise JudgeError(
        f"{model.name} gave no usable JSON in {tries} tries: {fault}",
        "Use a stronger judge model.",
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
