"""Foreign bytes are read in processes of our own, so that what they do to a reader ends with it.

A parser runs in a process that is locked (`locks`), with a limit of processor time and of memory
for each piece of work (`worker` sets them), which is killed after all too long by the clock, and
whose reply is bounded. One that was ended is replaced, and costs what it was reading and nothing
else. Each has a thread of its own here, which sleeps while it works. `turns` tells who comes next.

Work goes over pipes: two lengths, a header in JSON and the bytes there, a length and JSON back;
nothing is unpickled. A process is started when first needed, without the keys in the environment.
"""

import asyncio
import atexit
import compileall
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rubricem.agent.sources.sandbox import NoText
from rubricem.agent.sources.sandbox.turns import (
    PERSONS_SECONDS,
    REQUESTER,
    ReadingPiece,
    Requester,
    Turns,
)
from rubricem.agent.sources.sandbox.worker import REPLY, REQUEST
from rubricem.memory.errors import SourceError

SECONDS = 4
"""of processor time for a piece of work; where it shows that it gets on, for each step of it"""
CLOCK_SECONDS = 120.0
"""after which a process is killed whatever it waits for: a busy machine gives it little time"""
MEGABYTES = 256
"""that a process may fill with a piece of work"""
MOST_REPLY = 128_000_000
"""bytes of a reply"""
KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "SYSTEMROOT", "LD_LIBRARY_PATH")
"""of the environment, until a process is locked: a reader needs no keys"""
_COMMAND = ("-P", "-W", "ignore", "-m", f"{__package__}.worker")


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be read: a page or a reply in `content`, or the document at `path`.

    `engines`: what the web's say to a query, whose pages are fetched there as well. `patterns`:
    which of those of a file of questions match the text in `content`.
    """

    kind: Literal["page", "document", "json", "xml", "engines", "patterns", "locks"]
    name: str
    """what it is called where it could not be read, at the beginning of a sentence"""
    fields: Mapping[str, Any]
    content: bytes = field(default=b"", repr=False)
    seconds: int = SECONDS
    megabytes: int = MEGABYTES
    remedy: str = ""
    path: str = ""
    """without a link in it: one that was put there since is not followed"""

    def request(self) -> tuple[bytes, bytes]:
        """Raises OSError for a document that cannot be opened."""
        content = _content_of(self.path) if self.path else self.content
        limits = {"seconds": self.seconds, "megabytes": self.megabytes}
        header = json.dumps({"kind": self.kind, **limits, **self.fields}).encode()
        return REQUEST.pack(len(header), len(content)) + header, content

    def failure(self, how: str) -> SourceError:
        return SourceError(f"{self.name} {how}.", self.remedy)


def _content_of(path: str) -> bytes:
    """Its reader cannot open it. Raises OSError, also for what is no plain file, or not there."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
        place = f"/proc/self/fd/{file.fileno()}"
        if os.path.exists(place) and os.path.realpath(place) != path:
            raise OSError(errno.ELOOP, "it is a link to another place")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        return file.read()


Reply = bytes | SourceError
"""the JSON of what was read, or why it could not be"""


@cache
def _compile() -> None:
    """Once, as a process that is locked cannot keep what Python compiles."""
    if not sys.dont_write_bytecode:
        compileall.compile_dir(Path(__file__).parents[1], quiet=2)


class Reader:
    """One process; use it from one thread."""

    def __init__(self, clock_seconds: float = CLOCK_SECONDS, passed: tuple[str, ...] = ()) -> None:
        self._clock_seconds = clock_seconds
        self.usual = True
        """it has the usual priority"""
        names = (*KEPT, *passed)
        kept = {name: os.environ[name] for name in names if name in os.environ}
        path = os.pathsep.join(filter(None, sys.path))
        _compile()
        self._process = subprocess.Popen(
            # Whoever is given names of the environment asks the web.
            [sys.executable, *_COMMAND, *["network"][: len(passed)]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "PYTHONPATH": path},
            # ^C is for the program, which may want to end in order.
            start_new_session=True,
        )

    def read(self, job: Job) -> tuple[Reply, bool]:
        """(what was read, whether the process can go on)."""
        watch = threading.Timer(self._clock_seconds, self._process.kill)
        watch.daemon = True
        watch.start()
        try:
            reply = self._ask(job.request())
        except OSError as cause:
            return job.failure(f"could not be opened: {cause.strerror}"), True
        finally:
            watch.cancel()
        if reply is None:
            return job.failure(self._how_it_ended(job)), False
        read, failed, worn = reply
        if not failed:
            return read, not worn
        told = json.loads(read)
        whole = "said" in told
        kind = NoText if told.get("textless") else SourceError
        failure = kind(told["said"], told["remedy"]) if whole else job.failure(told["how"])
        return failure, not worn

    def make_way(self) -> None:
        """Let others have the processor first; for good, so that it ends with its work."""
        if self.usual and hasattr(os, "setpriority"):
            self.usual = False
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with suppress(OSError):
                pipe.close()

    def _ask(self, request: Sequence[bytes]) -> tuple[bytes, bool, bool] | None:
        """What came back, whether it is a failure, and whether the process has ended with it.

        None where it ended before the reply was whole, or the reply is too large.
        """
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        with suppress(OSError):
            for part in request:
                to.write(part)
            to.flush()
            if len(head := back.read(REPLY.size)) == REPLY.size:
                size, failed, worn = REPLY.unpack(head)
                if size <= MOST_REPLY and len(reply := back.read(size)) == size:
                    return reply, failed, worn
        return None

    def _how_it_ended(self, job: Job) -> str:
        if self._process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
        status = self._process.poll()
        if status is None:
            return "holds more text than can be taken"
        if -status in (getattr(signal, "SIGXCPU", 0), signal.SIGKILL.value):
            return "takes too long to read"
        if status == -signal.SIGABRT:  # what a library in C does that gets no memory
            return f"needs more than {job.megabytes} MB to be read"
        return f"could not be read: its reader ended with status {status}"


SHORT_SECONDS = 5.0
"""by the clock, for a piece of work in the process for short ones"""
LATE_SECONDS = 2.0
"""after which a piece of work makes way for another person's"""


class Pool:
    """As many processes as are needed, at most `size`, and one more for short work.

    Pieces of work wait for them in `Turns`. The one more is begun where one person's work waits for
    that of others. What is not short for it is begun anew by another process.
    """

    def __init__(
        self, size: int, clock_seconds: float = CLOCK_SECONDS, passed: tuple[str, ...] = ()
    ) -> None:
        """`passed`: names of the environment that they are given besides."""
        self.size = size
        self._clock_seconds, self._passed = clock_seconds, passed
        self._turns = Turns()
        self._news = threading.Condition()
        self._idle = 0
        self._threads = 0
        self._short = False
        self._working: dict[ReadingPiece, tuple[Reader, float]] = {}
        self._readers: set[Reader] = set()
        atexit.register(self.close)

    def submit(self, job: Job) -> Future[Reply]:
        """Have a job done for this context's `REQUESTER`; one that ends its process fails alone."""
        done: Future[Reply] = Future()
        requester = REQUESTER.get()

        def give(reply: Reply) -> None:
            with suppress(InvalidStateError):  # it was cancelled
                if reply is ENDED:
                    done.set_exception(SourceError(str(ENDED)))
                else:
                    done.set_result(reply)

        if requester.ended:
            give(ENDED)
            return done
        with self._news:
            self._turns.put(ReadingPiece(requester, job, give, done))
            while self._threads < min(self._threads - self._idle + len(self._turns), self.size):
                self._begin(short=False)
            if not self._short and self._idle == 0 and self._turns.persons() > 1:
                self._short = True
                self._begin(short=True)
            self._news.notify_all()
        return done

    def warm(self) -> None:
        """Begin the processes, and have them import what reads a page."""
        asked = {"address": "", "declared": "", "packing": "", "most": 100}
        for _ in range(self.size):
            self.submit(Job("page", "A page", asked, b"<p>Nothing."))

    async def read(self, job: Job) -> Any:
        """What a job gives, from JSON. Raises SourceError."""
        reply = await asyncio.wrap_future(self.submit(job))
        if isinstance(reply, SourceError):
            raise reply
        return json.loads(reply)

    def cancel(self, requester: Requester) -> None:
        """Its run has ended: read nothing more for it."""
        with self._news:
            requester.ended = True
            for piece in self._turns.drop(requester):
                piece.give(ENDED)
            for piece, (reader, _) in self._working.items():
                if piece.requester is requester:
                    reader.kill()

    def close(self) -> None:
        """End the processes."""
        atexit.unregister(self.close)
        for reader in list(self._readers):
            reader.end()

    def _begin(self, short: bool) -> None:
        self._threads += not short
        # A daemon: what a page does to its reader keeps no program from its end.
        threading.Thread(target=self._work, args=[short], name="reading", daemon=True).start()

    def _work(self, short: bool) -> None:
        reader: Reader | None = None
        most = min(SHORT_SECONDS, self._clock_seconds) if short else self._clock_seconds
        while True:
            piece = self._take(short)
            begun = time.monotonic()
            try:
                if reader is None:
                    self._readers.add(reader := Reader(most, self._passed))
                reply, well = self._read(reader, piece, begun)
            except Exception as error:
                reply, well = SourceError(f"Reading failed: {error}."), False
            seconds = time.monotonic() - begun
            if reader is not None and not (well and reader.usual):
                self._readers.discard(reader)
                reader.end()
                reader = None
            with self._news:
                self._turns.give_back(piece, seconds)
                if short and not well and seconds >= SHORT_SECONDS and not piece.requester.ended:
                    piece.long = True
                    self._turns.put(piece)
                    self._news.notify_all()
                else:
                    piece.give(ENDED if piece.requester.ended else reply)

    def _read(self, reader: Reader, piece: ReadingPiece, begun: float) -> tuple[Reply, bool]:
        with self._news:
            if piece.done.cancelled():
                return ENDED, True
            person = piece.requester.person
            if person and self._turns.spent(person) > PERSONS_SECONDS:
                return SourceError(USED_UP, "Ask again in an hour, or about smaller files."), True
            self._working[piece] = reader, begun
        try:
            return reader.read(piece.job)
        finally:
            with self._news:
                del self._working[piece]

    def _take(self, short: bool) -> ReadingPiece:
        with self._news:
            while (piece := self._turns.take(short)) is None:
                self._idle += not short
                self._news.wait()
                self._idle -= not short
            for reader, begun in self._working.values() if short else ():
                if time.monotonic() - begun > LATE_SECONDS:
                    reader.make_way()
            return piece


ENDED = SourceError("The run that this was read for has ended.")
USED_UP = "What a user may have read in an hour is used up."


def release(requester: Requester) -> None:
    """Read nothing more for a run that has ended."""
    for pool in (readers(), searchers()):
        pool.cancel(requester)


@cache
def readers() -> Pool:
    """The pool of this process."""
    return Pool(max(2, min(4, os.cpu_count() or 1)))


SEARCHING = 4
"""searches of the web at once"""
SEARCH_SECONDS = 20.0
_NETWORK = tuple(
    name
    for upper in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
    for name in (upper, upper.lower())
)


@cache
def searchers() -> Pool:
    """Processes that wait for the network, so that no page has to wait for them."""
    own = ("DDGS_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
    return Pool(SEARCHING, SEARCH_SECONDS, (*_NETWORK, *own))


# The threads of a pool do not come along into a fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=readers.cache_clear)
    os.register_at_fork(after_in_child=searchers.cache_clear)
