"""How long tests wait: until what they wait for is there, or so long that it never will be.

No test is as long as this where all is well; a machine may be busy, and a hang is to fail in
minutes and in a sentence. `pytest-timeout` ends whatever waits without a limit of its own.

The processes that a process has begun, and where they listen, as Linux tells it; and in which
thread a module is imported.
"""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 120.0
"""seconds"""


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


def free_port() -> int:
    """One of loopback at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


class Process(subprocess.Popen[Any]):
    """One that is waited for with patience, and that does not outlive a test that failed."""

    def communicate(self, input: Any = None, timeout: float | None = PATIENCE) -> Any:
        return super().communicate(input, timeout)

    def wait(self, timeout: float | None = PATIENCE) -> int:
        return super().wait(timeout)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)


PROC = Path("/proc")
LISTENING = "0A"


def descendants(pid: int) -> list[int]:
    """All that it began and that they began."""
    parents = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
    found = [pid]
    for parent in found:
        found.extend(child for child, of in parents.items() if of == parent)
    return found[1:]


def name_of(pid: int) -> str:
    """Its command line; "" where it has ended."""
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def listening(pids: list[int]) -> set[str]:
    """The addresses at which they listen, in the kernel's hexadecimal."""
    sockets = {inode for pid in pids for inode in _sockets(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in sockets:
                found.add(fields[1].partition(":")[0])
    return found


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for link in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                target = os.readlink(link)
                if target.startswith("socket:"):
                    yield target[8:-1]
