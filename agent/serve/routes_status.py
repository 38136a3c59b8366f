"""What the server is and can, and the way in where a token is required."""

from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from agent.choice import ServerChoice, choose_policy
from agent.serve.asked import shown_name, sources
from agent.serve.desk import RunDesk
from agent.serve.refusals import Refused
from agent.serve.security import COOKIE, CSRF_HEADER, Security
from memory.schema import AnswerFormat

VERIFY = ("off", "mark", "repair")
MONTH = 30 * 86400
"""seconds"""


class Login(BaseModel):
    """The token, as somebody typed it."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    token: str = Field(max_length=200)


def router(desk: RunDesk, security: Security) -> APIRouter:
    routes = APIRouter(prefix="/api")

    @routes.get("/status")
    def status() -> dict[str, Any]:
        settings = desk.settings
        states = [work.state for work in desk.live.values()]
        return {
            "version": version("rubricem"),
            "model": desk.researchers.model or _model(desk),
            "sources": list(sources(settings)),
            "source": [shown_name(name) for name in settings.source],
            "formats": [each.value for each in AnswerFormat],
            "verify": list(VERIFY),
            "defaults": {
                "format": settings.answer_format.value,
                "verify": settings.verify,
                "approve_plan": settings.approve_plan,
                "clarify": settings.clarify,
                "tool_calls": settings.tool_calls,
                "max_seconds": settings.max_seconds,
                "max_total_tokens": settings.max_total_tokens,
                "max_cost": settings.max_cost,
            },
            "memory": settings.memory,
            "csrf": CSRF_HEADER,
            "login": security.token is not None,
            "limits": {"running": desk.capacity.running, "waiting": desk.capacity.waiting},
            "runs": {state: states.count(state) for state in ("waiting", "running", "asking")},
        }

    @routes.post("/login")
    def login(given: Login, response: Response) -> dict[str, Any]:
        if not security.admits(given.token):
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "That is not the token of this server.",
                "rubricem serve printed it, and keeps it in the data directory.",
            )
        kept = security.cookie()
        response.set_cookie(COOKIE, kept, MONTH, path="/", httponly=True, samesite="strict")
        return {"login": True}

    return routes


def _model(desk: RunDesk) -> str:
    choice = choose_policy(desk.settings)
    return (choice.model or "") if isinstance(choice, ServerChoice) else choice.model_name
