"""Hostile code in a reading process: each thing that it tries, with the locks and without them."""

import json
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from rubricem.agent.cli.doctor import check_sandbox
from rubricem.agent.sources.sandbox.pool import Job, Pool
from tests.support.waiting import PATIENCE

HOSTILE = r"""
import ctypes, json, os, resource, signal, socket, sys, threading
from rubricem.agent.sources.sandbox.locks import lock
locked, folder, port = sys.argv[1] == "locked", sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
told = lock() if locked else {}

def raises(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")

def tcp():
    socket.create_connection(("127.0.0.1", port)).close()

def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))

def unix():
    socket.socket(socket.AF_UNIX).bind(f"{folder}/socket")

def fork():
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)

def program():
    status = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(status, 0)

def execute():
    # The last of all: it is the program that answers.
    os.execv("/bin/echo", ["echo", "executed"])

def trace():
    raises(libc.ptrace(0, 0, 0, 0))

def memory():
    nothing = [ctypes.c_ulong(0)] * 5
    raises(libc.process_vm_readv(os.getppid(), *nothing))

def kill():
    os.kill(os.getppid(), 0)

def write():
    open(f"{folder}/new", "w").write("x")

def change():
    os.chmod(f"{folder}/serve-token", 0o644)

def remove():
    os.unlink(f"{folder}/old")

def token():
    open(f"{folder}/serve-token").read()

def listing():
    os.listdir(folder)

def environment():
    assert b"PARENTS=1" in open(f"/proc/{os.getppid()}/environ", "rb").read()

def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (10**7, 10**7))
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))

def ring():
    raises(libc.syscall(425, 1, ctypes.create_string_buffer(120)))

def space():
    raises(libc.unshare(0x10000000))

kinds = (tcp, udp, unix, fork, program, trace, memory, kill, write, change, remove, token, listing,
         environment, limits, ring, space)
found = {}
for kind in kinds:
    try:
        kind()
        found[kind.__name__] = "done"
    except (OSError, ValueError) as error:
        found[kind.__name__] = type(error).__name__
threading.Thread(target=print).start()
try:
    found["abort"] = os.kill(os.getpid(), 0)
except OSError:
    found["abort"] = "refused"
print(json.dumps({"told": told, "found": found, "environment": len(os.environ)}), flush=True)
try:
    execute()
except OSError:
    print("no program")
"""
LOCKS = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


def tried(folder: Path, how: str) -> tuple[dict[str, Any], str]:
    """What hostile code says of its tries, and its last line."""
    folder.mkdir()
    (folder / "serve-token").write_text("s3cret")
    (folder / "old").touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", HOSTILE, how, str(folder), str(server.getsockname()[1])]
        given = {**os.environ, "PARENTS": "1"}
        # Through a shell, whose environment is the parent's that is looked at.
        shell = ["sh", "-c", '"$@"; exit $?', "sh", *command]
        done = subprocess.run(shell, env=given, capture_output=True, text=True, timeout=PATIENCE)
    lines = done.stdout.split("\n")
    assert len([line for line in lines if line]) == 2, done.stdout + done.stderr
    *_, told, last = filter(None, lines)
    return json.loads(told), last


@pytest.mark.skipif(not LOCKS, reason="no such locks on this system")
def test_code_in_a_reading_process_can_do_nothing_that_reading_does_not_need(tmp_path: Path):
    free, last = tried(tmp_path / "free", "free")
    assert last == "executed"
    possible = {kind for kind, how in free["found"].items() if how == "done"}
    needed = {"tcp", "udp", "unix", "fork", "program", "kill", "write", "change", "remove", "token"}
    assert possible >= needed | {"listing", "environment"}, "without locks"
    held, last = tried(tmp_path / "held", "locked")
    told = held["told"]
    if not (told["landlock"] and told["seccomp"]):
        pytest.skip(f"this kernel lacks them: {told}")
    assert last == "no program" and held["environment"] == 0
    assert set(held["found"].values()) <= {"PermissionError", "ValueError", "refused"}
    assert (tmp_path / "held" / "old").exists()
    assert sorted(path.name for path in (tmp_path / "held").iterdir()) == ["old", "serve-token"]


@pytest.mark.parametrize("passed", [(), ("HTTP_PROXY",)], ids=["reads", "asks the web"])
async def test_every_process_of_a_pool_is_locked(passed: tuple[str, ...]):
    pool = Pool(1, passed=passed)
    told = await pool.read(Job("locks", "It", {}))
    pool.close()
    assert told["limits"] and (not LOCKS or told["seccomp"])


async def test_doctor_tells_what_the_kernel_lacks(monkeypatch: pytest.MonkeyPatch):
    for held, state, said in (
        ({"landlock": 3, "seccomp": True}, "ok", "without network"),
        ({"landlock": 0, "seccomp": True}, "note", "limits, but without landlock."),
        ({"landlock": 0, "seccomp": False}, "note", "without landlock and seccomp."),
    ):
        monkeypatch.setattr(Pool, "read", AsyncMock(return_value=held))
        check = await check_sandbox()
        assert (
            check.state == state and said in check.found and bool(check.remedy) == (state != "ok")
        )
    monkeypatch.undo()
    assert (await check_sandbox()).state in ("ok", "note")
