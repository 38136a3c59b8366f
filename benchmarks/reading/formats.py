"""One text in every kind of file: how each marks a power, a note, a merged cell and so on.

`kinds.toml` holds how each kind of file writes it. In a text {sup 5}, {sub 1}, {del old}, {br} and
{note} are marks; a list and a term are texts divided by " / ", and so are the rows of a table.
"""

import json
import quopri
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

_MARK = re.compile(r"\{(sup|sub|del|br|note) ?([^}]*)\}")
_REPEAT = re.compile(r"\{repeat (\d+)\|(.*?)\}", re.S)
_QUOTES: Mapping[str, Callable[[str], str]] = {
    "": str,
    "xml": escape,
    "tex": lambda text: text.replace("%", r"\%"),
    "rtf": lambda text: "".join(c if c.isascii() else rf"\u{ord(c)}?" for c in text),
}
_ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "": str,
    "quopri": lambda body: quopri.encodestring(body.encode()).decode(),
    "json": lambda body: json.dumps(body, ensure_ascii=False)[1:-1],
}
Block = tuple[str, str]
"""its kind, a key of `kinds.toml`, and its text"""


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return out.getvalue()


def repeated(text: str) -> str:
    """A text with its {repeat 3|part #,} written out: "part 1,part 2,part 3,"."""

    def times(found: re.Match[str]) -> str:
        return "".join(found[2].replace("#", str(n)) for n in range(1, int(found[1]) + 1))

    return _REPEAT.sub(times, text)


@cache
def kinds() -> dict[str, dict[str, Any]]:
    """The kinds of files, each with its templates, written out."""
    text = Path(__file__).with_name("kinds.toml").read_text(encoding="utf-8")
    told: dict[str, Any] = tomllib.loads(text)
    names = told.pop("names")

    def written(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: written(each) for name, each in value.items()}
        if not isinstance(value, str):
            return value
        for name, meaning in names.items():
            value = value.replace(f"{{{name}}}", meaning)
        return repeated(value.replace("⏎", "\n"))

    return {
        name: written({**told.get(kind.get("like"), {}), **kind}) for name, kind in told.items()
    }


def file_of(kind: Mapping[str, Any], body: str) -> bytes:
    """The whole file with this body."""
    body = _ENCODINGS[kind.get("encode", "")](body)
    if parts := kind.get("parts"):
        return zipped({name: part.replace("¶", body) for name, part in parts.items()})
    whole: str = kind["file"]
    return whole.replace("¶", body).encode()


def block_of(kind: Mapping[str, Any], block: Block) -> str:
    """A block as a kind of file writes it; "" where that kind cannot."""
    name, source = block
    if name == "table":
        return _table(kind, [row.split("|") for row in source.split(" / ")])
    template: str = kind.get(name, "@\n\n" if name == "para" else "")
    for text in source.split(" / ") if template and name != "formula" else ():
        if not (inner := _inline(kind, text)):
            return ""
        template = template.replace("@", inner, 1)
    return template


def _inline(kind: Mapping[str, Any], text: str) -> str:
    """A text with its marks; "" where the kind of file lacks one of them."""
    found, at = list[str](), 0
    quote, plainly = _QUOTES[kind.get("quote", "")], kind.get("text", "@")
    for mark in _MARK.finditer(text + "{br}"):
        if plain := text[at : mark.start()]:
            found.append(plainly.replace("@", quote(plain)))
        if mark.start() < len(text):
            if mark[1] not in kind:
                return ""
            found.append(kind[mark[1]].replace("@", quote(mark[2])))
        at = mark.end()
    return "".join(found)


def _table(kind: Mapping[str, Any], rows: list[list[str]]) -> str:
    """Rows of cells: "v a" is merged with "^" below it, "> a" with each "<" to its right."""
    merges = kind.get("merges", {})
    if "row" not in kind or not (merges or {""}.issuperset(_merge(c) for row in rows for c in row)):
        return ""
    made = list[str]()
    for row in rows:
        cells = list[str]()
        for column, text in enumerate(row):
            mark = _merge(text)
            plain = kind["cell"] if made else kind.get("first_cell", kind["cell"])
            after = "".join(f"{each:1}"[0] for each in row[column + 1 :])
            span = 1 + len(after) - len(after.lstrip("<"))
            shown = _inline(kind, text.removeprefix(mark).lstrip()).ljust(kind.get("pad", 0))
            cell = merges.get(mark, plain) if mark else plain
            cells.append(cell.replace("§", str(span)).replace("@", shown))
        made.append(kind["row"].replace("@", kind.get("between", "").join(cells)))
    table: str = kind["table"]
    return table.replace("@", made[0] + kind.get("rule", "") + "".join(made[1:]))


def _merge(cell: str) -> str:
    return cell if cell in ("^", "<") else cell[: cell.startswith(("v ", "> "))]
