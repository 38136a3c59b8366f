"""Foreign bytes are read in processes of our own, so that what they do to a reader ends with it.

A parser runs in a process with a limit of processor time and of memory for each piece of work
(`worker` sets them), which is killed after all too long by the clock, and whose reply is bounded.
One that was ended is replaced, and costs what it was reading and nothing else. Each process has a
thread of its own here, which sleeps while the process works.

Work goes over pipes: two lengths, a header in JSON and the bytes there, a length and JSON back;
nothing is unpickled. A process is started when first needed, without the keys in the environment.
"""

import asyncio
import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from queue import SimpleQueue
from typing import Any, Literal

from rubricem.agent.sources.sandbox import NoText
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
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH", "HOME")
"""of the environment: a reader needs no keys"""
_COMMAND = ("-P", "-W", "ignore", "-m", f"{__package__}.worker")


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be read: a page or a reply in `content`, or the document at a path.

    `engines`: what the web's say to a query, whose pages are fetched there as well. `patterns`:
    which of those of a file of questions match the text in `content`.
    """

    kind: Literal["page", "document", "json", "xml", "engines", "patterns"]
    name: str
    """what it is called where it could not be read, at the beginning of a sentence"""
    fields: Mapping[str, Any]
    content: bytes = field(default=b"", repr=False)
    seconds: int = SECONDS
    megabytes: int = MEGABYTES
    remedy: str = ""

    def request(self) -> tuple[bytes, bytes]:
        limits = {"seconds": self.seconds, "megabytes": self.megabytes}
        header = json.dumps({"kind": self.kind, **limits, **self.fields}).encode()
        return REQUEST.pack(len(header), len(self.content)) + header, self.content

    def failure(self, how: str) -> SourceError:
        return SourceError(f"{self.name} {how}.", self.remedy)


Reply = bytes | SourceError
"""the JSON of what was read, or why it could not be"""


class Reader:
    """One process; use it from one thread."""

    def __init__(self, clock_seconds: float = CLOCK_SECONDS, passed: tuple[str, ...] = ()) -> None:
        self._clock_seconds = clock_seconds
        names = (*KEPT, *passed)
        kept = {name: os.environ[name] for name in names if name in os.environ}
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, *_COMMAND],
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
            reply = self._ask(job)
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

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with suppress(OSError):
                pipe.close()

    def _ask(self, job: Job) -> tuple[bytes, bool, bool] | None:
        """What came back, whether it is a failure, and whether the process has ended with it.

        None where it ended before the reply was whole, or the reply is too large.
        """
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        with suppress(OSError):
            for part in job.request():
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


class Pool:
    """As many processes as are needed, at most `size`; each piece of work waits for a free one."""

    def __init__(
        self, size: int, clock_seconds: float = CLOCK_SECONDS, passed: tuple[str, ...] = ()
    ) -> None:
        """`passed`: names of the environment that they are given besides."""
        self.size = size
        self._of_each = clock_seconds, passed
        self._waiting: SimpleQueue[tuple[Sequence[Job], Future[list[Reply]]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._left = 0
        self._threads = 0
        self._readers: set[Reader] = set()
        atexit.register(self.close)

    def submit(self, jobs: Sequence[Job]) -> Future[list[Reply]]:
        """Have the jobs done by one process, in order; of those that end it, only they fail."""
        done: Future[list[Reply]] = Future()
        with self._lock:
            self._left += 1
            if self._threads < min(self._left, self.size):
                self._threads += 1
                # A daemon: what a page does to its reader keeps no program from its end.
                threading.Thread(target=self._work, name="reading", daemon=True).start()
        self._waiting.put((jobs, done))
        return done

    async def read(self, job: Job) -> Any:
        """What a job gives, from JSON. Raises SourceError."""
        (reply,) = await asyncio.wrap_future(self.submit([job]))
        if isinstance(reply, SourceError):
            raise reply
        return json.loads(reply)

    def close(self) -> None:
        """End the processes."""
        atexit.unregister(self.close)
        for reader in list(self._readers):
            reader.end()

    def _work(self) -> None:
        reader: Reader | None = None
        while True:
            jobs, done = self._waiting.get()
            if done.set_running_or_notify_cancel():
                replies: list[Reply] = []
                try:
                    for job in jobs:
                        if reader is None:
                            reader = Reader(*self._of_each)
                            self._readers.add(reader)
                        reply, well = reader.read(job)
                        replies.append(reply)
                        if not well:
                            self._readers.discard(reader)
                            reader.end()
                            reader = None
                    done.set_result(replies)
                except Exception as error:
                    done.set_exception(SourceError(f"Reading failed: {error}."))
            with self._lock:
                self._left -= 1


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
