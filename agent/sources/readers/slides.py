"""Slides (pptx), in the order of the package's own list, from their XML."""

from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import BlockKind, Outline
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


def _of_slides(package: ZipFile, name: str) -> tuple[str, Sections]:
    """A section for each slide, with its notes at the end."""
    outline = Outline()
    listed = in_order(package, "ppt/presentation.xml", "sldId", name)
    for number, (_, part) in enumerate(listed, start=1):
        lines, title = list[str](), ""
        notes = [p for p in relations_of(package, part, name).values() if "/notesSlides/" in p]
        for each in (part, *notes):
            root = part_of(package, each, name)
            for shape in () if root is None else root.iter("{*}sp", "{*}tr"):
                kind = next((attribute(e, "type") for e in shape.iter("{*}ph")), "")
                told = _paragraphs_of(shape)
                if kind in ("title", "ctrTitle"):
                    title = title or " ".join(told)
                elif kind not in ("sldNum", "dt", "ftr", "sldImg"):
                    lines += [" | ".join(told)] if tag_of(shape) == "tr" else [*told, ""]
        if title or any(lines):
            outline.head(1, f"slide {number}: {title}".rstrip(": "))
            outline.add(BlockKind.PARAGRAPH, "\n".join([title, "", *lines]).strip())
    return core_title(package, name), outline.sections()


def _paragraphs_of(shape: etree._Element) -> list[str]:
    """The non-empty paragraphs of a shape, or of a table's row."""
    found = ("".join(t.text or "" for t in p.iter("{*}t")) for p in shape.iter("{*}p"))
    return [text for text in found if text.strip()]


READERS = {".pptx": package_reader(_of_slides)}
