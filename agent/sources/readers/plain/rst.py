"""reStructuredText, with the directives and roles of Sphinx.

docutils was measured: of one megabyte it makes HTML in 7 s and 180 MB where it is dense, and in 2.4
where it is CMake's manual, for which this takes 0.3; and what stands in a directive that it does
not know, as most of Sphinx's, is lost.
"""

import csv
import re
from collections.abc import Callable, Iterable
from itertools import compress, pairwise
from textwrap import dedent

from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.plain.writing import (
    Inline,
    Markup,
    formula,
    plain,
    shown_formula,
    table,
    word_of_code,
)

_RULE = re.compile(r"([=\-~^\"'`#*+.:_<>!$%&,;?@/|\\])\1{2,}\s*\Z")
_ITEMS = re.compile(r"^[*-](?: |$)", re.M)
_DIRECTIVE = r"\.\.\s+(?:\|([^|]{1,99})\|\s+)?([\w:.+-]{1,60})::(?:\s+(.*))?\Z"
_NAMES = names_of("rst")


class Rst(Markup):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._levels: list[str] = []
        self._counts = {"refer": 0, "note": 0}
        """of notes that have neither number nor name"""
        found = (re.match(_DIRECTIVE, line) for line in self.lines)
        self._known = {m[1]: m[3] or "" for m in found if m and m[1]}
        self.inline = Inline(
            r"[`:*\[|\\\w \t]",
            {
                r"``((?:[^`]|`(?!`)){1,1000}?)``": word_of_code,
                r":([\w:.+-]{1,60}):`([^`]{1,1000})`": self._of_role,
                r"`([^`]{1,1000})`(?:__?|:([\w:.+-]{1,60}):)?":
                    lambda text, role: self._of_role(role, text),
                r"\*\*([^*\n]{1,1000})\*\*": "{}",
                r"\*([^*\s][^*\n]{0,1000})\*": plain,
                r"[ \t]{0,9}\[(\d{1,9}|#[\w.-]{0,60}|\*)\]_":
                    lambda name: self.page.refer(self._name(name, "refer")),
                r"(\[[\w.-]{1,60}\])_": plain,
                r"\|([^|\s][^|\n]{0,99})\|_{0,2}":
                    lambda name: plain(self._known.get(name) or name),
                r"\\(.)": lambda sign: plain(sign.strip()),
                r"(?<!\w)(\w{1,60})__?(?!\w)": plain,
            },
        )  # fmt: skip
        self.rules = {
            "": self._heading,
            r"\.\.\s+\[(#?[\w.-]{0,60}|\*)\]\s*(.*)": self._note,
            rf"{_DIRECTIVE}": self._directive,
            r"\.\.(?:\s|\Z)": self._comment,
            r"(?:=+(?:\s+=+)+|\+(?:[-=]+\+)+)\Z": self._table,
            r"(?:[-*+•‣]|(\(?(?:\d{1,4}|#|[a-z]|[ivx]{1,6})[.)]))\s+(?=\S)": self._item,
            r":([^:\s][^:\n]{0,99}):(?:\s+(.*))?\Z": self._field,
            r">>> ": self._tried,
            r"\S": self._paragraph,
        }

    def _name(self, name: str, use: str) -> str:
        if name in ("#", "*"):
            self._counts[use] += 1
            return f"{name} {self._counts[use]}"
        return name

    def _of_role(self, role: str, text: str) -> str:
        base = role.rpartition(":")[2]
        if base in ("sup", "superscript", "sub", "subscript"):
            return f"<{base[:3]}>{plain(text)}</{base[:3]}>"
        if base == "math":
            return formula(text)
        if base in ("code", "literal", "samp"):
            return word_of_code(text)
        told = re.sub(r"\s*<[^<>]{1,400}>\Z", "", text) or text.strip("<>")
        if role and told.startswith("~"):
            told = told[1:].rpartition(".")[2]
        return plain(told.removeprefix("!"))

    def _item(self, found: re.Match[str], indent: int) -> None:
        self.page.item(indent, found[1] or "")
        self._again(" " * (indent + found.end()) + found.string[found.end() :])

    def _field(self, found: re.Match[str], indent: int) -> None:
        text = " ".join([found[2] or "", *map(str.strip, self._deeper(indent))]).strip()
        if text:
            self.page.paragraph(f"{found[1].strip()}: {text}", indent)

    def _tried(self, found: re.Match[str], indent: int) -> None:
        self.page.code((found.string, *self._beside(indent)), indent)

    def _again(self, line: str) -> None:
        """Let a line be told next, in place of the last."""
        self.at -= 1
        self.lines[self.at] = line

    def _beside(self, indent: int, *, deeper: bool = False) -> list[str]:
        """The lines that follow without an empty one, as far indented, or further."""
        at_margin = re.compile(rf" {{{indent}}}" + (r"\s+\S" if deeper else r"\S"))
        return [line.strip() for line in self.following(lambda line: bool(at_margin.match(line)))]

    def _deeper(self, indent: int) -> list[str]:
        """The lines that follow and are indented further, with empty ones among them."""
        start = end = self.at
        for number in range(start, len(self.lines)):
            if line := self.lines[number].strip():
                if self.lines[number].find(line) <= indent:
                    break
                end = number + 1
        self.at = end
        return dedent("\n".join(self.lines[start:end])).split("\n") if end > start else []

    def _heading(self, found: re.Match[str], indent: int) -> bool:
        line = self.lines[self.at - 1]
        below, after = (*self.lines[self.at : self.at + 2], "", "")[:2]
        over, rule = _RULE.match(line), not indent and _RULE.match(below)
        if over and below.strip() and after.rstrip() == line.rstrip():
            style, name = over[1] * 2, below.strip()
            self.at += 2
        elif over:
            self.page.flush()
            return True
        elif rule and len(below.rstrip()) >= len(line.rstrip()) and not line.startswith(".. "):
            style, name = rule[1], line.strip()
            self.at += 1
        else:
            return False
        if style not in self._levels:
            self._levels.append(style)
        self.page.head(self._levels.index(style) + 1, name)
        return True

    def _paragraph(self, found: re.Match[str], indent: int) -> None:
        bare = found.string
        below = self.lines[self.at] if self.at < len(self.lines) else ""
        if below[: indent + 1].isspace() and below.strip() and bare[:1] != "|":
            self.page.term(indent, self.inline.told(bare))
            return
        if bare == "|" or bare.startswith("| "):
            in_block = re.compile(rf"\s*\||\s{{{indent + 1}}}\s*\S")
            more = self.following(lambda line: bool(in_block.match(line)))
            own = [each.strip().removeprefix("|").strip() for each in (bare, *more)]
        else:
            own = [bare, *self._beside(indent)]
        text = " ".join(own)
        literal = text.endswith("::")
        self.page.paragraph(text[: -1 - (text == "::")] if literal else text, indent)
        if literal:
            self.page.code(self._deeper(indent), indent)

    def _note(self, found: re.Match[str], indent: int) -> None:
        text = " ".join([found[2], *map(str.strip, self._deeper(indent))]).strip()
        if re.match(r"\d|#|\*", found[1]):
            self.page.note(self._name(found[1], "note"), self.inline.told(text))
        else:
            self.page.paragraph(f"[{found[1]}] {text}", indent)

    def _comment(self, found: re.Match[str], indent: int) -> None:
        below = self.lines[self.at] if self.at < len(self.lines) else ""
        if found.string != ".." or below.strip():  # an empty one parts what is beside it
            self._deeper(indent)

    def _directive(self, found: re.Match[str], indent: int) -> None:
        name, argument = found[2].lower(), (found[3] or "").strip()
        self.page.add("", indent)
        if name in _NAMES["left_out"]:
            self._deeper(indent)
        elif name in _NAMES["verbatim"]:
            self.page.paragraph(self._options().get("caption", ""), indent)
            self.page.code(self._deeper(indent), indent)
        elif name == "math":
            self._options()
            text = "\n".join((argument, *self._deeper(indent)))
            for each in filter(str.strip, re.split(r"\n\s*\n", text)):
                self.page.add(f"<p>{shown_formula(each)}</p>", indent)
        elif name in ("image", "figure"):
            self.page.paragraph(self._options().get("alt", ""), indent)
        elif name in ("csv-table", "list-table", "table"):
            self._titled(name, argument, indent)
        elif kind := next((told for n, told in _NAMES["versions"].items() if name.endswith(n)), ""):
            self._lead(f"{kind} version {argument}", indent)
        elif re.search("^(?:auto|function|class|method|data|option)|:", name):
            more = (line for line in self._beside(indent, deeper=True) if line[:1] != ":")
            self.page.term(indent, plain("\n".join((argument, *more))))
        else:
            self._admonition(name, argument, indent)

    def _options(self) -> dict[str, str]:
        lines = self.following(lambda line: bool(re.match(r"\s+:[\w-]+:(?!`)", line)))
        parted = (line.strip()[1:].partition(":") for line in lines)
        return {name: value.strip() for name, _, value in parted}

    def _admonition(self, name: str, argument: str, indent: int) -> None:
        """What its name says of the text in it, or what is unknown; an argument begins the text."""
        if not argument or name in _NAMES["unnamed"]:
            self._options()
        if name in _NAMES["groups"]:
            return
        if argument:
            below = self.lines[self.at] if self.at < len(self.lines) else ""
            deeper = len(below) - len(below.lstrip())
            self._again(" " * max(deeper, indent + 1) + argument)
        if name not in _NAMES["unnamed"]:
            self._lead(name.capitalize(), indent)

    def _lead(self, lead: str, indent: int) -> None:
        """Say it at the beginning of the text within a directive, or by itself if there is none."""
        told = (line for line in self.lines[self.at : self.at + 5] if line.strip())
        if next(told, "")[: indent + 1].isspace():
            self.page.lead = f"{lead}: "
        else:
            self.page.paragraph(lead, indent)

    def _titled(self, name: str, argument: str, indent: int) -> None:
        """A table with a title, whose rows are lists or lines of csv, or below."""
        options = self._options()
        self.page.paragraph(argument, indent)
        if name == "table":
            return
        body, head = self._deeper(indent), [options["header"]] if "header" in options else []
        headers = int(options.get("header-rows") or 0)
        listed = (re.sub("^  ", "", row, flags=re.M) for row in _ITEMS.split("\n".join(body))[1:])
        rows: Iterable[list[str]] = (_ITEMS.split(row)[1:] for row in listed)
        if name == "csv-table":
            headers += len(head)
            rows = csv.reader([*head, *filter(str.strip, body)], skipinitialspace=True)
        told = [[self.inline.told(" ".join(cell.split())) for cell in row] for row in rows]
        self.page.add(table(told, headers), indent)

    def _table(self, found: re.Match[str], indent: int) -> None:
        """A table that is drawn: its columns are as wide as its rules."""
        first = found.string
        grid, start = first[0] == "+", self.at
        empty = (n for n in range(start, len(self.lines)) if not self.lines[n].strip())
        ends = (n for n in empty if grid or (n > start + 1 and {*self.lines[n - 1]} <= {*"= "}))
        self.at = next(ends, len(self.lines))
        lines = [first, *(line[indent:] for line in self.lines[start : self.at])]
        self.page.add(drawn_table(lines, self.inline.told), indent)


def drawn_table(lines: list[str], inline: Callable[[str], str]) -> str:
    """A table in HTML that is drawn in columns or, as its first line has a +, cell by cell."""
    rows, headers = (_grid if lines[0][0] == "+" else _columns)(lines[0], lines[1:])
    filled = [any(text for (text,) in row) for row in rows]
    told = ([inline(text) if text else "" for (text,) in row] for row in compress(rows, filled))
    return table(told, sum(filled[:headers]) or None)


_Cells = list[list[str]]
"""of a row, each a list of its text, which several share that are one"""


def _columns(first: str, lines: list[str]) -> tuple[list[_Cells], int]:
    """(rows, how many of them are header) of a table whose columns are as wide as its rules."""
    spans = [found.span() for found in re.finditer("=+", first)]
    spans[-1] = spans[-1][0], 1_000_000
    rows, headers = list[_Cells](), 0
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        merged = [found.span() for found in re.finditer("-+", below)]
        under = merged if merged and {*below.strip()} <= {*"- "} else spans
        told = [(a, b, [line[a:b].strip()]) for a, b in under]
        cells = [next((cell for a, b, cell in told if a <= x < b), [""]) for x, _ in spans]
        if {*line.strip()} <= {*"-= "}:
            headers = headers or (len(rows) if "=" in line and line is not lines[-1] else 0)
        elif cells[0][0] or not rows or under is merged:
            rows.append(cells)
        else:
            for above, (text,) in zip(rows[-1], cells, strict=True):
                above[0] = f"{above[0]} {text}".strip()
    return rows, headers


def _grid(first: str, lines: list[str]) -> tuple[list[_Cells], int]:
    """The same of one that is drawn cell by cell, which may be merged."""
    rules = (line for line in (first, *lines) if {*line.strip()} <= {*"+-="})
    bounds = sorted({n for line in rules for n, sign in enumerate(line) if sign == "+"})
    rows, headers = [[[""] for _ in bounds[1:]]], 0
    for line in lines[:-1]:
        inner = [line[a + 1 : b] for a, b in pairwise(bounds)]
        new = [bool(each) and {*each} <= {*"-="} for each in inner]
        if any(new):
            headers = headers or (len(rows) if "=" in line else 0)
            rows.append([[""] if n else cell for n, cell in zip(new, rows[-1], strict=True)])
        at = 0
        for to, bound in enumerate(bounds[1:], 1):
            if line[bound : bound + 1] in ("|", "+"):
                rows[-1][at:to] = [rows[-1][at]] * (to - at)
                if not new[at]:
                    text = line[bounds[at] + 1 : bound]
                    rows[-1][at][0] = f"{rows[-1][at][0]} {text.strip()}".strip()
                at = to
    return rows, headers
