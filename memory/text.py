"""Texts: foreign ones made safe to store and show, long ones cut to fit, and our prompts.

Text from a model or a page may break an encoding, end a chat turn, or contain what a terminal
obeys: escape sequences, and characters that reorder or hide text. These are removed from what is
shown; line ends and tabs stay.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.parts import own_part, parts_of

Ids = TypeVar("Ids", bound=Sequence[int] | None)

_MARKERS = re.compile(
    # ChatML, Llama, DeepSeek; Gemma 4; Gemma, Llama 2 and T5; Nemotron, Seed, MiniMax; Mistral.
    r"<(?=[|\uff5c][^<>|\uff5c\n]{1,64}[|\uff5c]>|\|[\w\"]{1,32}>|[a-z_]{1,32}\|>"
    r"|/?(?:(?:start|end)_of_(?:turn|image|sentence)|tool_calls?|tool_response|bos|eos|pad|unk|s)>"
    r"|</?SYS>>|(?:extra_id|SPECIAL)_\d{1,4}>|/?(?:seed|minimax):[a-z_]{1,32}>"
    r"|(?:beginning|begin)_of_sentence>)"
    r"|\](?=~!?b[\[\]])|\[(?=e~\[)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|CALL_ID"
    r"|THINK)\]|ARGS\]\s?\{)",
    re.I | re.A,
)
"""the first character of separators between turns in chat templates, whichever model is served"""
_own = set[str]()
"""those of the models that are served here"""
_LONE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with lone surrogates replaced one for one, so that offsets stay valid.

    They come from servers that cut an emoji in two, undecodable arguments and file names, and some
    PDFs; no encoding can write them.
    """
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def without_markers(text: str) -> str:
    """Untrusted text that can end no chat turn; our own tags and everything else stay unchanged."""
    text = _MARKERS.sub("\u2039", text)
    for marker in tuple(_own):
        while marker in text:
            text = text.replace(marker, f"\u2039{marker[1:]}")
    return text


def know_markers(markers: Iterable[str]) -> None:
    """Register a served model's special tokens: from now on they are removed from untrusted text.

    They stay known while the process runs, as text written for one model may be read by another.
    """
    _own.update(marker for marker in markers if marker[:1] not in ("", "\u2039"))


def fence(parts: Mapping[str, str]) -> str:
    """Named untrusted texts between separator lines that occur in none of them."""
    return "\n".join(
        f"[{mark} {name}]\n{without_markers(text) or '(nothing)'}\n[end of {mark} {name}]"
        for name, given in parts.items()
        for text in (storable(given),)
        for mark in (_mark(text),)
    )


LEFT_OUT = " [...] "


def cut(text: str, characters: int | None) -> str:
    """The beginning and end of a text, within this many characters, with a mark for its middle."""
    if characters is None or len(text) <= characters:
        return text
    room = max(characters - len(LEFT_OUT), 2)
    tail = max(room // 3, 1)
    return f"{text[: room - tail]}{LEFT_OUT}{text[-tail:]}"


async def fit(
    ids_of: Callable[[int], Awaitable[Ids]],
    most: int,
    characters: int,
    failure: RubricemError,
    *,
    least: int = 200,
) -> tuple[int, Ids]:
    """The most characters of a text, from this many down, with which a prompt fits `most` tokens.

    `ids_of` makes the prompt's ids with this many characters of the text that may be cut; None:
    they cannot be counted, so it fits. Raises `failure` if not even about `least` characters fit.
    """
    while True:
        ids = await ids_of(characters)
        if ids is None or len(ids) <= most:
            return characters, ids
        if characters <= least:
            raise failure
        characters = int(characters * min(0.85, most / len(ids)))


_FIELD = re.compile(r"\{\{(\w+)\}\}")


@cache
def prompt(room: str, name: str) -> str:
    """The prompt of a room, or a package's replacement for it, named `ROOM.NAME`.

    Raises SettingsError if that has an unknown field.
    """
    file = files(f"rubricem.{room}") / "prompts" / f"{name}.md"
    text = file.read_text(encoding="utf-8").strip()
    if (named := f"{room}.{name}") not in parts_of("prompts"):
        return text
    own = str(own_part("prompts", named)).strip()
    if unknown := set(_FIELD.findall(own)) - set(_FIELD.findall(text)):
        raise SettingsError(
            f"The prompt {named} of a package has the field {{{{{min(unknown)}}}}}, which nothing "
            "fills.",
            f"It may have those of {file}.",
        )
    return own


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{{field}}` replaced, in one pass: fields in values stay."""
    return _FIELD.sub(lambda field: values[field[1]], template)


def _mark(text: str) -> str:
    """Words that do not occur in the text, even if it was written to contain them."""
    digest = digest_of(text)
    marks = (f"text {digest[at : at + 6]}" for at in range(len(digest) - 6))
    return next((mark for mark in marks if mark not in text), f"text {digest}")


def digest_of(text: str, digits: int = 64) -> str:
    """The first hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def seed_of(*named: object) -> int:
    """A seed of 32 bits derived from the arguments, in their order."""
    return int(digest_of("\0".join(map(str, named)), 8), 16)


_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]?"
    r"|\x1b[ -/]*+[0-~]?"
)
_LINE_END = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufdd0-\ufdef\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """The text without anything that a terminal or browser would obey, except markup."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _UNSEEN.sub("", _LINE_END.sub("\n", _ESCAPE_SEQUENCE.sub("", text)))


def with_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """A JSON value with each string, number, boolean and null in it replaced by `change`."""
    if isinstance(value, dict):
        return {name: with_leaves(held, change) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [with_leaves(held, change) for held in value]
    return change(value)


def pluralise(number: int, what: str) -> str:
    """The number and its noun, in the plural unless it is one."""
    ending = "" if number == 1 else "es" if what.endswith(("ch", "s", "x")) else "s"
    return f"{number:,} {what}{ending}"


def one_line(text: str, limit: int = 0) -> str:
    """The printable text on one line, cut with an ellipsis after `limit` characters (0: never)."""
    line = " ".join(printable(text).split())
    return line if not limit or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def split_thinking(raw: str) -> tuple[str, str]:
    """(reasoning, text) of a model's reply, whole or as far as it has arrived.

    Thinking stands at the very start. Its opening tag may be missing, since some chat formats
    write that tag at the end of the prompt; without a closing tag an opened thought is all.
    """
    start, end = "<think>", "</think>"
    begun = raw.lstrip()
    if not begun.startswith(start):
        # The first characters may still grow into the tag.
        if start.startswith(begun):
            return "", ""
        thought, closed, text = raw.partition(end)
        return (thought.strip(), text.lstrip()) if closed else ("", raw)
    thought, _, text = begun.removeprefix(start).partition(end)
    return thought.strip(), text.lstrip()
