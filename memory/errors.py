"""The errors of the system, one class for each boundary that can break.

    RubricemError
    ├── SettingsError      the user asked for something impossible (also a ValueError)
    ├── WeightsError       model weights are missing, incomplete or altered
    ├── PolicyError        the policy's model or server failed
    ├── SourceError        a search source or document failed
    ├── StoreError         the data directory or the journal failed (also an OSError)
    └── JudgeError         a judge failed; what it judged is unscored, never zero

Each message is one sentence for a person; `remedy` is a sentence that says what to do. Extension
code raises plain errors; `boundary` names the boundary they crossed, once.
"""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any


class RubricemError(Exception):
    """What went wrong in one sentence, and the remedy in another.

    `usage` is the `Usage` of the failed calls to a model, if there were any.
    """

    # Not typed as Usage: who only raises and tells errors need not load pydantic.
    def __init__(self, message: str, remedy: str = "", usage: Any = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.usage = usage
        if remedy:  # a traceback ends with it, for who calls from Python
            self.add_note(remedy)

    def told(self) -> str:
        """The message and the remedy as one text."""
        message = str(self)
        stop = "." if message and message[-1] not in ".!?" else ""
        return f"{message}{stop} {self.remedy}".strip()


class SettingsError(RubricemError, ValueError):
    """A setting, flag or question is unusable."""


class WeightsError(RubricemError):
    """Model weights are missing, incomplete or not the published ones."""


class PolicyError(RubricemError):
    """The model or server that writes the policy's text failed."""

    away = False
    """it is unavailable: the same call can succeed later"""
    kind = ""
    """what of a reply failed: `empty`, `thinking` (nothing else was written), `context` (the
    request is too long); "": anything else"""


class SourceError(RubricemError):
    """A source of passages could not be read or searched."""


class StoreError(RubricemError, OSError):
    """The data directory or a file in it cannot be used."""


class JudgeError(RubricemError):
    """A judge gave no usable score."""

    away = False
    """its model is unavailable: the same call can succeed later"""


def import_extra(module: str, extra: str | None, what: str = "This", instead: str = "") -> Any:
    """The module. Raises SettingsError with what installs it if it is not there.

    `extra`: None if the package stands in none of ours; `what` needs it; `instead` is an
    alternative.
    """
    try:
        return import_module(module)
    except ImportError as cause:
        package = module.partition(".")[0].replace("_", "-")
        if not isinstance(cause, ModuleNotFoundError):  # such as for want of memory
            raise SettingsError(
                f"{what} needs {package}, which cannot be loaded: {cause}.",
                "Free some memory, or install it anew.",
            ) from cause
        install = install_of(extra) if extra else _installing(package)
        raise SettingsError(
            f"{what} needs {package}, which is not installed.",
            f"Install it: {install}{instead and ', '}{instead}",
        ) from cause


def install_of(extra: str) -> str:
    """The command that adds an extra to this installation; for a checkout it names the folder."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    name, editable = "rubricem", False
    with suppress(PackageNotFoundError, ValueError):
        told = json.loads(distribution(name).read_text("direct_url.json") or "{}")
        if (url := urlsplit(told.get("url", ""))).scheme == "file":
            name, editable = unquote(url.path), told.get("dir_info", {}).get("editable", False)
    return _installing(f"{name}[{extra}]", *["-e"] * editable, tool=True)


def _installing(target: str, *flags: str, tool: bool = False) -> str:
    """The command that adds it here; `tool`: it is this program, which pipx or uv may keep."""
    words = [sys.executable, "-m", "pip", "install"]
    if tool and os.path.exists(f"{sys.prefix}/pipx_metadata.json"):
        words = ["pipx", "install", "--force"]
    elif tool and os.path.exists(f"{sys.prefix}/uv-receipt.toml"):
        words = ["uv", "tool", "install"]
    elif find_spec("pip") is None:
        words = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*words, *flags, target])


@contextmanager
def boundary(error: type[RubricemError], what: str) -> Iterator[None]:
    """Turn any plain exception inside into `error`, saying which boundary broke.

    An error that already names its boundary passes unchanged.
    """
    try:
        yield
    except RubricemError:
        raise
    except Exception as cause:
        raise error(f"{what} failed: {type(cause).__name__}: {cause}") from cause
