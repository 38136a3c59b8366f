"""The event logs of all runs: one for each run that is watched or worked on."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent.serve.event_log import END, FILE_NAME, RESTART, EventLog

MOST_HELD = 256
"""logs in memory that nobody writes to or watches"""
MOST_RESTARTS = 5
"""a run that was taken up so often and never ended is not taken up again by itself"""


class Logs:
    """Opens the log of a run, or finds it open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Events must not wait behind the fsyncs of journals.
        self._executor = ThreadPoolExecutor(1, "events")
        self._held: dict[str, EventLog] = {}
        self._lock = asyncio.Lock()

    async def of(self, run: str) -> EventLog:
        async with self._lock:
            if run not in self._held:
                path = self._folder / run / FILE_NAME
                self._held[run] = await EventLog(path, self._executor).load()
                self._let_go()
            return self._held[run]

    def wake(self) -> None:
        """Have every watcher look, also where nothing happened."""
        for log in list(self._held.values()):
            log.wake()

    def unfinished(self) -> list[str]:
        """Runs that were begun here and have not ended; reads files."""
        found = sorted(self._folder.glob(f"*/{FILE_NAME}"), key=lambda path: path.stat().st_mtime)
        return [path.parent.name for path in found if _goes_on(path)]

    def close(self) -> None:
        self._executor.shutdown()

    def _let_go(self) -> None:
        idle = [run for run, log in self._held.items() if log.ended and not log.watched]
        for run in idle[: max(len(self._held) - MOST_HELD, 0)]:
            del self._held[run]


def _goes_on(path: Path) -> bool:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        # A file that cannot be read keeps no other run from going on.
        return False
    ends = [at for at, line in enumerate(lines, 1) if f'"event":"{END}"'.encode() in line]
    since = lines[ends[-1] :] if ends else lines
    begun = sum(f'"event":"{RESTART}"'.encode() in line for line in since)
    return bool(since) and begun < MOST_RESTARTS
