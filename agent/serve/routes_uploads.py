"""`/api/uploads`: documents that a browser sends, to be searched as a source by name.

The body is read piece by piece and given up as soon as it is larger than what is taken.
"""

import asyncio
from collections.abc import AsyncGenerator
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

from fastapi import APIRouter, Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from agent.serve.refusals import Refused
from agent.serve.upload_room import UploadRoom
from agent.serve.uploads import ALL_BYTES, Uploads
from agent.sources.documents import MOST_BYTES
from agent.sources.readers import READERS

REQUEST_BYTES = 200_000_000
"""of one request"""
REQUEST_FILES = 200
_FIELDS = 4


class _TooLarge(MultiPartException):
    """More came than is taken."""


def router(data_dir: Path, most: int = ALL_BYTES) -> APIRouter:
    """The routes of one data directory's uploads; `most` bytes in all."""
    routes = APIRouter(prefix="/api/uploads")
    desk = _UploadDesk(Uploads(data_dir, most))
    routes.get("")(desk.listed)
    routes.post("", status_code=HTTPStatus.CREATED)(desk.upload)
    routes.delete("/{name}")(desk.remove)
    routes.delete("/{name}/{document}")(desk.remove_document)
    return routes


class _UploadDesk:
    """What the routes do; one set is put into its place at a time."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._room = UploadRoom(uploads)
        self._placing = asyncio.Lock()

    async def listed(self) -> dict[str, Any]:
        limits = {
            "files": REQUEST_FILES,
            "file_bytes": MOST_BYTES,
            "request_bytes": REQUEST_BYTES,
            "kinds": sorted(suffix.removeprefix(".") for suffix in READERS),
        }
        return {"uploads": await asyncio.to_thread(self._uploads.listed), "limits": limits}

    async def upload(self, request: Request) -> dict[str, Any]:
        """Take `documents` into the folder that `folder` names."""
        wanted = _length(request)
        async with self._room.reserved(wanted) as most:
            form = await _form(request, wanted, most)
            try:
                named, documents = _fields(form)
                async with self._placing:
                    return await asyncio.to_thread(self._uploads.take, named, documents)
            finally:
                await form.close()

    async def remove(self, name: str) -> dict[str, Any]:
        await asyncio.to_thread(self._uploads.remove, name)
        return {"removed": name}

    async def remove_document(self, name: str, document: str) -> dict[str, Any]:
        await asyncio.to_thread(self._uploads.remove_document, name, document)
        return {"removed": document}


def _length(request: Request) -> int:
    """Bytes that a request may bring: as many as it says, else as many as are taken of any.

    Raises Refused (413) where it says that it brings more.
    """
    length = request.headers.get("content-length", "")
    told = int(length) if length.isascii() and length.isdigit() else REQUEST_BYTES
    if told > REQUEST_BYTES:
        raise _too_large(REQUEST_BYTES)
    return told


async def _form(request: Request, wanted: int, most: int) -> FormData:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise _malformed("it is not multipart/form-data")
    if most < wanted and "content-length" in request.headers:
        raise _too_large(most)
    body = _at_most(request, most)
    parser = MultiPartParser(
        request.headers, body, max_files=REQUEST_FILES, max_fields=_FIELDS, max_part_size=4096
    )
    try:
        return await parser.parse()
    except _TooLarge:
        raise _too_large(most) from None
    except MultiPartException as error:
        raise _malformed(error.message.rstrip(".")) from error
    except ValueError as error:
        # What the parser itself cannot read.
        raise _malformed("its parts cannot be told apart") from error


def _fields(form: FormData) -> tuple[str, list[tuple[str, BinaryIO]]]:
    """The folder's name, and the documents with theirs."""
    folders, documents = ["documents"], []
    for field, value in form.multi_items():
        if field == "folder" and isinstance(value, str):
            folders.append(value)
        elif field == "documents" and isinstance(value, UploadFile):
            documents.append((value.filename or "", value.file))
        else:
            raise _malformed("it holds other fields than one `folder` and `documents`")
    if len(folders) > 2:
        raise _malformed("it names several folders")
    return folders[-1], documents


async def _at_most(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    read = 0
    async for piece in request.stream():
        read += len(piece)
        if read > most:
            raise _TooLarge("too large")
        yield piece


def _too_large(most: int) -> Refused:
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"More was sent than the {most / 1e6:,.0f} MB that are taken.",
        "Send fewer documents at once, or delete some that were uploaded before.",
    )


def _malformed(what: str) -> Refused:
    return Refused(
        HTTPStatus.BAD_REQUEST,
        f"The upload cannot be read: {what}.",
        "Send multipart/form-data with a field `folder` and files called `documents`.",
    )
