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
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Form, UploadFile
from fastapi.responses import JSONResponse
from pydantic import Field

from rubricem.agent.serve.desk import Desk, RunDesk
from rubricem.agent.serve.requests import RequestBody, RequestRefused, conflict, missing
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
routes = APIRouter(prefix="/api/uploads", max_body_size=REQUEST_BYTES)


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


@routes.get("")
def list_uploads(desk: Desk) -> JSONResponse:
    limits = {
        "files": REQUEST_FILES,
        "file_bytes": MOST_BYTES,
        "request_bytes": REQUEST_BYTES,
        "kinds": KINDS,
    }
    uploads = [_describe(folder) for folder in _folders(desk)]
    return JSONResponse({"uploads": uploads, "limits": limits})


class Sent(RequestBody):
    """What a browser sends: documents, and the name of the folder that they belong in."""

    documents: list[UploadFile] = Field(min_length=1, max_length=REQUEST_FILES)
    folder: str = "documents"


@routes.post("", status_code=HTTPStatus.CREATED)
async def upload(
    desk: Desk, sent: Annotated[Sent, Form(media_type="multipart/form-data")]
) -> dict[str, Any]:
    """Store documents in a folder; one upload is stored at a time."""
    async with desk.turns["upload"]:
        return await asyncio.to_thread(_store, desk, sent)


@routes.delete("/{name}")
def remove(desk: Desk, name: str) -> dict[str, Any]:
    folder = _find_folder(desk, name)
    with writable(folder):
        shutil.rmtree(folder)
    return {"removed": name}


@routes.delete("/{name}/{document}")
def remove_document(desk: Desk, name: str, document: str) -> dict[str, Any]:
    folder = _find_folder(desk, name)
    if document not in _documents(folder):
        raise _unknown("document")
    with writable(folder / document):
        (folder / document).unlink(missing_ok=True)
    return {"removed": document}


def _store(desk: RunDesk, sent: Sent) -> dict[str, Any]:
    """Add documents to a folder; existing ones of the same name are replaced."""
    place = desk.settings.data_dir / UPLOADS / folder_name(sent.folder)
    named = _name_documents(sent.documents)
    _see_room(place, named, {path.name: _documents(path) for path in _folders(desk)})
    for document, file in named.items():
        file.seek(0)
        write_atomically(place / document, iter(partial(file.read, 1 << 20), b""))
    return _describe(place)


def _see_room(
    place: Path, named: dict[str, BinaryIO], folders: dict[str, dict[str, os.stat_result]]
) -> None:
    """Raise Refused if documents cannot be put into a folder; `folders`: what all of them hold."""
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
    room = max(0, ALL_BYTES - sum(state.st_size for state in states))
    if sum(file.seek(0, os.SEEK_END) for file in named.values()) > room:
        raise _too_much(
            f"More was sent than the {room / 1e6:,.0f} MB that are taken.",
            "Send fewer documents at once, or delete some that were uploaded before.",
        )


def _folders(desk: RunDesk) -> list[Path]:
    folder = desk.settings.data_dir / UPLOADS
    if folder.is_symlink():
        raise StoreError(
            "The folder of uploads is a link.", "Remove it: uploads stay in the data directory."
        )
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [p for p in found if p.is_dir() and not p.is_symlink() and p.name[0] != "."]


def _find_folder(desk: RunDesk, name: str) -> Path:
    for path in _folders(desk):
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


def _name_documents(documents: Sequence[UploadFile]) -> dict[str, BinaryIO]:
    named: dict[str, BinaryIO] = {}
    for each in documents:
        checked, file = document_name(each.filename or ""), each.file
        if checked.casefold() in {other.casefold() for other in named}:
            raise SettingsError(f"Two documents are called {checked!r}.", "Rename one of them.")
        if file.seek(0, os.SEEK_END) > MOST_BYTES:
            raise _too_much(
                f"{checked!r} is larger than {MOST_BYTES // 1_000_000} MB.", "Split it."
            )
        named[checked] = file
    return named


def _unknown(what: str) -> RequestRefused:
    return missing(f"There is no such {what}.", "Load the page again.")
