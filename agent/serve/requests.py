"""What people ask over HTTP, and the settings under which it is answered.

A source is one that the server was started with, a built-in one, or an uploaded folder: nobody
reads another folder of this machine, or has an address searched, by naming it in a request. A run
that goes on keeps what shaped its answer.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem.agent.research.researcher import ask_of
from rubricem.agent.research.setup import Setup
from rubricem.agent.serve.refusals import conflict
from rubricem.agent.settings import Settings, limits_of
from rubricem.agent.settings.door import CHOICES, UNNAMED, choices_of, setup_of
from rubricem.agent.sources.choice import AUTO, PYTHON, SCHOLAR, WEB, is_folder
from rubricem.agent.transcript.question import Ask, ShownPlan
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.schema import AnswerFormat
from rubricem.memory.text import storable

BUILT_IN = (PYTHON, WEB, SCHOLAR, AUTO)
UPLOADS = "uploads"
"""folder of the data directory whose folders can be named as sources"""
UPLOADED = "upload:"
"""prefix of such a source's name"""
MOST_SOURCES = 8


class RequestBody(BaseModel):
    """What a request sends: the fields that there are, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetsAsked(RequestBody):
    """Limits of one run; 0: no limit; None: those of the server."""

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

    def change(self, settings: Settings) -> Settings:
        """The server's settings with what the question changes in them."""
        changed = self.model_dump(
            exclude_none=True, exclude={"question", "thread", "format", "source"}
        )
        if self.format is not None:
            changed["answer_format"] = self.format
        if self.source is not None:
            known = sources(settings)
            for name in self.source:
                if name not in known:
                    remedy = "more are given by rubricem serve --source"
                    raise SettingsError(
                        f"There is no source {name!r} on this server.",
                        f"Name one of {', '.join(known)}; {remedy}.",
                    )
            changed["source"] = tuple(dict.fromkeys(known[name] for name in self.source))
        return settings.model_copy(update=changed)


class Answered(RequestBody):
    """A person's answer to what a run asks them."""

    id: str = Field(max_length=64)
    decision: Literal["approve", "reject", "edit", "answer"]
    text: str = Field(default="", max_length=20_000)
    plan: dict[str, Any] | None = None
    """an edited plan by its parts, in the place of its text"""

    def decided(self, kind: str) -> dict[str, Any]:
        """What the graph is told; `kind`: it asked to `clarify`, or about its `plan`."""
        match kind, self.decision:
            case "clarify", "answer":
                return {"text": storable(self.text)}
            case "clarify", _:
                raise SettingsError(
                    f"A question back cannot be decided by {self.decision!r}.",
                    'Send the decision "answer" with a text; an empty one passes it over.',
                )
            case _, "approve":
                return {"verdict": "approve"}
            case _, "reject":
                return {"verdict": "reject", "reason": storable(self.text)}
            case _, "edit":
                return {"verdict": "edit", "plan": self._edited().model_dump(mode="json")}
            case _:
                raise SettingsError(
                    "A plan is not a question to be answered.",
                    'Send the decision "approve", "reject" or "edit".',
                )

    def _edited(self) -> ShownPlan:
        try:
            plan = ShownPlan.model_validate(self.plan) if self.plan else ShownPlan.read(self.text)
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


_OF_THE_MODEL = ("model", "base_url")


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
    named = {**UNNAMED, **choices}
    kept = {name: named[name] for name in CHOICES if name in named and name not in _OF_THE_MODEL}
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
