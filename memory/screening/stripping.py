"""A model's text reduced to what it says: no markup, no tool call, no address, nothing unseen.

What is taken out leaves the words around it as they stand. Addresses are also reported, because
a text that names one wants its reader to go there.
"""

import html
import re
import unicodedata
from dataclasses import dataclass

from rubricem.memory.text import printable

ROUNDS = 4
"""taking out a tag may join the halves of another; what still looks like one is then no tag"""

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,30});")
_UNSEEN = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u3164\uffa0\U000e0080-\U000e01ef]"
)
_MARKERS = re.compile(
    r"<[|\uff5c][^<>|\uff5c\n]{1,64}[|\uff5c]>"
    r"|</?(?:start_of_turn|end_of_turn|bos|eos|s)>|<</?SYS>>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\]",
    re.I | re.A,
)
_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<\s*(script|style|template)\b[^>]*>.*?(?:<\s*/\s*\1\s*>|\Z)", re.I | re.S
)
_CALLS = re.compile(
    r"<\s*(call_tool|tool_call|tool_output|tool_response|function_call|invoke)\b[^>]*>"
    r"(?:[\s\S]{0,2000}?<\s*/\s*\1\s*>|[^\n]*)"
    r'|\{\s*"(?:name|tool|function|action|tool_calls?)"\s*:'
    r"(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\}"
    r"|^[ \t]*(?:[-*+][ \t]*)?(?:search|tool(?: call)?|action input|open[_ ]page)[ \t]*:[^\n]*$"
    r"|(?<![\w.])(?:search|open_page|call_tool)\(\s*[\"'][^()\n]*\)",
    re.I | re.M,
)
_LINK = re.compile(
    r"!?\[([^\[\]\n]{0,300})\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)?\)|\[[^\[\]\n]*\])"
)
_REFERENCE = re.compile(r"^[ \t]*\[[^\]\n]+\]:[ \t]*\S[^\n]*$", re.M)
_GENERIC = re.compile(
    r"(?<=\w)<(?!(?:[abipqsu]|em|tt|h[1-6]|hr|kbd|sub|sup|del|ins|code|span|font|mark|strong)>)"
    r"([A-Za-z][\w. ]{0,60})>"
)
"""what programs write and HTML does not: it is no tag, and must not look like one"""
_BREAK = re.compile(r"</?(?:br|p|li|ul|ol|div|tr|td|h[1-6])\b[^<>]*>", re.I)
_TAG = re.compile(
    r"<\s*+/?+\s*+[A-Za-z_][\w:.-]*+\s*+/?+\s*+>"
    r"|</?[A-Za-z_][\w:.-]*+\s[^<>]*>"
    r"|<\s*+/?+\s*+[A-Za-z_][\w:.-]*+\s++[\w:-]++\s*+=[^<>]*>"
    r"|<[!?][^<>]*>"
)

_PORT_AND_PATH = r"(?::\d+)?(?:[/?#][^\s<>\"']*)?"
_LABELS = r"(?<![\w.@/-])(?:[a-z0-9][a-z0-9-]{0,62}\.){1,6}"
_ADDRESS = re.compile(
    r"\b(?:[a-z][a-z0-9+.-]{1,15}://|(?:mailto|javascript):|data:[a-z]+/|www\.)[^\s<>\"']+"
    r"|\b[\w.+-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,5}\.[a-z]{2,}\b"
    rf"|{_LABELS}(?:com|org|(?-i:net)|edu|gov|mil|onion|xyz|biz|ru|cn|tk|club|online|shop|example"
    rf"|invalid)\b(?!\.?\w|\(){_PORT_AND_PATH}"
    # Endings that are also names in programs: only what goes on like an address is one.
    rf"|{_LABELS}[a-z]{{2,10}}(?::\d+)?/[^\s<>\"']*"
    r"|(?:(?<=\bvisit )|(?<=\bsite )|(?<=\bdomain ))[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,6}"
    rf"|\b(?!127\.|0\.|255\.)\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b(?!\.){_PORT_AND_PATH}"
    r"|\blocalhost:\d+[^\s<>\"']*"
    r"|\b[\w-]{1,63}(?:\s?[\[({]\s?(?:\.|dot)\s?[\])}]\s?|\sdot\s)(?:com|org|net|io|dev|ai|ru)\b",
    re.I | re.A,
)
_PATH = re.compile(
    r"(?<![\w./<~])(?:~|\.{1,2})?/(?:[\w.@+-]+/)+[\w.@+-]*|(?<!\w)(?:~|\.\.)/[\w.@+-]+"
    r"|\b[A-Za-z]:\\[^\s\"']+|\\\\\w+\\[^\s\"']+"
)
_LEFT_ALONE = re.compile(
    r"(?<=\s)[(\[{<\"'\u2039] ?[)\]}>\"'\u203a](?=[\s.,;:!?]|$)| (?=[.,;:!?](?:\s|$))", re.M
)
_TWICE = re.compile(r"([,;:]) ?(?=[,;:.!?])")
_NO_WORD = re.compile(r"^[^\w\n]+$", re.M)


@dataclass(frozen=True, slots=True)
class Stripped:
    """The text as it may be kept, and what was found in it on the way."""

    text: str
    addresses: tuple[str, ...]
    unseen: int
    """characters that nobody would have seen"""
    markers: tuple[str, ...]
    """of chat templates"""
    hidden: bool
    """it held a part that no page would have shown"""


def stripped(text: str) -> Stripped:
    """What a text says, in lines; never longer than it was."""
    shown = visible(text)
    unseen = len(re.sub("[\r\n]", "", text)) - len(re.sub("[\r\n]", "", shown))
    markers = tuple(_MARKERS.findall(entities_read(shown)))
    hidden = _HIDDEN.search(entities_read(shown)) is not None
    plain = shown
    for _ in range(ROUNDS):
        before, plain = plain, _without_markup(plain)
        if plain == before:
            break
    addresses = tuple(match.group().rstrip(".,;:!?)]}'\"") for match in _ADDRESS.finditer(plain))
    return Stripped(
        _tidy(_PATH.sub("", _ADDRESS.sub("", plain))), addresses, unseen, markers, hidden
    )


def visible(text: str) -> str:
    """The text with nothing in it that takes no room on a page."""
    return unicodedata.normalize("NFC", _UNSEEN.sub("", printable(text)))


def entities_read(text: str) -> str:
    """The text with its HTML character references read."""
    return _ENTITY.sub(lambda match: html.unescape(match.group()), text)


def _without_markup(text: str) -> str:
    text = _HIDDEN.sub(" ", _MARKERS.sub("", entities_read(text)))
    text = _LINK.sub(r"\1", _REFERENCE.sub("", _CALLS.sub(" ", text)))
    return _TAG.sub("", _GENERIC.sub(r"[\1]", _BREAK.sub("\n", text)))


def _tidy(text: str) -> str:
    lines = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    for left, instead in ((_LEFT_ALONE, ""), (_TWICE, ""), (_NO_WORD, "")):
        lines = left.sub(instead, lines)
    return re.sub(r"\n{3,}", "\n\n", lines).strip()
