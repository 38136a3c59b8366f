"""What a reading process gives up before it reads: code in a document gains nothing by it.

Where Linux can (x86-64 and arm64), Landlock leaves it Python's own files to read and nothing to
write, and seccomp refuses sockets, programs, processes, signals to others, tracing and what changes
files; a root's capabilities are dropped. Hard limits hold wherever there are some. For good.
"""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

try:
    import resource
except ImportError:  # no such limits on this system
    resource = None  # type: ignore[assignment]

PROCESS_SECONDS = 2400
"""of processor time of a process, whatever it reads"""
PROCESS_MEGABYTES = 1024
_FILES = (1 << 2, 1 << 3)
"""Landlock's rights to read a file, and a folder"""
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
"""Landlock's rights by version, all of which are taken; from 5 on one more"""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ASKED_OF_ITSELF = {"x86_64": (234, 302), "aarch64": (131, 261)}
"""tgkill, prlimit64: allowed of itself, that is, its own number or 0"""
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3, _CLONE_THREAD, _X32 = 435, 0x10000, 0x40000000
_SOCKETS = {
    "x86_64": (41, 42, 43, 49, 50, 53, 288),
    "aarch64": (198, 199, 200, 201, 202, 203, 242),
}
# fork, exec, kill, ptrace; reading and changing other processes; files' owners, modes, times and
# lengths; mounts, namespaces, modules, bpf, keys, io_uring, shared memory and queues.
_REFUSED = {
    "x86_64": (
        *(57, 58, 59, 62, 101, 129, 200, 297, 310, 311, 322, 424, 434, 438, 440),
        *(76, 77, 90, 91, 92, 93, 94, 132, 235, 260, 261, 268, 280, 452, *range(188, 200)),
        *(155, 161, 165, 166, 175, 246, 272, 298, 304, 308, 313, 321, 323, 428, 429, 430, 442),
        *(29, 64, 68, 135, 160, 240, 248, 249, 250, 319, 425, 426, 427),
    ),
    "aarch64": (
        *(129, 117, 130, 138, 221, 240, 270, 271, 281, 424, 434, 438, 440),
        *(45, 46, 52, 53, 54, 55, 88, 452, 5, 6, 7, 14, 15, 16),
        *(39, 40, 41, 51, 97, 104, 105, 241, 265, 268, 273, 280, 282, 428, 429, 430, 442),
        *(92, 164, 180, 186, 190, 194, 217, 218, 219, 279, 425, 426, 427),
    ),
}
_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _NOT_PERMITTED, _NO_SUCH_CALL = 0x7FFF0000, 0x80000000, 0x50001, 0x50026
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_NETWORK = ("resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf", "ssl", "pki")
"""of /etc: what a process needs that asks the web"""


def lock(network: bool = False) -> dict[str, Any]:
    """Give up what reading does not need; says what could be: `landlock`, `seccomp`, `limits`.

    `network`: the process asks the web.
    """
    told = {"landlock": 0, "seccomp": False, "limits": resource is not None}
    if resource is not None:
        limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: 256}
        limits |= {resource.RLIMIT_CPU: PROCESS_SECONDS}
        if sys.platform == "linux":
            limits[resource.RLIMIT_DATA] = PROCESS_MEGABYTES << 20
        for kind, most in limits.items():
            with suppress(OSError, ValueError):
                resource.setrlimit(kind, (most, most))
    if not network:  # which has its proxies there
        os.environ.clear()
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        return told
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(4, 0, 0, 0, 0)  # not dumpable: no other process reads its memory
    if libc.prctl(38, 1, 0, 0, 0):  # no new privileges, without which the rest is refused
        return told
    told["landlock"] = _landlock(libc, network)
    with suppress(AttributeError):  # of a C library that lacks it
        libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))
    program = b"".join(struct.pack("HBBI", *each) for each in _filter(machine, network))
    held = ctypes.create_string_buffer(program)
    given = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
    told["seccomp"] = libc.prctl(22, 2, given, 0, 0) == 0
    return told


def _landlock(libc: Any, network: bool) -> int:
    """Leave it Python's files to read; the version of Landlock, 0 where there is none."""
    version = libc.syscall(444, None, 0, 1)
    if version < 1:
        return 0
    handled = _HANDLED.get(version, (1 << 16) - 1)
    ports, scopes = 3 * (not network), 3
    size = 8 * (1 + (version >= 4) + (version >= 6))
    attributes = struct.pack("QQQ", handled, ports, scopes)[:size]
    rules = libc.syscall(444, attributes, len(attributes), 0)
    if rules < 0:
        return 0
    for path in _readable(network):
        with suppress(OSError):
            place = os.open(path, os.O_PATH)  # type: ignore[attr-defined,unused-ignore]
            rights = sum(_FILES) if os.path.isdir(path) else _FILES[0]
            libc.syscall(445, rules, 1, struct.pack("=Qi", rights, place), 0)
            os.close(place)
    restricted = libc.syscall(446, rules, 0) == 0
    os.close(rules)
    return version if restricted else 0


def _readable(network: bool) -> Iterator[str]:
    """Where Python and its packages are; other folders of its path may be anybody's."""
    yield from ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/null")
    yield from (sys.prefix, sys.base_prefix, "/dev/urandom")
    yield from (each for each in sys.path if each.endswith(("site-packages", "dist-packages")))
    for package in ("rubricem", "rubricem.agent", "rubricem.memory"):
        yield from import_module(package).__path__
    if network:
        yield from (f"/etc/{name}" for name in _NETWORK)
        yield from filter(None, map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))


def _filter(machine: str, network: bool) -> Iterable[tuple[int, int, int, int]]:
    """A program for seccomp: code, jumps if so and if not, value."""
    own, limit = _ASKED_OF_ITSELF[machine]
    refused = (*_REFUSED[machine], *(() if network else _SOCKETS[machine]))
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, _ARCHITECTURES[machine]
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER
    yield _AT_LEAST, 0, 1, _X32
    yield _RETURN, 0, 0, _NOT_PERMITTED
    for number in refused:
        yield _EQUAL, 0, 1, number
        yield _RETURN, 0, 0, _NOT_PERMITTED
    yield _EQUAL, 0, 1, _CLONE3  # whose flags cannot be seen: the C library then takes the other
    yield _RETURN, 0, 0, _NO_SUCH_CALL
    asked = ((_CLONE[machine], _HAS, _CLONE_THREAD), (own, _EQUAL, os.getpid()), (limit, _EQUAL, 0))
    for number, test, value in asked:
        yield _EQUAL, 0, 4, number
        yield _LOAD, 0, 0, _FIRST_ARGUMENT
        yield test, 0, 1, value
        yield _RETURN, 0, 0, _ALLOW
        yield _RETURN, 0, 0, _NOT_PERMITTED
    yield _RETURN, 0, 0, _ALLOW
