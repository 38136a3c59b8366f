"""What a file of an office program says, written as a page: from there on it is read like HTML.

So lists, tables, notes, formulas and superscripts are told alike, whatever the program.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby

from lxml import etree

from rubricem.agent.sources.readers.document import Section
from rubricem.agent.sources.readers.pages.markup import sections_of
from rubricem.agent.sources.readers.pages.seen import NOTE_MARK
from rubricem.agent.sources.readers.tables import Cell, Row

Run = tuple[str, str] | etree._Element
"""(how it stands: "", "sup", "sub", or "note" for a superscript that leads to one; its text), or an
element such as `math`"""
_FAR = 10


def fill(element: etree._Element, runs: Iterable[Run]) -> etree._Element:
    """The element with the runs at its end."""
    for at, each in groupby(runs, lambda run: run[0] if isinstance(run, tuple) else "element"):
        if at == "element":
            element.extend(run for run in each if not isinstance(run, tuple))
            continue
        text = "".join(run[1] for run in each if isinstance(run, tuple))
        if at and text.strip():
            _append(element, " " * text[0].isspace())
            script = etree.SubElement(element, "sup" if at == "note" else at)
            script.set("class", at)
            script.text, script.tail = text.strip(), " " * text[-1].isspace()
        else:
            _append(element, text)
    return element


def _append(element: etree._Element, text: str) -> None:
    if (last := _last(element)) is None:
        element.text = (element.text or "") + text
    else:
        last.tail = (last.tail or "") + text


def _last(element: etree._Element) -> etree._Element | None:
    return next(element.iterchildren(reversed=True), None)  # `len` would count all of them


def line_of(runs: Iterable[Run]) -> str:
    """Runs as they are told in a line."""
    told = [*runs]
    plain = [run[1] for run in told if isinstance(run, tuple) and not (run[0] and run[1].strip())]
    if len(plain) == len(told):  # as are most cells of a sheet
        return " ".join("".join(plain).split())
    return " ".join(s.text for s in sections_of(fill(etree.Element("p"), told)))


class Page:
    """A page that is written from its beginning to its end."""

    def __init__(self) -> None:
        self.root = self._into = etree.Element("body")
        self._notes: list[etree._Element] = []

    @property
    def is_in_cell(self) -> bool:
        return self._into is not self.root

    @contextmanager
    def within(self, cell: etree._Element) -> Iterator[None]:
        """What is added meanwhile belongs to a cell."""
        above, self._into = self._into, cell
        yield
        self._into = above

    def add(self, tag: str, runs: Iterable[Run], inside: str = "", **attributes: str) -> None:
        """A block, unless it is empty; `inside`: of which one it is that goes on if it is last."""
        element = fill(etree.Element(tag, attributes), runs)
        if not len(element) and not (element.text or "").strip() and inside != "pre":
            return
        into = self._into
        if inside:
            last = _last(into)
            if last is None or last.tag != inside:
                last = etree.SubElement(into, inside)
            into = last
        into.append(element)

    def head(self, level: int, runs: Iterable[Run]) -> None:
        """A heading, before which the notes of the section above it are told."""
        if not self.is_in_cell:
            self.end_section()
        self.add(f"h{min(level, 6)}", runs)

    def image(self, alt: str) -> None:
        """What stands for an image, where something does."""
        if told := " ".join(alt.split()):
            self.add("p", [("", f"[image: {told}]")])

    def code(self, runs: Iterable[Run]) -> None:
        """A line of code."""
        self.add("span", (*runs, ("", "\n")), inside="pre")

    def note(self, mark: str, paragraphs: Iterable[Iterable[Run]]) -> None:
        """What a mark leads to, told at the end of its section."""
        note = etree.Element("div", {NOTE_MARK: mark})
        self._notes.append(note)
        for runs in paragraphs:
            fill(etree.SubElement(note, "p"), runs)

    def end_section(self) -> None:
        notes, self._notes = self._notes, []
        self.root.extend(notes)

    def block(self, tag: str, **attributes: str) -> etree._Element:
        """A list or a table (of `role="table"`), to be filled."""
        return etree.SubElement(self._into, tag, attributes)

    def table(self, rows: Iterable[Iterable[Cell]]) -> None:
        """A table whose cells are told in a line."""
        table = self.block("table", role="table")
        for row in rows:
            line = etree.SubElement(table, "tr")
            for cell in row:
                spans = {"rowspan": str(cell.rows), "colspan": str(cell.columns)}
                own = etree.SubElement(line, "th" if cell.is_header else "td", spans)
                own.text = cell.text

    def sections(self) -> tuple[Section, ...]:
        self.end_section()
        return sections_of(self.root)


def style_chain(
    styles: Mapping[str, etree._Element], name: str, above: Callable[[etree._Element], str]
) -> list[etree._Element]:
    """The style called so, and those that it is based on, as far as they are looked at."""
    found = list[etree._Element]()
    while len(found) < _FAR and (style := styles.get(name)) is not None:
        found.append(style)
        name = above(style)
    return found


def count_of(text: str, otherwise: int = 1) -> int:
    """A number from 1 on of at most eight digits, as an attribute has it."""
    return int(text) if re.fullmatch("0*[1-9][0-9]{0,7}", text) else otherwise


def without_hidden(hidden: Counter[str], uncomputed: int = 0) -> str:
    """A note on what is not told; "" if all is.

    `hidden`: sheets, rows, slides and the like that nobody sees; `uncomputed`: formulas.
    """
    lost = f"read without the values of {uncomputed} formulas that it does not keep"
    told = ", ".join(f"{n} {what}{'s' * (n > 1)}" for what, n in sorted((+hidden).items()))
    return "; ".join(
        [lost] * bool(uncomputed) + [f"read without what is hidden in it: {told}"] * bool(told)
    )


def seen(row: Row, hidden: Collection[int]) -> Row:
    """A row of a sheet, what stands in hidden columns (from 1 on) empty."""
    if not hidden or isinstance(row, str):
        return row
    return ["" if n in hidden else cell for n, cell in enumerate(row, 1)]
