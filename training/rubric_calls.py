"""What rubrics of one's own ask of models of their own: once, and through the run's gate.

An `LLMJudge` in a composed judge knows nothing of a run. Its replies are kept in the journal all
the same, so that a run that goes on does not ask again; a server that is away is waited for.
"""

from functools import partial
from typing import Any

from agent.journaled import Calls, MakeCall
from memory.errors import SettingsError
from training.flow import Flow
from training.meter import usage_of

SERVER = "the model that a rubric asks"


class RubricCalls:
    """The calls of one run's rubrics, made in a scope of its journal."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._calls = Calls(flow.journal, partial(flow.call, SERVER))

    async def once(self, call: str, ask: MakeCall) -> dict[str, Any]:
        """The reply. It ends the run where it cost an unknown amount of limited money."""
        reply = await self._calls.once(call, ask)
        purse = self._flow.purse
        if purse.most is not None and usage_of(reply).cost is None:
            self._flow.end(
                SettingsError(
                    f"{purse.limit} cannot be kept: a rubric asks a model of its own, whose price "
                    "is not known.",
                    f"Leave out {purse.limit}, or take another judge.",
                )
            )
        return reply
