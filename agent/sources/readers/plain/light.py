"""Org and AsciiDoc: a table of marks for each, and what its lines begin.

Comments, drawers and what was struck through are left out.
"""

import csv
import re
from collections.abc import Callable

from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.pages.markup import NUMBERED, counted
from rubricem.agent.sources.readers.plain.writing import (
    HtmlCell,
    Inline,
    Markup,
    Rule,
    formula,
    plain,
    shown_formula,
    table,
    word_of_code,
)


def _between(sign: str) -> str:
    """A pattern of what stands between two such signs at the edges of words."""
    sign = re.escape(sign)
    return rf"(?<![\w\\]){sign}(?=[^\s{sign}])([^{sign}\n]{{1,400}})(?<=\S){sign}(?!\w)"


_TOLD = ("date", "revdate", "keywords", "author", "description", "filetags", "title")


class Org(Markup):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.inline = Inline(
            r"[\[\\$=~+*/_^]",
            {
                **{_between(sign): word_of_code for sign in "=~"},
                r"\[\[(?:[^\[\]]{1,400}\]\[)?([^\[\]]{1,400})\]\]": "{}",
                r"\[fn:[\w-]{0,40}:\s*([^\[\]]{1,2000})\]":
                    lambda note: self.page.noted(self.inline.told(note)),
                r"\[fn:([\w-]{1,40})\]": self.page.refer,
                r"\\\(((?:[^\\]|\\[^()]){1,400}?)\\\)": formula,
                r"\\\[((?:[^\\]|\\[^\[\]]){1,400}?)\\\]": shown_formula,
                r"\$\$([^$]{1,400})\$\$": shown_formula,
                r"(?<![\w$])\$(?=[^\s$])([^$\n]{1,400})(?<=\S)\$(?![\w$])": formula,
                r"\\\\(?:\s|\Z)": " ",
                r"(\\[a-zA-Z]{2,20})(?:\{\}|(?![\w{]))": formula,
                _between("+"): "",
                **{_between(sign): "{}" for sign in "*/_"},
                r"\^\{([^{}\n]{1,200})\}": "<sup>{}</sup>",
                r"(?<=[\w/])_\{([^{}\n]{1,200})\}": "<sub>{}</sub>",
            },
        )  # fmt: skip
        self.rules = {
            r"(\*{1,20})\s+(\S.*)": self._head,
            r"#\+begin_(comment|export|src|example|verse)": self._block,
            r"#\+(\w[\w-]{0,40})(?:\[[^\]]{0,200}\])?:\s*(.*)": self._key,
            r"#(?:\s|\Z|\+(?:begin|end)_)|-{5,}\Z": self.nothing,
            r":[\w-]{1,40}:\Z": lambda found, indent: self.nothing(found, len(self.until(":end:"))),
            r"\\begin\{((?:equation|align|gather|eqnarray|displaymath)\*?)\}\Z": self._formula,
            r"\|": self._table,
            r":(?:\s|\Z)": self._fixed,
            r"\[fn:([\w-]{1,40})\]\s+(.*)": self._note,
            r"(?:[-+*]|(\d+[.)]))(?:\s+|\Z)(?:\[@(\d+)\]\s+)?"
            r"(?:(\S.{0,200}?)\s+::(?:\s+|\Z))?(.*)": self._item,
        }

    def _head(self, found: re.Match[str], indent: int) -> bool:
        if not indent:
            name = re.sub(r"\s+:[\w@#%]+(?::[\w@#%]+)*:\s*\Z", "", found[2])
            self.page.head(len(found[1]), name)
        return not indent

    def _block(self, found: re.Match[str], indent: int) -> None:
        body = self.until(f"#+end_{found[1].lower()}")
        self.page.code(body if found[1].lower() not in ("comment", "export") else (), indent)

    def _formula(self, found: re.Match[str], indent: int) -> None:
        body = self.until(f"\\end{{{found[1].lower()}}}")
        self.page.add(f"<p>{shown_formula(' '.join(body).replace('&', ''))}</p>")

    def _key(self, found: re.Match[str], indent: int) -> None:
        name, value = found[1].lower(), found[2].strip(" :")
        if name in _TOLD:
            self.field(name, value)
        elif name == "caption":
            self.page.paragraph(value)

    def _fixed(self, found: re.Match[str], indent: int) -> None:
        more = self.following(lambda line: line.strip().startswith(": "))
        self.page.code((line.strip()[2:] for line in (found.string, *more)), indent)

    def _note(self, found: re.Match[str], indent: int) -> None:
        more = self.following(lambda line: not re.match(r"\s*\Z|\[fn:|\*+\s|#", line))
        self.page.note(found[1], self.inline.told(" ".join((found[2], *map(str.strip, more)))))

    def _item(self, found: re.Match[str], indent: int) -> None:
        if found[3]:
            self.page.term(indent, self.inline.told(found[3]))
        else:
            self.page.item(indent, (found[2] or found[1]) if found[1] else "")
        self.page.say(found[4], indent + 1)

    def _table(self, found: re.Match[str], indent: int) -> None:
        rows, headers = list[list[str]](), 0
        laid = re.compile(r"\|(?:\s*(?:<[lrc]?\d*>)?\s*\|)+\Z")
        for line in (found.string, *self.following(lambda line: line.strip().startswith("|"))):
            if line.strip().startswith("|-"):
                headers = headers or len(rows)
            elif not laid.match(line.strip()):
                cells = line.strip().strip("|").split("|")
                rows.append([self.inline.told(cell.strip()) for cell in cells])
        self.page.add(table(rows, headers or 1), indent)


_ADOC_NOTES = ("note", "tip", "important", "warning", "caution")
_ADOC_SIGNS = names_of("adoc_signs")
_ADOC_INLINE: dict[str, Rule] = {
    r"(?<!\w)`{1,2}([^`\n]{1,400})`{1,2}(?!\w)": word_of_code,
    r"\+{3}([^+]{1,400})\+{3}": "{}",
    r"(?:latexmath|stem|asciimath):\[((?:[^\]\\]|\\.){1,400})\]": lambda tex: formula(
        tex.replace("\\]", "]").strip("$")
    ),
    r"(?:link|xref|mailto|kbd|btn|menu|pass|image|icon):[^\s\[\]]{0,400}\[([^\[\]]{0,400})\]": "{}",
    r"(https?://[^\s\[\]]{1,400})\[([^\[\]]{0,400})\]": lambda to, text: plain(text or to),
    r"<<([^,<>\n]{1,200})(?:,([^<>\n]{1,200}))?>>": lambda to, text: plain((text or to).strip()),
    r"\[\[[^\[\]\n]{1,200}\]\]|\(\(\([^()\n]{1,200}\)\)\)": "",
    r"\(\(([^()\n]{1,200})\)\)": "{}",
    r"\[\.?(?:line-through|del)\](?P<struck>[#*]{1,2})[^#*\n]{1,400}(?P=struck)": lambda sign: "",
    r"\[\.?[\w. -]{1,40}\](?=#)": "",
    r"\^([^\s^]{1,100})\^": "<sup>{}</sup>",
    r"~([^\s~]{1,100})~": "<sub>{}</sub>",
    **{rf"{s}{s}(\S[^{s}\n]{{0,400}}){s}{s}": "{}" for s in (r"\*", "_", "#")},
    **{_between(sign): "{}" for sign in "*_#"},
    "(" + "|".join(map(re.escape, _ADOC_SIGNS)) + ")": _ADOC_SIGNS.__getitem__,
}


class Adoc(Markup):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._style, self._levels = "", list[str]()
        """what the attributes above a block call it; of a list, its marks from the outermost in"""
        self._attached = self._apart = False
        """whether the line belongs to the item above, and whether an empty line is above it"""
        self._known: dict[str, str] = {}
        self.inline = Inline(
            r"[`+lsaxmkbpihf<\[^~*_#{\\(\-= .]",
            {
                r"footnote:([\w-]{0,40})\[([^\[\]]{0,2000})\]": self._note,
                r"\\(\{[\w-]{1,60}\})": plain,
                r"\{([\w-]{1,60})\}":
                    lambda name: plain(self._known.get(name, f"{{{name}}}")),
                **_ADOC_INLINE,
            },
        )  # fmt: skip
        self.rules = {
            "": self._look,
            r"(?:([-.=*_+/])\1{3,}|--|```\w*|[|,!:]={3,})\Z": self._block,
            r":(\w[\w-]{0,60}):\s*(.*)": self._field,
            r"(?:ifn?def|endif|ifeval|include|toc|video|audio)::|//|<<<\Z|'''\Z|:![\w-]+:":
                lambda found, indent: None,
            r"\[([\w.-]*)([^\[\]]{0,300})\]\Z": self._styled,
            r"image::[^\[\]]{0,400}\[\"?([^\[\],\"]{0,400})":
                lambda found, indent: self.page.paragraph(found[1], self._within),
            r"(={1,6})\s+(\S.*)": self._head,
            r"\+\Z": self._attach,
            r"([*.-]{1,6}|\d+\.)\s+(?=\S)(.*)": self._item,
            r"(\S.{0,200}?)(:{2,4}|;;)(?:\s+(.*))?\Z": self._term,
            r"\.?(\w.*)|": self._text,
        }  # fmt: skip

    @property
    def _within(self) -> int:
        """How far what belongs to the innermost item is indented."""
        return max(2 * len(self._levels) - 1, 0)

    def _note(self, name: str, text: str) -> str:
        if not name:
            return self.page.noted(self.inline.told(text))
        if text:
            self.page.note(name, self.inline.told(text))
        return self.page.refer(name)

    def _look(self, found: re.Match[str], indent: int) -> bool:
        above = self.lines[self.at - 2] if self.at > 1 else ""
        titled = re.match(r"\[[^\[\]]*\]\Z|\.\w", above.strip())
        self._apart = not above.strip() or (self._apart and bool(titled))
        return False

    def _styled(self, found: re.Match[str], indent: int) -> None:
        self._style = found.string.lower()
        kind = found[1].lower()
        self.page.lead = f"{kind.capitalize()}: " if kind in _ADOC_NOTES else ""
        if kind in ("quote", "verse"):
            self.page.paragraph(found[2].strip(" ,"), self._within)

    def _head(self, found: re.Match[str], indent: int) -> None:
        self._levels = []
        self.page.head(len(found[1]), found[2])

    def _attach(self, found: re.Match[str], indent: int) -> None:
        self.page.flush()
        self._attached = True

    def _text(self, found: re.Match[str], indent: int) -> None:
        if self._apart and not self._attached and not indent:
            self._levels = []
        self._attached = False
        if found.string[0] == "." and found[1]:
            self.page.paragraph(found[1])
        else:
            self.page.say(found.string.removesuffix(" +"), self._within)

    def _block(self, found: re.Match[str], indent: int) -> None:
        bare, style, self._style = found[0], self._style, ""
        self.page.flush()
        if self._apart and not self._attached:
            self._levels = []
        self._attached, within = False, self._within
        is_formula = style.startswith(("[stem", "[latexmath"))
        if bare == "--" or (bare[0] in "=*_" and not is_formula):
            return  # an example, a sidebar, a quote: what is in it is text
        body = self.until("```" if bare[0] == "`" else bare)
        if bare[1] == "=":
            sign = "," if "format=csv" in style else bare[0]
            self.page.add(_adoc_table(body, sign, style, self.inline.told), within)
        elif is_formula:
            self.page.add(f"<p>{shown_formula(chr(10).join(body))}</p>", within)
        elif bare[0] != "/":
            self.page.code(body, within)

    def _field(self, found: re.Match[str], indent: int) -> None:
        self._known[found[1]] = found[2]
        if found[1] in _TOLD:
            self.field(found[1], found[2])

    def _item(self, found: re.Match[str], indent: int) -> None:
        mark = re.sub(r"\d+", "1", found[1])
        self._enter(mark)
        start = re.search(r"start=\"?(\d{1,6})", self._style)
        named = map(NUMBERED.get, re.findall(r"\w+", self._style))
        form = next(filter(None, named), "1aiAI"[min(found[1].count(".") or 1, 5) - 1])
        self._style = ""
        number = counted(int(start[1] if start else 1), form)
        self.page.item(self._within - 1, number if mark[0] == "." else found[1].strip("*-"))
        self.page.say(found[2].removesuffix(" +"), self._within)

    def _term(self, found: re.Match[str], indent: int) -> None:
        self._enter(found[2])
        self.page.term(self._within - 1, self.inline.told(found[1]))
        self.page.say(found[3] or "", self._within)

    def _enter(self, mark: str) -> None:
        """An item of the list that has such marks begins, or a list within the last item."""
        if mark in self._levels:
            self._levels = self._levels[: self._levels.index(mark)]
        elif self._apart and not self._attached and not mark.startswith(tuple(self._levels[-1:])):
            self._levels = []
        self._levels.append(mark)
        self._attached = False


def _adoc_table(lines: list[str], sign: str, style: str, inline: Callable[[str], str]) -> str:
    """A row is a line, or as many cells as the first row or `cols` has."""
    headed = "header" in style or (len(lines) > 1 and not lines[1].strip())
    if sign == ",":
        rows = [[inline(cell.strip()) for cell in row] for row in csv.reader(lines) if row]
        return table(rows, 1 if headed else None)
    width = 0
    if found := re.search(r"cols=\"?(\d+)\*|cols=\"([^\"]{1,200})\"", style):
        width = int(found[1] or 0) or found[2].count(",") + 1
    mark = re.compile(
        rf"(?:(?:(?<=\s)|\A)(\d{{0,3}})(?:\.(\d{{1,4}}))?(?:[+*])?[<>^.]{{0,4}}[a-z]?)?(?<!\\){re.escape(sign)}"
    )
    cells: list[tuple[str, int, int]] = []
    for line in filter(str.strip, lines):
        # Around each sign stand how many columns and rows the cell covers, and its text.
        parts = ["", *mark.split(line)[1:]]
        if len(parts) == 1 and cells:
            cells[-1] = (f"{cells[-1][0]} {line.strip()}", *cells[-1][1:])
        for wide, deep, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            cells.append((text.strip(), int(wide or 1), int(deep or 1)))
        width = width or sum(cell[1] for cell in cells)
    width = max(width, 1)
    laid, column, hanging = list[list[HtmlCell]](), width, [0] * width
    for text, wide, deep in cells:
        while column >= width or hanging[column]:
            if column >= width:
                laid.append([])
                column = -1
            else:
                hanging[column] -= 1
            column += 1
        wide = min(wide, width - column)
        hanging[column : column + wide] = [deep - 1] * wide
        laid[-1].append((inline(text), wide, deep))
        column += wide
    return table(laid, 1 if headed else None)
