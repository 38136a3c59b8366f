"""What is wrong with a setting, in a sentence that shows no key and no password."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from memory.errors import SettingsError

_SECRETS = {"api_key", "scholar_key", "checkpoints", "mcp_servers"}
_NOT_SHOWN = _SECRETS | {"base_url", "source", "bank_server"}
"""settings whose values may hold a key or a password"""


def explained(
    error: ValidationError,
    values: Mapping[str, Any],
    origins: Mapping[str, str],
    known: Iterable[str],
) -> SettingsError:
    """The first thing wrong, said with its layer, its name and what is allowed."""
    first = error.errors(include_url=False, include_input=False)[0]
    name, *inside = (str(part) for part in first["loc"])
    origin = origins[name]
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(known)
        return SettingsError(f"{origin}: there is no setting {name!r}.", f"Allowed are {allowed}.")
    place = f"{origin}: {name}" if origin.endswith(".toml") else origin
    where = f" (at {'.'.join(inside)})" if inside else ""
    got = "" if name in _NOT_SHOWN else f" {values[name]!r}"
    wrong = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    return SettingsError(f"{place} cannot be{got}{where}: {wrong}.", f"Correct {place}.")
