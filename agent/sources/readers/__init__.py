"""Reading documents: what a file says, by its suffix.

Each module below reads some kinds of files, and is imported when the first of them is read.
"""

import re
from pkgutil import resolve_name

from rubricem.agent.sources.readers.document import Document, Input
from rubricem.agent.sources.readers.encoding import names_of
from rubricem.memory.errors import SourceError

TEXTS = ("", *names_of("texts")["suffixes"])
"""what is text line by line, programs and their settings among it"""

READERS: dict[str, str] = dict.fromkeys(TEXTS, "plain.text:read_text") | {
    suffix: reader for reader, several in names_of("readers").items() for suffix in several.split()
}
READERS[""] = "plain.text:read_unnamed"
"""What reads each supported suffix, in lower case; "" is that of a file without one."""


_OWN = ("__MACOSX", "__pycache__", "node_modules", "Thumbs.db", "desktop.ini")


def is_hidden(name: str) -> bool:
    """Whether it is of a program's own, such as the lock that Office sets beside a file."""
    return name.startswith((".", "~$")) or name in _OWN


_KEY = re.compile(rb"\s*(?:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|PuTTY-User-Key-File)")
"""how files of private keys begin, whatever they are called"""


def read(given: Input) -> Document:
    """Read a file by its suffix. Raises SourceError, with a remedy, if it cannot be read."""
    given.file.seek(0)
    if _KEY.match(given.file.read(100)):
        raise SourceError(f"{given.name} is a private key.", "Move it away from the documents.")
    given.file.seek(0)
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
