"""The judge's prompts, one Markdown file each, and the JSON that comes back for them."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from memory.errors import JudgeError
from memory.interfaces import ChatModel, Message
from memory.replies import Form, reply_as
from memory.schema import Usage


@cache
def prompt(name: str) -> str:
    """The text of `judge/prompts/NAME.md`."""
    return (files("judge") / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()


async def ask_json(
    model: ChatModel, messages: Sequence[Message], form: type[Form], tries: int
) -> tuple[Form, Usage]:
    """The model's reply as a value of `form`, asked for at most so often; else JudgeError."""
    return await reply_as(model, messages, form, tries, JudgeError)
