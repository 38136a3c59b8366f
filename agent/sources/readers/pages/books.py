"""Books (epub), in the order of their spine."""

from rubricem.agent.sources.readers.document import Section
from rubricem.agent.sources.readers.encoding import decode
from rubricem.agent.sources.readers.packages import Package, Sections, package_reader
from rubricem.agent.sources.readers.pages.markup import page_of
from rubricem.agent.sources.readers.pages.seen import Notes
from rubricem.memory.errors import SourceError


@package_reader
def read_book(package: Package) -> tuple[str, Sections]:
    """The chapters of an EPUB, in the order of its spine; their notes may stand in another one."""
    root = package.part("META-INF/container.xml").find(".//rootfile")
    opf = "" if root is None else root.get("full-path", "")
    if opf not in package.NameToInfo:
        raise SourceError(f"{package.given.name} names no book.", "Save it again as epub.")
    book, notes = package.part(opf), Notes()
    files = {e.get("id"): e.get("href", "") for e in book.iter("item")}
    sections: list[Section] = []
    sheets = (b"".join(package.pieces(part)) for part in package.NameToInfo if part[-4:] == ".css")
    style = f"<style>{''.join(decode(sheet)[0] for sheet in sheets)}</style>"
    chapters = [*book.iter("itemref")]
    package.allow(len(chapters))
    for each in chapters:
        href = files.get(each.get("idref"), "")
        part = package.beside(opf, href)
        if href and part in package.NameToInfo:
            notes.page = part.rpartition("/")[2]
            title, told = page_of(decode(b"".join(package.pieces(part)))[0] + style, notes)
            sections += (s if s.path else Section((title,), s.blocks) for s in told)
    return book.findtext(".//title", "").strip(), tuple(sections)
