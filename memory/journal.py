"""The journal: what a run has finished, one fsynced JSON line per model or tool call.

A call is finished when its reply is on disk here; only calls in flight at a kill can happen
again. Records are found by (thread, turn, attempt, digest of the call), so a resumed run walks
the same way and gets every finished reply without asking for it. Appends of all the runs of a
process are committed in groups: one write and one fsync for all that waited.

The file is append-only and locked by its process. A last line cut by a crash was never
acknowledged to anybody and is removed when the file is opened.
"""

import asyncio
import fcntl
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rubricem.memory.errors import StoreError


class CallKey(NamedTuple):
    """Which call of which run; `digest` is over everything the reply depends on."""

    thread: str
    turn: int
    attempt: int
    digest: str


Reply = dict[str, Any]


def identity(model: str) -> str:
    """What of a model's name stays when its server moves: `qwen@host:8000` -> `qwen@`.

    Replies are found under it, so that they are found at another address too.
    """
    name, served, _ = model.rpartition("@")
    return f"{name}{served}" or model


class CallJournal(Protocol):
    """Finished calls of runs: a `Journal`, or what asks for them elsewhere."""

    def find(self, key: CallKey) -> Reply | None: ...
    async def append(self, key: CallKey, reply: Reply) -> None: ...
    def forget(self, thread: str) -> None: ...
    def close(self) -> None: ...


class Journal:
    """An open journal file. Raises StoreError where it cannot be read or written."""

    def __init__(
        self,
        path: Path,
        hear: Callable[[Reply], None] = lambda reply: None,
        wanted: Callable[[str], bool] = lambda thread: True,
    ) -> None:
        """`hear` is told every reply that is in the file now.

        Only those of `wanted` threads are held, to be found again.
        """
        self.path = path
        self._replies: dict[str, dict[CallKey, Reply]] = {}
        self._pending: list[tuple[str, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            self._lock()
            self._load(hear, wanted)
        except BaseException:
            os.close(self._fd)
            raise

    def find(self, key: CallKey) -> Reply | None:
        """The reply of a finished call, or None if it is still to be made."""
        return self._replies.get(key.thread, {}).get(key)

    def held(self, thread: str) -> dict[CallKey, Reply]:
        """The replies of a run that can be found."""
        return dict(self._replies.get(thread, {}))

    async def append(self, key: CallKey, reply: Reply) -> None:
        """Return once the reply is on disk."""
        # As ASCII, which can write anything: a line that cannot be encoded would hold up all.
        line = json.dumps({"key": key, "reply": reply}) + "\n"
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((line, done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await done
        self._replies.setdefault(key.thread, {})[key] = reply

    def close(self) -> None:
        """Release the lock, once what is being written is on disk; not to be used afterwards."""
        if self._flushing is None:
            os.close(self._fd)
        else:
            self._flushing.add_done_callback(lambda task: os.close(self._fd))

    def forget(self, thread: str) -> None:
        """Drop a finished run's replies from this process's memory; the file keeps them."""
        self._replies.pop(thread, None)

    async def _flush(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            block = "".join(line for line, _ in batch).encode()
            try:
                await asyncio.to_thread(self._write, block)
            except OSError as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(_unusable(self.path, error))
            else:
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)
        self._flushing = None

    def _write(self, block: bytes) -> None:
        view = memoryview(block)
        size = os.fstat(self._fd).st_size
        try:
            while view:
                view = view[os.write(self._fd, view) :]
            os.fsync(self._fd)
        except OSError:
            # Half a block would join with the next one into a line that nobody can read.
            with suppress(OSError):
                os.ftruncate(self._fd, size)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{self.path.name} is in use by another process",
                "Wait until that run has ended, or give this one another name: --thread or --out.",
            ) from None

    def _load(self, hear: Callable[[Reply], None], wanted: Callable[[str], bool]) -> None:
        whole = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    os.ftruncate(self._fd, whole)
                    return
                whole += len(line)
                key, reply = self._parsed(line, number)
                if wanted(key.thread):
                    self._replies.setdefault(key.thread, {})[key] = reply
                hear(reply)

    def _parsed(self, line: bytes, number: int) -> tuple[CallKey, Reply]:
        try:
            record = json.loads(line)
            return CallKey(*record["key"]), record["reply"]
        except (ValueError, KeyError, TypeError):
            raise StoreError(
                f"line {number} of the journal {self.path.name} is damaged",
                "Move that run's folder away and ask again; nothing was overwritten.",
            ) from None


def in_use(path: Path) -> bool:
    """Whether a process holds the journal open."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the journal {path.name} cannot be used: {error.strerror}",
        f"Make {path.parent} writable and see that its disk is not full, or set RUBRICEM_DATA_DIR.",
    )
