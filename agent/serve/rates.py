"""How many requests one address may send: so many at once, and so many a second from then on."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_ADDRESSES = 1024
"""addresses that are remembered; the one heard of least recently is forgotten"""


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket of requests that fills again."""

    at_once: float
    a_second: float


@dataclass
class Rates:
    """What each address has left."""

    reading: Rate = Rate(2000, 200)
    changing: Rate = Rate(120, 10)
    clock: Callable[[], float] = time.monotonic
    _left: OrderedDict[tuple[str, bool], tuple[float, float]] = field(default_factory=OrderedDict)
    """what is left, and when that was"""

    def allow(self, address: str, changing: bool) -> bool:
        """Whether one more request is carried out; it is counted if so."""
        rate, now, key = (
            (self.changing if changing else self.reading),
            self.clock(),
            (address, changing),
        )
        left, at = self._left.pop(key, (rate.at_once, now))
        left = min(left + (now - at) * rate.a_second, rate.at_once)
        allowed = left >= 1
        self._left[key] = (left - allowed, now)
        while len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return allowed
