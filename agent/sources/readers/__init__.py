"""Reading documents: what a file says, by its suffix.

Each module below reads some kinds of files, and is imported when the first of them is read.
"""

from importlib import import_module
from pathlib import Path

from rubricem.agent.sources.readers.document import Document, Input
from rubricem.memory.errors import SourceError

TEXTS = (
    "", ".txt", ".text", ".log", ".srt", ".vtt", ".py", ".pyi", ".js", ".mjs", ".ts", ".tsx",
    ".java", ".kt", ".go", ".rs", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".swift", ".rb", ".php",
    ".pl", ".lua", ".r", ".jl", ".m", ".sh", ".bash", ".ps1", ".sql", ".css", ".toml", ".ini",
    ".cfg", ".conf", ".properties", ".cmake", ".mk", ".proto", ".diff", ".patch", ".bat", ".hs",
)  # fmt: skip
"""what is text line by line, programs and their settings among it"""

READERS: dict[str, str] = {
    suffix: module
    for module, suffixes in {
        "pages.markup": ".html .htm .xhtml",
        "plain.markdown": ".md .markdown .mdx .qmd .rmd",
        "plain.rst": ".rst .rest",
        "plain.light": ".org .adoc .asciidoc",
        "plain.tex": ".tex .latex .ltx",
        "plain.rtf": ".rtf",
        "plain.data": ".json .geojson .jsonl .ndjson .yaml .yml .xml .rss .atom",
        "plain.notebooks": ".ipynb",
        "plain.archives": ".zip",
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
READERS |= dict.fromkeys(TEXTS, "plain.text")
"""The module that reads each supported suffix, in lower case; "" is that of a file without one."""


_OWN = ("__MACOSX", "__pycache__", "node_modules", "Thumbs.db", "desktop.ini")


def is_hidden(name: str) -> bool:
    """Whether it is of a program's own, such as the lock that Office sets beside a file."""
    return name.startswith((".", "~$")) or name in _OWN


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
