"""What happens in a run, told at once to a program that waits for its end; people read the log.

Text is left out: a program is given the report. It ends when the run has, which is before the
log, whose last events still come at the pace of a reader.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from agent.serve.telling import Said

_OFTEN = ("text", "usage")
"""events of which there are many, and which say nothing about what is done"""


class Heard:
    """What one run has told so far; used on one event loop."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.over = False
        self._news = asyncio.Event()

    def add(self, said: Said) -> None:
        if said[0] not in _OFTEN:
            self.said.append(said)
            self.wake()

    def end(self, said: Sequence[Said]) -> None:
        """The last of it."""
        self.said += said
        self.over = True
        self.wake()

    def wake(self) -> None:
        """Have everybody look who waits."""
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self) -> AsyncIterator[list[Said]]:
        """All of it to its end; [] where nothing was, but somebody was to look."""
        at = 0
        while True:
            news, new = self._news, self.said[at:]
            at += len(new)
            yield new
            if self.over and at == len(self.said):
                return
            await news.wait()
