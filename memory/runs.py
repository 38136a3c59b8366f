"""Every run's folder in the data directory: what was asked, its journal, its trajectory.

    runs/THREAD/request.json      the question and the settings that shape the answer, no keys
    runs/THREAD/journal.jsonl     every finished model and tool call
    runs/THREAD/trajectory.json   the whole run, once it ended
    runs/THREAD/rating.json       what people said of it, every rating with its time

Files are replaced whole or not at all. Raises StoreError for a directory that cannot be used.
The last rating counts. It is evidence for whoever judges reflections on the run, and for nobody
else: the policy that writes them is to find out from the run itself how good it was.

A `ReplyStore` keeps replies of models, each under the hash of all that it was a reply to: one small
file a reply, so that several processes can share a folder, and a file that cannot be read counts
as not there. What it holds may be deleted at any time.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field, TypeAdapter, ValidationError

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.journal import CallJournal, Journal, in_use
from rubricem.memory.schema import Trajectory, Value, read
from rubricem.memory.text import storable

_THREAD = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


class Runs(Protocol):
    """Where a run is kept: a `RunStore`, or nowhere here, as another process keeps it."""

    def create(self, thread: str, request: Mapping[str, Any]) -> None: ...
    def request(self, thread: str) -> dict[str, Any]: ...
    def journal(self, thread: str) -> CallJournal: ...
    def ended(self, thread: str) -> bool: ...
    def running(self, thread: str) -> bool: ...
    def load(self, thread: str) -> Trajectory: ...
    def save(self, trajectory: Trajectory) -> None: ...
    def discard(self, thread: str) -> None: ...


class RunStore:
    """The runs of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir / "runs"

    def create(self, thread: str, request: Mapping[str, Any]) -> None:
        """Write down what is asked; asking the same again under the same name is a resume.

        A name is taken once a call has finished under it.
        """
        path = self._folder_of(thread) / "request.json"
        if path.exists():
            kept = self.request(thread)
            if kept == dict(request):
                return
            journal = path.with_name("journal.jsonl")
            begun = self.ended(thread) or (journal.exists() and journal.stat().st_size > 0)
            if begun and not _same(kept, request):
                raise SettingsError(
                    f"the thread {thread!r} holds another question, or was asked with other "
                    "settings",
                    f"Go on with it by --resume {thread}, or choose another --thread.",
                )
        write_atomically(path, json.dumps(request, ensure_ascii=False, indent=1))

    def holds(self, thread: str) -> bool:
        """Whether something was asked under this name."""
        path = self._folder_of(thread) / "request.json"
        try:
            return path.exists()
        except OSError as error:
            raise unusable(path, error) from error

    def request(self, thread: str) -> dict[str, Any]:
        """What was asked under this name."""
        text = self._read(thread, "request.json")
        try:
            request: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise StoreError(
                f"the request of {thread!r} cannot be read: {error}",
                "Ask again under another thread name; nothing was overwritten.",
            ) from error
        return request

    def journal(self, thread: str) -> Journal:
        return Journal(self._folder_of(thread) / "journal.jsonl")

    def save(self, trajectory: Trajectory) -> None:
        path = self._folder_of(trajectory.thread) / "trajectory.json"
        write_atomically(path, trajectory.model_dump_json())

    def ended(self, thread: str) -> bool:
        """Whether the run of this name came to an end, well or not."""
        return (self._folder_of(thread) / "trajectory.json").exists()

    def load(self, thread: str) -> Trajectory:
        """The ended run of this name; SettingsError if there is none."""
        text = self._read(thread, "trajectory.json")
        try:
            return read(text, Trajectory)
        except ValidationError as error:
            raise StoreError(
                f"the trajectory of {thread!r} cannot be read: {error.errors()[0]['msg']}",
                f"Run it again from its journal with --resume {thread}.",
            ) from error

    def discard(self, thread: str) -> None:
        """Remove the run with all that is in its folder."""
        path = self._folder_of(thread)
        with writable(path), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def asked_at(self, thread: str) -> datetime:
        """When the run was asked for."""
        status = (self._folder_of(thread) / "request.json").stat()
        return datetime.fromtimestamp(status.st_mtime, UTC)

    def running(self, thread: str) -> bool:
        """Whether a process is working on the run now."""
        return in_use(self._folder_of(thread) / "journal.jsonl")

    def threads(self) -> list[str]:
        """Names of all runs, the latest last."""
        if not self.folder.is_dir():
            return []
        requests = sorted(self.folder.glob("*/request.json"), key=lambda p: p.stat().st_mtime)
        # A folder of another name, such as a copy that somebody made, is no run of ours.
        return [p.parent.name for p in requests if _THREAD.fullmatch(p.parent.name)]

    def _folder_of(self, thread: str) -> Path:
        if not _THREAD.fullmatch(thread):
            raise SettingsError(
                f"{thread!r} cannot name a thread",
                "Use letters, digits, dots, dashes and underscores, at most 64.",
            )
        return self.folder / thread

    def _read(self, thread: str, name: str) -> str:
        path = self._folder_of(thread) / name
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            known = ", ".join(self.threads()[-3:]) or "none yet"
            what = "run that has ended" if path.stem == "trajectory" else "run"
            raise SettingsError(
                f"no {what} is called {thread!r}", f"The latest are: {known}."
            ) from None
        except OSError as error:
            raise unusable(path, error) from error


def _same(kept: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether both ask the same: budgets may differ, and an older request says less.

    A server may have moved: what is found under its model's name is found at another address.
    """
    return all(
        request.get(part, {}).get(name) == value
        or (name == "base_url" and value and request[part].get(name))
        for part in ("ask", "choices")
        for name, value in kept.get(part, {}).items()
    )


def write_atomically(path: Path, text: str | bytes | Iterable[str]) -> None:
    """Replace a file whole, on disk before it takes the old one's place; pieces as they come."""
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                pieces = [text] if isinstance(text, str | bytes) else text
                file.writelines(p if isinstance(p, bytes) else p.encode() for p in pieces)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Say in a sentence that a path cannot be written, whatever the reason."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise unusable(path, error) from error


@contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """Nobody else changes a folder meanwhile; the lock is on itself and leaves no file behind."""
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def unusable(path: Path, error: OSError) -> StoreError:
    """The sentence for a file that the system refuses."""
    return StoreError(
        f"{path} cannot be used: {error.strerror}",
        f"Make {path.parent} writable and see that its disk is not full, "
        "or name another directory by RUBRICEM_DATA_DIR.",
    )


FILE = "rating.json"
BEST = 5
MOST_CHARACTERS = 2000
"""of one comment"""


class Rating(Value):
    """One person's word on an answer: 1, of no use, to 5, just what was asked for."""

    score: int = Field(ge=1, le=BEST)
    comment: str = ""
    at: datetime


_RATINGS = TypeAdapter(tuple[Rating, ...])


def rate(folder: Path, score: int, comment: str = "") -> Rating:
    """Add a rating to those of the run in this folder; earlier ones are kept.

    Raises SettingsError for a comment that is too long, StoreError where it cannot be kept.
    """
    if len(comment) > MOST_CHARACTERS:
        raise SettingsError(
            f"The comment has {len(comment):,} characters; {MOST_CHARACTERS:,} are kept.",
            "Say it in fewer words.",
        )
    rating = Rating(score=score, comment=storable(comment).strip(), at=datetime.now(UTC))
    ratings = (*ratings_in(folder), rating)
    write_atomically(folder / FILE, _RATINGS.dump_json(ratings, indent=1).decode())
    return rating


def ratings_in(folder: Path) -> tuple[Rating, ...]:
    """All ratings of the run in this folder, the last one, which counts, at the end."""
    path = folder / FILE
    try:
        return _RATINGS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise unusable(path, error) from error
    except ValidationError as error:
        raise StoreError(
            f"{path} holds no ratings: {error.errors()[0]['msg']}",
            "Remove it, and rate the run again.",
        ) from error


class ReplyStore:
    """The replies of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, asked: Any) -> Path:
        """Where the reply to a JSON value lies: two of them share a file only if they are equal."""
        text = json.dumps(asked, ensure_ascii=True, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()
        return self.folder / name[:2] / f"{name[2:]}.json"

    def load(self, asked: Any) -> dict[str, Any] | None:
        """The reply kept for this, or None."""
        try:
            value = json.loads(self.path(asked).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def save(self, asked: Any, reply: Mapping[str, Any]) -> None:
        """Keep a reply; raises StoreError if it cannot be written."""
        write_atomically(self.path(asked), json.dumps(dict(reply), ensure_ascii=True))

    def forget(self, asked: Any) -> None:
        path = self.path(asked)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unusable(path, error) from error
