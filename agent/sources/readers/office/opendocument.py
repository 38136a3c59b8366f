"""OpenDocument (odt, ods, odp) from the package's content.xml, by one walk for all three.

Deleted, struck through and hidden text is out, notes come at the end of their section, formulas are
objects of MathML, charts keep their table. (odfpy gives access to the same elements, and no text.)
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

from lxml import etree

from rubricem.agent.sources.readers import tables
from rubricem.agent.sources.readers.document import BlockKind, Outline
from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.office.formats import show
from rubricem.agent.sources.readers.office.page import (
    Page,
    Run,
    count_of,
    line_of,
    seen,
    style_chain,
    without_hidden,
)
from rubricem.agent.sources.readers.packages import Package, Sections, package_reader
from rubricem.memory.errors import SourceError

_NO_TEXT = frozenset(names_of("opendocument")["no_text"])
"""elements that are no text of the paragraph or page that they stand in"""
_ROWS = ("table-header-rows", "table-rows", "table-row-group")
_SHAPES = frozenset({"frame", "g", "custom-shape", "rect", "text-box", "object"})
_CODE, _TITLE = "Preformatted Text", "Title"
_TERMS = names_of("opendocument")["terms"]
_MOST_SPACES = 100
_DOTTED = re.compile(r"\d\d?\. ?\d\d?\. ?\d{4}")
_SAME_ON_ALL = ("page-number", "date-time", "footer", "header", "page")
"""classes of what each slide has"""


@package_reader
def read_opendocument(package: Package) -> tuple[str, Sections, str]:
    manifest = package.part("META-INF/manifest.xml")
    if manifest.find(".//encryption-data") is not None:
        raise SourceError(
            f"{package.given.name} is encrypted.", "Save a copy of it without a password."
        )
    root = package.body("content.xml")
    reader = _Reader(package, root)
    for content in root.iterfind("body/*"):
        if content.tag == "spreadsheet":
            return "", reader.sheets(content), reader.note()
        if content.tag == "presentation":
            return "", reader.slides(content), reader.note()
        reader.read_margins()
        reader.read(content)
    return reader.title, reader.page.sections(), ""


class _Reader:
    """Reads the body of a document as a page."""

    def __init__(self, package: Package, root: etree._Element) -> None:
        self.page = Page()
        self.title = ""
        self._uncomputed = 0
        """formulas without a kept value"""
        self._unseen = Counter[str]()
        """sheets, columns, rows and slides that nobody sees"""
        self._package = package
        self._look = package.part("styles.xml")
        both = self._look, root
        styles = (e for each in both for e in each.iter("style"))
        self._styles = {f"{e.get('family')} {e.get('name')}": e for e in styles}
        lists = (e for each in both for e in each.iter("list-style"))
        self._lists = {e.get("name", ""): e for e in lists}
        self._aside: list[etree._Element] = []
        """what stands apart from the line that it is anchored in"""
        self._counts = Counter[str]()
        """items of each style of lists"""
        self._left = tables.MOST_REPEATED

    def slides(self, presentation: etree._Element) -> Sections:
        for number, slide in enumerate(presentation.iterchildren("page"), start=1):
            if self._set(slide, "drawing-page", "visibility") == "hidden":
                self._unseen["slide"] += 1
                continue
            named = [e for e in slide.iterchildren("frame") if e.get("class") == "title"]
            title = line_of(self._lines(p for e in named for p in e.iter("p")))
            self.page.head(1, [("", f"slide {number}: {title}".rstrip(": "))])
            self.page.add("p", [("", title)])
            rest = [e for e in slide if e not in named and e.tag != "notes"]
            self.read(
                e for e in (*rest, *slide.iterfind("notes/*")) if e.get("class") not in _SAME_ON_ALL
            )
        return tuple(each for each in self.page.sections() if each.text != each.heading)

    def sheets(self, book: etree._Element) -> Sections:
        outline = Outline()
        for table in book.iterchildren("table"):
            if self._set(table, "table", "display") == "false":
                self._unseen["sheet"] += 1
                continue
            outline.head(1, table.get("name", ""))
            grid, headers = tables.grid_of(self._cells(table))
            hidden = {*self._hidden_columns(table)}
            rows = (seen(row, hidden) for row in grid)
            outline.extend(tables.table_blocks(rows, headers, placed=True))
            for comment in table.iter("annotation"):
                if told := line_of(self._lines([comment])):
                    outline.add(BlockKind.NOTE, f"comment: {told}")
            self.page = Page()
            self._read_aside()
            self.read(chain(*table.iterchildren("shapes")))
            for section in self.page.sections():
                outline.extend(section.blocks)
        return outline.sections()

    def _hidden_columns(self, table: etree._Element) -> Iterator[int]:
        at = 1
        for column in table.iter("table-column"):
            count = min(_count(column, "number-columns-repeated"), tables.MOST_COLUMNS)
            if column.get("visibility", "visible") != "visible" and at <= tables.MOST_COLUMNS:
                self._unseen["column"] += count
                yield from range(at, at + count)
            at += count

    def note(self) -> str:
        return without_hidden(self._unseen, self._uncomputed)

    def read_margins(self) -> None:
        """What is above and below each page, but for its number, as notes of the first section."""
        for margin in self._look.iter("header", "header-first", "footer", "footer-first"):
            for paragraph in margin.iter("p"):
                line = line_of(self._runs(paragraph))
                if line and next(paragraph.iter("page-number"), None) is None:
                    self.page.note(str(margin.tag).removesuffix("-first"), [[("", line)]])

    def read(self, parent: Iterable[etree._Element]) -> None:
        for element in parent:
            tag = element.tag
            if tag in ("p", "h"):
                self._paragraph(element)
            elif tag == "list":
                self._list(element, element.get("style-name", ""), 1)
            elif tag == "table":
                self.page.table(self._cells(element))
                self._read_aside()
            elif tag == "object":
                self._object(element)
            elif tag == "image" and (frame := element.getparent()) is not None:
                self.page.image(frame.findtext("desc") or frame.findtext("title") or "")
            elif tag not in _NO_TEXT and element.get("display") != "none":
                self.read(element)

    def _paragraph(self, element: etree._Element) -> None:
        if self._set(element, "paragraph", "display") == "none":
            return
        style = element.get("style-name", "")
        above = (e.get("parent-style-name", "") for e in self._based("paragraph", style))
        names = [e.replace("_20_", " ").removesuffix(" Tight") for e in (style, *above)]
        runs = self._runs(element)
        if element.tag == "h":
            self.page.head(count_of(element.get("outline-level", "")), runs)
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
        path = f"list-level-style-number[@level='{level}']"
        number = self._lists.get(style, element).find(path)
        form = "" if number is None else number.get("num-format", "")
        begin = "1" if number is None else number.get("start-value", "1")
        told = self.page.block("ol" if form else "ul", type=form, start=begin)
        if level == 1 and element.get("continue-numbering") == "true":
            told.set("start", str(self._counts[style] + 1))
        elif level == 1:
            self._counts[style] = count_of(begin) - 1
        for item in element.iterchildren("list-item", "list-header"):
            line = etree.SubElement(told, "li" if item.tag == "list-item" else "div")
            if value := item.get("start-value"):
                line.set("value", value)
                self._counts[style] = count_of(value) - 1 if level == 1 else self._counts[style]
            self._counts[style] += level == 1 and item.tag == "list-item"
            with self.page.within(line):
                for child in item:
                    if child.tag == "list":
                        self._list(child, child.get("style-name") or style, level + 1)
                    else:
                        self.read([child])
        self._read_aside()

    def _cells(self, table: etree._Element) -> Iterator[list[tables.Cell]]:
        """The rows of a table, repeated as far as something is in them."""
        gap = told = 0
        for row, is_header in _rows(table):
            if row.get("visibility", "visible") != "visible":
                self._unseen["row"] += bool("".join(map(str, row.itertext())).strip())
                continue
            cells = [
                each
                for cell in row.iterchildren("table-cell")
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
            yield from repeat([], min(gap, tables.MOST_ROWS - told))
            yield from repeat(cells, count)
            told, gap = told + gap + count, 0

    def _repeated(self, cell: etree._Element, *, is_header: bool) -> Iterator[tables.Cell]:
        gone = self._standing(cell.get("style-name", ""), "table-cell") is None
        text = "" if gone else _shown(cell, line_of(self._lines([cell])))
        if cell.get("formula") and not text and cell.get("value-type") != "string":
            self._uncomputed += 1
        rows, columns = (_count(cell, f"number-{e}-spanned") for e in ("rows", "columns"))
        count = min(_count(cell, "number-columns-repeated"), tables.MOST_COLUMNS)
        yield from repeat(tables.Cell(text, rows, columns, is_header), count)

    def _lines(self, parents: Iterable[etree._Element]) -> Iterator[Run]:
        """The paragraphs in some elements, one after another in a line."""
        for element in parents:
            tag = element.tag
            if tag in ("p", "h"):
                yield from self._runs(element)
                yield "", " "
            elif tag in _SHAPES:
                self._aside.append(element)
            elif tag == "table":
                yield "", tables.within_cell(*tables.grid_of(self._cells(element))) + " "
            elif tag == "annotation" or tag not in _NO_TEXT:
                yield from self._lines(e for e in element if e.tag != "annotation")

    def _runs(self, element: etree._Element, at: str = "") -> Iterator[Run]:
        yield at, re.sub(r"\s+", " ", element.text or "")
        for child in element:
            tag = child.tag
            if tag == "span":
                own = self._standing(child.get("style-name", ""))
                if own is not None:
                    yield from self._runs(child, own or at)
            elif tag == "s":
                yield at, " " * min(_count(child, "c"), _MOST_SPACES)
            elif tag in ("tab", "line-break"):
                yield "", " " if tag == "tab" else "\n"
            elif tag in ("note", "annotation"):
                yield "", self._mark(child)
            elif tag in _SHAPES:
                found = (e for each in child.iter("object") for e in self._roots(each))
                math = next((e for e in found if e.tag == "math"), None)
                if math is None:
                    self._aside.append(child)
                else:
                    yield math
            elif tag not in _NO_TEXT:
                yield from self._runs(child, at)
            yield at, re.sub(r"\s+", " ", child.tail or "")

    def _mark(self, note: etree._Element) -> str:
        """The mark of a note or a comment, which is told at the end of the section; "" of these."""
        if note.tag == "annotation":
            self.page.note("comment", (self._runs(p) for p in note.iterchildren("p")))
            return ""
        cited = (e for e in note.iterchildren("note-citation"))
        mark = "".join(str(text) for e in cited for text in e.itertext()).strip()
        body = (p for e in note.iterchildren("note-body") for p in e.iter("p"))
        self.page.note(mark, (self._runs(p) for p in body))
        return f"[{mark}]"

    def _based(self, family: str, name: str) -> list[etree._Element]:
        def above(style: etree._Element) -> str:
            return f"{family} {style.get('parent-style-name')}"

        return style_chain(self._styles, f"{family} {name}", above)

    def _set(self, element: etree._Element, family: str, name: str) -> str:
        """What the styles of an element set a property to; "" if none does."""
        styles = self._based(family, element.get("style-name", ""))
        return next((e.get(name, "") for style in styles for e in style if e.get(name)), "")

    def _standing(self, name: str, family: str = "text") -> str | None:
        """How a text's style stands on its line; None if it is struck through or hidden."""
        at = None
        for layout in (e for style in self._based(family, name) for e in style):
            struck = {layout.get(f"text-line-through-{each}", "none") for each in ("style", "type")}
            if layout.get("display") == "none" or struck - {"none"}:
                return None
            moved = layout.get("text-position", "").split()
            if moved and at is None:
                low = moved[0] == "sub" or moved[0].startswith("-")
                at = "sub" if low else "" if moved[0] in ("0%", "0") else "sup"
        return at or ""

    def _roots(self, element: etree._Element) -> Iterator[etree._Element]:
        """What an object is, in the document itself or in a part of its own: a formula, a chart."""
        place = element.get("href", "").removeprefix("./").strip("/")
        for each in (*element.iterchildren("math"), self._package.part(f"{place}/content.xml")):
            each.tail = None
            yield each

    def _object(self, element: etree._Element) -> None:
        for root in self._roots(element):
            if root.tag == "math":
                root.set("display", "block")
                self.page.add("p", [root])
            for chart in root.iter("chart"):
                self.page.add("p", self._lines(chain(*chart.iterchildren("title"))))
                for table in chart.iterchildren("table"):
                    self.page.table(self._cells(table))


def _count(element: etree._Element, name: str) -> int:
    return min(count_of(element.get(name, "")), tables.MOST_ROWS)


def _rows(
    parent: etree._Element, *, is_header: bool = False
) -> Iterator[tuple[etree._Element, bool]]:
    for element in parent:
        if element.tag == "table-row":
            yield element, is_header
        elif element.tag in _ROWS:
            yield from _rows(element, is_header=is_header or element.tag == "table-header-rows")


def _shown(cell: etree._Element, text: str) -> str:
    """The value of a sheet's cell as it is shown; dates in ISO's form, which is kept beside it."""
    kind = cell.get("value-type", "")
    if kind == "date" and (moment := cell.get("date-value", "")) and not _DOTTED.fullmatch(text):
        return moment.replace("T", " ").removesuffix(" 00:00:00").removesuffix(":00")
    if kind == "percentage":
        told = text or show(cell.get("value", ""), "0.##%")
        return re.sub(r"(?<=\d)%$", " %", told)
    return text or cell.get("boolean-value", "").upper() or cell.get("value", "")
