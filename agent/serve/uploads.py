"""Documents that people uploaded: a folder of the data directory for each set of them.

    uploads/NAME/DOCUMENT    as it was sent; never unpacked or run
    uploads/.new-*           a set on its way; what a kill left is removed by the next one

A document is in its place whole or not at all, and a new set appears at once. Nothing here
follows a link. Everything blocks.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

from agent.serve.asked import UPLOADED, UPLOADS
from agent.serve.refusals import Refused, conflict
from agent.serve.upload_names import document_name, folder_name
from agent.sources.documents import MOST_BYTES
from memory.bank_journal import sync_folder
from memory.errors import StoreError
from memory.runs import writable

MOST_FOLDERS = 200
MOST_DOCUMENTS = 2000
"""in one folder"""
ALL_BYTES = 2_000_000_000
"""in all folders together"""
_NEW = ".new-"
_LOOKED_AT = 8192
_BEGINNINGS = {".pdf": b"%PDF-", ".docx": b"PK\x03\x04"}
"""what stands near the beginning of a document that is no text"""


class Uploads:
    """The uploads of one data directory. Raises Refused for what is not taken."""

    def __init__(self, data_dir: Path, most: int = ALL_BYTES) -> None:
        """`most`: bytes in all folders together."""
        self.folder = data_dir / UPLOADS
        self._most = most

    def listed(self) -> list[dict[str, Any]]:
        return [self.shown(path.name) for path in self._folders()]

    def shown(self, name: str) -> dict[str, Any]:
        """A folder and its documents."""
        documents = [_document_json(path) for path in _documents(self._held(name))]
        return {
            "name": name,
            "source": UPLOADED + name,
            "bytes": sum(document["bytes"] for document in documents),
            "documents": documents,
        }

    def room(self) -> int:
        """Bytes that may still come."""
        held = sum(path.stat().st_size for f in self._folders() for path in _documents(f))
        return max(0, self._most - held)

    def take(self, name: str, documents: Sequence[tuple[str, BinaryIO]]) -> dict[str, Any]:
        """Store documents in a folder, beside those that it has; those of the same name go."""
        folder, named = folder_name(name), _named(documents)
        self._see_room(folder, named)
        with writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            new = self.folder / f"{_NEW}{uuid.uuid4().hex}"
            try:
                new.mkdir()
                for document, file in named.items():
                    _write(new / document, file)
                sync_folder(new)
                self._put(new, self.folder / folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        return self.shown(folder)

    def remove(self, name: str) -> None:
        """Remove a folder: it is gone at once, its documents soon after."""
        held = self._held(name)
        with writable(held):
            gone = self.folder / f"{_NEW}{uuid.uuid4().hex}"
            held.rename(gone)
            shutil.rmtree(gone)

    def remove_document(self, name: str, document: str) -> None:
        for path in _documents(self._held(name)):
            if path.name == document:
                with writable(path):
                    path.unlink()
                return
        raise _unknown("document")

    def _folders(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        if self.folder.is_symlink():
            raise StoreError(
                "The folder of uploads is a link.", "Remove it: uploads stay in the data directory."
            )
        return [path for path in sorted(self.folder.iterdir()) if _is_own_folder(path)]

    def _held(self, name: str) -> Path:
        """The folder of a name, taken from those that there are."""
        for path in self._folders():
            if path.name == name:
                return path
        raise _unknown("folder")

    def _see_room(self, name: str, documents: Mapping[str, BinaryIO]) -> None:
        folders = {path.name.casefold(): path for path in self._folders()}
        held = folders.get(name.casefold())
        if held is not None and held.name != name:
            raise conflict(f"There is a folder {held.name!r} already.", "Name it just so.")
        if held is None and len(folders) >= MOST_FOLDERS:
            raise _too_much(f"There are {MOST_FOLDERS} folders already.", "Delete some of them.")
        names = {path.name for path in _documents(held)} if held else set()
        if len(names | set(documents)) > MOST_DOCUMENTS:
            raise _too_much(f"A folder holds {MOST_DOCUMENTS} documents.", "Begin another one.")

    def _put(self, new: Path, place: Path) -> None:
        """Have what was written at its place: all at once where there is none yet."""
        if not os.path.lexists(place):
            new.rename(place)
        elif not _is_own_folder(place):
            raise conflict(f"{place.name!r} is no folder of uploads.", "Choose another name.")
        else:
            for path in sorted(new.iterdir()):
                if (place / path.name).is_dir():
                    raise conflict(f"{path.name!r} is a folder there.", "Choose another name.")
                os.replace(path, place / path.name)
            sync_folder(place)
        sync_folder(self.folder)

    def _sweep(self) -> None:
        """Remove what a process that was killed left; one that works on it holds it for less."""
        until = datetime.now(UTC).timestamp() - 3600
        for path in self.folder.glob(f"{_NEW}*"):
            if path.lstat().st_mtime < until:
                shutil.rmtree(path, ignore_errors=True)


def _named(documents: Sequence[tuple[str, BinaryIO]]) -> dict[str, BinaryIO]:
    named: dict[str, BinaryIO] = {}
    for name, file in documents:
        checked = document_name(name)
        if checked.casefold() in {other.casefold() for other in named}:
            raise _refused(f"Two documents are called {checked!r}.", "Rename one of them.")
        _check_kind(checked, file)
        named[checked] = file
    if not named:
        raise _refused("There is no document in it.", "Choose at least one.")
    return named


def _check_kind(name: str, file: BinaryIO) -> None:
    """See that a document is not larger than is read, and is what its name says."""
    if file.seek(0, os.SEEK_END) > MOST_BYTES:
        message = f"{name!r} is larger than {MOST_BYTES // 1_000_000} MB."
        raise _too_much(message, "Split it.")
    file.seek(0)
    beginning = file.read(_LOOKED_AT)
    file.seek(0)
    suffix = Path(name).suffix.lower()
    wanted = _BEGINNINGS.get(suffix)
    right = wanted in beginning[:1024] if wanted else b"\0" not in beginning
    if not right:
        raise _refused(
            f"{name!r} is no {suffix.removeprefix('.')} document.",
            "Save it anew in that form, and without a password.",
        )


def _write(path: Path, file: BinaryIO) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stored:
        shutil.copyfileobj(file, stored)
        stored.flush()
        os.fsync(stored.fileno())


def _documents(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
            yield path


def _is_own_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not path.name.startswith(".")


def _document_json(path: Path) -> dict[str, Any]:
    state = path.stat()
    changed = datetime.fromtimestamp(state.st_mtime, UTC).isoformat(timespec="seconds")
    return {"name": path.name, "bytes": state.st_size, "changed_at": changed}


def _unknown(what: str) -> Refused:
    message = f"There is no such {what}."
    return Refused(HTTPStatus.NOT_FOUND, message, "GET /api/uploads lists those that there are.")


def _refused(message: str, remedy: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, message, remedy)


def _too_much(message: str, remedy: str) -> Refused:
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, remedy)
