"""Packages that only come with an extra, imported where they are needed."""

import importlib
from typing import Any

from memory.errors import SettingsError


def needed(module: str, extra: str = "data") -> Any:
    """The module. Raises SettingsError that names the extra where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise SettingsError(
            f"This needs {module.partition('.')[0]}, which is not installed.",
            f"Install it: pip install 'rubricem[{extra}]'",
        ) from cause
