"""One server for each data directory: what two of them did to one run, neither would know."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory.errors import SettingsError
from memory.runs import writable

FILE_NAME = "serve.lock"


@contextmanager
def sole_server(data_dir: Path) -> Iterator[None]:
    """Hold the directory while the server lasts; SettingsError where another one holds it."""
    path = data_dir / FILE_NAME
    with writable(path):
        data_dir.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SettingsError(
                f"Another rubricem serve works with {data_dir}.",
                "Use that one, end it, or name another directory by RUBRICEM_DATA_DIR.",
            ) from error
        yield
