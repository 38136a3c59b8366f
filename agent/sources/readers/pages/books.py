"""Books (epub), in the order of their spine."""

import posixpath
from urllib.parse import unquote
from zipfile import ZipFile

from rubricem.agent.sources.readers.document import Section
from rubricem.agent.sources.readers.encoding import decode
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    package_reader,
    part_of,
    pieces_of,
)
from rubricem.agent.sources.readers.pages.markup import page_of
from rubricem.memory.errors import SourceError


@package_reader
def read_book(package: ZipFile, name: str) -> tuple[str, Sections]:
    """The chapters of an EPUB, in the order of its spine."""
    container = part_of(package, "META-INF/container.xml", name)
    roots = [] if container is None else list(container.iter("{*}rootfile"))
    opf = attribute(roots[0], "full-path") if roots else ""
    if (root := part_of(package, opf, name)) is None:
        raise SourceError(f"{name} names no book.", "Save it again as epub.")
    files = {attribute(e, "id"): attribute(e, "href") for e in root.iter("{*}item")}
    sections: list[Section] = []
    for each in root.iter("{*}itemref"):
        href = unquote(files.get(attribute(each, "idref"), "").partition("#")[0])
        part = posixpath.normpath(posixpath.join(posixpath.dirname(opf), href))
        if href and part in package.NameToInfo:
            title, told = page_of(decode(b"".join(pieces_of(package, part, name)))[0])
            sections += (s if s.path else Section((title,), s.blocks) for s in told)
    return next((e.text or "" for e in root.iter("{*}title")), "").strip(), tuple(sections)
