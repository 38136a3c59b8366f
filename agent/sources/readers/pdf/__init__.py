"""PDF, page by page, laid out as a person sees it: words by their gaps, lines by their baselines.

Of the words are made superscripts, tables with and without rules, columns in their order, and
paragraphs whose broken words are joined. Lengths are in points, y goes upwards. Text that is turned
is laid out by itself, after what most of the page says.

pypdfium2 (Chrome's PDFium) is used since it gives characters with their boxes in less time than
pypdf takes for text without, mends broken references, knows fonts' odd codes, and takes 60 MB
where pypdf takes 120. pdfminer.six, which pdfplumber builds on, takes twice the time of pypdf.
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from ctypes import c_ushort, sizeof
from typing import Any

from pypdfium2 import PdfDocument, PdfiumError, PdfPage, raw

from rubricem.agent.sources.readers.document import (
    DEEPEST,
    BlockKind,
    Document,
    Input,
    Outline,
    title_of,
)
from rubricem.agent.sources.readers.office.page import without_hidden
from rubricem.agent.sources.readers.pdf.glyphs import BROKEN, Table
from rubricem.agent.sources.readers.pdf.layout import Part, parts_of_page
from rubricem.agent.sources.readers.tables import Row, has_header, header_of, table_blocks
from rubricem.memory.errors import SourceError

LARGEST_SHARE = 0.2
"""of a document's letters that headings may have; above it larger letters mean no heading"""
MOST_OF_HEADING = 16
"""words"""
_SAME = 3.0
"""points between the sides of a table on two pages"""
_LARGER = 1.15
"""times the size of most of the text, from which a short line is a heading"""

MOST_PAGES = 10_000
_using = threading.Lock()
"""PDFium is used from one thread at a time"""


def read_pdf(given: Input, clock: Any = time.process_time) -> Document:
    """The pages; at the time limit those read so far, with a note that says so.

    Raises SourceError if it is encrypted or has no text.
    """
    with _using:
        try:
            file = PdfDocument(given.file)
        except PdfiumError as cause:
            if cause.err_code != raw.FPDF_ERR_PASSWORD:
                raise
            raise SourceError(
                f"{given.name} is encrypted.", "Save a copy of it that opens without a password."
            ) from cause
        try:
            title, whole = file.get_metadata_value("Title"), len(file)
            until = clock() + given.seconds
            pages: list[list[Part]] = []
            unseen = Counter[str]()
            for number in range(min(whole, MOST_PAGES)):
                if clock() >= until:
                    break
                given.get_on()
                parts, unseen_words = _read_page(file, number)
                pages.append(parts)
                unseen["word"] += unseen_words
        finally:
            file.close()
    outline = _outlined(pages)
    sections = outline.sections()
    if not sections and len(pages) < whole:
        raise SourceError(f"{given.name} takes too long to read.", "Name a shorter document.")
    if not sections:
        raise SourceError(
            f"{given.name} has no text in its {whole} pages.",
            "It was probably scanned: run text recognition on it first.",
        )
    empty = sum(not page for page in pages)
    cut = f"{len(pages)} of {whole} pages" if len(pages) < whole else ""
    told = f"{empty} of {len(pages)} pages have no text" if empty else ""
    in_part = f"read in part: {'; '.join(filter(None, (cut, told)))}" * bool(cut or told)
    note = "; ".join(filter(None, (in_part, without_hidden(unseen))))
    return Document(title_of((), given.stem, title), sections, note)


def _read_page(file: PdfDocument, number: int) -> tuple[list[Part], int]:
    """As `parts_of_page`, with what is typed into forms; nothing of a page that is damaged."""
    with suppress(PdfiumError):
        with closing(file[number]) as page:
            held = [*_annotations(page)]
            comments = [Part(BlockKind.NOTE, f"[comment] {told}") for _, told in held if told]
            # Flattening may change signs, so only what is typed or struck out is drawn by it.
            if {kind for kind, _ in held} - {
                raw.FPDF_ANNOT_LINK,
                raw.FPDF_ANNOT_POPUP,
                *_COMMENTING[:-1],
            }:
                # Flattening gives a page that has its size from above the size of a letter.
                page.set_mediabox(*page.get_bbox())
                raw.FPDFPage_Flatten(page.raw, raw.FLAT_NORMALDISPLAY)
        with closing(file[number]) as page, closing(page.get_textpage()) as text:
            parts, unseen = parts_of_page(page, text.raw)
            return parts + comments, unseen
    return [], 0


_COMMENTING = (raw.FPDF_ANNOT_TEXT, *range(raw.FPDF_ANNOT_HIGHLIGHT, raw.FPDF_ANNOT_STAMP))
"""kinds of annotations whose words are shown when they are asked for"""


def _annotations(page: PdfPage) -> Iterator[tuple[int, str]]:
    """(the kind of each, what it says if it is a comment)."""
    held = (c_ushort * 30_000)()
    for at in range(raw.FPDFPage_GetAnnotCount(page.raw)):
        comment = raw.FPDFPage_GetAnnot(page.raw, at)
        kind, told = raw.FPDFAnnot_GetSubtype(comment), ""
        if kind in _COMMENTING:
            size = raw.FPDFAnnot_GetStringValue(comment, b"Contents", held, sizeof(held))
            told = bytes(held)[: size if size < sizeof(held) else 0].decode("utf-16-le", "replace")
        yield kind, " ".join(told.replace("\0", " ").split())
        raw.FPDFPage_CloseAnnot(comment)


def _outlined(pages: list[list[Part]]) -> Outline:
    """The blocks under their headings, with broken words mended."""
    parts = [part for page in pages for part in page]
    headings = _headings(parts)
    whole = "\n".join(part.text for part in parts).lower()
    known = Counter(_COMPOUND.findall(whole)) if BROKEN in whole else Counter[str]()
    outline = Outline()
    above, header, told = Table([]), list[Row](), 0
    for number, page in enumerate(pages, 1):
        for part in page:
            place = f"page {number}"
            if part.table:
                table = part.table
                if told > 2 or not _goes_on(above, table):
                    header = header_of(table.rows, table.headers)
                    blocks = table_blocks(table.rows, table.headers)
                else:
                    blocks = table_blocks([*header, *table.rows], len(header) or None)
                above, told = table, 0
                for block in blocks:
                    outline.add(block.kind, _mended(block.text, known), place)
                continue
            # At the foot of a page and the head of the next one may stand a line each.
            told += 1 if len(part.text.split()) < MOST_OF_HEADING else 3
            if level := headings.get(id(part)):
                outline.head(level, _mended(part.text, known))
            else:
                outline.add(part.kind, _mended(part.text, known), place)
    return outline


def _goes_on(above: Table, table: Table) -> bool:
    """Whether a table is the rest of one on the page before, whose header it does not repeat."""
    first, last = (
        next((row for row in each.rows if not isinstance(row, str)), []) for each in (table, above)
    )
    near = all(abs(a - b) < _SAME for a, b in zip(above.ends, table.ends, strict=True))
    return near and len(first) == len(last) > 1 and first != last and not has_header(table.rows)


def _headings(parts: list[Part]) -> dict[int, int]:
    """The levels of headings by identity: short parts in larger letters than most of the text."""
    sizes = Counter[float]()
    for part in parts:
        sizes[_rounded(part.size)] += len(part.text) * bool(part.size)
    usual = sizes.most_common(1)[0][0] if sizes else 0.0
    repeated = Counter(part.text for part in parts)
    found = [
        part
        for part in parts
        if part.kind == BlockKind.PARAGRAPH
        and part.size > _LARGER * usual
        and len(part.text.split()) <= MOST_OF_HEADING
        and re.search(r"[^\W\d_]{2}", part.text)
        and repeated[part.text] < 3  # else it stands at the head of pages
    ]
    if sum(len(part.text) for part in found) > LARGEST_SHARE * sum(sizes.values()):
        return {}
    order = sorted({_rounded(part.size) for part in found}, reverse=True)
    levels = {id(part): order.index(_rounded(part.size)) + 1 for part in found}
    below = 0
    for part in reversed(parts):
        if levels.get(id(part), below - 1) >= below:
            del levels[id(part)]  # nothing stands under it
        below = levels.get(id(part), DEEPEST + 1)
    return levels


def _rounded(size: float) -> float:
    return round(2 * size) / 2


_COMPOUND = re.compile(rf"[^\W\d_]+(?:[-{BROKEN}][^\W\d_]+)*")


def _mended(text: str, known: Mapping[str, int]) -> str:
    """The text with broken words joined; with a hyphen, where only so they occur elsewhere."""
    if BROKEN not in text:
        return text.replace("\u00ad", "")

    def mend(found: re.Match[str]) -> str:
        joined, parted = (found[0].replace(BROKEN, each) for each in ("", "-"))
        return parted if known[parted.lower()] > known[joined.lower()] else joined

    return _COMPOUND.sub(mend, text).replace(BROKEN, "").replace("\u00ad", "")
