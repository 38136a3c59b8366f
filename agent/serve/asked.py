"""What is asked over HTTP, and the settings under which it is answered.

A source is one that the server was started with, a built-in one, or an uploaded folder: nobody
reads another folder of this machine, or has an address searched, by naming it in a request.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.settings import Settings
from agent.sources.names import AUTO, PYTHON, SCHOLAR, WEB, is_folder
from memory.errors import SettingsError
from memory.schema import AnswerFormat

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
        changed["source"] = tuple(dict.fromkeys(_known(name, known) for name in asked.source))
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


def _known(name: str, known: dict[str, str]) -> str:
    if name not in known:
        raise SettingsError(
            f"There is no source {name!r} on this server.",
            f"Name one of {', '.join(known)}; more are given by rubricem serve --source.",
        )
    return known[name]
