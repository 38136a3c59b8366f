"""Untrusted text as Markdown: its structure may stay, but no markup, link or image comes alive.

`prose` keeps what an answer is written in (headings, lists, emphasis, code); `literal` keeps
nothing, for titles, paths and quotes. HTML is escaped as entities in both, and brackets by a
backslash, so that neither links nor link definitions can be formed. Only `link` makes one, and
only to http and https.
"""

import re
from urllib.parse import urlsplit

from agent.reports.printable import one_line

_FENCE = re.compile(r"(`{3,})[^`]*$")
_CODE = re.compile(r"(?<![\\`])`([^`\n]+)`(?!`)")
_INERT_CODE = re.compile(r"(?!.*[<&]|.*\]\(|.*!\[)")
_SPECIAL = re.compile(r"[\\`*\[\]~|]|(?<!\w)_|_(?!\w)|^[#+=-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]")
_URL_UNSAFE = re.compile(r"[\s<>\"'\\^`{|}()]|[^\x21-\x7e]")


def prose(text: str) -> str:
    """A printable text with its structure kept and everything else of Markdown taken away."""
    lines, fence = [], ""
    for line in text.splitlines():
        # A fence is trusted only at the margin: elsewhere its end depends on the block around it.
        mark = _FENCE.match(line)
        if fence:
            lines.append(line)
            fence = "" if re.fullmatch(rf" {{0,3}}{fence}`*[ \t]*", line) else fence
        elif mark:
            fence = mark[1]
            lines.append(line)
        else:
            lines.append(_spans(line))
    return "\n".join([*lines, fence] if fence else lines)


def literal(text: str) -> str:
    """The text on one line, with every character escaped that means something there."""
    return _entities(_SPECIAL.sub(r"\\\g<0>", one_line(text)))


def web_address(location: str) -> str | None:
    """The location as an address that is safe to link, or None where it is no http(s) url."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return None
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        return None
    return _URL_UNSAFE.sub(lambda c: "".join(f"%{b:02X}" for b in c[0].encode()), location.strip())


def link(title: str, location: str) -> str:
    """The title, linked where the location is a web address."""
    address = web_address(location)
    return f"[{literal(title)}]({address})" if address else literal(title)


def _spans(line: str) -> str:
    parts, at = [], 0
    for code in _CODE.finditer(line):
        parts += [_text(line[at : code.start()]), _code(code)]
        at = code.end()
    return "".join([*parts, _text(line[at:])])


def _code(code: re.Match[str]) -> str:
    """Code as it is, or as an element where a renderer that sees no code could be misled."""
    if _INERT_CODE.match(code[1]):
        return code[0]
    return f"<code>{literal(code[1])}</code>"


def _text(text: str) -> str:
    return _entities(re.sub(r"[\[\]]", r"\\\g<0>", text))


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
