"""Text of models and pages, made safe to show: no escape sequence, no control character.

A terminal obeys escape sequences, and a reader is misled by characters that reorder or hide
text; both can stand in a fetched page. They are taken out, line ends and tabs stay.
"""

import re

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
    """The text with nothing in it that a terminal or browser would act on, save markup."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _UNSEEN.sub("", _LINE_END.sub("\n", _ESCAPE_SEQUENCE.sub("", text)))


def printable_json(json_text: str) -> str:
    """JSON that says the same, with an escape for whatever a terminal would act on or not show."""
    return "".join(c if c.isprintable() or c in "\n " else _escaped(c) for c in json_text)


def _escaped(character: str) -> str:
    code = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))


def one_line(text: str, limit: int = 0) -> str:
    """The printable text on one line, cut with an ellipsis after `limit` characters (0: never)."""
    line = " ".join(printable(text).split())
    return line if not limit or len(line) <= limit else line[: limit - 1].rstrip() + "…"
