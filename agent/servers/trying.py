"""Calls to one server, each tried until it succeeds or nothing more can be hoped for.

Retries happen here and nowhere else.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agent.servers.limiter import Limiter
from agent.servers.retrying import AttemptError, Retry
from memory.errors import PolicyError
from memory.schema import NO_USAGE, Usage

log = logging.getLogger(__name__)

T = TypeVar("T")


class Tries:
    """The calls of one client; the limiter is shared by all clients of its server."""

    def __init__(self, limiter: Limiter, retry: Retry | None = None) -> None:
        self._limiter = limiter
        self._retry = retry or Retry()

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, Usage]:
        """What an attempt gives in the end, and what the failed ones before it cost.

        Raises PolicyError, with what was paid, where there is no hope left.
        """
        spent, waited, tried = NO_USAGE, 0.0, 0
        while True:
            tried += 1
            try:
                async with self._limiter.slot():
                    return await attempt(), spent
            except AttemptError as failed:
                spent += failed.usage
                wait = self._wait(failed, tried, waited, spent)
            await asyncio.sleep(wait)
            waited += wait

    def _wait(self, failed: AttemptError, tried: int, waited: float, spent: Usage) -> float:
        """Seconds until the next try; raises PolicyError if there is none."""
        wait = self._retry.wait(tried, failed.asked, random.random())
        # A pause that no caller has the patience for would only hold them all up.
        if failed.crowded and wait <= self._retry.total:
            self._limiter.pause(wait)
        if not failed.again or tried >= self._retry.tries or waited + wait > self._retry.total:
            times = f", also at try {tried}" if tried > 1 else ""
            error = PolicyError(f"{failed}{times}", failed.remedy, spent)
            error.away = failed.away
            raise error from None
        log.info("%s; try %d follows in %.1f s", failed, tried + 1, wait)
        return wait
