"""`rubricem chat` in a terminal of its own: what a person types, and what they see.

Its scripted model and a folder with one document are also where the docs' examples run.
"""

import fcntl
import os
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.transcript.scaffold import template
from rubricem.memory.text import printable
from tests.conftest import COMMAND, ROOT
from tests.support.policies import SUPPORTED, answer, plan
from tests.support.scripted_server import Hang, Reply, Scripted, ScriptedServer
from tests.support.waiting import PATIENCE, Process

ENTER, ALT_ENTER, TAB, CTRL_C, CTRL_D, UP = "\r", "\x1b\r", "\t", "\x03", "\x04", "\x1b[A"
ROWS, COLUMNS = 50, 140
WHERE = b"\x1b[6n"
"""the question at which row the cursor stands"""
QUESTION = "What does lru_cache do with maxsize None?"
FOLLOW_UP = "And in Python 3.12?"


class Session:
    """One process in a terminal; `seen` is all that it has shown, without escape sequences."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.process = Process(
            [*COMMAND, "chat", *arguments],
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._raw = b""
        self._read_to = 0

    @property
    def seen(self) -> str:
        return printable(self._raw.decode(errors="replace"))

    def expect(self, *texts: str) -> None:
        """Wait until the texts were shown, in this order, after what was expected before."""
        until = time.monotonic() + PATIENCE
        for text in texts:
            while (at := self.seen.find(text, self._read_to)) < 0:
                left = until - time.monotonic()
                assert left > 0, f"{text!r} was not shown; last was {self.seen[-3000:]!r}"
                assert self._more(min(left, 1.0)), f"it ended: {self.seen[-3000:]!r}"
            self._read_to = at + len(text)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self, text: str) -> None:
        """Press ^C until the text is shown: readline misses one that comes as it begins to wait."""
        until = time.monotonic() + PATIENCE
        while self.seen.find(text, self._read_to) < 0 and time.monotonic() < until:
            self.type(CTRL_C)
            # On a busy machine a second one would end the next line, too; its echo is no answer.
            pause = time.monotonic() + 4
            while (
                self.seen.find(text, self._read_to) < 0 and (left := pause - time.monotonic()) > 0
            ):
                if not self._more(left):
                    break
        self.expect(text)

    def enter(self, line: str) -> None:
        self.type(line)
        # What is shown is the line that the prompt has, so Enter does not overtake it.
        self.expect(line[-12:])
        self.type(ENTER)

    def ask(self, question: str, number: int) -> None:
        """Wait for the prompt of the so many-th question of the thread, and ask it."""
        self.expect(f"{number}>")
        self.enter(question)

    def end(self) -> int:
        """The exit status, once it has ended by itself."""
        until = time.monotonic() + PATIENCE
        while self._more(0.2) and time.monotonic() < until:
            pass
        return self.process.wait()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        os.close(self._master)

    def _more(self, seconds: float) -> bool:
        """Read what comes; False once the terminal is closed."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self._master, 65536)
        except OSError:
            return False
        self._raw += piece
        for _ in range(piece.count(WHERE)):
            # As a terminal answers it, with room left below.
            os.write(self._master, b"\x1b[20;1R")
        return bool(piece)


@contextmanager
def chatting(server: ScriptedServer, documents: Path, *arguments: str) -> Iterator[Session]:
    """A chat over a model and a folder, which is left at the end, unless it was killed."""
    session = Session(*arguments, *where(server, documents))
    try:
        yield session
        if session.process.poll() is None:
            session.expect(">")
            session.type(CTRL_D)
            assert session.end() == 0
    finally:
        session.close()


def where(server: ScriptedServer, documents: Path) -> tuple[str, ...]:
    return "--base-url", server.base_url, "--source", str(documents)


def turns(body: dict[str, Any], number: int) -> Scripted:
    """A plan, then an answer, then what its citation was found to be; two reports in turn."""
    messages = [message["content"] for message in body["messages"]]
    if "verdict" in messages[0]:
        return SUPPORTED
    if messages[0].startswith(template("alone")):
        return FOLLOW_UP
    later = FOLLOW_UP in messages[1]
    if len(messages) == 2:
        return plan("lru_cache in Python 3.12" if later else "lru_cache maxsize None")
    said = '<cite id="S1">It never evicts</cite> there either.'
    return answer(said) if later else answer()


def hanging(body: dict[str, Any], number: int) -> Scripted:
    """The same, but the follow-up's answer never comes to an end."""
    reply = turns(body, number)
    messages = [message["content"] for message in body["messages"]]
    if len(messages) > 2 and FOLLOW_UP in messages[1] and isinstance(reply, str):
        return Reply(reply, hang_after=3)
    return reply


def silent(body: dict[str, Any], number: int) -> Scripted:
    """The same, but the follow-up's answer never begins."""
    reply = hanging(body, number)
    return Hang() if isinstance(reply, Reply) else reply


DOCUMENT = "# lru_cache\n\nIf maxsize is None, lru_cache is an unbounded cache that never evicts.\n"


@contextmanager
def scripted_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A working directory with folders of one document, and settings that name the model."""
    monkeypatch.chdir(folder)
    for name in ("papers", "documents", "docs"):
        (folder / name).mkdir()
        (folder / name / "cache.md").write_text(DOCUMENT)
    with ScriptedServer(turns) as model:
        monkeypatch.setenv("RUBRICEM_BASE_URL", model.base_url)
        monkeypatch.setenv("RUBRICEM_MODEL", "scripted")
        monkeypatch.setenv("RUBRICEM_DATA_DIR", str(folder / "data"))
        monkeypatch.setenv("RUBRICEM_MEMORY", "off")
        yield model
