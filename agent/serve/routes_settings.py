"""`/api/settings`: every setting, where it comes from, and changing those that the page sets.

    GET /api/settings           each value with its origin; no key
    PATCH /api/settings         keeps some of them, and answers the next question by them
    POST /api/settings/test     asks a model that is not kept yet for one token
    GET /api/settings/nearby    model servers that answer on this machine

Only the server's owner changes anything, and only where the token tells who that is: else whoever
reaches the server could send its key to an address of theirs, or read a folder.
"""

import asyncio
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from rubricem.agent.models.limits import Retry
from rubricem.agent.models.opening import EmbeddedChoice, PolicyChoice, ServerChoice
from rubricem.agent.serve.desk import Desk, RunDesk
from rubricem.agent.serve.operating import hide
from rubricem.agent.serve.requests import DEFAULTS, RequestBody, forbidden, secrets_in
from rubricem.agent.serve.security import Security, SecurityInForce
from rubricem.agent.settings import (
    DEFAULT_ORIGIN,
    PREFIX,
    Settings,
    meanings,
    page_file,
    page_values,
    settings_file,
)
from rubricem.agent.settings.door import model_of, redact
from rubricem.agent.settings.page import MANAGED, change, is_fixed, tried
from rubricem.agent.sources.choice import GIT, is_folder
from rubricem.agent.weights.catalogue import lookup
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.errors import PolicyError, RubricemError, import_extra
from rubricem.memory.schema import Message, Sampling
from rubricem.memory.text import one_line

ASKED = DEFAULTS | {"answer_format", "model", "source"}
NEARBY = {"Ollama": "http://127.0.0.1:11434/v1", "LM Studio": "http://127.0.0.1:1234/v1"}
"""model servers as people install them, where they listen by themselves"""
NEARBY_SECONDS, TEST_SECONDS, TEST_TOKENS = 2.0, 40.0, 16
LLAMA = "xllamacpp"
routes = APIRouter(prefix="/api/settings")


class SettingsAsked(RequestBody):
    """Settings by their names; None: not set here, "": none, whatever the user's file says."""

    values: dict[str, str | float | int | list[str] | None] = Field(max_length=len(MANAGED))


@routes.get("")
def shown(desk: Desk, security: SecurityInForce) -> dict[str, Any]:
    """Every setting in force, its origin and its meaning; no key is shown.

    Users, who are not at the server's machine, see only what a question may change.
    """
    settings, user = desk.settings, bool(desk.user)
    told = [n for n in Settings.model_fields if not user or n in {*DEFAULTS, "answer_format"}]
    file, page = None if user else settings_file(), None if user else page_file()
    why = _why_not(desk, security)
    kept = {} if user or why else page_values()
    return {
        "settings": [
            {
                "name": name,
                "value": _render_value(getattr(settings, name)),
                "origin": "" if user else _origin(settings, name),
                "set": name in settings.model_fields_set,
                "meaning": meanings()[name],
                "variable": PREFIX + name.upper(),
                "asked": name in ASKED,
                "changeable": not why and name in MANAGED and not is_fixed(settings, name),
                "kept": name in kept,
            }
            for name in told
        ],
        "file": str(file) if file else "",
        "page_file": str(page) if page and page.exists() else "",
        "why": why,
        "embedded": [] if user else _embedded(settings),
    }


@routes.patch("")
async def keep(desk: Desk, security: SecurityInForce, wanted: SettingsAsked) -> dict[str, Any]:
    """Keep settings, and have them from the next question on."""
    _check(desk, security, wanted.values)
    async with desk.turns["settings"]:
        found = await asyncio.to_thread(change, desk.settings, wanted.values)
        hide(secrets_in(found))
        await desk.adopt(found)
    return await asyncio.to_thread(shown, desk, security)


@routes.post("/test")
async def test(desk: Desk, security: SecurityInForce, wanted: SettingsAsked) -> dict[str, Any]:
    """Whether a model answers; nothing is kept. Raises why it does not, with what to do."""
    _check(desk, security, wanted.values)
    found, _ = await asyncio.to_thread(tried, desk.settings, wanted.values)
    return await try_model(model_of(found))


@routes.get("/nearby")
async def nearby(desk: Desk, security: SecurityInForce) -> dict[str, Any]:
    _check(desk, security, {})
    found = await asyncio.gather(*map(_listed, NEARBY.values()))
    told = zip(NEARBY.items(), found, strict=True)
    servers = [{"name": n, "base_url": u, "models": m} for (n, u), m in told if m is not None]
    return {"servers": servers}


def _why_not(desk: RunDesk, security: Security) -> str:
    """Why nothing can be changed here; "" where it can."""
    if desk.user:
        return "Only whoever runs the server may change its settings."
    if security.token is None:
        return "This server asks for no token, so it does not know who may change settings."
    if page_file() is None:
        named = settings_file()
        return f"The settings are those of {named}, which was named; change them there."
    return ""


def _check(desk: RunDesk, security: Security, values: Mapping[str, Any]) -> None:
    if why := _why_not(desk, security):
        raise forbidden(why, "Ask whoever started it.")
    named = values.get("source")
    names = named.split(",") if isinstance(named, str) else named or ()
    new = {str(name).strip() for name in names} - set(desk.settings.source)
    near = [name for name in new if is_folder(name) or name.startswith(GIT)]
    if near and not security.alone:
        raise forbidden(
            "Others can reach this server, so the page names no folder of its machine.",
            "Name it where the server is started: rubricem serve --source FOLDER.",
        )


def is_chosen(settings: Settings) -> bool:
    """Whether somebody chose the model."""
    return any(_origin(settings, name) != DEFAULT_ORIGIN for name in ("model", "base_url"))


def lacking(model: PolicyChoice) -> bool:
    """Whether something has to be fetched or installed before it answers. Looks for files."""
    if not isinstance(model, EmbeddedChoice):
        return False
    return find_spec(LLAMA) is None or WeightsStore(model.weights_dir).lacks_model(model.name)


async def try_model(model: PolicyChoice) -> dict[str, Any]:
    """What a model lists and how long its first token took. Raises RubricemError, with a remedy."""
    if isinstance(model, EmbeddedChoice):
        import_extra(LLAMA, "local", "The embedded model")
        return {"model": model.name, "models": [], "seconds": None, "lacking": lacking(model)}
    name, names, begun = model.name, list[str](), time.monotonic()
    try:
        async with asyncio.timeout(TEST_SECONDS):
            try:
                names = await model.model_names()
            except PolicyError as error:  # without a list it may answer all the same
                if error.away or model.model is None:
                    raise
            async with model.open_chat(retry=Retry(tries=1)) as chat:
                name, begun = chat.model, time.monotonic()
                await chat.chat([Message("user", "Say: yes")], Sampling(max_tokens=TEST_TOKENS))
    except TimeoutError:
        said = f"The model did not answer within {TEST_SECONDS:g} s."
        raise PolicyError(said, "See whether its server still loads it, and try again.") from None
    except PolicyError as error:
        if error.kind not in ("thinking", "empty"):  # which is an answer all the same
            raise
    seconds = round(time.monotonic() - begun, 1)
    return {"model": name, "models": names, "seconds": seconds, "lacking": False}


async def _listed(base_url: str) -> list[str] | None:
    """The models of a server on this machine; None where none answers."""
    try:
        async with asyncio.timeout(NEARBY_SECONDS):
            return await ServerChoice(None, base_url).model_names()
    except (RubricemError, TimeoutError):
        return None


def _embedded(settings: Settings) -> list[dict[str, Any]]:
    """The models of the catalogue that answer, with what is still to be fetched of each."""
    store = WeightsStore(settings.weights_dir)
    return [
        {"name": name, "bytes": weights.size, "lacking": store.lacks_model(weights.name)}
        for name in ("1.5b", "0.5b")
        if (weights := lookup(name)) is not None
    ]


def _origin(settings: Settings, name: str) -> str:
    """Where a value came from; "": from whoever started the server in another way."""
    found = settings.origin(name)
    return "" if found == DEFAULT_ORIGIN and name in settings.model_fields_set else found


def _render_value(value: object) -> str:
    """A setting's value in a line, without secrets."""
    shown = redact(value)
    if isinstance(shown, tuple | Mapping):
        return ", ".join(map(str, shown))
    if isinstance(shown, bool):
        return "on" if shown else "off"
    return "" if shown is None else one_line(str(shown))
