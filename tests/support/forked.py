"""Workers of pytest-xdist as forks of the process that begins them: imports are made once.

Each of four workers took 20 seconds of a processor to import torch, what it tests and the tests.
"""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from execnet import gateway_io
from execnet.gateway_base import Popen2IO


def import_tests(paths: Iterable[Path], root: Path) -> None:
    """What cannot be imported is told by the workers, which try it again."""
    for lazily in ("langgraph.graph", "langsmith.run_helpers"):
        import_module(lazily)
    for path in paths:
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(root).with_suffix("").parts))
    gc.collect()
    gc.freeze()


class Fork(Popen2IO):
    """A worker and the pipes to it, in the place of a Python that is begun anew."""

    def __init__(self, ends: list[int]) -> None:
        """`ends`: those of all pipes that stay in this process, to which its own are added."""
        (read, told), (heard, write) = os.pipe(), os.pipe()
        ends += told, heard
        self.pid = os.fork()
        if self.pid == 0:
            # One that stayed open here would keep another worker from seeing its end.
            for fd in ends:
                os.close(fd)
            os.dup2(read, 0)
            os.dup2(write, 1)
            _work()
        os.close(read)
        os.close(write)
        super().__init__(os.fdopen(told, "wb"), os.fdopen(heard, "rb"), None)

    def wait(self) -> int:
        return os.waitpid(self.pid, 0)[1]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def _work() -> None:
    """What execnet has a new Python do; this process ends with it."""
    try:
        sys.stdin = os.fdopen(0, closefd=False)
        exec(eval(sys.stdin.readline()), {})
    finally:
        atexit._run_exitfuncs()
        os._exit(0)


def fork(count: int) -> None:
    """Have so many workers ready for execnet, before it has threads."""
    ends, begin = list[int](), gateway_io.Popen2IOMaster
    ready = [Fork(ends) for _ in range(count)]

    def take(args: Any, execmodel: Any) -> Popen2IO:
        if not ready:  # in the place of one that crashed
            return begin(args, execmodel)
        ready[0].execmodel = execmodel
        return ready.pop(0)

    gateway_io.Popen2IOMaster = take
