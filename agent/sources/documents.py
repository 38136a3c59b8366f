"""A folder of documents as a source of passages, whatever kinds of files `readers` knows.

The folder is indexed before the first search and checked again by later ones: if a file was added,
changed or removed, what changed is read, and its part of the index is rebuilt. Files are assigned
to parts by the hash of their path, so that all other parts stay as they are. A file's text is
cached by the hash of its content. A file that cannot be read is reported as a problem, with the
remedy; it never stops the rest. Nothing is passed over in silence: what is not read is counted by
its kind, and copies of one text, in whatever format, are one source.
"""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path

from rubricem.agent.sources.index import (
    Indexed,
    IndexSegment,
    LexicalIndex,
    OnProgress,
    clear_segments,
    open_segment,
    segment_folder,
    write_segment,
)
from rubricem.agent.sources.likeness import Sketch, copies_among, print_of
from rubricem.agent.sources.readers import READERS, TEXTS, is_hidden
from rubricem.agent.sources.readers.encoding import GUESSED, names_of
from rubricem.agent.sources.sandbox.pool import MEGABYTES, SECONDS, Job, Reply, readers
from rubricem.memory.errors import SourceError
from rubricem.memory.runs import hash_of, writable, write_atomically
from rubricem.memory.schema import Passage
from rubricem.memory.text import digest_of, one_line, pluralise, storable

GIT_SECONDS = 300.0
_GIT = (*names_of("git")["command"],)
"""a repository may name other programs and places: none is run or followed"""


MOST_CHECKED_OUT = 100_000
"""files of a repository: a few kB of it can list any number"""
MOST_CHECKED_OUT_BYTES = 2_000_000_000
_MEGABYTES, _OF_A_LISTING = 4096, 64
"""of memory, and of a file on disk, that git may use; of its list of files"""


class Unfetched(SourceError):
    """Git failed, for the reason that it gives."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"The repository {url} cannot be fetched: {why.rstrip('.')}.",
            "Check that `git clone` fetches it without asking, or name a folder.",
        )


def fetch_repository(
    address: str,
    cache: Path,
    seconds: float = GIT_SECONDS,
    most_bytes: int = MOST_CHECKED_OUT_BYTES,
) -> Path:
    """The latest files of a git repository, in a folder of the cache, without history.

    `address`: as git takes it, optionally followed by `#BRANCH` or a tag. Blocking. If the
    repository cannot be reached, its cached files are used. Raises SourceError if there are none,
    or too many.
    """
    url, _, branch = address.partition("#")
    place = cache / digest_of(address, 16)
    known = (place / ".git").is_dir()
    with writable(cache):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as part:
            at = place if known else Path(part)
            git = partial(_git, url, at, seconds)
            try:
                git("init", "-q")
                git("fetch", "--depth", "1", "--no-tags", "--", url, branch or "HEAD")
                # A line is mode, kind, object and size, and the path behind a tab.
                listing = ("ls-tree", "-r", "-l", "-z", "--full-tree", "FETCH_HEAD")
                lines = git(*listing, megabytes=_OF_A_LISTING).split(b"\0")[:-1]
                sizes = (line.partition(b"\t")[0].split()[-1] for line in lines)
                size = sum(int(each) for each in sizes if each.isdigit())
                if len(lines) > MOST_CHECKED_OUT or size > most_bytes:
                    raise _too_much(url, most_bytes)
                git("checkout", "--force", "--detach", "FETCH_HEAD")
            except Unfetched:
                if not known:
                    raise
            if not known:
                at.rename(place)
    return place


def check_repository(address: str, seconds: float = GIT_SECONDS) -> None:
    """Raises SourceError unless git reaches the repository and its branch; fetches nothing."""
    url, _, branch = address.partition("#")
    if not _git(url, Path.cwd(), seconds, "ls-remote", "--", url, branch or "HEAD"):
        raise SourceError(f"The repository {url} has no {branch or 'commit'}.", "Name a branch.")


def _too_much(url: str, most_bytes: int = MOST_CHECKED_OUT_BYTES) -> SourceError:
    return SourceError(
        f"The repository {url} holds more than {MOST_CHECKED_OUT:,} files or "
        f"{most_bytes / 1e9:g} GB.",
        "Clone what you need of it, and name that folder.",
    )


def _git(
    url: str, place: Path, seconds: float, *arguments: str, megabytes: int = _MEGABYTES
) -> bytes:
    """What git prints about a repository, in a folder. Raises SourceError."""
    if shutil.which("git") is None:
        raise SourceError("A repository is read by git, which is not installed here.")
    command = [*_GIT, "-C", str(place), *arguments]
    if os.name == "posix":
        # Whoever packed it chose how much it unpacks to; not all systems bound memory.
        bounds = f"ulimit -f {megabytes << 11}; ulimit -v {_MEGABYTES << 10} 2>/dev/null"
        command = ["sh", "-c", f'{bounds}; exec "$0" "$@"', *command]
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as said:
        # In a session of its own, so that what it started to fetch with ends with it.
        process = subprocess.Popen(
            command, env=env, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=told, stderr=said,
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired as cause:
            raise Unfetched(url, f"no end within {seconds:g} s") from cause
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
                process.wait()
        told.seek(0)
        said.seek(0)
        if code == -getattr(signal, "SIGXFSZ", 1):
            raise _too_much(url)
        if code:
            lines = said.read().decode(errors="replace").strip().splitlines()
            whole = [line for line in lines if line.startswith("fatal: ")] or lines[-1:]
            raise Unfetched(url, one_line(whole[0], 200) if whole else f"git ended with {code}")
        return told.read()


READERS_VERSION = 22
PRINTS = "prints.json"
"""a file of what copies of documents are found by, by digest"""
PART_FILES = 1000
"""files that share a segment of the index, at most about"""
DEEPEST = 100
"""most nested folders that are searched"""
AHEAD = 32
"""files that are read while earlier ones are written"""
MOST_BYTES = 50_000_000
"""Larger files are skipped."""
_LOOKED_AT = 4096
"""bytes of a file without a suffix in which a program has a zero"""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read: where it is, its path inside the folder, and its last known state."""

    path: Path
    location: str
    size: int
    changed: int
    """time of its last change, in nanoseconds"""


_UNREAD = {
    use: {end: kind for kind, ends in kinds.items() for end in ends}
    for use, kinds in names_of("unread").items()
}
"""by its ending: what a file that is not read is `called`, and as what a program `saves` it"""
_GENERATED = names_of("generated")
"""what a builder of websites writes beside their pages, by a file that only it writes"""
_NAMED = 3
"""files that are named in the line on what was read; more are counted"""


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The files of a folder: those to read, and what is to be said of the others."""

    files: list[FoundFile]
    """by path"""
    said: str = ""
    """of folders that cannot be listed, names that are not UTF-8, loops of links; or "\""""
    unread: Mapping[str, int] = field(default_factory=dict)
    """how many there are of each kind that is not read, as it is called"""


def find_files(root: Path, below: str = "") -> FolderFiles:
    """The files under `root`, without hidden ones and links that lead out of it.

    `below`: what their locations begin with.
    """
    inside, found, left = root.resolve(), list[FoundFile](), 0
    unread, closed = Counter[str](), list[OSError]()
    for folder, folders, names in os.walk(root, onerror=closed.append):
        place = Path(folder).relative_to(root)
        # Below, os.walk itself comes to the end of Python's stack.
        deep = len(place.parts) >= DEEPEST
        named = [name for name in folders if storable(name) == name and not deep]
        left += len(folders) - len(named)
        generated = _generated([*named, *names])
        unread.update(["generated part"] * len(generated))
        folders[:] = [name for name in named if not is_hidden(name) and name not in generated]
        for name in names:
            if is_hidden(name) or name in generated:
                continue
            path = Path(folder, name)
            try:
                if storable(name) != name:
                    raise OSError("no text can name it")
                # Links to folders are not followed; to resolve all took two thirds of the time.
                if path.is_symlink() and not path.resolve().is_relative_to(inside):
                    continue
                state = path.stat()
            except FileNotFoundError:  # gone, or a link to nothing
                continue
            except (OSError, RuntimeError):  # a loop of links is a RuntimeError to pathlib
                left += 1
                continue
            if not stat.S_ISREG(state.st_mode):
                continue
            location = (Path(below) / place / name).as_posix()
            if kind := _unread_kind(path) if state.st_size else "empty file":
                unread[kind] += 1
            else:
                found.append(FoundFile(path, location, state.st_size, state.st_mtime_ns))
    found.sort(key=lambda file: file.location)
    return FolderFiles(found, _skipped(root, closed, left), unread)


def _generated(names: Sequence[str]) -> set[str]:
    """Those of a folder's entries that repeat or list the pages of a website for a program."""
    ends = [end for mark, told in _GENERATED.items() if mark in names for end in told]
    return {name for name in names if any(fnmatchcase(name, end) for end in ends)}


def _skipped(root: Path, closed: list[OSError], left: int) -> str:
    said = ""
    if closed:
        where = [Path(each.filename).relative_to(root).as_posix() for each in closed]
        where[0] = "The folder itself" if where[0] == "." else where[0]
        said = f"{_some(where, 1)} could not be listed: {closed[0].strerror}. "
    if left:
        said += (
            f"{left} entries are left out: loops of links, names that are not UTF-8, or folders "
            f"more than {DEEPEST} deep."
        )
    return said.strip()


def _some(names: Sequence[str], most: int = _NAMED) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _unread_kind(path: Path) -> str:
    """What a file that is not read is called where it is counted; "" for one that is."""
    suffix = path.suffix.lower()
    if suffix:
        return "" if suffix in READERS else _UNREAD["called"].get(suffix, suffix)
    # One that cannot be opened is told when it is read.
    with suppress(OSError), path.open("rb") as file:
        return "program" if b"\0" in file.read(_LOOKED_AT) else ""
    return ""


def _counted(unread: Mapping[str, int]) -> Iterator[str]:
    for kind, count in sorted(unread.items(), key=lambda each: (-each[1], each[0])):
        saved = _UNREAD["saves"].get(kind)
        told = f" (a .{saved} can be read)" if saved else ""
        plural = "s" if count > 1 and not kind.startswith(".") and "film" not in kind else ""
        yield f"{count} {kind}{plural}{told}"


class DocumentCache:
    """Documents by the hash of their content, one JSON file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[tuple[str, int, int], str] = {}

    def read(self, files: list[FoundFile], on_progress: OnProgress | None) -> dict[str, str]:
        """Cache what each file says; location -> the reason, for those that cannot be read.

        Only new content is actually read, some files ahead.
        """
        failed = dict[str, str]()
        begun = map(self._begin, files)
        ahead = deque(islice(begun, AHEAD))
        for done, file in enumerate(files):
            reading = ahead.popleft()
            ahead.extend(islice(begun, 1))
            if on_progress:
                on_progress(done, len(files), f"reading {file.location}")
            problem = reading if isinstance(reading, str) else self._store(file, reading.result())
            if problem:
                failed[file.location] = problem
        used = {self.digest(file) for file in files if file.location not in failed}
        for path in self._folder.glob("*.json"):
            if path.stem not in used:
                path.unlink(missing_ok=True)
        return failed

    def copies(self, files: Iterable[FoundFile]) -> dict[str, str]:
        """Which files say nothing that another one does not say: location -> that other one."""
        place, known = self._folder.with_name(PRINTS), dict[str, Sketch]()
        with suppress(OSError, ValueError):
            known = json.loads(place.read_bytes())
        named = {file.location: file for file in files}

        def text_of(location: str) -> str:
            document = self.document(named[location])
            return document.text if document else ""

        prints, kept = dict[str, Sketch](), dict[str, Sketch]()
        for location, file in named.items():
            digest = self.digest(file)
            if digest not in known:
                known[digest] = print_of(text_of(location))
            prints[location] = kept[digest] = known[digest]
        with suppress(OSError):
            place.write_text(json.dumps(kept), "utf-8")
        return copies_among(prints, text_of)

    def document(self, file: FoundFile) -> "CachedDocument | None":
        """What a file said when it was read; read again if the cached copy is damaged.

        None if that failed.
        """
        path = self._place(file)
        for _ in range(2):
            with suppress(OSError, ValueError, TypeError):
                return CachedDocument(**json.loads(path.read_bytes()))
            path.unlink(missing_ok=True)
            self._store(file, readers().submit(_job(file)).result())
        return None

    def digest(self, file: FoundFile) -> str:
        """A hash of a file's content and of how it is read; raises OSError."""
        state = (file.location, file.size, file.changed)
        if state not in self._digests:
            suffix = file.path.suffix.lower().removeprefix(".")
            self._digests[state] = f"{hash_of(file.path)[:40]}-{suffix}-{READERS_VERSION}"
        return self._digests[state]

    def _place(self, file: FoundFile) -> Path:
        return self._folder / f"{self.digest(file)}.json"

    def _begin(self, file: FoundFile) -> str | Future[Reply]:
        """The reading of a new file, "" for one that was read before, or why it cannot be read."""
        if file.size > MOST_BYTES:
            return f"{file.location} is larger than {MOST_BYTES // 1_000_000} MB. Split it."
        try:
            return "" if self._place(file).exists() else readers().submit(_job(file))
        except OSError as cause:
            return f"{file.location} could not be opened: {cause.strerror}."

    def _store(self, file: FoundFile, reply: Reply) -> str:
        """Cache what was read of a file; returns why it could not be read, or ""."""
        if isinstance(reply, SourceError):
            # Not cached: the remedy may lie outside the file, such as a missing library.
            return f"{file.location}: {reply.told()}"
        write_atomically(self._place(file), reply, synced=False)
        return ""


@dataclass(frozen=True, slots=True)
class CachedDocument:
    """What was read of a file, as a reading process tells it, and a note on its reading."""

    title: str
    note: str
    passages: Sequence[tuple[str, str]]
    """the heading of each, and its text"""

    @property
    def text(self) -> str:
        return "\n\n".join(map(_unnumbered, self.passages))


def _unnumbered(passage: Sequence[str]) -> str:
    """The text of a passage without the number of its page, if it begins or ends with that."""
    heading, text = passage
    number = heading.rpartition(" ")[2]
    return re.sub(rf"\A{number}\b|\b{number}\Z", "", text) if number.isdigit() else text


def _job(file: FoundFile) -> Job:
    """Time and memory limits in proportion to the file: it is the user's own."""
    megabytes = file.size // 1_000_000
    return Job(
        "document",
        file.path.name,
        {"name": file.path.name},
        seconds=SECONDS + megabytes // 2,
        megabytes=MEGABYTES + 4 * megabytes,
        remedy="Split it, or leave it out.",
        path=os.path.realpath(file.path),
    )


class Folder(Indexed):
    """Passages of the documents under one folder."""

    name = "folder"

    def __init__(
        self,
        path: Path,
        cache_dir: Path,
        on_progress: OnProgress | None = None,
        look_again: float = 5.0,
        label: str = "",
        below: str = "",
    ) -> None:
        """`look_again`: seconds for which the folder is assumed to be unchanged. `label`: what it
        is called, by default its own name. `below`: what the paths of its files begin with, where
        several folders are searched as one.
        """
        own = digest_of(str(path.resolve()), 16)
        super().__init__(cache_dir / f"folder-{own}", on_progress)
        self._look_again = look_again
        self._root = path
        self._label, self._below = label or path.name or str(path), below
        self._documents = DocumentCache(self._cache_dir / "documents")
        self._parts = f"passages_{digest_of(below, 8)}" if below else "passages"
        self._found = FolderFiles([])
        self._looked = 0.0

    @property
    def about(self) -> tuple[str, ...]:
        """A line of what is searched, once it was read."""
        kind = "git repository" if (self._root / ".git").exists() else "folder"
        return (f"{self._label}: a {kind} with {len(self._found.files):,} documents",)

    def _is_stale(self) -> bool:
        return time.monotonic() - self._looked > self._look_again

    def _open(self) -> LexicalIndex:
        if not self._root.is_dir():
            raise SourceError(f"There is no folder {self._root}.", "Name an existing folder.")
        found = find_files(self._root, self._below)
        files = found.files
        if self._index is None or found != self._found:
            failed = self._documents.read(files, self._on_progress)
            if self._on_progress:
                self._on_progress(0, 0, "indexing what was read")
            well = [file for file in files if file.location not in failed]
            copies = self._documents.copies(well)
            lexical = self._lexical([file for file in well if file.location not in copies])
            # What was lost comes before what was found out.
            notes = sorted(lexical.notes, key=lambda note: (GUESSED in note, note))
            self.reading = self._read(found, failed, notes)
            said = sorted((*notes[_NAMED:], *failed.values(), *_told_copies(copies)))
            self.problems = tuple(filter(None, (*self.reading, found.said, *said)))
            if not lexical.passages:
                raise self._nothing(found, failed)
            self._index = lexical
            self._found = found
        self._looked = time.monotonic()
        return self._index

    def _read(
        self, found: FolderFiles, failed: Mapping[str, str], notes: Sequence[str]
    ) -> tuple[str, ...]:
        """One line on what was read, where something was not, or not wholly."""
        unread = [*_counted(found.unread), *([_some([*failed])] if failed else [])]
        partly = [note.rstrip(".") for note in notes[:_NAMED]]
        if len(notes) > _NAMED:
            partly.append(f"{len(notes) - _NAMED} more are not wholly, or guessed")
        if not (unread or partly):
            return ()
        count = len(found.files) - len(failed)
        told = f"read {pluralise(count, 'file')} of {self._label}"
        missed = [f"not read: {', '.join(unread)}"] if unread else []
        return ("; ".join((told, *missed, *partly)) + ".",)

    def _lexical(self, files: list[FoundFile]) -> LexicalIndex:
        """An index over all files; the number of its parts doubles as the folder does."""
        parts: dict[int, list[FoundFile]] = defaultdict(list)
        count = 1 << ((len(files) - 1) // PART_FILES).bit_length() if files else 1
        for file in files:
            parts[zlib.crc32(file.location.encode()) % count].append(file)
        index = LexicalIndex(*map(self._segment, parts.values() or [[]]))
        clear_segments(self._cache_dir, self._parts, [each.folder for each in index.segments])
        return index

    def _segment(self, files: list[FoundFile]) -> IndexSegment:
        """A segment of the index, written unless it exists for exactly these files."""
        states = "\n".join(f"{file.location}\t{self._documents.digest(file)}" for file in files)
        key = digest_of(states)
        place = segment_folder(self._cache_dir, self._parts, key)
        if (segment := open_segment(place)) is not None:
            return segment
        passages, notes = list[Passage](), list[str]()
        for file in files:
            if (document := self._documents.document(file)) is None:
                continue
            passages += (
                Passage(document.title, file.location, heading, text)
                for heading, text in document.passages
            )
            if document.note:
                notes.append(f"{file.location} is {document.note}.")
            document = None  # all of a large file would be held twice below
        return write_segment(passages, place, notes)

    def _nothing(self, found: FolderFiles, failed: Mapping[str, str]) -> SourceError:
        if found.files:
            return SourceError(
                f"None of the {len(found.files)} documents in {self._root} has text.",
                " ".join([*failed.values()][:3]) or "Its documents are empty.",
            )
        kinds = ", ".join(suffix.removeprefix(".") for suffix in READERS if suffix not in TEXTS)
        remedy = f"Put documents in it (txt, {kinds}), or name another folder."
        only = "" if found.said else ", ".join(_counted(found.unread))
        of_those = f" that can be read: {only}" if only else " that can be read" * bool(found.said)
        return SourceError(
            f"The folder {self._root} has no documents{of_those}.", found.said or remedy
        )


def _told_copies(copies: Mapping[str, str]) -> Iterator[str]:
    if copies:
        say = "files say" if len(copies) > 1 else "file says"
        named = _some([f"{copy} as {kept}" for copy, kept in sorted(copies.items())])
        yield f"{len(copies)} {say} the same as others, which are one source each: {named}."
