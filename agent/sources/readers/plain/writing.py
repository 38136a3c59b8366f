"""What the readers of light markups, TeX and RTF write: HTML, which is then read as any page."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from itertools import count
from textwrap import dedent

from rubricem.agent.sources.readers.document import Document, Input, Section
from rubricem.agent.sources.readers.formulas import linear_tex

_DEEPEST = 20
"""lists within lists, and marks within marks"""


def formula(tex: str, *, display: bool = False) -> str:
    """A formula in TeX as linear text, or as it is if it cannot be read."""
    told = plain(linear_tex(tex.strip()))
    return f'<math display="block"><mtext>{told}</mtext></math>' if display else told


shown_formula = partial(formula, display=True)
"""one that stands by itself"""


def plain(text: str) -> str:
    return escape(text, quote=False)


def word_of_code(text: str) -> str:
    return f"<code>{plain(text)}</code>"


HtmlCell = str | tuple[str, int, int]
"""what is in it and, if it is merged, how many columns and rows it covers"""


def table(rows: Iterable[Sequence[HtmlCell]], headers: int | None = None) -> str:
    """A table of cells in HTML, of which the first rows are its header if that is known."""
    told = []
    for number, row in enumerate(rows):
        tag = "th" if number < (headers or 0) else "td"
        told.append("<tr>")
        for cell in row:
            text, wide, deep = (cell, 1, 1) if isinstance(cell, str) else cell
            span = f' colspan="{wide}" rowspan="{deep}"' if wide + deep > 2 else ""
            told.append(f"<{tag}{span}>{text}</{tag}>")
        told.append("</tr>\n")
    return f"<table>{''.join(told)}</table>\n"


def sections_of(page: str) -> tuple[Section, ...]:
    """The sections of a page without menus, banners and the like."""
    from rubricem.agent.sources.readers.pages.markup import page_of

    return page_of(f"<body>{page}</body>")[1]


Rule = str | Callable[..., str]
"""HTML around what a mark holds ("{}"), or what makes it of the groups of its pattern"""


class Inline:
    """The marks within a line, as a table: what each looks like, and how it is told."""

    def __init__(self, signs: str, rules: Mapping[str, Rule]) -> None:
        """`signs`: a pattern of the characters that a mark begins with."""
        self._rules: dict[int, tuple[Rule, int]] = {}
        """by the group of each, with how many it has within"""
        at = 1
        for pattern, rule in rules.items():
            self._rules[at] = rule, re.compile(pattern).groups
            at += 1 + self._rules[at][1]
        self._pattern = re.compile(f"(?={signs})(?:{'|'.join(f'({each})' for each in rules)})")

    def told(self, text: str, level: int = 0) -> str:
        parts, at = list[str](), 0
        for found in self._pattern.finditer(text) if level < _DEEPEST else ():
            number = found.lastindex or 0  # of the outermost group, which ends last
            rule, count = self._rules[number]
            groups = [found[number + n] or "" for n in range(1, count + 1)]
            parts.append(plain(text[at : found.start()]))
            if not isinstance(rule, str):
                parts.append(rule(*groups))
            elif rule:
                parts.append(rule.replace("{}", self.told("".join(groups), level + 1)))
            at = found.end()
        return "".join((*parts, plain(text[at:])))


class Blocks:
    """Blocks on their way into HTML, one after another, each with how far it is indented."""

    def __init__(self, inline: Callable[[str], str] = str) -> None:
        self.inline = inline
        self._parts: list[str] = []
        self._notes: list[str] = []
        self._open: list[tuple[int, str]] = []
        """lists and their items that are not ended, with their indent"""
        self._said: list[str] = []
        self._indent = 0
        self.lead = ""
        """what the next paragraph begins with"""
        self._numbers: dict[str, str] = {}
        """of the notes that have a name and no number"""
        self.taken: set[str] = set()
        """numbers that other notes have"""

    def add(self, block: str, indent: int = 0) -> None:
        """A block, which ends what is indented further, and lists that it is no item of."""
        self.flush()
        self._close(indent, "")
        self._parts.append(block)

    def say(self, text: str, indent: int = 0) -> None:
        """A line of a paragraph, which `flush` ends."""
        if not self._said:
            self._indent = indent
        self._said.append(text)

    def flush(self) -> None:
        told, self._said = " ".join(self._said).strip(), []
        if told:
            lead, self.lead = self.lead, ""
            self.add(f"<p>{plain(lead)}{self.inline(told)}</p>\n", self._indent)

    def paragraph(self, text: str, indent: int = 0) -> None:
        self.flush()
        self.say(text, indent)
        self.flush()

    def code(self, lines: Iterable[str], indent: int = 0) -> None:
        text = dedent("\n".join(lines)).strip("\n")
        self.add(f"<pre>{plain(text)}</pre>\n", indent)

    def head(self, level: int, name: str) -> None:
        level = min(level, 6)
        self.add(f"<h{level}>{self.inline(name)}</h{level}>\n")

    def item(self, indent: int, mark: str = "") -> None:
        """An item of a list begins; what follows is in it as long as it is indented further.

        `mark`: of an ordered list, such as "2.", "b)" or "iv."; the first one tells how it counts.
        """
        first, counts = mark.strip("().#"), ""
        if first.isdigit():
            counts = f' start="{first}"'
        elif first.lower() == "i" or len(first) > 1:
            counts = f' type="{"i" if first.islower() else "I"}"'
        elif first.isascii() and first.isalpha():
            counts = f' type="{"a" if first.islower() else "A"}" start="{ord(first.lower()) - 96}"'
        self._begin(indent, "ol" if mark else "ul", "<li>", "li", counts)

    def term(self, indent: int, term: str) -> None:
        """A term, in HTML; what follows is its meaning as long as it is indented further."""
        self._begin(indent, "dl", f"<dt>{term}</dt><dd>", "dd")

    def _begin(self, indent: int, element: str, begun: str, inner: str, more: str = "") -> None:
        self.flush()
        self._close(indent, element)
        if not self._open or self._open[-1] != (indent, element):
            if len(self._open) >= 2 * _DEEPEST:
                indent, element = self._open[-2]
                self._close(indent, element)
            else:
                self._parts.append(f"<{element}{more}>")
                self._open.append((indent, element))
        self._parts.append(begun)
        self._open.append((indent + 1, inner))

    def _close(self, indent: int, element: str) -> None:
        while self._open and (
            self._open[-1][0] > indent
            or (self._open[-1][0] == indent and self._open[-1][1] in {"ul", "ol", "dl"} - {element})
        ):
            self._parts.append(f"</{self._open.pop()[1]}>")

    def mark(self, name: str) -> str:
        """The number of a note, or the next one for a name that has none."""
        if not name.isdigit() and name not in self._numbers:
            free = (str(n) for n in count(len(self._numbers) + 1))
            self._numbers[name] = next(n for n in free if n not in self.taken)
            self.taken.add(self._numbers[name])
        return self._numbers.get(name, name)

    def refer(self, name: str) -> str:
        """The mark in the text of a note that stands elsewhere."""
        mark = self.mark(name)
        return f'<sup class="noteref"><a href="#note-{mark}">{mark}</a></sup>'

    def note(self, name: str, told: str) -> None:
        """A note in HTML, which is put at the end of the page."""
        self._notes.append(f'<div id="note-{self.mark(name)}"><p>{told}</p></div>\n')

    def noted(self, told: str) -> str:
        """The mark of a note that stands in the text itself, in HTML."""
        name = f" {len(self._notes)}"
        refer = self.refer(name)
        self.note(name, told)
        return refer

    def html(self) -> str:
        self.flush()
        self._close(-1, "")
        return "".join((*self._parts, *self._notes))


_NUMBERED = re.compile(r"(?:^\.\. \[|\[fn:)(\d{1,4})\]", re.M)
"""notes of reStructuredText and of Org"""


class Markup:
    """A text in a light markup, line by line; each kind says what a line begins."""

    inline: Inline
    rules: Mapping[str, Callable[[re.Match[str], int], bool | None]]
    """What tells a line that begins so, with its indent, and what belongs to it: False declines."""

    def __init__(self, text: str) -> None:
        self.lines = text.expandtabs(8).splitlines()
        self.at = 0
        """behind the line that is told, and then behind all that belongs to it"""
        self.title = ""
        self.page = Blocks(lambda text: self.inline.told(text))
        self.page.taken.update(_NUMBERED.findall(text))

    def html(self) -> str:
        rules = [(re.compile(pattern, re.I), tell) for pattern, tell in self.rules.items()]
        while self.at < len(self.lines):
            line = self.lines[self.at]
            bare, self.at = line.strip(), self.at + 1
            indent = len(line) - len(line.lstrip())
            for pattern, tell in rules if bare else ():
                if (found := pattern.match(bare)) and tell(found, indent) is not False:
                    break
            else:
                self.page.say(bare, indent) if bare else self.page.flush()
        return self.page.html()

    def nothing(self, found: re.Match[str], indent: int) -> None:
        """A line that is not told."""
        self.page.flush()

    def field(self, name: str, value: str) -> None:
        """What the text says of itself; the title is told as such only."""
        if name == "title":
            self.title = self.title or value
        else:
            self.page.paragraph(f"{name}: {value}")

    def following(self, goes_on: Callable[[str], bool]) -> list[str]:
        """The lines up to the first that does not go on."""
        start = self.at
        while self.at < len(self.lines) and goes_on(self.lines[self.at]):
            self.at += 1
        return self.lines[start : self.at]

    def until(self, end: str) -> list[str]:
        """The lines before the one that ends them, which is passed over as well."""
        body = self.following(lambda line: line.strip().lower() != end)
        self.at += 1
        return body

    @classmethod
    def read(cls, given: Input) -> Document:
        text, note = given.text()
        told = cls(text)
        return Document.of(given, sections_of(told.html()), told.title, note)
