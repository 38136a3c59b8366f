"""What a user of a server has spent, by the time of spending.

    ledger.jsonl    in their data directory: a line for each question, and for each call of a model

Every call that a server makes for a user is entered, whatever it is made for: answering, judging,
learning, a tool of MCP. Nothing is taken out: a run that is deleted was paid all the same.
"""

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rubricem.agent.settings import Settings
from rubricem.agent.settings.users import Granted, Outlay, UserBudget
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.runs import plain_bytes, writable
from rubricem.memory.schema import Usage

FILE = "ledger.jsonl"
DAY = timedelta(days=1)


@dataclass
class SpendingLedger:
    """The account of one user; it pays for the calls of what runs in its context (`PAYER`)."""

    data_dir: Path
    allowance: Callable[[], UserBudget]

    def __post_init__(self) -> None:
        """Reads the file; a line that a kill cut is passed over."""
        self._entries: deque[tuple[datetime, Outlay]] = deque()
        self._aside: list[Granted] = []
        """for each call in flight, what it uses at most"""
        self._settled = asyncio.Event()
        """set when the next of them ends"""
        held = b""
        with suppress(FileNotFoundError):
            held = plain_bytes(self.data_dir / FILE)
        for line in held.splitlines():
            with suppress(ValueError, KeyError, TypeError):
                told = json.loads(line)
                outlay = Outlay(told["runs"], told["tokens"], told["cost"])
                self._entries.append((datetime.fromisoformat(told["at"]), outlay))
        self._cut = held[-1:] not in (b"", b"\n")

    def within(self, settings: Settings, live: list[Granted]) -> Settings:
        """As of `UserBudget.within`, at this time. Raises SettingsError if nothing is left."""
        return self.allowance().within(settings, self.spent(), live)

    def spent(self) -> Outlay:
        """Within a day; what a clock that was set back has in the future counts as well."""
        since = datetime.now(UTC) - DAY
        last = [outlay for at, outlay in self._entries if at >= since]
        cost = sum(each.cost for each in last)
        return Outlay(sum(each.runs for each in last), sum(each.tokens for each in last), cost)

    def begin(self) -> None:
        """A question is asked."""
        self._enter(Outlay(1, 0, 0.0))

    @asynccontextmanager
    async def call(self, most: Usage) -> AsyncIterator[None]:
        """Set aside what a call uses at most, while it is made.

        Where nothing is left beside what is set aside for others in flight, it waits for them: only
        the last call of a day can spend more than is left. Raises PolicyError if nothing is.
        """
        while True:
            try:
                self.allowance().left(self.spent(), self._aside)
                break
            except SettingsError as error:
                if not self._aside:
                    raise PolicyError(str(error), error.remedy) from error
            await self._settled.wait()
        aside = Granted(most.prompt_tokens + most.completion_tokens, most.cost or 0.0)
        self._aside.append(aside)
        try:
            yield
        finally:
            self._aside.remove(aside)
            self._settled.set()
            self._settled = asyncio.Event()

    def pay(self, usage: Usage) -> None:
        """A call was made."""
        self._enter(Outlay(0, usage.prompt_tokens + usage.completion_tokens, usage.cost or 0.0))

    def _enter(self, outlay: Outlay) -> None:
        now = datetime.now(UTC)
        told = {"at": now.isoformat(), "runs": outlay.runs}
        line = json.dumps(told | {"tokens": outlay.tokens, "cost": outlay.cost}) + "\n"
        path = self.data_dir / FILE
        with writable(path), open(path, "a", opener=_open_private) as file:
            file.write("\n" * self._cut + line)
        self._cut = False
        while self._entries and self._entries[0][0] < now - 2 * DAY:
            self._entries.popleft()
        self._entries.append((now, outlay))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
