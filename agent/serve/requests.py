"""What people ask over HTTP, and the settings under which it is answered.

A source is one that the server was started with, a built-in one, or an uploaded folder: nobody
reads another folder of this machine, or has an address searched, by naming it in a request. A run
that goes on keeps what shaped its answer. Who asked sits somewhere behind a page: they are asked
by an event and answer by a request, and the first answer counts; whoever comes later, from
another tab, is told so.
"""

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem.agent.research.graph import ShownPlan, as_text, from_text
from rubricem.agent.research.question import Ask
from rubricem.agent.research.researcher import ask_of
from rubricem.agent.research.setup import Setup
from rubricem.agent.serve.refusals import conflict
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import CHOICES, choices_of, setup_of
from rubricem.agent.sources.choice import AUTO, PYTHON, SCHOLAR, WEB, is_folder
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.schema import AnswerFormat
from rubricem.memory.text import storable

BUILT_IN = (PYTHON, WEB, SCHOLAR, AUTO)
UPLOADS = "uploads"
"""folder of the data directory whose folders can be named as sources"""
UPLOADED = "upload:"
"""prefix of such a source's name"""
MOST_SOURCES = 8


class BudgetsAsked(BaseModel):
    """Limits of one run; 0: no limit; None: those of the server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_seconds: float | None = Field(default=None, ge=0, le=10**7, allow_inf_nan=False)
    max_total_tokens: int | None = Field(default=None, ge=0, le=10**12)
    max_cost: float | None = Field(default=None, ge=0, le=10**6, allow_inf_nan=False)


class RunAsked(BudgetsAsked):
    """A question, and what shall differ from the server's settings; None: nothing."""

    question: str
    format: AnswerFormat | None = None
    source: tuple[Annotated[str, Field(max_length=1000)], ...] | None = Field(
        default=None, min_length=1, max_length=MOST_SOURCES
    )
    thread: str | None = Field(default=None, max_length=64)
    """a conversation that the question belongs to; None: a new one"""
    approve_plan: bool | None = None
    clarify: bool | None = None
    tool_calls: int | None = Field(default=None, ge=1, le=1000)
    verify: Literal["off", "mark", "repair"] | None = None


class Answered(BaseModel):
    """A person's answer to what a run asks them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(max_length=64)
    decision: Literal["approve", "reject", "edit", "answer"]
    text: str = Field(default="", max_length=20_000)
    plan: dict[str, Any] | None = None
    """an edited plan by its parts, in the place of its text"""


def settings_for(settings: Settings, asked: RunAsked) -> Settings:
    """The server's settings with what the question changes in them."""
    changed = asked.model_dump(
        exclude_none=True, exclude={"question", "thread", "format", "source"}
    )
    if asked.format is not None:
        changed["answer_format"] = asked.format
    if asked.source is not None:
        known = sources(settings)
        for name in asked.source:
            if name not in known:
                raise SettingsError(
                    f"There is no source {name!r} on this server.",
                    f"Name one of {', '.join(known)}; more are given by rubricem serve --source.",
                )
        changed["source"] = tuple(dict.fromkeys(known[name] for name in asked.source))
    return settings.model_copy(update=changed)


def sources(settings: Settings) -> dict[str, str]:
    """The names that a question may give as its sources, and what each stands for."""
    named = {shown_name(name): name for name in settings.source}
    folder = settings.data_dir / UPLOADS
    uploads = {
        UPLOADED + path.name: str(path)
        for path in sorted(folder.glob("*"))
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".")
    }
    return {**named, **{name: name for name in BUILT_IN}, **uploads}


def shown_name(name: str) -> str:
    """The name of a source without the folders that it lies in, which concern nobody else."""
    return Path(os.path.abspath(os.path.expanduser(name))).name if is_folder(name) else name


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
        shown = {"text": asked.get("doubt", "")}
        if kind == "plan":
            plan = ShownPlan.model_validate(asked)
            shown = {"text": as_text(plan), **plan.model_dump(mode="json")}
        self._tell("ask", {"id": identifier, "kind": kind, **shown})
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
        decide = _reply if kind == "clarify" else _plan_decision
        decision.set_result(decide(answered))
        self._tell("answered", {"id": answered.id, "decision": answered.decision})


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


def _edited(answered: Answered) -> ShownPlan:
    try:
        plan = (
            ShownPlan.model_validate(answered.plan) if answered.plan else from_text(answered.text)
        )
    except ValidationError as error:
        raise SettingsError(
            f"The edited plan cannot be read: {error.errors()[0]['msg']}.",
            "Send its rubric (a list), research_plan and query.",
        ) from error
    if not any(item.strip() for item in plan.rubric):
        raise SettingsError(
            "The edited plan has no rubric.", "Keep the line '## Rubric' and an item below it."
        )
    return ShownPlan.model_validate_json(storable(plan.model_dump_json()))


_OF_THE_MODEL = ("model", "base_url")
BUDGETS = {"tokens": "max_total_tokens", "seconds": "max_seconds", "cost": "max_cost"}
"""budget of a run -> its setting"""


def asked_before(
    settings: Settings, request: Mapping[str, Any], budgets: BudgetsAsked | None
) -> tuple[Setup, Ask]:
    """What a run was asked, and the setup that it goes on with.

    Raises StoreError for a request that is damaged, or written by a version that knows more.
    """
    try:
        setup = setup_of(settings_of_run(settings, request, budgets))
        return setup, replace(ask_of(request), budgets=setup.budgets)
    except RubricemError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            "What the run was asked cannot be read.", "Ask the question anew."
        ) from error


def settings_of_run(
    settings: Settings, request: Mapping[str, Any], budgets: BudgetsAsked | None
) -> Settings:
    """The server's settings with those of the run in them; Refused (409) where they do not fit.

    Budgets are those of the run but where others are given.
    """
    choices = request["choices"]
    kept = {
        name: choices[name] for name in CHOICES if name in choices and name not in _OF_THE_MODEL
    }
    kept["source"] = tuple(kept.get("source", settings.source))
    given = budgets.model_dump(exclude_none=True) if budgets else {}
    settings = settings.model_copy(update={**kept, **limits_of(request), **given})
    now = choices_of(settings)
    if any(now.get(name) != value for name, value in choices.items()):
        raise conflict(
            "The run was asked of another model, or with settings that this server does not have.",
            "Go on with it by rubricem ask --resume and its name.",
        )
    return settings


def limits_of(request: Mapping[str, Any]) -> dict[str, float]:
    """What a run may spend, by setting; 0: no limit."""
    kept = request.get("budgets", {})
    return {BUDGETS[name]: value or 0 for name, value in kept.items() if name in BUDGETS}
