"""The processes that a process has begun, and where they listen, as Linux tells it."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

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
