"""What a collecting run has spent: every finished call in its journal, of this process and before.

Calls that cost something and brought nothing are kept in the journal as well, so that a run which
goes on knows all of its cost.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from memory.journal import CallKey, Journal
from memory.schema import NO_USAGE, Usage

LOST = "lost"
"""the journal's thread for what failed calls had cost"""


class Meter:
    """Sums usage: of the journal's replies as it is opened, then of each call."""

    def __init__(self) -> None:
        self.cost = 0.0
        """in US dollars, of the calls whose price is known"""
        self.largest = 0.0
        """cost of the dearest call so far"""
        self.priced = 0
        """calls whose price is known"""
        self.calls = 0
        self.written = 0
        """tokens"""

    def hear(self, reply: Mapping[str, Any]) -> None:
        """Count one reply of the journal."""
        self.count(usage_of(reply))

    def count(self, usage: Usage) -> None:
        self.calls += usage.calls
        self.written += usage.completion_tokens
        if usage.cost is not None:
            self.cost += usage.cost
            self.largest = max(self.largest, usage.cost)
            self.priced += usage.calls


def usage_of(reply: Mapping[str, Any]) -> Usage:
    """What a reply of the journal has cost; searches and choices have no usage."""
    usage = reply.get("usage")
    return Usage.model_validate(usage) if usage else NO_USAGE


async def keep_lost(journal: Journal, usage: Usage) -> None:
    """Keep what a call had cost that failed in the end."""
    key = CallKey(LOST, 0, 0, uuid.uuid4().hex)
    await journal.append(key, {"usage": usage.model_dump(mode="json")})
    journal.forget(LOST)
