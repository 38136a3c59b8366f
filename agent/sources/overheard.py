"""What a library logs while it reads a document: the document's note, not lines on a terminal."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from agent.reports.printable import one_line

LONGEST = 120
"""characters of the first complaint; it may quote the document"""


class _Overhearing(logging.Handler):
    """Keeps what is logged in one thread: others may be reading other documents."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


@contextmanager
def overheard(library: str) -> Iterator[list[str]]:
    """The warnings that a library logs in this thread; from now on they go nowhere else."""
    logger, hearing = logging.getLogger(library), _Overhearing()
    logger.propagate = False
    logger.addHandler(hearing)
    try:
        yield hearing.lines
    finally:
        logger.removeHandler(hearing)


def complaint(lines: list[str]) -> str:
    """The warnings in a few words; "" where there were none."""
    if not lines:
        return ""
    faults = "1 fault" if len(lines) == 1 else f"{len(lines)} faults, the first"
    return f"damaged, with {faults}: {one_line(lines[0], LONGEST).rstrip('.')}"
