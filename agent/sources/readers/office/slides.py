"""Slides (pptx), in the order of the package's own list, from their XML.

(python-pptx reads no diagrams, and glues the texts on both sides of a line break.)
"""

from collections.abc import Iterator
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import Block, BlockKind, Outline
from rubricem.agent.sources.readers.office.drawing import drawn_parts, drawn_table, paragraphs_of
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    core_title,
    in_order,
    package_reader,
    part_of,
    relations_of,
    tag_of,
)

_TITLES = ("title", "ctrTitle")
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
                    blocks.append(Block(BlockKind.PARAGRAPH, "\n".join(paragraphs_of(shape))))
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
        kind = next((attribute(e, "type") for e in element.iter("{*}ph")), "")
        if tag_of(element) != "graphicData" or not any(True for _ in element.iter("{*}tbl")):
            yield kind, element


READERS = dict.fromkeys((".pptx", ".pptm", ".ppsx"), package_reader(_of_slides))
