"""What the parts of Office's files share: runs of text, DrawingML, charts and diagrams.

A chart is told from the values that it keeps of its workbook, a diagram (SmartArt) by its texts.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import Block, BlockKind, Outline, Section
from rubricem.agent.sources.readers.formulas import linear_omml, lowered, raised
from rubricem.agent.sources.readers.office.formats import show
from rubricem.agent.sources.readers.packages import (
    attribute,
    child_of,
    part_of,
    relations_of,
    tag_of,
    value_of,
)
from rubricem.agent.sources.readers.tables import MOST_COLUMNS, Cell, grid_of, table_blocks

PLAIN, RAISED, LOWERED, NOTED = 0, 1, -1, 2
"""how a run stands; `NOTED` is a superscript that leads to a note"""
_SEEN = 40
"""characters beside a superscript that tell what it means"""
_MOST_POINTS = 10_000
"""of a chart"""

_MOST_DIGITS = 9
Run = tuple[int, str]


class RunningOutline(Outline):
    """An outline of paragraphs that come one by one.

    Lines of a list, of code or of an entry gather in a block, notes wait for the end of a section.
    """

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self._kind, self._lines = BlockKind.PARAGRAPH, list[str]()

    def head(self, level: int, name: str, before: int | None = None) -> None:
        """`before`: how many notes waited before those of the heading itself."""
        own = [] if before is None else self.notes[before:]
        self.notes = self.notes[:before]
        self.end_section()
        super().head(level, name)
        self.notes = own

    def add(self, kind: BlockKind, text: str, place: str = "") -> None:
        if text.strip():
            self._flush()
            super().add(kind, text, place)

    def hold(self, kind: BlockKind, line: str) -> None:
        """A line of a block that goes on while lines of its kind come, of an entry to the next."""
        entry = kind == BlockKind.PARAGRAPH and self._lines[-1:] and self._lines[-1][0] == " "
        if kind != self._kind or (entry and line[0] != " "):
            self._flush()
        self._kind = kind
        self._lines.append(line)

    def end_section(self) -> None:
        self._flush()
        for note in self.notes:
            super().add(BlockKind.NOTE, note)
        self.notes = []

    def sections(self) -> tuple[Section, ...]:
        self.end_section()
        return super().sections()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        super().add(self._kind, "\n".join(lines))


def join_runs(runs: Iterable[Run]) -> str:
    """The text of runs, superscripts and subscripts as `^2` and `_max`."""
    merged = [(at, "".join(text for _, text in each)) for at, each in groupby(runs, lambda r: r[0])]
    parts: list[str] = []
    seen = ""
    for number, (at, text) in enumerate(merged):
        if at != PLAIN and text.strip():
            after = merged[number + 1][1][:_SEEN] if number + 1 < len(merged) else ""
            lead, trail = " " * text[0].isspace(), " " * text[-1].isspace()
            before, after = seen + lead, trail + after
            if at == LOWERED:
                told = lowered(text, before, after)
            else:
                told = raised(text, before, after, noted=at == NOTED)
            text = lead + told + trail
        parts.append(text)
        seen = (seen + text)[-_SEEN:]
    return "".join(parts)


def counted(number: int, form: str) -> str:
    """The number of a list item or a note: in letters or Roman digits, else in decimal ones.

    `form`: as Word calls it, such as "lowerLetter" or "upperRoman".
    """
    if form.endswith("Letter") and number > 0:
        told = chr(97 + (number - 1) % 26) * ((number - 1) // 26 + 1)
    elif form.endswith("Roman") and 0 < number < 4000:
        told = "m" * (number // 1000)
        for digit, one, five, ten in zip(f"{number % 1000:03d}", "cxi", "dlv", "mcx", strict=True):
            left = int(digit) % 5
            told += (
                (one + (ten if digit == "9" else five))
                if left == 4
                else (five * (digit >= "5") + one * left)
            )
    else:
        told = str(number)
    return told.upper() if form.startswith("upper") else told


def is_on(parent: etree._Element | None, *names: str) -> bool:
    """Whether one of the properties called so is set, and not to "off"."""
    found = (child_of(parent, name) for name in names)
    return any(
        e is not None and attribute(e, "val") not in ("0", "false", "off", "none") for e in found
    )


def paragraphs_of(shape: etree._Element) -> list[str]:
    """The paragraphs of DrawingML that have text, line breaks as spaces."""
    told = (join_runs(_drawn(p)) for p in shape.iter("{*}p"))
    return [folded for text in told if (folded := " ".join(text.split()))]


def _drawn(paragraph: etree._Element) -> Iterator[Run]:
    for element in paragraph:
        tag = tag_of(element)
        if tag in ("oMath", "oMathPara"):
            yield PLAIN, linear_omml(element)
        elif tag in ("r", "fld"):
            layout = child_of(element, "rPr")
            raise_by = "" if layout is None else attribute(layout, "baseline")
            if layout is None or attribute(layout, "strike") in ("", "noStrike"):
                at = (raise_by not in ("", "0", "0%")) * (
                    LOWERED if raise_by[:1] == "-" else RAISED
                )
                yield at, "".join(e.text or "" for e in element if tag_of(e) == "t")
        elif tag in ("br", "tab"):
            yield PLAIN, " "
        elif tag == "t":
            yield PLAIN, element.text or ""
        elif tag not in ("Fallback", "pPr", "endParaRPr"):
            yield from _drawn(element)


def drawn_table(table: etree._Element) -> Iterator[Block]:
    """A table of DrawingML; cells that others cover are left out of its rows."""
    rows = (
        [
            Cell(
                " ".join(paragraphs_of(cell)),
                cells_of(attribute(cell, "rowSpan")),
                cells_of(attribute(cell, "gridSpan")),
            )
            for cell in row.iterchildren("{*}tc")
            if not {attribute(cell, "hMerge"), attribute(cell, "vMerge")} & {"1", "true"}
        ]
        for row in table.iterchildren("{*}tr")
    )
    return table_blocks(*grid_of(rows))


def cells_of(number: str, least: int = 1) -> int:
    """How many cells an attribute says, as far as a table can have so many."""
    known = number.isdecimal() and len(number) < _MOST_DIGITS
    return min(max(int(number), least), MOST_COLUMNS) if known else least


def drawn_parts(package: ZipFile, part: str, shape: etree._Element, name: str) -> Iterator[Block]:
    """The charts and diagrams that the elements of a part refer to."""
    ids = [attribute(e, "id") for e in shape.iter("{*}chart")]
    ids += [attribute(e, "dm") for e in shape.iter("{*}relIds")]
    related = relations_of(package, part, name) if any(ids) else {}
    for each in ids:
        root = part_of(package, related.get(each, ""), name)
        if root is None:
            continue
        if tag_of(root) == "chartSpace":
            yield from _chart(root)
        else:
            told = [text for point in root.iter("{*}pt") for text in paragraphs_of(point)]
            yield Block(BlockKind.LIST, "\n".join(f"- {text}" for text in told))


def _chart(root: etree._Element) -> Iterator[Block]:
    """Its title, and its values as a table with a column for each series."""
    title = axis = measure = ""
    for element in root.iter("{*}title"):
        told, of = " ".join(paragraphs_of(element)), element.getparent()
        if of is None or tag_of(of) == "chart":
            title = told
        elif tag_of(of) in ("catAx", "dateAx") or (
            value_of(of, "axPos") in ("b", "t") and not axis
        ):
            axis = told
        else:
            measure = told
    yield Block(BlockKind.PARAGRAPH, title)
    heads: list[str] = []
    columns: list[dict[int, str]] = []
    along: dict[int, str] | None = None
    for series in root.iter("{*}ser"):
        head = " ".join(_points(_child(series, "tx")).values()) or measure or title
        # Categories of a bar, or values along x of a scatter chart, for all series or for each.
        own = _points(_child(series, "cat", "xVal"))
        if along is not None and own and own != along:
            yield from _series(axis, heads, along, columns)
            heads, columns = [], []
        along = own or along
        heads.append(f"{head} ({measure})" if measure and measure not in head else head)
        columns.append(_points(_child(series, "val", "yVal")))
    yield from _series(axis, heads, along or {}, columns)


def _series(
    axis: str, heads: list[str], along: dict[int, str], columns: list[dict[int, str]]
) -> Iterator[Block]:
    points = sorted({*along, *(n for column in columns for n in column)})
    rows = [[along.get(n, ""), *(column.get(n, "") for column in columns)] for n in points]
    return table_blocks([[axis, *heads], *rows], 1)


def _child(parent: etree._Element, *names: str) -> etree._Element | None:
    return next((e for e in parent if tag_of(e) in names), None)


def _points(reference: etree._Element | None) -> dict[int, str]:
    """The values that a chart keeps, by their place, as their format shows them."""
    if reference is None:
        return {}
    code = next((e.text or "" for e in reference.iter("{*}formatCode")), "")
    told: dict[int, str] = {}
    for number, level in enumerate([*reference.iter("{*}lvl")] or [reference]):
        kept = {
            int(index): show("".join(e.text or "" for e in point.iterchildren("{*}v")), code)
            for point in islice(level.iter("{*}pt"), _MOST_POINTS)
            if (index := attribute(point, "idx")).isdecimal()
        }
        # The innermost categories come first; those around them begin at their first one.
        above = ""
        for place in sorted(told):
            above = kept.get(place, above)
            told[place] = f"{above} {told[place]}".strip()
        told = told if number else kept
    return told or {n: e.text or "" for n, e in enumerate(reference.iterchildren("{*}v"))}
