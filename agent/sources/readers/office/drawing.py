"""What the parts of Office's files share: DrawingML, charts and diagrams.

A chart is told from the values that it keeps of its workbook, a diagram (SmartArt) by its texts.
"""

from collections.abc import Iterator
from itertools import islice

from lxml import etree

from rubricem.agent.sources.readers.formulas import linear_office
from rubricem.agent.sources.readers.office.formats import show
from rubricem.agent.sources.readers.office.page import Page, Run, line_of
from rubricem.agent.sources.readers.packages import Package, value_of
from rubricem.agent.sources.readers.tables import Cell

SCRIPTS = {"superscript": "sup", "subscript": "sub"}
_ALONG = ("catAx", "dateAx")
_MOST_POINTS = 10_000
"""of a chart"""


def is_on(parent: etree._Element | None, name: str) -> bool:
    """Whether the property called so is set, and not to "off"."""
    found = None if parent is None else parent.find(name)
    return found is not None and found.get("val") not in ("0", "false", "off", "none")


def formulas_of(element: etree._Element) -> Iterator[Run]:
    """The formulas of an `oMath`, or of an `oMathPara`, which stand in lines of their own."""
    if element.tag == "oMath":
        yield "", linear_office(element)
    for formula in element.iterchildren("oMath") if element.tag == "oMathPara" else ():
        told = etree.Element("math", display="block")
        etree.SubElement(told, "mtext").text = linear_office(formula)
        yield told


def drawn_runs(paragraph: etree._Element) -> Iterator[Run]:
    """The runs of a paragraph of DrawingML, line breaks as spaces."""
    for element in paragraph:
        if element.tag in ("oMath", "oMathPara"):
            yield from formulas_of(element)
        elif element.tag in ("r", "fld"):
            layout = element.find("rPr")
            by = "" if layout is None else layout.get("baseline", "")
            if layout is None or layout.get("strike", "noStrike") == "noStrike":
                at = "" if by in ("", "0", "0%") else "sub" if by[0] == "-" else "sup"
                yield at, "".join(e.text or "" for e in element.iterchildren("t"))
        elif element.tag in ("br", "tab"):
            yield "", " "
        elif element.tag not in ("Fallback", "pPr", "endParaRPr"):
            yield from drawn_runs(element)


def drawn_lines(shape: etree._Element) -> list[str]:
    """The paragraphs of DrawingML that have text."""
    return list(filter(None, (line_of(drawn_runs(p)) for p in shape.iter("p"))))


def add_parts(page: Page, package: Package, part: str, shape: etree._Element) -> None:
    """Tell the charts and diagrams that the elements of a part refer to."""
    ids = [e.get("id", "") for e in shape.iter("chart")]
    ids += [e.get("dm", "") for e in shape.iter("relIds")]
    related = package.relations(part) if any(ids) else {}
    for each in ids:
        root = package.part(related.get(each, ""))
        if root.tag == "chartSpace":
            _add_chart(page, root)
            continue
        for text in (text for point in root.iter("pt") for text in drawn_lines(point)):
            page.add("li", [("", text)], inside="ul")


def _add_chart(page: Page, root: etree._Element) -> None:
    """Its title, and its values as a table with a column for each series."""
    title = axis = measure = ""
    for element in root.iter("title"):
        told, of = " ".join(drawn_lines(element)), element.getparent()
        if of is None or of.tag == "chart":
            title = told
        elif of.tag in _ALONG or (value_of(of, "axPos") in ("b", "t") and not axis):
            axis = told
        else:
            measure = told
    page.add("p", [("", title)])
    columns: list[tuple[str, dict[int, str]]] = []
    along: dict[int, str] = {}
    for series in root.iter("ser"):
        head = " ".join(_points(series, "tx").values()) or measure or title
        # Categories of a bar, or values along x of a scatter chart, for all series or for each.
        own = _points(series, "cat", "xVal")
        if columns and own and own != along:
            page.table(_rows_of(axis, along, columns))
            columns = []
        along = own or along
        head = f"{head} ({measure})" if measure and measure not in head else head
        columns.append((head, _points(series, "val", "yVal")))
    page.table(_rows_of(axis, along, columns))


def _rows_of(
    axis: str, along: dict[int, str], columns: list[tuple[str, dict[int, str]]]
) -> Iterator[list[Cell]]:
    yield [Cell(head, is_header=True) for head in (axis, *(head for head, _ in columns))]
    told = [along, *(column for _, column in columns)]
    for point in sorted({n for column in told for n in column}):
        yield [Cell(column.get(point, "")) for column in told]


def _points(series: etree._Element, *names: str) -> dict[int, str]:
    """The values that a chart keeps, by their place, as their format shows them."""
    reference = next(series.iterchildren(*names), None)
    if reference is None:
        return {}
    code = reference.findtext(".//formatCode", "")
    told: dict[int, str] = {}
    for number, level in enumerate([*reference.iter("lvl")] or [reference]):
        kept = {
            int(index): show(point.findtext("v", ""), code)
            for point in islice(level.iter("pt"), _MOST_POINTS)
            if (index := point.get("idx", "")).isdecimal()
        }
        # The innermost categories come first; those around them begin at their first one.
        above = ""
        for place in sorted(told):
            above = kept.get(place, above)
            told[place] = f"{above} {told[place]}".strip()
        told = told if number else kept
    return told or {n: e.text or "" for n, e in enumerate(reference.iterchildren("v"))}
