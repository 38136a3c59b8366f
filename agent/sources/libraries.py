"""The source `python`: the libraries installed here, each read once, cached, and searched together.

Each library is a segment of the index, in a folder named by what was read (name, version, its list
of files with their hashes). The standard library is read before the first search, libraries that a
question names before its search, and the others by a process of lower priority. What is there is
searched at once. A reading that was killed leaves whole libraries behind.

A question that names a library is about that library, another mostly about the standard library,
so passages of other libraries count less.
"""

import asyncio
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution, distributions
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rubricem.agent.sources.index import (
    INDEX_VERSION,
    NEW,
    WORDS_VERSION,
    Indexed,
    IndexSegment,
    LexicalIndex,
    OnProgress,
    open_segment,
    write_segment,
)
from rubricem.agent.sources.python import LEFT_OUT, distribution_passages, library_passages
from rubricem.memory.errors import SourceError, boundary
from rubricem.memory.runs import folder_locked
from rubricem.memory.schema import Passage
from rubricem.memory.text import digest_of

DOCS_VERSION = 11
"""Part of each key: raise it if the same libraries give other passages."""
STANDARD = "the standard library"
READING = "Reading the documentation of the installed libraries"
_KEPT_FOR = 30 * 86400.0
"""seconds after which a library that nobody searched is removed"""
_UNFINISHED = 3600.0
"""seconds after which a half-written folder is considered abandoned"""
_MOST_NAMED = 4
"""most libraries read before one search"""
_SHORT_NAMES = {
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib",
    "nx": "networkx",
    "pytorch": "torch",
}
"""names that users have for libraries: their documentation recommends importing them so, or no
installed library has that name"""
_BESIDE_WEIGHT, _OTHER_WEIGHT, _OUTSIDE_WEIGHT = 0.85, 0.5, 0.6
"""Weight of passages of other libraries if a question names one: of the standard library (a name
may be a plain word: "requests") and of any other; if it names none, of those outside the
standard library. Of 50 everyday questions 37, not 33, have the right passage among the first 16."""
_LOWER_PRIORITY = 10


@dataclass(frozen=True, slots=True)
class Library:
    """The standard library, or an installed distribution."""

    name: str
    key: str
    names: frozenset[str]
    """names it has in questions, lower-cased: its own, and those of its modules"""
    size: int
    distribution: Distribution | None = None

    @classmethod
    def standard(cls) -> "Library":
        return cls(STANDARD, _key(platform.python_version()), frozenset(), -1)

    @classmethod
    def of(cls, distribution: Distribution) -> "Library":
        try:
            record = distribution.read_text("RECORD") or ""
        except ValueError:  # not text
            record = ""
        tops = set(re.findall(r"^(\w+)(?:/|\.pyi?,)", record, re.MULTILINE))
        name = distribution.name
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        key = _key(python, name, distribution.version, record)
        tops -= LEFT_OUT
        names = frozenset(each.lower() for each in (*tops, name.replace("-", "_")))
        return cls(name, key, names, len(record), distribution)

    def read(self) -> tuple[list[Passage], str]:
        """Its documentation, and what is left out of it: all, if reading it failed."""
        try:
            if self.distribution is None:
                return library_passages(), ""
            return distribution_passages(self.distribution)
        except Exception as cause:
            # What others wrote may break any reader; the rest is read all the same.
            kind = type(cause).__name__
            return [], f"{self.name} (all of it: {kind}: {str(cause)[:200]})"


def _key(*parts: str) -> str:
    return digest_of("\n".join((str(DOCS_VERSION), *parts)), 24)


class LibrariesIndex(LexicalIndex):
    """An index over libraries, weighted by which of them a question is about."""

    def __init__(self, found: Sequence[tuple[Library, IndexSegment]]) -> None:
        super().__init__(*(segment for _, segment in found))
        self._libraries = [library for library, _ in found]
        self._sizes = [len(segment.rows) for _, segment in found]

    def weights(self, query: str) -> NDArray[np.float32]:
        said = _words_of(query)
        named = [bool(library.names & said) for library in self._libraries]
        standard = [library.distribution is None for library in self._libraries]
        beside, others = (_BESIDE_WEIGHT, _OTHER_WEIGHT) if any(named) else (1.0, _OUTSIDE_WEIGHT)
        share = np.select([named, standard], [1.0, beside], others).astype(np.float32)
        return np.repeat(share, self._sizes)


def _words_of(query: str) -> set[str]:
    """The words of a query that may name libraries."""
    said = {word.replace("-", "_") for word in re.findall(r"[\w.-]+", query.lower())}
    said |= {word.partition(".")[0] for word in said}
    return said | {_SHORT_NAMES[short] for short in said & _SHORT_NAMES.keys()}


class Shelf:
    """What is read of the libraries of one environment, a segment each."""

    def __init__(self, cache_dir: Path, path: Sequence[str] | None = None) -> None:
        """`path`: where distributions are searched; None: where this process imports from."""
        self._cache_dir = cache_dir
        self._folder = cache_dir / f"python-{INDEX_VERSION}.{WORDS_VERSION}"
        self.libraries = [Library.standard(), *map(Library.of, find_distributions(path))]

    def place(self, library: Library) -> Path:
        name = re.sub(r"[^\w.-]", "_", library.name)
        return self._folder / f"{name}-{library.key}"

    def unread(self) -> list[Library]:
        """Libraries not on the shelf, in the order of reading: most are there soon."""
        missing = (one for one in self.libraries if not self.place(one).exists())
        return sorted(missing, key=lambda one: one.size)

    def read(self, library: Library) -> None:
        passages, left_out = library.read()
        write_segment(passages, self.place(library), [left_out] if left_out else [])

    def read_all(self, on_progress: OnProgress | None = None) -> None:
        """Read what is missing; if another process does so, wait for it."""
        with folder_locked(self._folder):
            while unread := self.unread():
                if on_progress:
                    done = len(self.libraries) - len(unread)
                    on_progress(done, len(self.libraries), f"reading {unread[0].name}")
                self.read(unread[0])
            # What nobody searched for long, and what a killed process left half-written.
            now = time.time()
            for folder in [*self._folder.iterdir(), *self._cache_dir.glob("python-*")]:
                limit = _UNFINISHED if folder.name.startswith(NEW) else _KEPT_FOR
                with suppress(OSError):
                    if folder != self._folder and now - folder.stat().st_mtime > limit:
                        shutil.rmtree(folder, ignore_errors=True)

    def index(self) -> LexicalIndex:
        """An index over the shelf. Damaged segments are removed, to be read again."""
        found = list[tuple[Library, IndexSegment]]()
        for library in self.libraries:
            place = self.place(library)
            segment = open_segment(place, public=True)
            if segment is not None:
                with suppress(OSError):  # gone meanwhile, or another user's
                    os.utime(place)
                found.append((library, segment))
            elif place.exists():
                shutil.rmtree(place, ignore_errors=True)
        return LibrariesIndex(found)


def find_distributions(path: Sequence[str] | None = None) -> list[Distribution]:
    """The installed distributions by name; of two with one name the first on the path.

    `path`: where to search for them; None: where this process imports from. This program itself is
    left out: its README quotes questions, and would be found for them.
    """
    found: dict[str, Distribution] = {}
    for distribution in distributions(path=list(sys.path if path is None else path)):
        found.setdefault(distribution.name.lower(), distribution)
    found.pop("rubricem", None)
    return [found[name] for name in sorted(found)]


class PythonDocs(Indexed):
    """Passages from docstrings, signatures, READMEs and the language reference."""

    name = "python"

    def __init__(
        self,
        cache_dir: Path,
        on_progress: OnProgress | None = None,
        whole: bool = False,
        path: Sequence[str] | None = None,
    ) -> None:
        """`whole`: everything is read before the first search."""
        super().__init__(cache_dir, on_progress)
        self._whole = whole
        self._path = path
        self._unread: list[Library] = []
        self._behind: subprocess.Popen[bytes] | None = None
        self._closed = False

    async def index_for(self, query: str) -> LexicalIndex:
        """With the libraries that the query names read first."""
        await self._ready()
        said = _words_of(query)
        if named := [one for one in self._unread if one.names & said][:_MOST_NAMED]:
            async with self._opening:
                await asyncio.to_thread(self._read, named)
        return await self._ready()

    def _read(self, named: Sequence[Library]) -> None:
        with boundary(SourceError, READING):
            for library in self._shelf.unread():
                if library in named:
                    self._tell(f"reading {library.name}, which the question names")
                    self._shelf.read(library)

    def _tell(self, doing: str) -> None:
        if self._on_progress:
            self._on_progress(0, 0, doing)

    @cached_property
    def _shelf(self) -> Shelf:
        return Shelf(self._cache_dir, self._path)

    def _is_stale(self) -> bool:
        return bool(self._unread) and len(self._shelf.unread()) != len(self._unread)

    def _open(self) -> LexicalIndex:
        with boundary(SourceError, READING):
            shelf = self._shelf
            if self._whole or not sys.executable:
                shelf.read_all(self._on_progress)
            elif unread := shelf.unread():
                if unread[0].name == STANDARD:
                    self._tell(f"reading {STANDARD}")
                    shelf.read(unread[0])
                self._read_behind()
            # Before what is there is opened: what comes between makes the index stale.
            self._unread = shelf.unread()
            index = shelf.index()
        notes, count = ", ".join(index.notes), len(self._unread)
        left = f"{count} of {count + len(index.segments)} installed libraries are not read yet; "
        told = (
            f"Not read of the installed libraries: {notes}." if notes else "",
            f"{left}this continues meanwhile, and what a question names is read at once."
            if count
            else "",
        )
        self.problems = tuple(filter(None, told))
        return index

    def _read_behind(self) -> None:
        """Start a process that reads the others, unless one is running."""
        if self._closed or (self._behind is not None and self._behind.poll() is None):
            return
        # -P: nothing in the folder that the user is in may take the place of a module.
        path = json.dumps(list(sys.path if self._path is None else self._path))
        command = [sys.executable, "-P", "-m", __name__, str(self._cache_dir), path]
        self._behind = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        threading.Thread(target=self._follow, args=[self._behind], daemon=True).start()
        if self._closed:  # while it began
            self.close()

    def _follow(self, behind: subprocess.Popen[bytes]) -> None:
        """Report the progress of the process until it ends."""
        with behind:
            for line in behind.stdout or ():
                if self._on_progress and not self._closed:
                    self._on_progress(*json.loads(line))

    def close(self, wait: bool = False) -> None:
        """Stop the process that reads (`wait`: until it has ended); whole libraries stay."""
        self._closed = True
        if self._behind is not None:
            self._behind.terminate()
            if wait:
                self._behind.wait()


def main(cache_dir: str, path: str) -> None:
    """Read what the shelf lacks, at low priority, as long as somebody reads our output.

    `path`: where distributions are searched, as JSON.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_LOWER_PRIORITY)
    shelf = Shelf(Path(cache_dir), json.loads(path))
    with suppress(BrokenPipeError):
        shelf.read_all(lambda *step: print(json.dumps(step), flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
