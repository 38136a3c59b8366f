"""OpenDocument (odt, ods, odp) from the package's content.xml, by one walk for all three.

Deleted, struck through and hidden text is out, notes come at the end of their section, formulas are
objects of MathML, charts keep their table. (odfpy gives access to the same elements, and no text.)
"""

import re
from collections.abc import Iterable, Iterator
from itertools import repeat
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import BlockKind
from rubricem.agent.sources.readers.formulas import linear_mathml
from rubricem.agent.sources.readers.office.drawing import (
    LOWERED,
    PLAIN,
    RAISED,
    Run,
    RunningOutline,
    counted,
    join_runs,
)
from rubricem.agent.sources.readers.office.formats import show
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    package_reader,
    part_of,
    tag_of,
    unpack,
)
from rubricem.agent.sources.readers.tables import (
    MOST_COLUMNS,
    MOST_REPEATED,
    Cell,
    grid_of,
    table_blocks,
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
_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_CODE, _TITLE = "Preformatted Text", "Title"
_TERMS = frozenset({"Definition Term", "List Heading"})
_MEANINGS = frozenset({"Definition Definition", "List Contents"})
_SPACE = re.compile(r"\s+")
_MOST_SPACES = 100
_MOST_ROWS = 1_048_576
_SAME_ON_ALL = ("page-number", "date-time", "footer", "header", "page")
"""classes of what each slide has"""
_DEEPEST = 9


def _content(package: ZipFile, name: str) -> etree._Element:
    if b"encryption-data" in _part(package, "META-INF/manifest.xml", name):
        raise SourceError(f"{name} is encrypted.", "Save a copy of it without a password.")
    root = part_of(package, "content.xml", name)
    body = None if root is None else next((e for e in root if tag_of(e) == "body"), None)
    if body is None or not len(body):
        raise SourceError(f"{name} holds no document.", "Save it anew.")
    return body


def _part(package: ZipFile, part: str, name: str) -> bytes:
    return unpack(package, part, name) if part in package.NameToInfo else b""


def _of_document(package: ZipFile, name: str) -> tuple[str, Sections, str]:
    body = _content(package, name)
    reader = _Reader(package, name, body)
    for content in body:
        if tag_of(content) == "presentation":
            reader.slides(content)
        elif tag_of(content) == "spreadsheet":
            reader.read(content.iterchildren("{*}table"), sheets=True)
        else:
            reader.read(content)
    meta = part_of(package, "meta.xml", name)
    title = "" if meta is None else next((e.text or "" for e in meta.iter("{*}title")), "")
    note = ""
    if reader.uncomputed:
        note = f"read without the values of {reader.uncomputed} formulas that it does not keep"
    return reader.title or title.strip(), reader.outline.sections(), note


class _NamedStyles:
    """What the styles of a document set, by their names; both its files have some."""

    def __init__(self, *roots: etree._Element | None) -> None:
        found = [e for root in roots if root is not None for e in root.iter("{*}style")]
        self._by_name = {(attribute(e, "family"), attribute(e, "name")): e for e in found}
        lists = (e for root in roots if root is not None for e in root.iter("{*}list-style"))
        self._lists = {attribute(e, "name"): e for e in lists}

    def chain(self, family: str, name: str) -> Iterator[etree._Element]:
        """The style, and those that it is based on."""
        for _ in range(_DEEPEST):
            if (style := self._by_name.get((family, name))) is None:
                return
            yield style
            name = attribute(style, "parent-style-name")

    def names(self, name: str) -> set[str]:
        """What a paragraph's style and those that it is based on are called."""
        above = (attribute(e, "parent-style-name") for e in self.chain("paragraph", name))
        return {each.replace("_20_", " ").removesuffix(" Tight") for each in (name, *above)}

    def standing(self, family: str, name: str) -> int | None:
        """How text of a style stands on its line; None if it is struck through or hidden."""
        at: int | None = None
        for style in self.chain(family, name):
            for layout in style.iterchildren("{*}text-properties"):
                if attribute(layout, "display") == "none":
                    return None
                struck = {attribute(layout, f"text-line-through-{e}") for e in ("style", "type")}
                if struck - {"", "none"}:
                    return None
                moved = attribute(layout, "text-position").split()
                if moved and at is None:
                    low = moved[0] == "sub" or moved[0].startswith("-")
                    at = LOWERED if low else PLAIN if moved[0] in ("0%", "0") else RAISED
        return at or PLAIN

    def numbering(self, name: str, level: int) -> etree._Element | None:
        """How items of a list are numbered; None if they have bullets."""
        style = self._lists.get(name)
        told = () if style is None else style.iterchildren("{*}list-level-style-number")
        return next((e for e in told if attribute(e, "level") == str(level)), None)


class _Reader:
    """Reads the body of a document into an outline."""

    def __init__(self, package: ZipFile, name: str, body: etree._Element) -> None:
        self.outline = RunningOutline()
        self.title = ""
        self.uncomputed = 0
        """formulas without a kept value"""
        self._package, self._name = package, name
        self._styles = _NamedStyles(part_of(package, "styles.xml", name), body.getparent())
        self._aside: list[etree._Element] = []
        self._counts: dict[tuple[str, int], int] = {}
        self._left = MOST_REPEATED

    def slides(self, presentation: etree._Element) -> None:
        for number, page in enumerate(presentation.iterchildren("{*}page"), start=1):
            frames = page.iterchildren("{*}frame")
            named = [e for e in frames if attribute(e, "class") == "title"]
            title = " ".join(" ".join(self._text(p) for e in named for p in e.iter("{*}p")).split())
            self.outline.head(1, f"slide {number}: {title}".rstrip(": "))
            self.outline.add(BlockKind.PARAGRAPH, title)
            rest = [e for e in page if e not in named and tag_of(e) != "notes"]
            notes = [e for each in page.iterchildren("{*}notes") for e in each]
            self.read(e for e in (*rest, *notes) if attribute(e, "class") not in _SAME_ON_ALL)

    def read(self, parent: Iterable[etree._Element], *, sheets: bool = False) -> None:
        for element in parent:
            tag = tag_of(element)
            if tag in ("p", "h"):
                self._paragraph(element)
            elif tag == "list":
                self._list(element, attribute(element, "style-name"), 1)
            elif tag == "table":
                self._table(element, sheet=sheets)
            elif tag == "object":
                self._object(element)
            elif tag and tag not in _NO_TEXT:
                self.read(element)

    def _paragraph(self, element: etree._Element) -> None:
        names, before = (
            self._styles.names(attribute(element, "style-name")),
            len(self.outline.notes),
        )
        text = self._text(element).strip("\n")
        told = " ".join(text.split())
        if tag_of(element) == "h" and told:
            level = attribute(element, "outline-level")
            level = level if level.isdecimal() and len(level) < 3 else "1"
            self.outline.head(max(int(level), 1), told, before)
        elif _CODE in names:
            self.outline.hold(BlockKind.CODE, text)
        elif _TITLE in names and not self.title:
            self.title = told
        elif told and names & _TERMS | names & _MEANINGS:
            self.outline.hold(BlockKind.PARAGRAPH, "    " * bool(names & _MEANINGS) + told)
        else:
            self.outline.add(BlockKind.PARAGRAPH, told)
        self._read_aside()

    def _read_aside(self) -> None:
        """What stands apart from the line that it is anchored in."""
        aside, self._aside = self._aside, []
        self.read(aside)

    def _list(self, element: etree._Element, style: str, level: int) -> None:
        number = self._styles.numbering(style, level)
        if attribute(element, "continue-numbering") != "true" and level == 1:
            self._counts.pop((style, level), None)
        for item in element.iterchildren("{*}list-item", "{*}list-header"):
            mark = "" if tag_of(item) == "list-header" else self._mark(style, level, number, item)
            for child in item:
                tag = tag_of(child)
                if tag == "list":
                    self._list(child, attribute(child, "style-name") or style, level + 1)
                elif tag == "p":
                    told = " ".join(self._text(child).split())
                    lead = "  " * (min(level, _DEEPEST) - 1) + (f"{mark} " if mark else "")
                    if told:
                        self.outline.hold(BlockKind.LIST, lead + told)
                        mark = " " * len(mark)
                    self._read_aside()
                else:
                    self.read([child])

    def _mark(
        self, style: str, level: int, number: etree._Element | None, item: etree._Element
    ) -> str:
        """`-`, or the item's number as it is shown."""
        for deeper in [key for key in self._counts if key[0] == style and key[1] > level]:
            del self._counts[deeper]
        form = "" if number is None else attribute(number, "num-format")
        if number is None or not form:
            return "-"
        begin = attribute(item, "start-value") or attribute(number, "start-value")
        known = self._counts.get((style, level))
        if known is None or attribute(item, "start-value"):
            known = int(begin) - 1 if begin.isdecimal() else 0
        self._counts[style, level] = known + 1
        shown = int(levels) if (levels := attribute(number, "display-levels")).isdecimal() else 1
        counts = [self._counts.get((style, n), 1) for n in range(max(level - shown, 0) + 1, level)]
        told = ".".join([*map(str, counts), counted(known + 1, _FORMS.get(form, ""))])
        told = f"{attribute(number, 'num-prefix')}{told}{attribute(number, 'num-suffix')}"
        return f"{told}." if told.isalnum() else told

    def _table(self, table: etree._Element, *, sheet: bool) -> None:
        if sheet:
            self.outline.head(1, attribute(table, "name"))
        comments: list[str] = []
        told: list[list[Cell]] = []
        gap = 0
        for row, is_header in _rows(table):
            cells = [
                each
                for cell in row.iterchildren("{*}table-cell")
                for each in self._cells(cell, is_header=is_header, sheet=sheet)
            ]
            comments += (text for e in row.iter("{*}annotation") if (text := self._comment(e)))
            while cells and not cells[-1].text and cells[-1].columns == 1:
                cells.pop()
            count = self._repeated(row, "number-rows-repeated")
            if not cells:
                gap += count
                continue
            count = min(count, 1 + self._left // len(cells))
            self._left -= (count - 1) * len(cells)
            told += repeat([], min(gap, _MOST_ROWS - len(told)))
            told += repeat(cells, count)
            gap = 0
        rows, headers = grid_of(told)
        self.outline.extend(table_blocks(rows, headers, placed=sheet))
        for comment in comments if sheet else ():
            self.outline.add(BlockKind.NOTE, f"comment: {comment}")
        self._read_aside()
        for shapes in table.iterchildren("{*}shapes"):
            self.read(shapes)

    def _comment(self, annotation: etree._Element) -> str:
        return " ".join(" ".join(self._text(p) for p in annotation.iter("{*}p")).split())

    @staticmethod
    def _repeated(element: etree._Element, name: str) -> int:
        count = attribute(element, name)
        return min(max(int(count), 1), _MOST_ROWS) if count.isdecimal() and len(count) < 9 else 1

    def _cells(self, cell: etree._Element, *, is_header: bool, sheet: bool) -> Iterator[Cell]:
        kept = " ".join(self._inner(cell).split())
        text = _shown(cell, kept) if sheet else kept
        if attribute(cell, "formula") and not text and attribute(cell, "value-type") != "string":
            self.uncomputed += 1
        rows = self._repeated(cell, "number-rows-spanned")
        columns = self._repeated(cell, "number-columns-spanned")
        count = min(self._repeated(cell, "number-columns-repeated"), MOST_COLUMNS)
        yield from repeat(Cell(text, rows, columns, is_header), count)

    def _inner(self, cell: etree._Element) -> str:
        """The text of a cell, on one line, with that of lists and tables in it."""
        parts: list[str] = []
        for element in cell:
            tag = tag_of(element)
            if tag in ("p", "h"):
                parts.append(self._text(element))
            elif tag in ("frame", "g", "custom-shape"):
                self._aside.append(element)
            elif tag and tag not in _NO_TEXT:
                parts.append(self._inner(element))
        return " ".join(parts)

    def _text(self, element: etree._Element) -> str:
        return join_runs(self._runs(element, PLAIN))

    def _runs(self, element: etree._Element, at: int) -> Iterator[Run]:
        yield at, _SPACE.sub(" ", element.text or "")
        for child in element:
            tag = tag_of(child)
            if tag == "span":
                own = self._styles.standing("text", attribute(child, "style-name"))
                if own is not None:
                    yield from self._runs(child, own or at)
            elif tag == "s":
                yield at, " " * min(self._repeated(child, "c"), _MOST_SPACES)
            elif tag in ("tab", "line-break"):
                yield PLAIN, " " if tag == "tab" else "\n"
            elif tag == "note":
                mark = " ".join(
                    "".join(map(str, e.itertext())) for e in child.iter("{*}note-citation")
                )
                yield PLAIN, f"[{mark.strip()}]"
                body = (p for e in child.iterchildren("{*}note-body") for p in e.iter("{*}p"))
                lines = (" ".join(self._text(p).split()) for p in body)
                self.outline.notes.append(f"[{mark.strip()}] " + "\n".join(filter(None, lines)))
            elif tag in _SHAPES:
                formula = self._formula(child)
                if formula:
                    yield PLAIN, formula
                else:
                    self._aside.append(child)
            elif tag and tag not in _NO_TEXT:
                yield from self._runs(child, at)
            yield at, _SPACE.sub(" ", child.tail or "")

    def _formula(self, frame: etree._Element) -> str:
        """The formula that a frame holds, or ""."""
        for element in frame.iter("{*}object"):
            for math in self._roots(element):
                if tag_of(math) == "math":
                    return linear_mathml(math)
        return ""

    def _roots(self, element: etree._Element) -> Iterator[etree._Element]:
        """What an object is: in the document itself, or in a part of its own."""
        yield from element.iterchildren("{*}math")
        place = attribute(element, "href").removeprefix("./").strip("/")
        root = part_of(self._package, f"{place}/content.xml", self._name) if place else None
        if root is not None:
            yield root

    def _object(self, element: etree._Element) -> None:
        for root in self._roots(element):
            if tag_of(root) == "math":
                self.outline.add(BlockKind.FORMULA, linear_mathml(root))
            else:
                for chart in root.iter("{*}chart"):
                    titles = chart.iterchildren("{*}title")
                    told = (self._text(p) for e in titles for p in e.iter("{*}p"))
                    self.outline.add(BlockKind.PARAGRAPH, " ".join(" ".join(told).split()))
                    for table in chart.iterchildren("{*}table"):
                        self._table(table, sheet=False)


def _rows(
    parent: etree._Element, *, is_header: bool = False
) -> Iterator[tuple[etree._Element, bool]]:
    for element in parent:
        tag = tag_of(element)
        if tag == "table-row":
            yield element, is_header
        elif tag in _ROWS:
            yield from _rows(element, is_header=is_header or tag == "table-header-rows")


def _shown(cell: etree._Element, text: str) -> str:
    """The value of a sheet's cell as it is shown; dates in ISO's form, which is kept beside it."""
    kind = attribute(cell, "value-type")
    if kind == "date" and (moment := attribute(cell, "date-value")):
        return moment.replace("T", " ").removesuffix(" 00:00:00").removesuffix(":00")
    if kind == "percentage":
        told = text or show(attribute(cell, "value"), "0.##%")
        return re.sub(r"(?<=\d)%$", " %", told)
    if text:
        return text
    return attribute(cell, "boolean-value").upper() or attribute(cell, "value")


READERS = dict.fromkeys((".odt", ".ott", ".ods", ".ots", ".odp"), package_reader(_of_document))
