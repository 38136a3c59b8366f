"""Runs made ready to leave this machine: without its folders' paths and without its keys."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from agent.settings import Settings
from agent.sources.names import SEARXNG
from memory.schema import Trajectory

_SHORTEST_KEY = 6
"""characters; what is shorter stands in any text"""


def for_others(trajectory: Trajectory, settings: Settings) -> Trajectory:
    """The run with this machine's folders and the settings' keys taken out of all its texts."""
    hidden = _hidden(settings)
    if not hidden:
        return trajectory
    pattern = re.compile("|".join(re.escape(text) for text in sorted(hidden, key=len)[::-1]))
    fields = _without(trajectory.model_dump(mode="json"), pattern, hidden)
    return Trajectory.model_validate(fields)


def _hidden(settings: Settings) -> dict[str, str]:
    """Text that is not to leave -> what stands in its place."""
    folders = {
        settings.data_dir: "DATA",
        settings.weights_dir: "WEIGHTS",
        Path.cwd(): "FOLDER",
        Path.home(): "~",
    }
    # A folder of one part, such as /, /root or /data, would be found in many an innocent text.
    shown = {str(path): name for path, name in folders.items() if len(path.parts) > 2}
    secrets = (
        secret for name in Settings.model_fields for secret in _held(getattr(settings, name))
    )
    return shown | {secret: "***" for secret in secrets if len(secret) >= _SHORTEST_KEY}


def _held(value: object) -> Iterator[str]:
    """The secrets in a setting's value: keys, headers and variables of programs, passwords."""
    match value:
        case SecretStr():
            whole = value.get_secret_value()
            # Of `Bearer KEY` the key may be told alone.
            yield from dict.fromkeys((whole, whole.rpartition(" ")[2]))
        case BaseModel():
            for name in type(value).model_fields:
                yield from _held(getattr(value, name))
        case Mapping():
            for held in value.values():
                yield from _held(held)
        case tuple():
            for held in value:
                yield from _held(held)
        case str() if "://" in value:
            yield from _in_address(value)


def _in_address(address: str) -> Iterator[str]:
    """Its password, and the values of its query, in which hosted servers want their keys."""
    parts = urlsplit(address.removeprefix(SEARXNG))
    yield from (part for part in (parts.password, unquote(parts.password or "")) if part)
    yield from (value for _, value in parse_qsl(parts.query))


def _without(value: object, pattern: re.Pattern[str], hidden: dict[str, str]) -> object:
    if isinstance(value, str):
        return pattern.sub(lambda found: hidden[found.group()], value)
    if isinstance(value, dict):
        return {name: _without(held, pattern, hidden) for name, held in value.items()}
    if isinstance(value, list):
        return [_without(held, pattern, hidden) for held in value]
    return value
