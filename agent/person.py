"""The person who asked, as a run sees them: somebody who decides when they are asked.

What is asked is a mapping whose `ask` is `approve_plan` (with the plan) or `clarify` (with the
doubt); what is decided is one as `agent.approval` reads it.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class Person(Protocol):
    """Decides, and takes as long as it takes."""

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]: ...


class Nobody:
    """Approves every plan unseen and answers no question."""

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"verdict": "approve"} if asked["ask"] == "approve_plan" else {"text": ""}
