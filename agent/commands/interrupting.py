"""^C while a question is answered: once for what there is, twice to stop at once.

The first ends the run with a partial report; where no run goes on, and at the second, the work
is cancelled. Whatever does not let itself be cancelled in time is left behind: all that finished
is in the journal, so nothing is lost by it.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

INTERRUPTED = 130
GRACE = 2.0
"""seconds that cancelled work gets to end by itself"""


@dataclass
class Interrupts:
    """What ^C does, for as long as `caught` lasts."""

    tell: Callable[[str], None]
    ending: str = "Ending with what there is"
    """what the first does, for whoever pressed it"""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """ends the run with what there is"""
    _running: bool = False
    _ignored: bool = False
    _last_resort: threading.Timer | None = None

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Hear ^C in the running loop; a loop outside the main thread hears none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGINT, self._heard, task)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if self._last_resort:
            self._last_resort.cancel()

    @contextmanager
    def running(self) -> Iterator[asyncio.Event]:
        """A run goes on, which the first ^C ends."""
        self._running = True
        try:
            yield self.stop
        finally:
            self._running = False

    @contextmanager
    def left_to(self, cancelled: bool) -> Iterator[None]:
        """A person is asked: ^C then cancels, or belongs to another program in the terminal."""
        before = self._running, self._ignored
        self._running, self._ignored = False, not cancelled
        try:
            yield
        finally:
            self._running, self._ignored = before

    def survived(self) -> None:
        """What was cancelled has ended, and the process goes on."""
        if self._last_resort:
            self._last_resort.cancel()

    def _leave(self) -> None:
        self.tell("Stopped at once; what had finished is kept.")
        os._exit(INTERRUPTED)

    def _heard(self, task: "asyncio.Task[object]") -> None:
        if self._ignored:
            return
        if self._running and not self.stop.is_set():
            self.tell(f"{self.ending}; ^C again stops at once.")
            self.stop.set()
            return
        if self._last_resort is None:
            self._last_resort = threading.Timer(GRACE, self._leave)
            self._last_resort.daemon = True
            self._last_resort.start()
        task.cancel()
