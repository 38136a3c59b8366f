"""The process that reads: one piece of work after another from its input, locked and under limits.

A limit of processor time ends it, one of memory fails what asks for more. Both begin anew with each
piece of work, and the time with each page of a PDF; a process that was filled ends after its reply.
What a reader needs is imported when it is first asked for.
"""

import json
import os
import re
import struct
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from io import BytesIO
from typing import Any, BinaryIO

from rubricem.agent.sources.sandbox import NoText
from rubricem.agent.sources.sandbox.locks import PROCESS_SECONDS, lock
from rubricem.memory.errors import SourceError

try:
    import resource
except ImportError:  # no such limits on this system
    resource = None  # type: ignore[assignment]

REQUEST = struct.Struct(">II")
"""lengths of the header, in JSON, and of the bytes to be read"""
REPLY = struct.Struct(">I??")
"""length of the reply, in JSON; whether reading failed; whether the process ends now"""

_GZIP_OR_ZLIB = 47
"""what zlib calls reading either"""
RATIO = 250
"""times its size that a packing may hold, where that is more than a megabyte"""
WORN = 128
"""megabytes taken at some time from which on a process is replaced"""
DOCUMENT_SECONDS = 300.0
"""of processor time for a whole PDF of the user's own"""
PAGE_SECONDS = 15.0
"""for one of the web"""
MOST_PASSAGES = 60_000
"""of a document: six million words, or some 40 MB of English"""
_COUNTED = 1 << 16
"""characters whose words are counted at a time: all of them are held meanwhile"""
LONGEST = 8000
"""characters kept of a text in a reply"""
MOST_ROWS = 200
"""kept of a list or an object in a reply"""
DEEPEST = 8
MOST_SAID = 300
"""characters of an exception"""


class Unread(Exception):
    """How something could not be read, to be said of its name."""


class Limits:
    """What this process may use of the machine, counted from now."""

    def __init__(self, seconds: int, megabytes: int) -> None:
        self._seconds = seconds
        if resource is not None and sys.platform == "linux":
            _set(resource.RLIMIT_DATA, megabytes << 20)
        self.get_on()

    def get_on(self) -> None:
        """A step is done: the time begins anew."""
        if resource is not None:
            _set(resource.RLIMIT_CPU, round(time.process_time()) + self._seconds)


def _set(kind: int, most: int) -> None:
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard < 0 else min(most, hard), hard))


def decompress(content: bytes, packing: str, most: int) -> bytes:
    """The body of a reply that came packed; raises Unread above so many bytes.

    What follows the end of the packing is not looked at further.
    """
    if not packing:
        return content
    most = min(most, max(RATIO * len(content), 1 << 20))
    unpack = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        body = unpack.decompress(content, most + 1)
    except zlib.error as cause:
        raise Unread("is packed, and its packing is damaged") from cause
    if len(body) > most:
        raise Unread(f"unpacks to more than {most / 1e6:.0f} MB")
    if unpack.unused_data.strip(b"\0"):
        raise Unread("is packed, and more follows its packing")
    return body


def _page(asked: Mapping[str, Any], content: bytes, limits: Limits) -> Any:
    from rubricem.agent.sources.sandbox.web_text import passages_of

    body = decompress(content, asked["packing"], asked["most"])
    return passages_of(body, asked["declared"], asked["address"], PAGE_SECONDS, limits.get_on)


def _document(asked: Mapping[str, Any], content: bytes, limits: Limits) -> Any:
    from rubricem.agent.sources.readers import read
    from rubricem.agent.sources.readers.document import Input
    from rubricem.agent.sources.readers.passages import MAX_WORDS, split_passages
    from rubricem.memory.language import length

    given = Input(asked["name"], BytesIO(content), "", DOCUMENT_SECONDS, limits.get_on)
    document = read(given)
    # Of what would not be held otherwise, such as a long table, passages are longer.
    texts = (block.text for section in document.sections for block in section.blocks)
    size = sum(length(t[at : at + _COUNTED]) for t in texts for at in range(0, len(t), _COUNTED))
    words = max(MAX_WORDS, min(3 * MAX_WORDS, int(1.25 * size / MOST_PASSAGES)))
    passages, note = list[tuple[str, str]](), document.note
    for section in document.sections:
        left = MOST_PASSAGES - len(passages)
        pieces = split_passages(section.text, words, left + 1)
        passages += ((section.heading, piece) for piece in pieces[:left])
        if len(pieces) > left:
            note = f"{note}; " * bool(note) + f"read in part: its first {MOST_PASSAGES:,} passages"
            break
    return {"title": document.title, "note": note, "passages": passages}


def _json(asked: Mapping[str, Any], content: bytes, limits: Limits) -> Any:
    try:
        return prune(json.loads(decompress(content, asked["packing"], asked["most"])))
    except (ValueError, RecursionError) as cause:
        raise Unread("is no JSON") from cause


def _xml(asked: Mapping[str, Any], content: bytes, limits: Limits) -> Any:
    """Of each row the texts at each path; nothing that a document type declares is fetched."""
    from lxml import etree

    body = decompress(content, asked["packing"], asked["most"])
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        rows = etree.fromstring(body, parser).iterfind(f".//{{*}}{asked['row']}")
    except etree.XMLSyntaxError as cause:
        raise Unread("is no XML") from cause

    def texts(row: Any, path: str) -> list[str]:
        return [" ".join("".join(each.itertext()).split()) for each in row.iterfind(path)]

    each = ({name: texts(row, path) for name, path in asked["fields"].items()} for row in rows)
    return prune(list(each))


def _patterns(asked: Mapping[str, Any], content: bytes, limits: Limits) -> Any:
    """Which of somebody's patterns a text matches: any of them may take time without end."""
    text = content.decode()
    return [bool(re.search(each, text, re.I | re.S)) for each in asked["patterns"]]


def _engines(asked: Mapping[str, Any], content: bytes, limits: Limits) -> Any:
    from rubricem.agent.sources.sandbox.web_text import ask_engines

    return prune(list(ask_engines(asked["query"], asked["most"])))


def prune(value: Any, levels: int = DEEPEST) -> Any:
    """As much of a value of JSON as any reply has a use for."""
    if isinstance(value, str):
        return value[:LONGEST]
    if isinstance(value, list):
        return [prune(each, levels - 1) for each in value[:MOST_ROWS]] if levels else None
    if isinstance(value, dict):
        some = list(value.items())[:MOST_ROWS] if levels else []
        return {name[:LONGEST]: prune(each, levels - 1) for name, each in some}
    return value


def _locks(asked: Mapping[str, Any], content: bytes, limits: Limits) -> Any:
    """What this process gave up; nothing where it was not begun as a worker."""
    return LOCKED


LOCKED: dict[str, Any] = {}
_KINDS: Mapping[str, Callable[[Mapping[str, Any], bytes, Limits], Any]] = {
    "page": _page,
    "document": _document,
    "json": _json,
    "xml": _xml,
    "patterns": _patterns,
    "engines": _engines,
    "locks": _locks,
}


def answer(asked: Mapping[str, Any], content: bytes) -> tuple[Any, bool]:
    """(what was read, or how it failed, and which of both)."""
    limits = Limits(asked["seconds"], asked["megabytes"])
    try:
        return _KINDS[asked["kind"]](asked, content, limits), False
    except SourceError as error:
        textless = isinstance(error, NoText)
        return {"said": str(error), "remedy": error.remedy, "textless": textless}, True
    except Unread as error:
        return {"how": str(error)}, True
    except Exception as error:
        # A parser that got no memory may call it by another name.
        if isinstance(error, MemoryError) or _megabytes() > asked["megabytes"] / 2:
            return {"how": f"needs more than {asked['megabytes']} MB to be read"}, True
        return {"how": f"could not be read: {type(error).__name__}: {error}"[:MOST_SAID]}, True


@cache
def _status() -> int:
    """Opened before the process is locked, and read again and again."""
    return os.open("/proc/self/status", os.O_RDONLY)


def _megabytes() -> float:
    """The most that this process held at any time."""
    with suppress(OSError, IndexError):
        most = os.pread(_status(), 4096, 0).partition(b"VmHWM:")[2]
        return int(most.split()[0]) / (1 << 10)
    if resource is None or sys.platform == "linux":
        return 0.0  # where /proc is hidden: getrusage begins with what the parent held
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def serve(asking: BinaryIO, telling: BinaryIO) -> None:
    """Answer until the input ends, or the process is worn."""
    worn = False
    while not worn and len(head := asking.read(REQUEST.size)) == REQUEST.size:
        header, content = map(asking.read, REQUEST.unpack(head))
        read, failed = answer(json.loads(header), content)
        reply = json.dumps(read, ensure_ascii=False).encode("utf-8", "surrogatepass")
        worn = _megabytes() > WORN or time.process_time() > PROCESS_SECONDS / 2
        telling.write(REPLY.pack(len(reply), failed, worn))
        telling.write(reply)  # which may fill most of the memory
        telling.flush()


if __name__ == "__main__":
    told = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no reply
    _megabytes()
    LOCKED.update(lock(network="network" in sys.argv))
    serve(sys.stdin.buffer, told)
