"""Extensions from installed packages: sources, embedders, judges and prompts, by entry points.

A package names them in its pyproject.toml, in the groups `rubricem.sources`, `rubricem.embedders`,
`rubricem.judges` and `rubricem.prompts`; docs/extending.md shows one of each. Names that this
project itself uses cannot be overridden, except those of prompts, which are meant to be.
"""

import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from rubricem.memory.errors import SettingsError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Group = Literal["sources", "embedders", "judges", "prompts"]


def parts_of(group: Group) -> Mapping[str, "EntryPoint"]:
    """What installed packages provide in a group, by name, without importing it."""
    return _find_parts(group, tuple(sys.path))


@cache
def _find_parts(group: Group, path: tuple[str, ...]) -> Mapping[str, "EntryPoint"]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"rubricem.{group}")}


def own_part(group: Group, name: str, *given: Any) -> Any:
    """The extension of this name, called with the arguments; a prompt as it is.

    Raises SettingsError if it cannot be imported or created.
    """
    point = parts_of(group)[name]
    try:
        found = point.load()
        return found if group == "prompts" else found(*given)
    except SettingsError:
        raise
    except Exception as cause:  # somebody's own code may fail in any way
        raise SettingsError(
            f"{name!r} of rubricem.{group} ({point.value}) cannot be used: "
            f"{type(cause).__name__}: {cause}.",
            "Correct the package that brings it, or uninstall it.",
        ) from cause
