"""When a call to a model server is tried again, and after how long a wait.

Exponential back-off with jitter, and the server's own word on it: Retry-After in seconds or
as an HTTP date (RFC 9110, section 10.2.3), or the `retry-after-ms` that some servers send.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from memory.schema import NO_USAGE, Usage

RETRIED_STATUSES = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long one call is tried; times in seconds."""

    tries: int = 5
    first: float = 0.5
    longest: float = 30.0
    total: float = 180.0
    """all waits of one call together"""

    def wait(self, tried: int, asked: float | None, chance: float) -> float:
        """Seconds before the next try, after `tried` failed ones; `chance` is in [0, 1).

        Half to all of `first * 2 ** (tried - 1)`, at most `longest`; a wait that the server
        asked for is never shortened, only spread by up to a tenth.
        """
        if asked is not None:
            return asked * (1 + chance / 10)
        full = min(self.longest, self.first * 2.0 ** (tried - 1))
        return full * (1 + chance) / 2


class AttemptError(Exception):
    """One failed try: what a person is told if it was the last, and whether to try again."""

    def __init__(
        self,
        message: str,
        remedy: str,
        *,
        again: bool,
        asked: float | None = None,
        crowded: bool = False,
        silent: bool = False,
        away: bool = False,
        usage: Usage = NO_USAGE,
    ) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.again = again
        self.asked = asked
        """seconds that the server wants to be left alone"""
        self.crowded = crowded
        """the server limits its callers, so all of them should wait"""
        self.silent = silent
        """the server took the call and never answered it"""
        self.away = away
        """the server serves nobody now, whatever it is asked"""
        self.usage = usage
        """what the try cost all the same"""


def is_transient(status: int) -> bool:
    return status in RETRIED_STATUSES or status >= 500


def asked_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that the response's headers ask to wait, or None where they say nothing usable."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        date = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - (now or datetime.now(UTC))).total_seconds())


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
