"""The numbered events of one run: kept in its folder, and told from there to whoever watches.

    runs/THREAD/events.jsonl     {"id": 1, "event": "stage", "data": {...}}, one event a line

An event is told once it is in the file, so a number that somebody has seen is never given to
another event by a process that comes after. Readers ask for what follows the number they have:
nobody is queued for, so a slow one costs no memory and reads the file. Events are for people
watching and are not fsynced; the journal holds the truth.
"""

import asyncio
import json
from array import array
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from memory.text import storable

FILE_NAME = "events.jsonl"
END, RESTART = "end", "restart"
TAIL = 128
"""events of a run in memory; readers who are further behind read the file"""
BATCH = 512
"""events read at once"""
GONE = "this event is not on disk any more"
AGAIN = 1.0
"""seconds after which a file that could not be written is tried again"""


@dataclass(frozen=True, slots=True)
class Told:
    """One event; `frame` is it as a server-sent event."""

    id: int
    name: str
    data: Mapping[str, Any]
    frame: bytes


class EventLog:
    """The events of a run, numbered from 1 without a gap."""

    def __init__(self, path: Path, executor: Executor) -> None:
        self.path = path
        self.last = 0
        """the highest number that is given"""
        self.told = 0
        """the highest number that is in the file"""
        self.begins = 1
        """the first event of the last time that it was begun; what is before is history"""
        self.ended = False
        self.lost = False
        """the run's folder is not there any more: nothing of it is written"""
        self._executor = executor
        self._offsets = array("q")
        self._size = 0
        self._tail: deque[Told] = deque(maxlen=TAIL)
        self._pending: list[Told] = []
        self._flushing: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    async def load(self) -> "EventLog":
        """Take up what an earlier process has written; a line that it did not finish goes."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._load)
        return self

    def append(self, name: str, data: Mapping[str, Any]) -> None:
        """Number an event; it is told as soon as it is written."""
        self.last += 1
        self._pending.append(_told(self.last, name, data))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())

    async def read(self, after: int) -> list[Told]:
        """The events that follow a number, `BATCH` at most; empty where there are none yet."""
        after = max(after, self.begins - 1)
        if after >= self.told:
            return []
        if self._tail and self._tail[0].id <= after + 1:
            return list(islice(self._tail, after + 1 - self._tail[0].id, None))
        return await asyncio.to_thread(self._read, after, min(after + BATCH, self.told))

    async def changed(self, after: int) -> None:
        """Return when there is an event behind the number, or at the next `wake`."""
        if self.told > after:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def wake(self) -> None:
        """Have everybody look who waits for an event."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def watched(self) -> bool:
        return bool(self._waiting)

    async def written(self) -> None:
        """Return once everything that was appended is in the file."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            batch, self._pending = self._pending, []
            lines = [_line(event) for event in batch]
            while not await loop.run_in_executor(self._executor, self._write, b"".join(lines)):
                await asyncio.sleep(AGAIN)
            for event, line in zip(batch, lines, strict=True):
                self._add(event.name, len(line))
            self._tail.extend(batch)
            self.wake()
        self._flushing = None

    def _add(self, name: str, size: int) -> None:
        self._offsets.append(self._size)
        self._size += size
        self.told += 1
        self.begins = self.told if name == RESTART else self.begins
        self.ended = name == END

    def _write(self, block: bytes) -> bool:
        """Whether all of it is in the file; else none of it is, and the next try begins anew."""
        try:
            # Without a buffer, which would still write its rest when the file is closed.
            with self.path.open("ab", buffering=0) as file:
                if file.tell() > self._size:
                    # Half a line that was left would join with the next one.
                    file.truncate(self._size)
                left = memoryview(block)
                while left:
                    left = left[file.write(left) :]
        except OSError:
            self.lost = not self.path.parent.exists()
            return self.lost
        return True

    def _load(self) -> None:
        with suppress(FileNotFoundError), self.path.open("r+b") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    file.truncate(self._size)
                    break
                self._add(_parsed(self.told + 1, line).name, len(line))
        self.last = self.told

    def _read(self, after: int, last: int) -> list[Told]:
        numbers = range(after + 1, last + 1)
        try:
            with self.path.open("rb") as file:
                file.seek(self._offsets[after])
                return [_parsed(number, file.readline()) for number in numbers]
        except OSError:
            return [_told(number, "note", {"message": GONE}) for number in numbers]


def _told(number: int, name: str, data: Mapping[str, Any]) -> Told:
    text = storable(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    return Told(number, name, data, f"id: {number}\nevent: {name}\ndata: {text}\n\n".encode())


def _line(event: Told) -> bytes:
    value = {"id": event.id, "event": event.name, "data": event.data}
    return storable(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


def _parsed(number: int, line: bytes) -> Told:
    """A line as its event; one that cannot be read is a note, so that no number is missing."""
    try:
        value = json.loads(line)
        return _told(number, str(value["event"]), value["data"])
    except (ValueError, KeyError, TypeError):
        return _told(number, "note", {"message": "this event was damaged on disk"})
