"""The TOML files of collecting and training: reading them, and what is wrong with one.

A key that is unknown is refused, with the known one that it resembles, or what to do in the place
of one that is gone.
"""

import sys
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rubricem.judge.composed import RUBRIC
from rubricem.memory.errors import SettingsError
from rubricem.memory.text import with_leaves


class TableConfig(BaseModel):
    """A part of a training's configuration; what is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    beside_it: ClassVar[tuple[str, ...]] = ()
    """keys of its file that are read before it is"""


def read_toml(path: Path | None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A file's values, if there is one, updated with `overrides` such as `objective.beta=0.01`.

    An override that is no TOML value is taken as a string. Raises SettingsError if something cannot
    be read.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig")) if path else {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", "Name a TOML file.") from error
    with_leaves(values, lambda held: _refuse_code(held, overrides))
    for override in overrides:
        key, sign, value = override.partition("=")
        *tables, name = key.strip().split(".")
        table: Any = values
        for each in tables:
            table = table.setdefault(each, {}) if isinstance(table, dict) else None
        if not sign or not name or not isinstance(table, dict):
            raise SettingsError(
                f"{override!r} sets nothing.", "Write it as key=value, or table.key=value."
            )
        try:
            table[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            table[name] = value.strip()
    return values


def _refuse_code(value: Any, overrides: Sequence[str]) -> None:
    """A file of somebody else's runs no code that lies beside it.

    Raises SettingsError for a rubric whose module is of no installed package, unless the command
    names it as well.
    """
    if not str(value).startswith(RUBRIC) or any(value in each for each in overrides):
        return
    module = str(value).removeprefix(RUBRIC).partition(":")[0].partition(".")[0]
    here = Path.cwd()
    installed = [each for each in sys.path if each and Path(each).resolve() != here.resolve()]
    known = module.isidentifier() and PathFinder.find_spec(module, installed)
    if not known or not (found := find_spec(module)) or found.origin != known.origin:
        raise SettingsError(
            f"{value!r} names code of no installed package, and a file does not run it by itself.",
            f"If you trust it, name it in the command as well: judge={value}",
        )


Table = TypeVar("Table", bound=BaseModel)


def check_table(values: Any, kind: type[Table], name: str) -> Table:
    """Values as a model of this kind. Raises SettingsError with every fault in a sentence."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: "
            f"{fault['msg'].removeprefix('Value error, ')}{_suggest(fault, kind)}"
            for fault in error.errors()
        )
        tables = {".".join(map(str, f["loc"][:-1])): _table_of(f, kind) for f in error.errors()}
        known = {at if table else "": table or kind for at, table in tables.items()}
        told = (
            f"{f'[{at}]' if at else 'It'} may set {', '.join(table.model_fields)}."
            for at, table in known.items()
        )
        raise SettingsError(f"{name} is wrong: {faults}.", " ".join(told)) from error


@cache
def retired() -> dict[str, str]:
    """Keys that are gone: what to do instead."""
    return tomllib.loads(Path(__file__).with_name("retired.toml").read_text(encoding="utf-8"))


def _suggest(fault: Any, kind: type[BaseModel]) -> str:
    """What an unknown key was, or which known one it resembles, in a clause; else ""."""
    if fault["type"] != "extra_forbidden":
        return ""
    name = str(fault["loc"][-1])
    if name in retired():
        return f" (it is gone: {retired()[name]})"
    if (table := _table_of(fault, kind)) is None:
        return ""
    beside = table.beside_it if issubclass(table, TableConfig) else ()
    near = get_close_matches(name, (*table.model_fields, *beside), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _table_of(fault: Any, kind: type[BaseModel]) -> type[BaseModel] | None:
    """The model of the table that a fault stands in, within one of this kind; None: in none."""
    for table in map(str, fault["loc"][:-1]):
        found = kind.model_fields[table].annotation if table in kind.model_fields else None
        if not (isinstance(found, type) and issubclass(found, BaseModel)):
            return None
        kind = found
    return kind
