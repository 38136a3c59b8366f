"""Slides (pptx), in the order of the package's own list, from their XML.

(python-pptx reads no diagrams, and glues the texts on both sides of a line break.)
"""

from collections import Counter
from collections.abc import Iterator

from lxml import etree

from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.office.drawing import add_parts, drawn_lines, drawn_runs
from rubricem.agent.sources.readers.office.page import Page, count_of, without_hidden
from rubricem.agent.sources.readers.packages import Package, Sections, package_reader
from rubricem.agent.sources.readers.pages.markup import counted
from rubricem.agent.sources.readers.tables import Cell

_TITLES = ("title", "ctrTitle")
_CONTENT = "obj"
"""placeholders whose paragraphs have bullets, unless it is said that they have none"""
_UNSEEN = etree.XPath(names_of("slides")["unseen"])
"""the same again for older programs, and what is hidden"""
_FORMS = {"alphaLc": "a", "alphaUc": "A", "romanLc": "i", "romanUc": "I"}
_NO_CONTENT = ("sldNum", "dt", "ftr", "sldImg", "hdr")
"""placeholders that are the same on each slide"""


@package_reader
def read_slides(package: Package) -> tuple[str, Sections, str]:
    """A section for each slide that is shown, with its notes at the end."""
    page, hidden = Page(), Counter[str]()
    listed = package.listed("ppt/presentation.xml", "sldId")
    for number, (_, part) in enumerate(listed, start=1):
        root = package.part(part)
        if root.get("show") in ("0", "false"):
            hidden["slide"] += 1
            continue
        notes = [each for each in package.relations(part).values() if "/notesSlides/" in each]
        roots = ((part, root), *((each, package.part(each)) for each in notes))
        shapes = [(each, *shape) for each, root in roots for shape in _shapes(root)]
        titles = (" ".join(drawn_lines(shape)) for _, kind, shape in shapes if kind in _TITLES)
        title = next(filter(None, titles), "")
        page.head(1, [("", f"slide {number}: {title}".rstrip(": "))])
        page.add("p", [("", title)])
        for each, kind, shape in shapes:
            if shape.tag == "tbl":
                page.table(_cells_of(shape))
            elif shape.tag == "graphicData":
                add_parts(page, package, each, shape)
            elif shape.tag == "pic":
                page.image(next((e.get("descr", "") for e in shape.iter("cNvPr")), ""))
            elif kind not in _NO_CONTENT and kind not in _TITLES:
                _add_paragraphs(page, shape, bulleted=kind == _CONTENT and each == part)
    return "", tuple(e for e in page.sections() if e.text != e.heading), without_hidden(hidden)


def _shapes(root: etree._Element) -> Iterator[tuple[str, etree._Element]]:
    """(kind of its placeholder; shape, table or chart), in their order, those of groups too."""
    for element in root.iter("sp", "cxnSp", "tbl", "graphicData", "pic"):
        if _UNSEEN(element):
            continue
        kind = next((e.get("type", _CONTENT) for e in element.iter("ph")), "")
        if element.tag != "graphicData" or next(element.iter("tbl"), None) is None:
            yield kind, element


def _cells_of(table: etree._Element) -> Iterator[Iterator[Cell]]:
    """The rows of a table of DrawingML; cells that others cover are left out."""
    for row in table.iterchildren("tr"):
        yield (
            Cell(
                " ".join(drawn_lines(cell)),
                count_of(cell.get("rowSpan", "")),
                count_of(cell.get("gridSpan", "")),
            )
            for cell in row.iterchildren("tc")
            if not {cell.get("hMerge"), cell.get("vMerge")} & {"1", "true"}
        )


def _add_paragraphs(page: Page, shape: etree._Element, *, bulleted: bool = False) -> None:
    """The paragraphs of a shape, those with bullets or numbers as a list."""
    counts: dict[int, int] = {}
    for paragraph in shape.iter("p"):
        if next(paragraph.iter("t"), None) is None:
            continue
        signs = {e.tag: e.get("type", "") for e in paragraph.iterfind("pPr/*")}
        told = next((e.get("lvl", "") for e in paragraph.iterchildren("pPr")), "")
        level = int(told) if told.isdecimal() and len(told) == 1 else 0
        counts = {deep: count for deep, count in counts.items() if deep <= level}
        mark, form = "", signs.get("buAutoNum")
        if form is not None:
            starts = (e.get("startAt", "") for e in paragraph.iterfind("pPr/buAutoNum"))
            counts[level] = counts.get(level, count_of("".join(starts)) - 1) + 1
            mark = counted(counts[level], _FORMS.get(form[:7], ""))
            mark += ")" if "Paren" in form else "."
        else:
            counts.pop(level, None)
            if {"buChar", "buBlip"} & {*signs} or (bulleted and "buNone" not in signs):
                mark = "-"
        if mark:
            page.add("li", drawn_runs(paragraph), inside="ul", mark="  " * level + mark)
        else:
            page.add("p", drawn_runs(paragraph))
