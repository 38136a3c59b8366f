"""Readers of a run's events that lose their connection again and again, and what they noticed.

Each keeps the number of the last event it has, as a browser does, and comes back with it.
"""

import asyncio
import random
import re
import time
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp

AT, BIRTH = re.compile(rb"^id: (\d+)$", re.M), re.compile(rb'"t":([\d.]+)')
END = b"\nevent: end\n"


@dataclass
class Reader:
    """One reader of one run; `began` is when the run was asked, on the system's clock."""

    run: str
    began: float
    stays: float
    """seconds that it stays connected on average"""
    drawn: random.Random
    numbers: list[int] = field(default_factory=list)
    births: list[float] = field(default_factory=list)
    """seconds of the run at which each event was told"""
    delays: list[float] = field(default_factory=list)
    """seconds from there to here, of what was told while it was connected"""
    reconnects: int = 0
    dropped: int = 0
    """connections that the server ended without a reply, or put off as too many at once"""
    ended: bool = False

    async def read(self, http: aiohttp.ClientSession, address: str) -> None:
        """Read to the end of the run."""
        while True:
            try:
                await self._read_once(http, f"{address}api/runs/{self.run}/events")
            except aiohttp.ClientError as error:
                if getattr(error, "status", 0) not in (0, HTTPStatus.TOO_MANY_REQUESTS):
                    raise
                self.dropped += 1
                await asyncio.sleep(1.0)  # as a browser does, which comes back by itself
            if self.ended:
                return
            self.reconnects += 1

    async def _read_once(self, http: aiohttp.ClientSession, url: str) -> None:
        headers = {"Last-Event-ID": str(self.numbers[-1])} if self.numbers else {}
        leaves = time.time() + self.drawn.uniform(0.5, 1.5) * self.stays
        async with http.get(url, headers=headers) as response:
            response.raise_for_status()
            since, rest = time.time(), b""
            while not self.ended and (left := leaves - time.time()) > 0:
                try:
                    piece = await asyncio.wait_for(response.content.readany(), left)
                except TimeoutError:
                    break
                if not piece:
                    break
                *frames, rest = (rest + piece).split(b"\n\n")
                self._take(frames, since)
            # Without saying goodbye, in the middle of whatever is being sent.
            response.close()

    def _take(self, frames: list[bytes], since: float) -> None:
        now = time.time()
        for frame in frames:
            if (number := AT.search(frame)) is None:
                continue
            born = BIRTH.search(frame)
            self.numbers.append(int(number[1]))
            self.births.append(float(born[1]) if born else 0.0)
            told = self.began + self.births[-1]
            if told >= since:
                self.delays.append(now - told)
            self.ended = self.ended or END in frame


def most_in_a_second(births: list[float]) -> int:
    """The most events that one run told within any second but its last, which tells the rest."""
    ordered = [birth for birth in sorted(births) if birth < max(births) - 1.0]
    most, first = 0, 0
    for last, birth in enumerate(ordered):
        while birth - ordered[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most
