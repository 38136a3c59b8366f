"""OpenDocument (odt, ods, odp) from the package's content.xml, by one walk for all three.

Deleted, struck through and hidden text is out, notes come at the end of their section, formulas are
objects of MathML, charts keep their table. (odfpy gives access to the same elements, and no text.)
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import BlockKind, Outline
from rubricem.agent.sources.readers.office.formats import show
from rubricem.agent.sources.readers.office.page import Page, Run, count_of, line_of, style_chain
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    body_of,
    children_of,
    package_reader,
    part_of,
    pieces_of,
    tag_of,
)
from rubricem.agent.sources.readers.tables import (
    MOST_COLUMNS,
    MOST_REPEATED,
    MOST_ROWS,
    Cell,
    grid_of,
    table_blocks,
    within_cell,
)
from rubricem.memory.errors import SourceError

_NO_TEXT = frozenset(
    {
        "tracked-changes", "annotation", "annotation-end", "note", "ruby-text", "forms", "title",
        "desc", "event-listeners", "sequence-decls", "variable-decls", "user-field-decls",
        "table-source", "scenario", "shapes", "settings", "image",
    }
)  # fmt: skip
"""elements that are no text of the paragraph or page that they stand in"""
_ROWS = ("table-header-rows", "table-rows", "table-row-group")
_SHAPES = frozenset({"frame", "g", "custom-shape", "rect", "text-box", "object"})
_CODE, _TITLE = "Preformatted Text", "Title"
_TERMS = {"Definition Term": "dt", "List Heading": "dt", "Definition Definition": "dd",
          "List Contents": "dd"}  # fmt: skip
_MOST_SPACES = 100
_DOTTED = re.compile(r"\d\d?\. ?\d\d?\. ?\d{4}")
_SAME_ON_ALL = ("page-number", "date-time", "footer", "header", "page")
"""classes of what each slide has"""


@package_reader
def read_opendocument(package: ZipFile, name: str) -> tuple[str, Sections, str]:
    manifest = "META-INF/manifest.xml"
    listed = pieces_of(package, manifest, name) if manifest in package.NameToInfo else ()
    if b"encryption-data" in b"".join(listed):
        raise SourceError(f"{name} is encrypted.", "Save a copy of it without a password.")
    root = body_of(package, "content.xml", name)
    reader = _Reader(package, name, root)
    for content in root.iterfind("{*}body/*"):
        if tag_of(content) == "spreadsheet":
            return "", reader.sheets(content), reader.note()
        if tag_of(content) == "presentation":
            return "", reader.slides(content), ""
        reader.read_margins()
        reader.read(content)
    return reader.title, reader.page.sections(), ""


class _Reader:
    """Reads the body of a document as a page."""

    def __init__(self, package: ZipFile, name: str, root: etree._Element) -> None:
        self.page = Page()
        self.title = ""
        self.uncomputed = 0
        """formulas without a kept value"""
        self._package, self._name = package, name
        self._look = part_of(package, "styles.xml", name)
        both = [each for each in (self._look, root) if each is not None]
        styles = (e for each in both for e in each.iter("{*}style"))
        self._styles = {f"{attribute(e, 'family')} {attribute(e, 'name')}": e for e in styles}
        lists = (e for each in both for e in each.iter("{*}list-style"))
        self._lists = {attribute(e, "name"): e for e in lists}
        self._aside: list[etree._Element] = []
        """what stands apart from the line that it is anchored in"""
        self._counts = Counter[str]()
        """items of each style of lists"""
        self._left = MOST_REPEATED

    def slides(self, presentation: etree._Element) -> Sections:
        for number, slide in enumerate(presentation.iterchildren("{*}page"), start=1):
            frames = slide.iterchildren("{*}frame")
            named = [e for e in frames if attribute(e, "class") == "title"]
            title = line_of(self._lines(p for e in named for p in e.iter("{*}p")))
            self.page.head(1, [("", f"slide {number}: {title}".rstrip(": "))])
            self.page.add("p", [("", title)])
            rest = [e for e in slide if e not in named and tag_of(e) != "notes"]
            notes = [e for each in slide.iterchildren("{*}notes") for e in each]
            self.read(e for e in (*rest, *notes) if attribute(e, "class") not in _SAME_ON_ALL)
        return self.page.sections()

    def sheets(self, book: etree._Element) -> Sections:
        outline = Outline()
        for table in book.iterchildren("{*}table"):
            outline.head(1, attribute(table, "name"))
            outline.extend(table_blocks(*grid_of(self._cells(table)), placed=True))
            for comment in table.iter("{*}annotation"):
                if told := line_of(self._lines([comment])):
                    outline.add(BlockKind.NOTE, f"comment: {told}")
            self.page = Page()
            self._read_aside()
            self.read(chain(*table.iterchildren("{*}shapes")))
            for section in self.page.sections():
                outline.extend(section.blocks)
        return outline.sections()

    def note(self) -> str:
        if not self.uncomputed:
            return ""
        return f"read without the values of {self.uncomputed} formulas that it does not keep"

    def read_margins(self) -> None:
        """What is above and below each page, but for its number, as notes of the first section."""
        margins = ("{*}header", "{*}header-first", "{*}footer", "{*}footer-first")
        for margin in () if self._look is None else self._look.iter(*margins):
            for paragraph in margin.iter("{*}p"):
                line = line_of(self._runs(paragraph))
                if line and next(paragraph.iter("{*}page-number"), None) is None:
                    self.page.note(tag_of(margin).removesuffix("-first"), [[("", line)]])

    def read(self, parent: Iterable[etree._Element]) -> None:
        for element in parent:
            tag = tag_of(element)
            if tag in ("p", "h"):
                self._paragraph(element)
            elif tag == "list":
                self._list(element, attribute(element, "style-name"), 1)
            elif tag == "table":
                self.page.table(self._cells(element))
                self._read_aside()
            elif tag == "object":
                self._object(element)
            elif tag and tag not in _NO_TEXT:
                self.read(element)

    def _paragraph(self, element: etree._Element) -> None:
        style = attribute(element, "style-name")
        above = (attribute(e, "parent-style-name") for e in self._based("paragraph", style))
        names = [e.replace("_20_", " ").removesuffix(" Tight") for e in (style, *above)]
        runs = self._runs(element)
        if tag_of(element) == "h":
            level = attribute(element, "outline-level")
            self.page.head(count_of(level), runs)
        elif _CODE in names:
            self.page.code(runs)
        elif _TITLE in names and not self.title:
            self.title = line_of(runs)
        elif term := next((_TERMS[each] for each in names if each in _TERMS), ""):
            self.page.add(term, runs, inside="dl")
        else:
            self.page.add("p", runs)
        self._read_aside()

    def _read_aside(self) -> None:
        if self.page.is_in_cell:
            return
        aside, self._aside = self._aside, []
        self.read(aside)

    def _list(self, element: etree._Element, style: str, level: int) -> None:
        levels = children_of(self._lists.get(style), "list-level-style-number")
        number = next((e for e in levels if attribute(e, "level") == str(level)), None)
        form, begin = attribute(number, "num-format"), attribute(number, "start-value")
        told = self.page.block("ol" if form else "ul", type=form, start=begin or "1")
        if level == 1 and attribute(element, "continue-numbering") == "true":
            told.set("start", str(self._counts[style] + 1))
        elif level == 1:
            self._counts[style] = 0
        for item in element.iterchildren("{*}list-item", "{*}list-header"):
            self._counts[style] += level == 1
            value = attribute(item, "start-value")
            line = etree.SubElement(told, "li", {"value": value} if value else {})
            with self.page.within(line):
                for child in item:
                    if tag_of(child) == "list":
                        self._list(child, attribute(child, "style-name") or style, level + 1)
                    else:
                        self.read([child])
        self._read_aside()

    def _cells(self, table: etree._Element) -> Iterator[list[Cell]]:
        """The rows of a table, repeated as far as something is in them."""
        gap = told = 0
        for row, is_header in _rows(table):
            cells = [
                each
                for cell in row.iterchildren("{*}table-cell")
                for each in self._repeated(cell, is_header=is_header)
            ]
            while cells and not cells[-1].text and cells[-1].columns == 1:
                cells.pop()
            count = _count(row, "number-rows-repeated")
            if not cells:
                gap += count
                continue
            count = min(count, 1 + self._left // len(cells))
            self._left -= (count - 1) * len(cells)
            yield from repeat([], min(gap, MOST_ROWS - told))
            yield from repeat(cells, count)
            told, gap = told + gap + count, 0

    def _repeated(self, cell: etree._Element, *, is_header: bool) -> Iterator[Cell]:
        text = _shown(cell, line_of(self._lines([cell])))
        if attribute(cell, "formula") and not text and attribute(cell, "value-type") != "string":
            self.uncomputed += 1
        rows, columns = (_count(cell, f"number-{e}-spanned") for e in ("rows", "columns"))
        count = min(_count(cell, "number-columns-repeated"), MOST_COLUMNS)
        yield from repeat(Cell(text, rows, columns, is_header), count)

    def _lines(self, parents: Iterable[etree._Element]) -> Iterator[Run]:
        """The paragraphs in some elements, one after another in a line."""
        for element in parents:
            tag = tag_of(element)
            if tag in ("p", "h"):
                yield from self._runs(element)
                yield "", " "
            elif tag in _SHAPES:
                self._aside.append(element)
            elif tag == "table":
                yield "", within_cell(*grid_of(self._cells(element))) + " "
            elif tag == "annotation" or tag not in _NO_TEXT:
                yield from self._lines(e for e in element if tag_of(e) != "annotation")

    def _runs(self, element: etree._Element, at: str = "") -> Iterator[Run]:
        yield at, re.sub(r"\s+", " ", element.text or "")
        for child in element:
            tag = tag_of(child)
            if tag == "span":
                own = self._standing(attribute(child, "style-name"))
                if own is not None:
                    yield from self._runs(child, own or at)
            elif tag == "s":
                yield at, " " * min(_count(child, "c"), _MOST_SPACES)
            elif tag in ("tab", "line-break"):
                yield "", " " if tag == "tab" else "\n"
            elif tag in ("note", "annotation"):
                yield "", self._mark(child)
            elif tag in _SHAPES:
                found = (e for each in child.iter("{*}object") for e in self._roots(each))
                math = next((e for e in found if e.tag == "math"), None)
                if math is None:
                    self._aside.append(child)
                else:
                    yield math
            elif tag and tag not in _NO_TEXT:
                yield from self._runs(child, at)
            yield at, re.sub(r"\s+", " ", child.tail or "")

    def _mark(self, note: etree._Element) -> str:
        """The mark of a note or a comment, which is told at the end of the section; "" of these."""
        if tag_of(note) == "annotation":
            self.page.note("comment", (self._runs(p) for p in note.iterchildren("{*}p")))
            return ""
        cited = (e for e in note.iterchildren("{*}note-citation"))
        mark = "".join(str(text) for e in cited for text in e.itertext()).strip()
        body = (p for e in note.iterchildren("{*}note-body") for p in e.iter("{*}p"))
        self.page.note(mark, (self._runs(p) for p in body))
        return f"[{mark}]"

    def _based(self, family: str, name: str) -> list[etree._Element]:
        def above(style: etree._Element) -> str:
            return f"{family} {attribute(style, 'parent-style-name')}"

        return style_chain(self._styles, f"{family} {name}", above)

    def _standing(self, name: str) -> str | None:
        """How a text's style stands on its line; None if it is struck through or hidden."""
        at = None
        layouts = (children_of(e, "text-properties") for e in self._based("text", name))
        for layout in chain(*layouts):
            struck = {attribute(layout, f"text-line-through-{e}") for e in ("style", "type")}
            if attribute(layout, "display") == "none" or struck - {"", "none"}:
                return None
            moved = attribute(layout, "text-position").split()
            if moved and at is None:
                low = moved[0] == "sub" or moved[0].startswith("-")
                at = "sub" if low else "" if moved[0] in ("0%", "0") else "sup"
        return at or ""

    def _roots(self, element: etree._Element) -> Iterator[etree._Element]:
        """What an object is, in the document itself or in a part of its own: a formula, a chart."""
        place = attribute(element, "href").removeprefix("./").strip("/")
        root = part_of(self._package, f"{place}/content.xml", self._name) if place else None
        for each in (*element.iterchildren("{*}math"), *([] if root is None else [root])):
            if tag_of(each) == "math":
                each.tag, each.tail = "math", None  # as HTML has it, without a namespace
            yield each

    def _object(self, element: etree._Element) -> None:
        for root in self._roots(element):
            if root.tag == "math":
                root.set("display", "block")
                self.page.add("p", [root])
            for chart in root.iter("{*}chart"):
                self.page.add("p", self._lines(chain(*chart.iterchildren("{*}title"))))
                for table in chart.iterchildren("{*}table"):
                    self.page.table(self._cells(table))


def _count(element: etree._Element, name: str) -> int:
    return min(count_of(attribute(element, name)), MOST_ROWS)


def _rows(
    parent: etree._Element, *, is_header: bool = False
) -> Iterator[tuple[etree._Element, bool]]:
    for element in parent:
        tag = tag_of(element)
        if tag == "table-row" and attribute(element, "visibility") in ("", "visible"):
            yield element, is_header
        elif tag in _ROWS:
            yield from _rows(element, is_header=is_header or tag == "table-header-rows")


def _shown(cell: etree._Element, text: str) -> str:
    """The value of a sheet's cell as it is shown; dates in ISO's form, which is kept beside it."""
    kind = attribute(cell, "value-type")
    if kind == "date" and (moment := attribute(cell, "date-value")) and not _DOTTED.fullmatch(text):
        return moment.replace("T", " ").removesuffix(" 00:00:00").removesuffix(":00")
    if kind == "percentage":
        told = text or show(attribute(cell, "value"), "0.##%")
        return re.sub(r"(?<=\d)%$", " %", told)
    return text or attribute(cell, "boolean-value").upper() or attribute(cell, "value")
