"""What the page of a server sets: a file beside the user's own settings, which counts before it.

    page.toml       for its owner alone to read, since it may hold keys

The user's own file is never written, so that its comments stay. What a flag, a variable or the
program itself has set counts before both, and cannot be changed here. A key is for one server: it
does not go along to the address of another.
"""

import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rubricem.agent.settings import (
    DEFAULT_ORIGIN,
    Settings,
    host_of,
    load_settings,
    page_file,
    page_values,
    settings_file,
)
from rubricem.agent.settings.door import OPENAI_URL, model_of, setup_of, with_default_source
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import write_atomically

MANAGED = (
    "model", "base_url", "api_key", "tavily_key", "source", "effort",
    "tool_calls", "max_total_tokens", "max_seconds", "max_cost",
)  # fmt: skip
HIDDEN = "***"
"""what stands in a shown value for a part that is not shown"""
_HEADER = "# Set on the page of rubricem serve, and read before rubricem.toml.\n"


def is_fixed(settings: Settings, name: str) -> bool:
    """Whether a flag, a variable or the program itself set it, which count before the page."""
    origin = settings.origin(name)
    if origin == DEFAULT_ORIGIN:
        return name in settings.model_fields_set
    return origin.startswith(("--", "RUBRICEM_"))


def tried(settings: Settings, wanted: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """The settings as they would be, and what the file would hold; None of a name: not set here.

    Raises SettingsError for what cannot be.
    """
    if page_file() is None:
        said = f"The settings are those of {settings_file()}, which was named."
        raise SettingsError(said, "Change them there, or start the server without naming it.")
    for name, value in wanted.items():
        if name not in MANAGED:
            raise SettingsError(f"{name} is not set on the page.", f"It sets {', '.join(MANAGED)}.")
        if is_fixed(settings, name):
            where = settings.origin(name)
            where = "the program that serves it" if where == DEFAULT_ORIGIN else where
            raise SettingsError(f"{name} is set by {where}.", "Change it there, or leave it out.")
        if HIDDEN in str(value):
            raise SettingsError(
                f"{HIDDEN} in {name} stands for what is not shown.", "Write it anew as a whole."
            )
    given = {**page_values(), **wanted}
    kept = {name: value for name, value in given.items() if value is not None}
    found = _loaded(settings, kept)
    if _server(found) != _server(settings) and not wanted.get("api_key"):
        found = _without_its_key(settings, kept)
    found = with_default_source(found)
    setup_of(found).sources.check()
    return found, kept


def change(settings: Settings, wanted: Mapping[str, Any]) -> Settings:
    """Keep what was set on the page; returns the settings as they are then.

    Raises SettingsError for what cannot be, StoreError where nothing can be written; then nothing
    is changed.
    """
    _, kept = tried(settings, wanted)
    path = page_file()
    assert path is not None, "it was tried"
    text = _HEADER + "".join(
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in kept.items()
    )
    written = {}
    with suppress(tomllib.TOMLDecodeError):
        written = tomllib.loads(text)
    if written != kept:
        raise SettingsError("A value holds what cannot be written.", "Write plain text.")
    write_atomically(path, text)
    return with_default_source(_loaded(settings, None))


def _without_its_key(settings: Settings, kept: dict[str, Any]) -> Settings:
    """What is kept with another server, and with no key that was not given for that one."""
    kept.pop("api_key", None)
    found = _loaded(settings, kept)
    silent = not found.models and model_of(found).embedded
    own = found.origin("api_key") == "OPENAI_API_KEY" and _server(found) == host_of(OPENAI_URL)
    if silent or own or not found.api_key or "base_url" not in kept:
        return found
    if is_fixed(found, "api_key"):
        said = f"The key of {found.origin('api_key')} is not sent to another server."
        raise SettingsError(said, "Name the server where its key is set, or take the key away.")
    kept["api_key"] = ""  # before every other key
    return _loaded(settings, kept)


def _server(settings: Settings) -> str:
    return host_of(settings.base_url or OPENAI_URL)


def _loaded(settings: Settings, page: Mapping[str, Any] | None) -> Settings:
    """The settings loaded again under what this process was started with."""
    given = {
        name: getattr(settings, name)
        for name in Settings.model_fields
        if settings.origin(name).startswith("--")
        or (settings.origin(name) == DEFAULT_ORIGIN and name in settings.model_fields_set)
    }
    return load_settings(given, page)
