"""Reading documents: what a file says, by its suffix.

Each module below reads some kinds of files, and is imported when the first of them is read.
"""

from pkgutil import resolve_name

from rubricem.agent.sources.readers.document import Document, Input
from rubricem.agent.sources.readers.encoding import names_of
from rubricem.memory.errors import SourceError

TEXTS = ("", *names_of("texts")["suffixes"])
"""what is text line by line, programs and their settings among it"""

READERS: dict[str, str] = dict.fromkeys(TEXTS, "plain.text:read_text") | {
    suffix: reader
    for reader, suffixes in {
        "pages.markup:read_html": ".html .htm .xhtml",
        "plain.markdown:read_markdown": ".md .markdown .mdx .qmd .rmd",
        "plain.rst:Rst.read": ".rst .rest",
        "plain.light:Org.read": ".org",
        "plain.light:Adoc.read": ".adoc .asciidoc",
        "plain.tex:read_tex": ".tex .latex .ltx",
        "plain.rtf:read_rtf": ".rtf",
        "plain.data:read_json": ".json .geojson .jsonl .ndjson",
        "plain.data:read_yaml": ".yaml .yml",
        "plain.data:read_xml": ".xml .rss .atom .opml .kml .gpx .xlf",
        "plain.notebooks:read_notebook": ".ipynb",
        "plain.archives:read_zip": ".zip",
        "pdf:read_pdf": ".pdf",
        "office.word:read_word": ".docx .docm .dotx",
        "office.slides:read_slides": ".pptx .pptm .ppsx",
        "office.sheets:read_sheets": ".xlsx .xlsm",
        "office.opendocument:read_opendocument": ".odt .ott .ods .ots .odp",
        "office.delimited:read_csv": ".csv .tsv .tab",
        "pages.books:read_book": ".epub",
        "pages.mail:read_mail": ".eml",
        "pages.mail:read_mailbox": ".mbox",
        "pages.mail:read_saved_page": ".mhtml .mht",
        "plain.text:read_subtitles": ".srt .vtt",
    }.items()
    for suffix in suffixes.split()
}
READERS[""] = "plain.text:read_unnamed"
"""What reads each supported suffix, in lower case; "" is that of a file without one."""


_OWN = ("__MACOSX", "__pycache__", "node_modules", "Thumbs.db", "desktop.ini")


def is_hidden(name: str) -> bool:
    """Whether it is of a program's own, such as the lock that Office sets beside a file."""
    return name.startswith((".", "~$")) or name in _OWN


def read(given: Input) -> Document:
    """Read a file by its suffix. Raises SourceError, with a remedy, if it cannot be read."""
    try:
        document: Document = resolve_name(f"{__name__}.{READERS[given.suffix]}")(given)
    except (SourceError, MemoryError):
        raise
    except Exception as cause:
        raise SourceError(
            f"{given.name} could not be read: {type(cause).__name__}: {cause}.",
            "Check that it opens elsewhere, and save it again or leave it out.",
        ) from cause
    return document
