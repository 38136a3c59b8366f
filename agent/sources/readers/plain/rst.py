"""reStructuredText, with the directives and roles of Sphinx.

docutils was tried: it needs ten times as long, and loses what stands in directives it does not
know, as most of Sphinx's.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from textwrap import dedent

from rubricem.agent.sources.readers.document import Document, Input, Section, title_of
from rubricem.agent.sources.readers.encoding import decode
from rubricem.agent.sources.readers.plain import writing

_RULE = re.compile(r"([=\-~^\"'`#*+.:_<>!$%&,;?@/|\\])\1{2,}\s*\Z")
_DIRECTIVE = re.compile(r"\.\.\s+(?:\|([^|]{1,99})\|\s+)?([\w:.+-]{1,60})::(?:\s+(.*))?\Z")
_NOTE = re.compile(r"\.\.\s+\[(#?[\w.-]{0,60}|\*)\]\s*(.*)\Z")
_BULLET = re.compile(r"([-*+•‣])(\s+)(?=\S)")
_NUMBER = re.compile(r"(\(?(?:\d{1,4}|#|[a-zA-Z]|[ivxIVX]{1,6})[.)])(\s+)(?=\S)")
_FIELD = re.compile(r":([^:\s][^:\n]{0,99}):(?:\s+(.*))?\Z")
_LINE = re.compile(r"\|(?:\s|\Z)")
_SIMPLE = re.compile(r"=+(?:\s+=+)+\s*\Z")
_GRID = re.compile(r"\+(?:[-=]+\+)+\s*\Z")
_INLINE = re.compile(
    r"``(?P<code>(?:[^`]|`(?!`)){1,1000}?)``"
    r"|:(?P<role>[\w:.+-]{1,60}):`(?P<of>[^`]{1,1000})`"
    r"|`(?P<link>[^`]{1,1000})`(?:__?|:(?P<after>[\w:.+-]{1,60}):)?"
    r"|\*\*(?P<strong>[^*\n]{1,1000})\*\*|\*(?P<em>[^*\s][^*\n]{0,1000})\*"
    r"|[ \t]?\[(?P<note>#?[\w.-]{0,60}|\*)\]_|\|(?P<known>[^|\s][^|\n]{0,99})\|_{0,2}"
    r"|\\(?P<plain>.)|(?<![\w_])(?P<word>\w{1,60})__?(?![\w_])"
)
_VERBATIM = frozenset((
    "code", "code-block", "sourcecode", "parsed-literal", "literal", "highlight", "prompt",
    "doctest", "testcode", "console", "ipython", "graphviz", "productionlist",
))  # fmt: skip
_LEFT_OUT = frozenset((
    "toctree", "contents", "include", "raw", "index", "meta", "highlight", "currentmodule",
    "module", "default-role", "role", "sectnum", "header", "footer", "target-notes",
    "autosummary", "tabularcolumns", "testsetup", "testcleanup", "literalinclude",
))  # fmt: skip
_DEEPEST = 40


class _Rst:
    """Blocks of lines on their way into HTML."""

    def __init__(self) -> None:
        self._levels: list[str] = []
        self.notes: list[str] = []
        self._marks: list[str] = []
        """names of the notes that have no number of their own, in their order"""
        self._known: dict[str, str] = {}
        self.fields: dict[str, str] = {}

    def page(self, lines: list[str]) -> str:
        for line in lines:
            if (
                (found := _DIRECTIVE.match(line))
                and found[1]
                and found[2] in ("replace", "unicode")
            ):
                self._known[found[1]] = found[3] or ""
        self._marks = [m[1] for m in map(_NOTE.match, lines) if m and m[1][:1] in "#*"]
        return self.blocks(lines, 0) + "".join(self.notes)

    def blocks(self, lines: Sequence[str], level: int) -> str:
        if level > _DEEPEST:
            return writing.code("\n".join(lines))
        parts: list[str] = []
        at = 0
        while at < len(lines):
            if not lines[at].strip():
                at += 1
                continue
            told, at = self._block(lines, at, level)
            parts.append(told)
        return "".join(parts)

    def _block(self, lines: Sequence[str], at: int, level: int) -> tuple[str, int]:
        """(the block that begins at a line, the line behind it)."""
        line = lines[at]
        if line[0].isspace():
            end = _indented(lines, at)
            inner = self.blocks(_dedented(lines[at:end]), level + 1)
            return f"<blockquote>{inner}</blockquote>", end
        if heading := self._heading(lines, at):
            return heading
        if line.startswith(".. ") or line.rstrip() == "..":
            end = _indented(lines, at + 1)
            return self._explicit(line, _dedented(lines[at + 1 : end]), level), end
        if _SIMPLE.match(line) or _GRID.match(line):
            end = next((n for n in range(at, len(lines)) if not lines[n].strip()), len(lines))
            if _SIMPLE.match(line):
                end = _end_of_simple(lines, at)
                return writing.table(*self._simple(lines[at:end])), end
            return writing.table(*self._grid(lines[at:end])), end
        if _BULLET.match(line) or _NUMBER.match(line):
            return self._list(lines, at, level)
        if found := _FIELD.match(line):
            return self._field(lines, at, found)
        if line.startswith(">>> "):
            end = next((n for n in range(at, len(lines)) if not lines[n].strip()), len(lines))
            return writing.code("\n".join(lines[at:end])), end
        return self._paragraph(lines, at, level)

    def _heading(self, lines: Sequence[str], at: int) -> tuple[str, int] | None:
        line = lines[at]
        below = lines[at + 1] if at + 1 < len(lines) else ""
        over = _RULE.match(line)
        if (
            over
            and at + 2 < len(lines)
            and below.strip()
            and lines[at + 2].rstrip() == line.rstrip()
        ):
            return self._named(over[1] * 2, below.strip()), at + 3
        if over:
            return "<hr>", at + 1
        rule = _RULE.match(below)
        if rule and len(below.rstrip()) >= len(line.rstrip()) and not line.startswith(".. "):
            return self._named(rule[1], line.strip()), at + 2
        return None

    def _named(self, style: str, name: str) -> str:
        if style not in self._levels:
            self._levels.append(style)
        level = min(self._levels.index(style) + 1, 6)
        return f"<h{level}>{self.inline(name)}</h{level}>\n"

    def _paragraph(self, lines: Sequence[str], at: int, level: int) -> tuple[str, int]:
        end = next(
            (n for n in range(at + 1, len(lines)) if not lines[n].strip() or lines[n][0].isspace()),
            len(lines),
        )
        if (
            end == at + 1
            and end < len(lines)
            and lines[end].strip()
            and not lines[at].startswith("|")
        ):
            behind = _indented(lines, end)
            meaning = self.blocks(_dedented(lines[end:behind]), level + 1)
            return f"<dl><dt>{self.inline(lines[at].strip())}</dt><dd>{meaning}</dd></dl>", behind
        own = [line.strip() for line in lines[at:end]]
        if _LINE.match(own[0]):
            told = "<br>".join(self.inline(line.removeprefix("|").strip()) for line in own)
            return f"<p>{told}</p>\n", end
        text = " ".join(own)
        if not text.endswith("::"):
            return f"<p>{self.inline(text)}</p>\n", end
        behind = _indented(lines, end)
        text = "" if text == "::" else text[:-1]
        literal = writing.code(dedent("\n".join(lines[end:behind])).strip("\n"))
        return (f"<p>{self.inline(text)}</p>\n" if text else "") + literal, behind

    def _list(self, lines: Sequence[str], at: int, level: int) -> tuple[str, int]:
        element = "ul" if _BULLET.match(lines[at]) else "ol"
        kind = _BULLET if element == "ul" else _NUMBER
        items: list[str] = []
        while at < len(lines) and (found := kind.match(lines[at])):
            end = _indented(lines, at + 1)
            body = [" " * found.end() + lines[at][found.end() :], *lines[at + 1 : end]]
            items.append(f"<li>{self.blocks(_dedented(body), level + 1)}</li>")
            at = end
            while at < len(lines) and not lines[at].strip():
                at += 1
        return f"<{element}>{''.join(items)}</{element}>\n", at

    def _field(self, lines: Sequence[str], at: int, found: re.Match[str]) -> tuple[str, int]:
        end = _indented(lines, at + 1)
        text = " ".join([found[2] or "", *(line.strip() for line in lines[at + 1 : end])]).strip()
        name = found[1].strip()
        if not self._levels or len(self._levels) == 1:
            self.fields.setdefault(name.lower(), text)
        return (f"<p>{self.inline(name)}: {self.inline(text)}</p>\n" if text else ""), end

    def _explicit(self, line: str, body: list[str], level: int) -> str:
        """A directive, a note or a comment."""
        if found := _NOTE.match(line):
            text = " ".join([found[2], *(each.strip() for each in body)]).strip()
            self.notes.append(
                writing.note(self._mark(found[1]), self.inline(text), self._mark(found[1]))
            )
            return ""
        if not (found := _DIRECTIVE.match(line)):
            return ""
        _, name, argument = found.groups()
        options = 0
        while options < len(body) and re.match(r":[\w-]+:", body[options]):
            options += 1
        settings, body = body[:options], body[options:]
        return self._directive(name.lower(), (argument or "").strip(), settings, body, level + 1)

    def _directive(
        self, name: str, argument: str, settings: list[str], body: list[str], level: int
    ) -> str:
        text = "\n".join(body).strip("\n")
        if name in _LEFT_OUT or name in ("replace", "unicode"):
            return ""
        if name in _VERBATIM:
            return writing.code(dedent(text))
        if name == "math":
            parts = re.split(r"\n\s*\n", "\n".join(filter(None, (argument, text))))
            return "".join(
                f"<p>{writing.formula(each, display=True)}</p>" for each in parts if each.strip()
            )
        if name in ("image", "figure"):
            alt = next((s.partition("alt:")[2] for s in settings if s.startswith(":alt:")), "")
            return (f"<p>{self.inline(alt.strip())}</p>" if alt else "") + self.blocks(body, level)
        if name in ("csv-table", "list-table", "table"):
            return self._table(name, argument, settings, body, level)
        if name in ("rst-class", "class", "only", "container", "compound", "epigraph"):
            return self.blocks(body, level)
        if name.startswith(("versionadded", "versionchanged", "deprecated")):
            kind = {"versionadded": "New in", "versionchanged": "Changed in"}.get(
                name, "Deprecated since"
            )
            rest = " ".join(line.strip() for line in body)
            return f"<p>{self.inline(f'{kind} version {argument}: {rest}'.rstrip(': '))}</p>"
        if ":" in name or name.startswith(
            ("auto", "function", "class", "method", "data", "option")
        ):
            signature = "\n".join([argument, *(s for s in settings if not s.startswith(":"))])
            return f"<dl><dt>{escape(signature)}</dt><dd>{self.blocks(body, level)}</dd></dl>"
        # An admonition, whose argument is the beginning of its text, or what is unknown.
        told = self.blocks([argument, *body] if argument else body, level)
        if name in ("topic", "sidebar", "rubric", "admonition"):
            return f"<blockquote>{told}</blockquote>"
        lead = f"<p>{name.capitalize()}: "
        told = told.replace("<p>", lead, 1) if told.startswith("<p>") else f"{lead}</p>{told}"
        return f"<blockquote>{told}</blockquote>"

    def _table(
        self, name: str, argument: str, settings: list[str], body: list[str], level: int
    ) -> str:
        above = f"<p>{self.inline(argument)}</p>" if argument else ""
        parted = (each[1:].partition(":") for each in settings)
        options = {option: value.strip() for option, _, value in parted}
        if name == "table":
            return above + self.blocks(body, level)
        headers = int(options.get("header-rows") or 0)
        if name == "csv-table":
            lines = [line for line in body if line.strip()]
            head = [options["header"]] if "header" in options else []
            rows = list(csv.reader([*head, *lines], skipinitialspace=True))
            headers += "header" in options
        else:
            rows = [[" ".join(cell) for cell in _items(row)] for row in _items(body)]
        return above + writing.table(
            [[self.inline(cell.strip()) for cell in row] for row in rows], headers or None
        )

    def _simple(self, lines: Sequence[str]) -> tuple[list[list[str]], int | None]:
        """Rows of a table whose columns are as wide as its rules, and how many are its header."""
        spans = [found.span() for found in re.finditer("=+", lines[0])]
        rows: list[list[str]] = []
        headers: int | None = None
        for line in lines[1:-1]:
            if _SIMPLE.match(line):
                headers = len(rows) if headers is None else headers
                continue
            if not line.strip() or re.match(r"[- ]+\Z", line):
                continue
            cells = [line[a:b] for a, b in spans[:-1]] + [line[spans[-1][0] :]]
            if rows and not cells[0].strip() and len(rows) != headers:
                rows[-1] = [f"{a} {b.strip()}" for a, b in zip(rows[-1], cells, strict=True)]
            else:
                rows.append(cells)
        return [[self.inline(cell.strip()) for cell in row] for row in rows], headers

    def _grid(self, lines: Sequence[str]) -> tuple[list[list[str]], int | None]:
        edges = [at for at, sign in enumerate(lines[0]) if sign == "+"]
        rows: list[list[str]] = []
        headers: int | None = None
        new = True
        for line in lines[1:]:
            if line.startswith("+") and set(line.strip()) <= set("+-="):
                new = True
                headers = len(rows) if "=" in line else headers
                continue
            cells = [line[a + 1 : b].strip(" |") for a, b in pairwise(edges)]
            if new or not rows:
                rows.append(cells)
            else:
                rows[-1] = [f"{a} {b}".strip() for a, b in zip(rows[-1], cells, strict=True)]
            new = False
        return [[self.inline(cell) for cell in row] for row in rows], headers

    def _mark(self, name: str) -> str:
        """The number of a note, or the name of what is cited."""
        if name[:1] in ("#", "*"):
            at = self._marks.index(name) if name in self._marks else 0
            return str(at + 1)
        return name

    def inline(self, text: str) -> str:
        parts, at = list[str](), 0
        for found in _INLINE.finditer(text):
            parts += (escape(text[at : found.start()], quote=False), self._inline(found))
            at = found.end()
        return "".join((*parts, escape(text[at:], quote=False)))

    def _inline(self, found: re.Match[str]) -> str:
        if told := found["code"]:
            return f"<code>{escape(told, quote=False)}</code>"
        if told := found["of"] or found["link"]:
            return _of_role(found["role"] or found["after"] or "", told)
        if (name := found["note"]) is not None:
            return writing.note_link(self._mark(name))
        if known := found["known"]:
            return escape(self._known.get(known, known), quote=False)
        if (plain := found["plain"]) is not None:
            return "" if plain.isspace() else escape(plain, quote=False)
        told = found["strong"] or found["em"] or found["word"] or ""
        return self.inline(told) if found["strong"] else escape(told, quote=False)


def _of_role(role: str, text: str) -> str:
    base = role.rpartition(":")[2]
    if base in ("sup", "superscript", "sub", "subscript"):
        element = base[:3]
        return f"<{element}>{escape(text, quote=False)}</{element}>"
    if base == "math":
        return writing.formula(text)
    if base in ("code", "literal", "samp"):
        return f"<code>{escape(text, quote=False)}</code>"
    told = re.sub(r"\s*<[^<>]{1,400}>\Z", "", text) or text.strip("<>")
    if role and told.startswith("~"):
        told = told[1:].rpartition(".")[2]
    return escape(told.removeprefix("!"), quote=False)


def _indented(lines: Sequence[str], at: int) -> int:
    """The line behind the indented ones that begin at a line, without empty ones at the end."""
    end = at
    for number in range(at, len(lines)):
        if lines[number].strip():
            if not lines[number][0].isspace():
                break
            end = number + 1
    return end


def _dedented(lines: Sequence[str]) -> list[str]:
    """The lines at the margin; of a first line that stands elsewhere, the others decide."""
    return dedent("\n".join(lines)).split("\n") if lines else []


def _end_of_simple(lines: Sequence[str], at: int) -> int:
    rules = 0
    for number in range(at, len(lines)):
        if _SIMPLE.match(lines[number]):
            rules += 1
            after = lines[number + 1].strip() if number + 1 < len(lines) else ""
            if rules >= 2 and not after:
                return number + 1
    return len(lines)


def _items(lines: Sequence[str]) -> Iterator[list[str]]:
    """The bodies of a list's items."""
    item: list[str] = []
    for line in lines:
        if re.match(r"[*-](?:\s|\Z)", line):
            if item:
                yield item
            item = [line[2:]]
        elif item and line.strip():
            item.append(line[2:] if line.startswith("  ") else line)
    if item:
        yield item


def rst_sections(text: str) -> tuple[Section, ...]:
    """Sections by underlined heading; the first use of an underline decides its level."""
    return writing.sections_of(f"<body>{_Rst().page(text.expandtabs(8).splitlines())}</body>")


def read_rst(given: Input) -> Document:
    text, said = decode(given.content())
    reader = _Rst()
    sections = writing.sections_of(f"<body>{reader.page(text.expandtabs(8).splitlines())}</body>")
    fields = reader.fields
    tags = tuple(
        filter(None, re.split(r"[,;]\s*", fields.get("tags") or fields.get("keywords", "")))
    )
    return Document(title_of(sections, given.stem), sections, said, fields.get("date", ""), tags)


READERS = dict.fromkeys((".rst", ".rest"), read_rst)
