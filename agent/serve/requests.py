"""What people request over HTTP, and the settings under which it is answered.

A source is one that the server was started with, a built-in one, an uploaded folder, or for the
owner a collection: no request can read another folder of this machine, or search an address, by
naming it. A resumed run keeps what shaped its answer.

What is told to others than the server's owner names no folder of this machine and no key: reports,
reasons and errors alike (`for_others`, `hiding`).

A refusal is a sentence, a remedy, and an HTTP status for its kind. Under `/v1/` it has the form in
which clients of OpenAI's interface read errors.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from rubricem.agent.research.setup import Setup
from rubricem.agent.settings import BUDGETS, Settings
from rubricem.agent.settings.door import models_on_offer, named_sources, setup_of_run
from rubricem.agent.sources import choice
from rubricem.agent.sources.choice import UPLOADED, UPLOADS, is_folder, kept_name
from rubricem.agent.transcript.question import Ask, Effort, ShownPlan
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import AnswerFormat, Trajectory
from rubricem.memory.text import storable, with_leaves

OPENAI = "/v1/"


class RequestRefused(RubricemError):
    """A request that is not carried out and has changed nothing."""

    def __init__(
        self,
        status: int,
        message: str,
        remedy: str = "",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        """`param` and `code` are for clients of OpenAI's: the invalid field, and the error."""
        super().__init__(message, remedy)
        self.status, self.param, self.code = status, param, code


forbidden = partial(RequestRefused, HTTPStatus.FORBIDDEN)
missing = partial(RequestRefused, HTTPStatus.NOT_FOUND)
conflict = partial(RequestRefused, HTTPStatus.CONFLICT)
too_many = partial(RequestRefused, HTTPStatus.TOO_MANY_REQUESTS)


def check_known(store: RunStore, run: str) -> None:
    """Raise Refused (404) if no run has this key. Reads files."""
    with suppress(SettingsError):
        if store.holds(run):
            return
    message = f"There is no run {run[:80]!r}, or its folder was deleted."
    raise missing(message, "The history has those that are kept.")


def lead_of(store: RunStore, run: str) -> str:
    """The run that this one is an investigation of; "" if it stands alone. Reads files."""
    folder = store.folder_of(run)
    return "" if folder.parent == store.folder else folder.parent.parent.name


@contextmanager
def refuse_as(status: int) -> Iterator[None]:
    """Blame the request for what cannot be here: no such thread, an item just replaced."""
    try:
        yield
    except SettingsError as error:
        raise RequestRefused(status, str(error), error.remedy) from error


def unfit(
    message: str, param: str | None = None, code: str | None = None, status: int = 400
) -> RequestRefused:
    """The refusal of a request of OpenAI's interface that has no meaning for this server."""
    return RequestRefused(status, message, param=param, code=code)


def reply_of(error: RubricemError, path: str) -> tuple[dict[str, Any], int]:
    """The body and status of the response to a failed request of this path."""
    openai, status = path.startswith(OPENAI), int(HTTPStatus.BAD_GATEWAY)
    match error:
        case RequestRefused():
            status = error.status
        case SettingsError():
            # What cannot be asked has one status in OpenAI's interface.
            status = HTTPStatus.BAD_REQUEST if openai else HTTPStatus.UNPROCESSABLE_ENTITY
        case StoreError():
            status = HTTPStatus.INTERNAL_SERVER_ERROR
    if not openai:
        return {"error": str(error), "remedy": error.remedy}, status
    kind = "server_error" if status >= 500 else "invalid_request_error"
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status, kind)
    known = {"param": getattr(error, "param", None), "code": getattr(error, "code", None)}
    return {"error": {"message": error.told(), "type": kind, **known}}, status


BUILT_IN = (
    choice.PYTHON, choice.WEB, *choice.PAPERS, choice.WIKIPEDIA, choice.HISTORY, choice.AUTO
)  # fmt: skip
MOST_SOURCES = 8
DEFAULTS = {
    "effort", "verify", "memory", "approve_plan", "clarify", "tool_calls", *BUDGETS.values(),
}  # fmt: skip
"""settings that a question may change"""


class RequestBody(BaseModel):
    """The body of a request; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetsAsked(RequestBody):
    """Limits of one run; 0: no limit; None: those of the server."""

    max_seconds: float | None = Field(default=None, ge=0, le=10**7, allow_inf_nan=False)
    max_total_tokens: int | None = Field(default=None, ge=0, le=10**12)
    max_cost: float | None = Field(default=None, ge=0, le=10**6, allow_inf_nan=False)


class RunAsked(BudgetsAsked):
    """A question, and how it differs from the server's settings; None: as they are."""

    question: str
    format: AnswerFormat | None = None
    source: Annotated[
        tuple[Annotated[str, Field(max_length=1000)], ...] | None,
        BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
    ] = Field(default=None, min_length=1, max_length=MOST_SOURCES)
    thread: str | None = Field(default=None, max_length=64)
    attended: bool = False
    """a person watches, who may be asked before a tool acts or private text is sent"""
    approve_plan: bool | None = None
    clarify: bool | None = None
    effort: Effort | None = None
    length: int | None = Field(default=None, ge=200, le=1_000_000)
    tool_calls: int | None = Field(default=None, ge=1, le=1000)
    verify: Literal["off", "mark", "repair"] | None = None
    model: str | None = Field(default=None, max_length=1000)
    memory: Literal["on", "off", "read-only"] | None = None

    def change(self, settings: Settings) -> Settings:
        """The server's settings with the question's changes."""
        changed = self.model_dump(
            exclude_none=True,
            exclude={"question", "thread", "format", "source", "model", "attended"},
        )
        if self.model is not None:
            offered = models_on_offer(settings)
            if self.model not in offered:
                raise SettingsError(
                    f"The model {self.model!r} is not offered by this server.",
                    f"Name one of {', '.join(filter(None, offered))}; the setting models has more.",
                )
            changed |= offered[self.model]
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


DECISIONS = {
    "clarify": ("answer",),
    "plan": ("approve", "reject", "edit"),
    "permit": ("once", "run", "always", "never"),
}
"""that answer each kind of question to a person"""


class Answered(RequestBody):
    """A person's answer to a question of a run."""

    id: str = Field(max_length=64)
    decision: Literal["approve", "reject", "edit", "answer", "once", "run", "always", "never"]
    text: str = Field(default="", max_length=20_000)
    plan: dict[str, Any] | None = None
    """an edited plan by its parts, instead of its text"""

    def resume_value(self, kind: str) -> dict[str, Any]:
        """What the graph receives; `kind`: it asked to `clarify`, about its `plan`, or a permit."""
        if self.decision not in DECISIONS[kind]:
            raise SettingsError(
                f"What is asked cannot be answered by {self.decision!r}.",
                f"Send one of the decisions {', '.join(DECISIONS[kind])}.",
            )
        match self.decision:
            case "answer":
                return {"text": storable(self.text)}
            case "reject":
                return {"verdict": "reject", "reason": storable(self.text)}
            case "edit":
                return {"verdict": "edit", "plan": self._read_plan().model_dump(mode="json")}
            case verdict:
                return {"verdict": verdict}

    def _read_plan(self) -> ShownPlan:
        try:
            plan = ShownPlan.model_validate(self.plan) if self.plan else ShownPlan.read(self.text)
        except ValidationError as error:
            raise SettingsError(
                f"The edited plan cannot be read: {error.errors()[0]['msg']}.",
                "Send its rubric (a list), research_plan and query.",
            ) from error
        if not any(item.strip() for item in plan.rubric):
            kept = "an item" if self.plan else "the line '## Rubric' and an item below it"
            raise SettingsError("The edited plan has no rubric.", f"Keep {kept}.")
        return ShownPlan.model_validate_json(storable(plan.model_dump_json()))


def sources(settings: Settings) -> dict[str, str]:
    """The source names that a question may use, and what each refers to."""
    named = {shown_name(name): name for name in settings.source}
    folder = settings.data_dir / UPLOADS
    uploads = {
        UPLOADED + path.name: str(path)
        for path in sorted(folder.glob("*"))
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".")
    }
    rest = (*(choice.COLLECTION + name for name in settings.collections), *BUILT_IN)
    return {**named, **{name: name for name in rest}, **uploads}


def for_user(settings: Settings) -> Settings:
    """The server's settings without the collections that it was not started with."""
    held, named = settings.collections, settings.source
    shared = {name: held[name] for name in held if choice.COLLECTION + name in named}
    return settings.model_copy(update={"collections": shared})


def kept_sources(settings: Settings, *names: str) -> set[str]:
    """What is stored with a run over these sources."""
    return {*map(kept_name, named_sources(settings.model_copy(update={"source": names})))}


def shown_name(name: str) -> str:
    """The name of a source without the folders that contain it, or its password."""
    if is_folder(name):
        return choice.label_of(os.path.abspath(os.path.expanduser(name)))
    return kept_name(name)


_SHORTEST_KEY = 6
"""characters; anything shorter could be in any text"""
Hide = Callable[[str], str]
"""a text -> the same without this machine's folders and the settings' keys"""


def for_others(trajectory: Trajectory, settings: Settings) -> Trajectory:
    """The run with this machine's folders and the settings' keys removed from all texts."""
    hide = hiding(settings, [source.location for source in trajectory.sources])

    def without(held: object) -> object:
        return hide(held) if isinstance(held, str) else held

    return Trajectory.model_validate(with_leaves(trajectory.model_dump(mode="json"), without))


def hiding(settings: Settings, found: Iterable[str] = (), data: Iterable[Path] = ()) -> Hide:
    """What prepares a text for others; `found`: documents; `data`: further data directories."""
    secret = secrets_in(settings)
    hidden = {**_folders_of(settings, found, data), **dict.fromkeys(secret, "***")}
    longest = sorted(hidden, key=len)[::-1]
    pattern = re.compile(
        "|".join(re.escape(each) if each in secret else _path_pattern(each) for each in longest)
    )
    return partial(pattern.sub, lambda told: hidden[told.group()])


def _folders_of(settings: Settings, found: Iterable[str], data: Iterable[Path]) -> dict[str, str]:
    """Each path of this machine that may be told -> its replacement."""

    def named(*names: str) -> list[Path]:
        return [Path(os.path.abspath(os.path.expanduser(n))) for n in names if is_folder(n)]

    sources = named(*settings.source, *chain(*settings.collections.values()))
    # Of a source that is gone is told what there is beside it.
    around = [path.parent for path in sources if not os.path.isdir(path)]
    known = named(settings.model or "", settings.embedder)
    known += [path.parent for path in map(Path, found) if path.is_absolute()]
    folders = {
        **dict.fromkeys((*sources, *around, *filter(os.path.isdir, known)), "FOLDER"),
        **dict.fromkeys((*data, settings.data_dir), "DATA"),
        settings.weights_dir: "WEIGHTS",
        Path.cwd(): "FOLDER",
        Path.home(): "~",
    }
    if sys.prefix != sys.base_prefix:  # else it is the system's, of which texts tell as well
        folders[Path(sys.prefix)] = "PROGRAM"
    told = {str(path): name for path, name in folders.items() if len(path.parts) > 1}
    return told | {json.dumps(path, ensure_ascii=False)[1:-1]: told[path] for path in told}


def _path_pattern(path: str) -> str:
    """What matches a path in a text; one as short as /data only where it is whole and absolute.

    In JSON a line's end is a letter.
    """
    escaped = re.escape(path)
    if len(Path(path).parts) > 2:
        return escaped
    return rf"(?:(?<![\w./~-])|(?<=file://)|(?<=\\[nrt])){escaped}(?![\w-]|\.\w)"


def secrets_in(settings: Settings) -> set[str]:
    """Every key and password in the settings, except ones so short that any text has them."""
    found = set[str]()

    def look(held: Any) -> None:
        if isinstance(held, SecretStr):
            whole = held.get_secret_value()
            # Of `Bearer KEY` the key may be told alone.
            found.update((whole, whole.rpartition(" ")[2]))
        elif isinstance(held, str) and "://" in held:
            # Its password, and its query, in which hosted servers want their keys.
            parts = urlsplit(held.removeprefix(choice.SEARXNG))
            found.update((parts.password or "", unquote(parts.password or "")))
            found.update(given for _, given in parse_qsl(parts.query))

    with_leaves(settings.model_dump(), look)
    return {secret for secret in found if len(secret) >= _SHORTEST_KEY}


def read_request(
    settings: Settings, store: RunStore, run: str, budgets: BudgetsAsked | None
) -> tuple[Setup, Ask]:
    """A run's question, and the setup with which it continues.

    Raises Refused (409) for what this server cannot continue, StoreError for a damaged request.
    """
    request, restored = store.request(run), store.is_restored(run)
    given = budgets.model_dump(exclude_none=True) if budgets else {}
    with refuse_as(HTTPStatus.CONFLICT):
        models = models_on_offer(settings).values()
        setup = setup_of_run(settings, request, models, given, restored)
    offered = (*sources(settings).values(), *settings.source)
    allowed = kept_sources(settings, *offered)
    for name in setup.sources.names:
        if kept_name(name) not in allowed:
            raise conflict(
                f"The run searched {shown_name(name)!r}, which this server may not.",
                "Name it by rubricem serve --source or in the settings"
                + ("." if restored else ", or go on by rubricem ask --resume."),
            )
    return setup, replace(setup.template, budgets=setup.budgets)
