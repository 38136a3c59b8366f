"""The person who asked, somewhere behind a page: asked by an event, answered by a request.

The first answer counts; whoever comes later, from another tab, is told so.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from agent.approval import Plan
from agent.plan_text import as_text, from_text
from agent.serve.asked import Answered
from agent.serve.refusals import conflict
from memory.errors import SettingsError
from memory.text import storable

Tell = Callable[[str, dict[str, Any]], None]


class DeskPerson:
    """A `Person` of one run."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._open: tuple[str, str, asyncio.Future[dict[str, Any]]] | None = None
        """what is being asked: its id, its kind, and where the decision is waited for"""

    @property
    def asked(self) -> bool:
        return self._open is not None

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        identifier, kind = uuid.uuid4().hex[:12], "clarify" if asked["ask"] == "clarify" else "plan"
        decision: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open = (identifier, kind, decision)
        self._tell("ask", {"id": identifier, "kind": kind, **_shown(asked)})
        try:
            return await decision
        finally:
            self._open = None

    def answer(self, answered: Answered) -> None:
        """Take an answer; raises Refused (409) where nothing waits for this one."""
        if self._open is None or self._open[0] != answered.id or self._open[2].done():
            raise conflict(
                "This was answered already, or is not asked any more.",
                "Reload the run to see how it went on.",
            )
        _, kind, decision = self._open
        decided = _reply(answered) if kind == "clarify" else _plan_decision(answered)
        decision.set_result(decided)
        self._tell("answered", {"id": answered.id, "decision": answered.decision})


def _shown(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The question back, or the plan: as text, and by its parts."""
    if asked["ask"] == "clarify":
        return {"text": asked["doubt"]}
    plan = Plan.model_validate(asked)
    return {"text": as_text(plan), **plan.model_dump(mode="json")}


def _reply(answered: Answered) -> dict[str, Any]:
    if answered.decision != "answer":
        raise SettingsError(
            f"A question back cannot be decided by {answered.decision!r}.",
            'Send the decision "answer" with a text; an empty one passes it over.',
        )
    return {"text": storable(answered.text)}


def _plan_decision(answered: Answered) -> dict[str, Any]:
    if answered.decision == "approve":
        return {"verdict": "approve"}
    if answered.decision == "reject":
        return {"verdict": "reject", "reason": storable(answered.text)}
    if answered.decision == "edit":
        return {"verdict": "edit", "plan": _edited(answered).model_dump(mode="json")}
    raise SettingsError(
        "A plan is not a question to be answered.",
        'Send the decision "approve", "reject" or "edit".',
    )


def _edited(answered: Answered) -> Plan:
    try:
        plan = Plan.model_validate(answered.plan) if answered.plan else from_text(answered.text)
    except ValidationError as error:
        raise SettingsError(
            f"The edited plan cannot be read: {error.errors()[0]['msg']}.",
            "Send its rubric (a list), research_plan and query.",
        ) from error
    if not any(item.strip() for item in plan.rubric):
        raise SettingsError(
            "The edited plan has no rubric.", "Keep the line '## Rubric' and an item below it."
        )
    return Plan.model_validate_json(storable(plan.model_dump_json()))
