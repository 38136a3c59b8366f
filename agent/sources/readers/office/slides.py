"""Slides (pptx), in the order of the package's own list, from their XML.

(python-pptx reads no diagrams, and glues the texts on both sides of a line break.)
"""

from collections.abc import Iterator
from itertools import groupby
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import Block, BlockKind, Outline
from rubricem.agent.sources.readers.office.drawing import (
    counted,
    drawn_parts,
    drawn_table,
    paragraphs_of,
)
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    child_of,
    core_title,
    in_order,
    package_reader,
    part_of,
    relations_of,
    tag_of,
)

_TITLES = ("title", "ctrTitle")
_CONTENT = "obj"
"""placeholders whose paragraphs have bullets, unless it is said that they have none"""
_FORMS = {"alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman",
          "romanUc": "upperRoman"}  # fmt: skip
_NO_CONTENT = ("sldNum", "dt", "ftr", "sldImg", "hdr")
"""placeholders that are the same on each slide"""


def _of_slides(package: ZipFile, name: str) -> tuple[str, Sections]:
    """A section for each slide, with its notes at the end."""
    outline = Outline()
    listed = in_order(package, "ppt/presentation.xml", "sldId", name)
    for number, (_, part) in enumerate(listed, start=1):
        blocks, title = list[Block](), ""
        notes = [p for p in relations_of(package, part, name).values() if "/notesSlides/" in p]
        for each in (part, *notes):
            for kind, shape in _shapes(part_of(package, each, name)):
                if kind in _TITLES:
                    title = title or " ".join(paragraphs_of(shape))
                elif tag_of(shape) == "tbl":
                    blocks += drawn_table(shape)
                elif tag_of(shape) == "graphicData":
                    blocks += drawn_parts(package, each, shape, name)
                elif kind not in _NO_CONTENT:
                    blocks += _paragraphs(shape, bulleted=kind == _CONTENT and each == part)
        if title or any(block.text for block in blocks):
            outline.head(1, f"slide {number}: {title}".rstrip(": "))
            outline.add(BlockKind.PARAGRAPH, title)
            outline.extend(blocks)
    return core_title(package, name), outline.sections()


def _shapes(root: etree._Element | None) -> Iterator[tuple[str, etree._Element]]:
    """(kind of its placeholder; shape, table or chart), in their order, those of groups too."""
    for element in (
        () if root is None else root.iter("{*}sp", "{*}cxnSp", "{*}tbl", "{*}graphicData")
    ):
        if any(tag_of(above) == "Fallback" for above in element.iterancestors()):
            continue  # the same again, for older programs
        kind = next((attribute(e, "type") or _CONTENT for e in element.iter("{*}ph")), "")
        if tag_of(element) != "graphicData" or not any(True for _ in element.iter("{*}tbl")):
            yield kind, element


def _paragraphs(shape: etree._Element, *, bulleted: bool) -> Iterator[Block]:
    """The paragraphs of a shape, those with bullets or numbers as a list."""
    lines: list[tuple[BlockKind, str]] = []
    counts: dict[int, int] = {}
    for paragraph in shape.iter("{*}p"):
        if not (text := "".join(paragraphs_of(paragraph))):
            continue
        layout = child_of(paragraph, "pPr")
        signs = {} if layout is None else {tag_of(e): attribute(e, "type") for e in layout}
        told = "" if layout is None else attribute(layout, "lvl")
        level = int(told) if told.isdecimal() and len(told) == 1 else 0
        counts = {deep: count for deep, count in counts.items() if deep <= level}
        if "buAutoNum" in signs:
            counts[level] = counts.get(level, 0) + 1
            mark = _numbered(counts[level], signs["buAutoNum"])
        else:
            counts.pop(level, None)
            mark = "-" * (
                bool({"buChar", "buBlip"} & {*signs}) or (bulleted and "buNone" not in signs)
            )
        kind = BlockKind.LIST if mark else BlockKind.PARAGRAPH
        lines.append((kind, f"{'  ' * level}{mark} {text}" if mark else text))
    for kind, each in groupby(lines, lambda line: line[0]):
        yield Block(kind, "\n".join(line for _, line in each))


def _numbered(count: int, form: str) -> str:
    """A number as `form` has it: its digits, and what stands around them ("alphaLcParenR")."""
    told = counted(count, next((own for name, own in _FORMS.items() if form.startswith(name)), ""))
    return f"({told})" if form.endswith("ParenBoth") else told + ")."[not form.endswith("ParenR")]


READERS = dict.fromkeys((".pptx", ".pptm", ".ppsx"), package_reader(_of_slides))
