"""The page of every setting and every key of a training, made from the models that read them.

    python -m docs.configuration

writes the tables of docs/configuration.md anew, and the list of all texts of the web page, which a
translation begins with (agent/serve/static/texts/en.json). What a key means is the docstring below
its field; a field without one is an error here, so that no key goes unexplained.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path, PosixPath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from rubricem.agent.cli.ask import ask
from rubricem.agent.settings import PREFIX, Settings
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.training.collect.collect_config import CollectConfig
from rubricem.training.judge_training.distil import DistilConfig, TeacherConfig
from rubricem.training.judge_training.grpo import GrpoConfig
from rubricem.training.local.local_config import TrainConfig
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.rounds.rounds_config import RoundsConfig

PAGE = Path(__file__).with_suffix(".md")
STATIC = Path(__file__).parent.parent / "agent" / "serve" / "static"
TEXTS = STATIC / "texts" / "en.json"
_STRING = r'"(?:[^"\\]|\\.)*"'
_SAID = re.compile(rf"\b(?:t|plural)\(\s*({_STRING}(?:\s*\+\s*{_STRING})*)")
_CHOSEN = re.compile(rf"\bt\([^()\"]*\?\s*({_STRING})\s*:\s*({_STRING})")
_COUNTED = re.compile(rf"\bcounted\([^\"]*?,\s*({_STRING})(?:,\s*({_STRING}))?,?\s*\)")
_WRITTEN = re.compile(
    r'<(?:a|h2)\b[^>]*?(?:href="#/[a-z]+"|href="#/"|id="[\w-]+")[^>]*>([A-Z][^<]*)<'
)
WORDS = ("Plan", "Research", "Review", "Answer", "Time", "Left", "Searches", "Tokens", "Cost")
"""names of stages and counts, which the page makes of the server's words"""
_BOUNDS = {Ge: "from {}", Gt: "above {}", Le: "to {}", Lt: "below {}"}
_KINDS = {
    str: "text",
    bool: "true, false",
    int: "integer",
    float: "number",
    Path: "path",
    SecretStr: "text, kept secret",
}
_OWN_PLACES = ("data_dir", "weights_dir")
"""defaults that differ from machine to machine"""


TABLES: dict[str, tuple[type[BaseModel], bool]] = {
    "settings": (Settings, True),
    "mcp_servers": (ToolServer, False),
    "training": (TrainConfig, False),
    "objective": (ObjectiveConfig, False),
    "rounds": (RoundsConfig, False),
    "collect": (CollectConfig, False),
    "distil": (DistilConfig, False),
    "teacher": (TeacherConfig, False),
    "grpo": (GrpoConfig, False),
}
"""each table's name, what it is made of, and whether variables and flags set it too"""
_MADE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def renewed(text: str) -> str:
    """The page with every table as the models have it now; what stands around them is kept."""
    return _MADE.sub(lambda found: found[1] + _table(*TABLES[found[2]]) + found[3], text)


def texts() -> dict[str, str]:
    """Every text of the web page, by itself: the table that a translation fills in."""
    found = dict.fromkeys(WORDS)
    written = (STATIC / "index.html").read_text(encoding="utf-8")
    found |= dict.fromkeys(_WRITTEN.findall(written))
    for path in sorted(STATIC.glob("*.js")):
        code = path.read_text(encoding="utf-8")
        for said in _SAID.findall(code):
            found["".join(json.loads(each) for each in re.findall(_STRING, said))] = None
        for either in _CHOSEN.findall(code):
            found |= dict.fromkeys(map(json.loads, either))
        for one, many in _COUNTED.findall(code):
            if not (single := json.loads(one)):
                continue  # a noun of the server's
            found[f"{single}|{json.loads(many) if many else f'{single}s'}"] = None
    return {text: text for text in found}


def table_of_texts() -> str:
    """The file that lists them."""
    return json.dumps(texts(), ensure_ascii=False, indent=1) + "\n"


def field_docs(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Each field of a model with a docstring below it, and that docstring as one line."""
    [written] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(written, ast.ClassDef)
    for field, below in zip(written.body, written.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            text = ast.literal_eval(below.value)
            assert isinstance(field.target, ast.Name)
            # In a file, what Python calls None is a key that is left out.
            yield field.target.id, " ".join(str(text).split()).replace("None:", "not set:")


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field of a model and of those it is made from, as one line."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each.__module__.startswith(
            ("rubricem.agent.", "rubricem.training.")
        ):
            found |= dict(field_docs(each))
    return found


def _table(model: type[BaseModel], flags: bool) -> str:
    told = meanings(model)
    head = ["key", *(["variable", "flag of ask"] if flags else []), "values", "default", "meaning"]
    rows = [head, ["---"] * len(head)]
    for name, field in model.model_fields.items():
        if name not in told:
            raise LookupError(f"{model.__name__}.{name} has no docstring that says what it means")
        more = [f"`{PREFIX}{name.upper()}`", _flag(name)] if flags else []
        cells = [f"`{name}`", *more, kind_of(field), default_of(name, field), told[name]]
        rows.append([cell.replace("|", "\\|") for cell in cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _flag(name: str) -> str:
    """The flag of `rubricem ask` that sets it, if there is one."""
    options = [param.opts[0] for param in ask.params if param.name == name]
    return f"`{options[0]}`" if options else ""


def kind_of(field: FieldInfo) -> str:
    """The values that a field takes, in words."""
    bounds = [
        told.format(_number(getattr(rule, kind.__name__.lower())))
        for rule in field.metadata
        for kind, told in _BOUNDS.items()
        if isinstance(rule, kind)
    ]
    return " ".join([_words(field.annotation), *bounds])


def _words(kind: Any) -> str:
    if kind in _KINDS:
        return _KINDS[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _words(inner[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(_words(one) for one in inner if one is not NoneType)
    if origin is tuple:
        several = inner[-1] is Ellipsis
        return f"list: {_words(inner[0])}" if several else f"{len(inner)} {_words(inner[0])}s"
    if origin is dict:
        return "table" if inner[1] is Any else f"table: {_words(inner[1])} by name"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{one.value}`" for one in kind)
    assert isinstance(kind, type) and issubclass(kind, BaseModel), f"{kind} has no words yet"
    return "table"


def default_of(name: str, field: FieldInfo) -> str:
    """What holds where nothing is said, as TOML would write it."""
    if field.is_required():
        return "(required)"
    if name in _OWN_PLACES:
        return "the platform's"
    value = field.get_default(call_default_factory=True)
    return "" if value in (None, (), {}) or isinstance(value, BaseModel) else f"`{_toml(value)}`"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum | str | PosixPath):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    assert isinstance(value, int | float)
    return _number(value)


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    TEXTS.write_text(table_of_texts(), encoding="utf-8")
    sys.stdout.write(f"written: {PAGE.name}, {TEXTS.name}\n")
