"""Reading documents: what a file says, by its suffix.

Each module below reads some kinds of files, and is imported when the first of them is read.
"""

from importlib import import_module
from pathlib import Path

from rubricem.agent.sources.readers.document import Document, Input
from rubricem.memory.errors import SourceError

READERS: dict[str, str] = {
    suffix: module
    for module, suffixes in {
        "text": ".md .markdown .rst .txt",
        "pages.markup": ".html .htm .xhtml",
        "pdf": ".pdf",
        "office.word": ".docx .docm .dotx",
        "office.slides": ".pptx .pptm .ppsx",
        "office.sheets": ".xlsx .xlsm",
        "office.opendocument": ".odt .ott .ods .ots .odp",
        "office.delimited": ".csv .tsv .tab",
        "pages.books": ".epub",
        "pages.mail": ".eml .mhtml .mht",
    }.items()
    for suffix in suffixes.split()
}
"""The module that reads each supported suffix, in lower case."""


def read(given: Input) -> Document:
    """Read a file by its suffix. Raises SourceError, with a remedy, if it cannot be read."""
    try:
        module = import_module(f"{__name__}.{READERS[given.suffix]}")
        document: Document = module.READERS[given.suffix](given)
    except (SourceError, MemoryError):
        raise
    except Exception as cause:
        raise SourceError(
            f"{given.name} could not be read: {type(cause).__name__}: {cause}.",
            "Check that it opens elsewhere, and save it again or leave it out.",
        ) from cause
    return document


def read_file(path: Path) -> Document:
    """`read` of a file on the disk."""
    with path.open("rb") as file:
        return read(Input(path.name, file))
