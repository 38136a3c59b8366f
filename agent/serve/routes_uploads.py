"""`/api/uploads`: documents that a browser sends, to be searched as a source by name.

    uploads/NAME/DOCUMENT    as it was sent; never unpacked or run

A document is stored whole or not at all. No link is followed.

A name is one path component. It is checked as it is and in its compatibility form (Unicode NFKC),
so that no look-alike of a separator or a dot passes, and is refused rather than mended: nothing is
stored under a name that nobody gave.
"""

import asyncio
import os
import re
import shutil
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from python_multipart.exceptions import FormParserError
from starlette.datastructures import FormData, UploadFile

from rubricem.agent.serve.requests import RequestRefused, conflict, missing
from rubricem.agent.sources.choice import UPLOADED, UPLOADS
from rubricem.agent.sources.documents import MOST_BYTES
from rubricem.agent.sources.readers import READERS
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import writable, write_atomically

_too_much = partial(RequestRefused, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
NAME_BYTES = 180
"""of a name in UTF-8; most file systems allow 255"""
_FORBIDDEN = re.compile(r'[/\\:*?"<>|]|^[. ]|[. ]$|^$')
_SHOWN = 60
MOST_IN_ALL = 20_000
"""documents in all folders together: each request lists all of them"""
ALL_BYTES = 2_000_000_000
"""in all folders together"""
REQUEST_BYTES = 200_000_000
"""of one request"""
REQUEST_FILES = 200
KINDS = sorted(suffix.removeprefix(".") for suffix in READERS if suffix)
_FIELDS = 4


def folder_name(name: str) -> str:
    """The name in its composed form. Raises SettingsError if it is ambiguous or unsafe."""
    named = unicodedata.normalize("NFC", name.strip(" "))
    for form in (named, unicodedata.normalize("NFKC", named)):
        size = len(form.encode("utf-8", "replace"))
        if _FORBIDDEN.search(form) or not form.isprintable() or size > NAME_BYTES:
            raise SettingsError(
                f"{_printable(name)} cannot name anything here.",
                f"Use at most {NAME_BYTES} bytes of letters, digits, spaces, dots, dashes and "
                "underscores, and no dot at the beginning or the end.",
            )
    return named


def document_name(name: str) -> str:
    """The same for a document, whose suffix must be of a supported kind."""
    named = folder_name(name)
    if PurePath(named).suffix.lower().removeprefix(".") not in KINDS:
        raise SettingsError(
            f"{_printable(name)} is of an unsupported kind.",
            f"Upload documents of these kinds: {', '.join(KINDS)}.",
        )
    return named


def _printable(name: str) -> str:
    return ascii(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")


def router(data_dir: Path, most: int = ALL_BYTES) -> APIRouter:
    """`most`: bytes in all folders together."""
    routes = APIRouter(prefix="/api/uploads", max_body_size=REQUEST_BYTES)
    uploads = _Uploads(data_dir / UPLOADS, most)
    routes.get("")(uploads.listed)
    routes.post("", status_code=HTTPStatus.CREATED)(uploads.upload)
    routes.delete("/{name}")(uploads.remove)
    routes.delete("/{name}/{document}")(uploads.remove_document)
    return routes


class _Uploads:
    """The handlers. They raise Refused for what is not accepted; one upload is stored at a time."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._placing = asyncio.Lock()

    def listed(self) -> JSONResponse:
        limits = {
            "files": REQUEST_FILES,
            "file_bytes": MOST_BYTES,
            "request_bytes": REQUEST_BYTES,
            "kinds": KINDS,
        }
        uploads = [_describe(folder) for folder in self._folders()]
        return JSONResponse({"uploads": uploads, "limits": limits})

    async def upload(self, request: Request) -> dict[str, Any]:
        """Store `documents` in the folder that `folder` names."""
        reading = request.form(max_files=REQUEST_FILES, max_fields=_FIELDS, max_part_size=4096)
        try:
            async with reading as form, self._placing:
                return await asyncio.to_thread(self._store, *_fields(form))
        except FormParserError as error:
            raise _malformed_upload("its parts cannot be told apart") from error

    def remove(self, name: str) -> dict[str, Any]:
        folder = self._find_folder(name)
        with writable(folder):
            shutil.rmtree(folder)
        return {"removed": name}

    def remove_document(self, name: str, document: str) -> dict[str, Any]:
        folder = self._find_folder(name)
        if document not in _documents(folder):
            raise _unknown("document")
        with writable(folder / document):
            (folder / document).unlink(missing_ok=True)
        return {"removed": document}

    def _store(self, name: str, documents: Sequence[tuple[str, BinaryIO]]) -> dict[str, Any]:
        """Add documents to a folder; existing ones of the same name are replaced."""
        place, named = self._folder / folder_name(name), _name_documents(documents)
        self._see_room(place, named)
        for document, file in named.items():
            file.seek(0)
            write_atomically(place / document, iter(partial(file.read, 1 << 20), b""))
        return _describe(place)

    def _see_room(self, place: Path, named: dict[str, BinaryIO]) -> None:
        """Raise Refused if documents cannot be put into a folder."""
        folders = {path.name: _documents(path) for path in self._folders()}
        for held in folders:
            if held != place.name and held.casefold() == place.name.casefold():
                raise conflict(f"There is a folder {held!r} already.", "Name it just so.")
        if place.name not in folders and os.path.lexists(place):
            raise conflict(f"{place.name!r} is no folder of uploads.", "Choose another name.")
        for document in named:
            if (place / document).exists() and not (place / document).is_file():
                raise conflict(f"{document!r} is no document there.", "Choose another name.")
        states = [state for documents in folders.values() for state in documents.values()]
        if len(states) + len({*named} - {*folders.get(place.name, ())}) > MOST_IN_ALL:
            message = f"All folders together hold {MOST_IN_ALL} documents."
            raise _too_much(message, "Delete some that are not needed any more.")
        room = max(0, self._most - sum(state.st_size for state in states))
        if sum(file.seek(0, os.SEEK_END) for file in named.values()) > room:
            raise _too_much(
                f"More was sent than the {room / 1e6:,.0f} MB that are taken.",
                "Send fewer documents at once, or delete some that were uploaded before.",
            )

    def _folders(self) -> list[Path]:
        if self._folder.is_symlink():
            raise StoreError(
                "The folder of uploads is a link.", "Remove it: uploads stay in the data directory."
            )
        found = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        return [p for p in found if p.is_dir() and not p.is_symlink() and p.name[0] != "."]

    def _find_folder(self, name: str) -> Path:
        for path in self._folders():
            if path.name == name:
                return path
        raise _unknown("folder")


def _describe(folder: Path) -> dict[str, Any]:
    documents = []
    for name, state in _documents(folder).items():
        changed = datetime.fromtimestamp(state.st_mtime, UTC).isoformat(timespec="seconds")
        documents.append({"name": name, "bytes": state.st_size, "changed_at": changed})
    return {
        "name": folder.name,
        "source": UPLOADED + folder.name,
        "bytes": sum(document["bytes"] for document in documents),
        "documents": documents,
    }


def _documents(folder: Path) -> dict[str, os.stat_result]:
    """The documents of a folder by name, skipping any that are removed meanwhile."""
    found = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False)
    return dict(sorted(found.items()))


def _fields(form: FormData) -> tuple[str, list[tuple[str, BinaryIO]]]:
    """The folder's name, and the documents with theirs."""
    folders, documents = [], []
    for field, value in form.multi_items():
        if field == "folder" and isinstance(value, str):
            folders.append(value)
        elif field == "documents" and isinstance(value, UploadFile):
            documents.append((value.filename or "", value.file))
        else:
            raise _malformed_upload("it holds other fields than one `folder` and `documents`")
    if len(folders) > 1:
        raise _malformed_upload("it names several folders")
    return folders[0] if folders else "documents", documents


def _name_documents(documents: Sequence[tuple[str, BinaryIO]]) -> dict[str, BinaryIO]:
    named: dict[str, BinaryIO] = {}
    for name, file in documents:
        checked = document_name(name)
        if checked.casefold() in {other.casefold() for other in named}:
            raise SettingsError(f"Two documents are called {checked!r}.", "Rename one of them.")
        if file.seek(0, os.SEEK_END) > MOST_BYTES:
            raise _too_much(
                f"{checked!r} is larger than {MOST_BYTES // 1_000_000} MB.", "Split it."
            )
        named[checked] = file
    if not named:
        raise SettingsError("There is no document in it.", "Choose at least one.")
    return named


def _unknown(what: str) -> RequestRefused:
    return missing(f"There is no such {what}.", "Load the page again.")


def _malformed_upload(what: str) -> RequestRefused:
    return RequestRefused(
        HTTPStatus.BAD_REQUEST,
        f"The upload cannot be read: {what}.",
        "Send multipart/form-data with a field `folder` and files called `documents`.",
    )
