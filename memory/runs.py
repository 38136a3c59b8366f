"""Every run's folder in the data directory: what was asked, its journal, its trajectory.

    runs/THREAD/request.json      the question and the settings that shape the answer, no keys
    runs/THREAD/journal.jsonl     every finished model and tool call
    runs/THREAD/trajectory.json   the whole run, once it ended
    runs/THREAD/rating.json       people's ratings of it, each with its time
    runs/THREAD/earlier.json      reports and passages of its conversation that it began with
    runs/THREAD/judgement.json    the judges' scores
    runs/THREAD/learn.json        what was learnt from it, beside its reflections.json
    runs/THREAD/events.jsonl      what a server reported of it, numbered
    runs/THREAD/labels.json       the name and the tags that a person gave it
    runs/THREAD/restored          it came with a copy, which anybody may have made
    runs/THREAD/runs/THREAD.1/    an investigation of deep research, in the same form

Files are replaced atomically. Raises StoreError if the directory cannot be used. A run's journal is
one fsynced JSON line per finished call, so that only calls in flight at a kill happen again: a
resumed run takes the same path and finds every reply. A last line cut by a crash was never
acknowledged to anybody and is removed when the file is opened.
"""

import asyncio
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, Protocol, TypeVar

from pydantic import Field, ValidationError

from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.schema import Trajectory, V, Value, read
from rubricem.memory.text import digest_of, one_line, storable


class CallKey(NamedTuple):
    """Which call of which run; `digest` is over everything the reply depends on."""

    thread: str
    turn: int
    attempt: int
    digest: str


Reply = dict[str, Any]


def identity(model: str) -> str:
    """The part of a model's name that stays if its server moves: `qwen@host:8000` -> `qwen@`.

    Replies are stored under it, so that they are also found for another address.
    """
    name, served, _ = model.rpartition("@")
    return f"{name}{served}" or model


class Journal:
    """An open journal file. Raises StoreError if it cannot be read or written."""

    def __init__(
        self,
        path: Path,
        hear: Callable[[Reply], None] = lambda reply: None,
        wanted: Callable[[str], bool] = lambda thread: True,
    ) -> None:
        """`hear` is called with every reply once it is in the file.

        Only replies of `wanted` threads are kept in memory, to be found again.
        """
        self.path = path
        self._replies: dict[str, dict[CallKey, Reply]] = {}
        self._writing, self._closed = threading.Lock(), True
        with writable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._closed = False
        try:
            if not _try_lock(self._fd):
                raise StoreError(
                    f"{path} belongs to a run that goes on.",
                    "Wait until that has ended, or give this one another name.",
                )
            self._load(hear, wanted)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        # One that a cancelled task was about to get is nobody's, and would stay locked.
        self.close()

    def find(self, key: CallKey) -> Reply | None:
        """The reply of a finished call, or None if it is not finished."""
        return self._replies.get(key.thread, {}).get(key)

    def replies_of(self, thread: str) -> dict[CallKey, Reply]:
        return dict(self._replies.get(thread, {}))

    async def append(self, key: CallKey, reply: Reply) -> None:
        """Return once the reply is on disk."""
        # As ASCII, which can write anything: a line that cannot be encoded would hold up all.
        line = json.dumps({"key": key, "reply": reply}) + "\n"
        try:
            await asyncio.to_thread(self._write, line.encode())
        except OSError as error:
            raise unusable(self.path, error) from error
        self._replies.setdefault(key.thread, {})[key] = reply

    def close(self) -> None:
        """Release the lock, once what is being written is on disk; not to be used afterwards."""
        with self._writing:
            if not self._closed:
                self._closed = True
                os.close(self._fd)

    def forget(self, thread: str) -> None:
        """Drop a finished run's replies from this process's memory; the file keeps them."""
        self._replies.pop(thread, None)

    def _write(self, block: bytes) -> None:
        with self._writing:
            if self._closed:  # a thread outlives the task that waited for it
                raise OSError(errno.EBADF, "it is closed")
            append_whole(self._fd, block)

    def _load(self, hear: Callable[[Reply], None], wanted: Callable[[str], bool]) -> None:
        whole = 0
        with writable(self.path), open_plain(self.path) as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    os.ftruncate(self._fd, whole)
                    return
                whole += len(line)
                key, reply = self._parse(line, number)
                if wanted(key.thread):
                    self._replies.setdefault(key.thread, {})[key] = reply
                hear(reply)

    def _parse(self, line: bytes, number: int) -> tuple[CallKey, Reply]:
        try:
            record = json.loads(line)
            return CallKey(*record["key"]), record["reply"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise StoreError(
                f"line {number} of the journal {self.path.name} is damaged",
                "Move that run's folder away and ask again; nothing was overwritten.",
            ) from None


LOOKED_AT = 0.2
"""seconds in which a process that briefly locks a file to see whether it is in use is done"""


def _try_lock(descriptor: int) -> bool:
    """Lock a file for this process alone; False if another one has it."""
    until = time.monotonic() + LOOKED_AT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(LOOKED_AT / 20)


def in_use(path: Path) -> bool:
    """Whether a process holds the journal open."""
    try:
        with open_plain(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def append_whole(descriptor: int, block: bytes) -> None:
    """Append lines to a file, all or none; they are on disk on return."""
    view, end = memoryview(block), os.fstat(descriptor).st_size
    try:
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        # Half a line would join with the next one into a line that nobody can read.
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise


class Keyed(Protocol):
    """A row that is stored under a key."""

    @property
    def key(self) -> tuple[Any, ...]: ...
    def model_dump_json(self) -> str: ...


Row = TypeVar("Row", bound=Keyed)


class RowFile(Generic[Row]):
    """Rows on disk, a JSON line for each; of two with one key the later one counts.

    A last line without its end, which a kill has cut, is dropped. Raises StoreError with the
    remedy for a damaged one.
    """

    def __init__(self, path: Path, kind: type[Row], remedy: str) -> None:
        self.path = path
        self.held: dict[tuple[Any, ...], Row] = {}
        with writable(path):
            whole = path.read_bytes() if path.exists() else b""
            if (end := whole.rfind(b"\n") + 1) < len(whole):
                os.truncate(path, end)
        for number, line in enumerate(whole[:end].splitlines(), start=1):
            row = value_of(line, kind, remedy, f"row {number} of {path}")
            self.held[row.key] = row

    def append(self, row: Row) -> None:
        """Return once the row is on disk."""
        with writable(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                append_whole(file.fileno(), f"{row.model_dump_json()}\n".encode())
        self.held[row.key] = row


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


RESTORED_MARK = "restored"
_THREAD = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
SETTLED = ("not_found", "uncertain", "uncited", "unsupported")
"""ends of partial runs that come again: the model's replies are in the journal"""


class RunStore:
    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir / "runs"

    def create(self, thread: str, request: Mapping[str, Any]) -> None:
        """Store the question; the same question under the same name resumes the run.

        A name is taken once a call has finished under it.
        """
        keep_private(self.folder.parent)
        path = self.folder_of(thread) / "request.json"
        if path.exists():
            kept = self.request(thread)
            request = {**kept, **request}  # who goes on with it may know less of it
            if kept == request:
                return
            # Budgets and the answer's length may differ, and an older request says less, or what is
            # no longer said. A server may have moved: what is found under its model's name is found
            # elsewhere, too.
            same = all(
                name not in request[part]
                or request[part][name] == value
                or name == "max_tokens"
                or (name == "base_url" and value and request[part].get(name))
                for part in ("ask", "choices")
                for name, value in kept.get(part, {}).items()
            )
            if self.has_begun(thread) and not same:
                raise SettingsError(
                    f"the thread {thread!r} holds another question, or was asked with other "
                    "settings",
                    f"Go on as it was asked (rubricem ask --resume {thread}), or name another.",
                )
        write_atomically(path, json.dumps(request, ensure_ascii=False, indent=1))

    def holds(self, thread: str) -> bool:
        """Whether a question is stored under this name."""
        path = self.folder_of(thread) / "request.json"
        with writable(path):
            return path.exists()

    def request(self, thread: str) -> dict[str, Any]:
        """The request stored under this name."""
        remedy = "Ask again under another thread name; nothing was overwritten."
        return self._read(thread, "request", dict[str, dict[str, Any]], remedy)

    def question(self, thread: str) -> str:
        """The question stored under this name; "" if it cannot be read."""
        with suppress(RubricemError, LookupError, TypeError):
            return str(self.request(thread)["ask"]["question"])
        return ""

    def journal(self, thread: str) -> Journal:
        return Journal(self.folder_of(thread) / "journal.jsonl")

    def save(self, trajectory: Trajectory) -> None:
        path = self.folder_of(trajectory.thread) / "trajectory.json"
        write_atomically(path, trajectory.model_dump_json())

    def has_begun(self, thread: str) -> bool:
        """Whether a call has finished under this name."""
        journal = self.folder_of(thread) / "journal.jsonl"
        return self.has_ended(thread) or (journal.exists() and journal.stat().st_size > 0)

    def has_ended(self, thread: str) -> bool:
        """Whether the run of this name has ended, successfully or not."""
        return os.path.exists(self.folder_of(thread) / "trajectory.json")

    def whole(self, thread: str) -> bool:
        """Whether it ended in such a way that nothing is left to continue."""
        ended = self.load(thread) if self.has_ended(thread) else None
        return ended is not None and (ended.status.whole or ended.ended_by in SETTLED)

    def load(self, thread: str) -> Trajectory:
        """The ended run of this name; SettingsError if there is none."""
        remedy = f"Run it again from its journal with --resume {thread}."
        return self._read(thread, "trajectory", Trajectory, remedy)

    def discard(self, thread: str) -> None:
        """Delete the run with its whole folder."""
        path = self.folder_of(thread)
        with writable(path), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def asked_at(self, thread: str) -> datetime:
        status = (self.folder_of(thread) / "request.json").stat()
        return datetime.fromtimestamp(status.st_mtime, UTC)

    def running(self, thread: str) -> bool:
        return any(in_use(self.folder_of(thread) / n) for n in ("journal.jsonl", "request.json"))

    def is_restored(self, thread: str) -> bool:
        """Whether it, or the run that it is a part of, came with a copy.

        Nothing in it is the word of a person who is here: no server, no source, no permission.
        """
        folder = self.folder_of(thread)
        return any((each / RESTORED_MARK).exists() for each in (folder, folder.parent.parent))

    def mark_restored(self) -> None:
        """Mark all runs, and their parts, as those of a copy."""
        for folder in self.folder.glob("*/"):
            (folder / RESTORED_MARK).touch()
            RunStore(folder).mark_restored()

    def threads(self) -> list[str]:
        """Names of all runs, the latest last; one that may not be read hides no other."""
        asked = list[tuple[int, str]]()
        for entry in self._entries():
            try:
                state = os.stat(f"{self.folder}/{entry.name}/request.json")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                state = entry.stat()
            asked.append((state.st_mtime_ns, entry.name))
        return [name for _, name in sorted(asked)]

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """A folder of another name, such as a copy that somebody made, is no run of ours."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.folder) as entries:
            yield from (entry for entry in entries if _THREAD.fullmatch(entry.name))

    def states(self) -> dict[str, int]:
        """The time at which each run's folder changed, in nanoseconds.

        Adding, replacing or removing a file changes it; growth of a file does not.
        """
        found = dict[str, int]()
        for entry in self._entries():
            with suppress(FileNotFoundError):
                if entry.is_dir():
                    found[entry.name] = entry.stat().st_mtime_ns
        return found

    def below(self, thread: str) -> "RunStore":
        """The store of the runs that are parts of a run; they are found here, too."""
        return RunStore(self.folder_of(thread))

    def folder_of(self, thread: str) -> Path:
        if not _THREAD.fullmatch(str(thread)):
            raise SettingsError(
                f"{thread!r} cannot name a thread",
                "Use letters, digits, dots, dashes and underscores, at most 64.",
            )
        whole, part, _ = thread.rpartition(".")
        below = self.folder / whole / "runs" / thread
        return below if part and below.is_dir() else self.folder / thread

    def _read(self, thread: str, name: str, kind: type[V], remedy: str) -> V:
        path = self.folder_of(thread) / f"{name}.json"
        if (found := value_in(path, kind, remedy, f"the {name} of {thread!r}")) is not None:
            return found
        if name == "trajectory" and self.holds(thread):
            raise SettingsError(
                f"the run {thread!r} has not ended",
                f"Wait for its end, or go on with it: rubricem ask --resume {thread}",
            )
        known = ", ".join(self.threads()[-3:]) or "none yet"
        raise SettingsError(f"no run is called {thread!r}", f"The latest are: {known}.")


def write_atomically(
    path: Path, text: str | bytes | Iterable[str | bytes], *, synced: bool = True
) -> None:
    """Replace a file atomically: pieces are written as they come, and synced before the rename.

    What can be made again, as a cache, need not be `synced`: a power cut may leave it empty.
    A device or a pipe is written to: replaced, it would be gone for its other users.
    """
    pieces = [text] if isinstance(text, str | bytes) else text
    blocks = (p if isinstance(p, bytes) else p.encode() for p in pieces)
    with writable(path):
        if _is_device(os.path.abspath(path)):
            with path.open("wb") as device:
                device.writelines(blocks)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(blocks)
                file.flush()
                if synced:
                    os.fsync(descriptor)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _is_device(path: str) -> bool:
    """Whether an absolute path is a device or a pipe, or a descriptor such as /dev/fd/1.

    Files in memory under /dev/shm are ordinary files.
    """
    if path.startswith(("/dev/", "/proc/")) and not path.startswith("/dev/shm/"):
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn an OSError inside into a StoreError about this path, in one sentence."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise unusable(path, error) from error


ALTERED = "It was altered after it was written; take it from a copy."


def plain_bytes(path: Path, most: int = -1) -> bytes:
    """The first `most` bytes of a file; OSError for a pipe or device, which has no end."""
    with open_plain(path) as file:
        return file.read(most)


def open_plain(path: Path) -> BinaryIO:
    """A regular file open for reading; OSError, without waiting, for anything else."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return file


def value_in(path: Path, kind: type[V], remedy: str = ALTERED, what: str = "") -> V | None:
    """The value of a JSON file, validated by today's schema; None if there is no file.

    Raises StoreError with this remedy if it cannot be read or is invalid; `what` names it if its
    path says too little, or too much.
    """
    with writable(path):
        try:
            text = plain_bytes(path)
        except FileNotFoundError:
            return None
    return value_of(text, kind, remedy, what or str(path))


def value_of(text: str | bytes, kind: type[V], remedy: str, what: str) -> V:
    """The same for a text that `what` names."""
    try:
        return read(text, kind)
    except ValidationError as error:
        raise StoreError(f"{what} cannot be read: {error.errors()[0]['msg']}", remedy) from error


def keep_private(folder: Path) -> None:
    """Make a folder that only its owner can enter, and its group if that may write in it."""
    with writable(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_strangers(folder)
        state = folder.stat()
        closed = stat.S_IMODE(state.st_mode) & ~(0o007 if state.st_mode & stat.S_IWGRP else 0o077)
        if closed != stat.S_IMODE(state.st_mode) and state.st_uid == os.getuid():
            folder.chmod(closed)


def refuse_strangers(folder: Path) -> None:
    """Raise StoreError for a data directory in which another user could read and plant things.

    A directory shared with a group of ours is accepted, as is root's, unless it is for everybody
    like /tmp. One that is missing or cannot be inspected is accepted: using it will fail.
    """
    try:
        state = folder.stat()
    except OSError:
        return
    mode, everybodys = state.st_mode, state.st_mode & stat.S_IWOTH
    grouped = mode & stat.S_IWGRP and state.st_gid in (os.getegid(), *os.getgroups())
    roots = state.st_uid == 0 and not (everybodys and mode & stat.S_ISVTX)
    if state.st_uid == os.getuid() or roots or (grouped and not everybodys):
        return
    raise StoreError(
        f"{folder} belongs to another user, who could read and change what is kept in it.",
        "Name a folder of your own by RUBRICEM_DATA_DIR; one for several is shared with a group "
        "of theirs, which may write in it (chmod 2770).",
    )


@contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder itself, which leaves no file behind."""
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def hold_lock(path: Path, busy: RubricemError) -> Iterator[None]:
    """Hold a lock file; raises `busy` if another process holds it."""
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    with file:
        if not _try_lock(file.fileno()):
            raise busy
        yield


def unusable(path: Path, error: OSError) -> StoreError:
    """The sentence about a file that the system refuses to open."""
    return StoreError(
        f"{path} cannot be used: {error.strerror or error}",
        f"Make {path.parent} writable and see that its disk is not full, "
        "or name another directory by RUBRICEM_DATA_DIR.",
    )


FILE = "rating.json"
BEST = 5
MOST_CHARACTERS = 2000
"""of one comment"""


class Rating(Value):
    """One person's rating of an answer: 1, of no use, to 5, just what was asked for."""

    score: int = Field(ge=1, le=BEST)
    comment: str = ""
    at: datetime


def rate(folder: Path, score: int, comment: str = "") -> Rating:
    """Add a rating to those of the run in this folder; earlier ones are kept.

    Raises SettingsError for a comment that is too long, StoreError if it cannot be stored.
    """
    if len(comment) > MOST_CHARACTERS:
        raise SettingsError(
            f"The comment has {len(comment):,} characters; {MOST_CHARACTERS:,} are kept.",
            "Say it in fewer words.",
        )
    with folder_locked(folder):
        rating = Rating(score=score, comment=storable(comment).strip(), at=datetime.now(UTC))
        listed = [each.model_dump(mode="json") for each in (*ratings_in(folder), rating)]
        write_atomically(folder / FILE, json.dumps(listed, ensure_ascii=False, indent=1))
    return rating


def ratings_in(folder: Path) -> tuple[Rating, ...]:
    """All ratings of the run in this folder; the last one counts."""
    remedy = "Remove it, and rate the run again."
    return value_in(folder / FILE, tuple[Rating, ...], remedy) or ()


LABELS_FILE = "labels.json"
LONGEST_NAME, LONGEST_TAG, MOST_TAGS = 120, 40, 20


class Labels(Value):
    """A person's name for a run, and its tags; an unnamed run is called by its question."""

    title: str = ""
    tags: tuple[str, ...] = Field(default=(), max_length=MOST_TAGS)


def labels_of(store: RunStore, thread: str) -> Labels:
    """The labels of a run; empty if their file cannot be read."""
    with suppress(RubricemError):
        return value_in(store.folder_of(thread) / LABELS_FILE, Labels) or Labels()
    return Labels()


def set_labels(
    store: RunStore, thread: str, title: str | None = None, tags: Sequence[str] | None = None
) -> Labels:
    """Name a run, or set its tags; None leaves them. SettingsError for an unknown run."""
    store.request(thread)
    named: dict[str, object] = {}
    if title is not None:
        named["title"] = storable(one_line(title, LONGEST_NAME))
    if tags is not None:
        wanted = {tag.casefold(): tag for tag in map(_tag, tags)}
        if len(wanted) > MOST_TAGS:
            raise SettingsError(f"A run has at most {MOST_TAGS} tags.", "Take some away first.")
        named["tags"] = tuple(wanted.values())
    with folder_locked(store.folder_of(thread)):
        kept = labels_of(store, thread).model_copy(update=named)
        write_atomically(store.folder_of(thread) / LABELS_FILE, kept.model_dump_json())
    return kept


def _tag(written: str) -> str:
    tag = storable(one_line(written)).strip()
    if not tag or len(tag) > LONGEST_TAG or "," in tag:
        raise SettingsError(
            f"{one_line(written, LONGEST_TAG)!r} cannot be a tag.",
            f"A tag has 1 to {LONGEST_TAG} characters and no comma.",
        )
    return tag


def hash_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class ReplyStore:
    """Replies of models, one file each under the hash of everything that it depends on.

    Several processes can share the folder; an unreadable file counts as missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, asked: Any) -> Path:
        """The file of the reply to a JSON value: two values share one only if they are equal."""
        text = json.dumps(asked, ensure_ascii=True, sort_keys=True)
        name = digest_of(text)
        return self.folder / name[:2] / f"{name[2:]}.json"

    def load(self, asked: Any) -> dict[str, Any] | None:
        """The stored reply, or None."""
        try:
            value = json.loads(self.path(asked).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def save(self, asked: Any, reply: Mapping[str, Any]) -> None:
        """Store a reply; raises StoreError if it cannot be written."""
        write_atomically(self.path(asked), json.dumps(dict(reply), ensure_ascii=True))

    def forget(self, asked: Any) -> None:
        path = self.path(asked)
        with writable(path):
            path.unlink(missing_ok=True)
