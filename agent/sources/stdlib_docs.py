"""The documentation of the standard library and of the language itself.

Python modules are read as source, like any other. What is written in C (builtins, itertools,
deque and so on) is documented only in the running objects, so those modules, and only those,
are imported and their `__doc__` and signatures read. The chapters of the language reference
that come with Python for `help()` (pydoc_data.topics) are read as source too.
"""

import ast
import importlib
import inspect
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from agent.sources.distributions import (
    ModuleFile,
    documented_passages,
    object_passages,
    read_modules,
)
from agent.sources.passages import split_passages
from agent.sources.public_names import is_offered
from agent.sources.python_source import Documented, ModuleSource
from memory.interfaces import Passage

_LEFT_OUT = frozenset(
    [
        "this",
        "antigravity",
        "idlelib",
        "turtle",
        "turtledemo",
        "test",
        "lib2to3",
        "tkinter",
        "pydoc_data",
        "ensurepip",
        "distutils",
        "encodings",
        "__hello__",
        "__phello__",
        "msilib",
        "venv",
        "nturl2path",
        "sre_compile",
        "sre_constants",
        "sre_parse",
        "tests",
        "posix",
        "nt",
    ]
) | ({"posixpath", "ntpath"} - {os.path.__name__})
_NOT_IMPORTED = re.compile(r"_tkinter|_test|_xx|xx|_ctypes_test|_curses|_dbm|_gdbm|winreg")
_PUBLIC_MODULES = {os.path.__name__: "os.path"}
_UNLIMITED = 1_000_000_000


def library_passages() -> list[Passage]:
    """All passages of the standard library, builtins first."""
    files = library_files(Path(sysconfig.get_path("stdlib")))
    modules = read_modules(files, budget=_UNLIMITED)
    return [
        *_builtin_passages(),
        *_topic_passages(),
        *documented_passages(modules, files, most=_UNLIMITED),
        *_compiled_passages(modules),
    ]


def library_files(root: Path) -> dict[str, ModuleFile]:
    """The public source modules under the library's folder."""
    files: dict[str, ModuleFile] = {}
    shown = Path("lib") / root.name
    for path in sorted(root.rglob("*.py")):
        parts = [*path.relative_to(root).parts[:-1], path.stem]
        package = parts[-1] == "__init__"
        if package:
            parts.pop()
        if parts and parts[0] in sys.stdlib_module_names and not _LEFT_OUT & set(parts):
            name = _PUBLIC_MODULES.get(parts[0], ".".join(parts))
            location = (shown / path.relative_to(root)).as_posix()
            files[name] = ModuleFile(name, path, location, package)
    return files


def _builtin_passages() -> list[Passage]:
    import builtins

    items = _module_items(builtins, sorted(vars(builtins)))
    return [p for item in items for p in object_passages(item.name, item, "python:builtins")]


def _compiled_passages(modules: Iterable[ModuleSource]) -> list[Passage]:
    """C modules without a source file, and what source modules take from such ones."""
    passages: list[Passage] = []
    names = {module.name for module in modules}
    for name in sorted(sys.stdlib_module_names - names - _LEFT_OUT):
        if not name.startswith("_") and (compiled := _compiled(name)):
            passages += _named_passages(name, compiled, sorted(vars(compiled)))
    for module in modules:
        for origin, taken in _taken_by_origin(module).items():
            internal = origin.startswith("_") or "*" in taken
            if internal and origin not in names and (compiled := _compiled(origin)):
                passages += _named_passages(module.name, compiled, taken, module)
    return passages


def _taken_by_origin(module: ModuleSource) -> dict[str, list[str]]:
    taken: dict[str, list[str]] = {origin: ["*"] for origin in module.stars}
    for local, (origin, name) in module.imported.items():
        if local == name and not name.startswith("_"):
            taken.setdefault(origin, []).append(name)
    return taken


def _compiled(name: str) -> ModuleType | None:
    """A builtin or extension module of the library, imported; None for any other."""
    if name not in sys.stdlib_module_names or _NOT_IMPORTED.match(name):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of modules that a later Python drops
            module = importlib.import_module(name)
    except ImportError:
        return None
    return None if str(getattr(module, "__file__", "")).endswith(".py") else module


def _named_passages(
    public: str, compiled: ModuleType, names: list[str], by: ModuleSource | None = None
) -> list[Passage]:
    if "*" in names:
        names = sorted(vars(compiled))
    documented = {item.name for item in by.documented} if by else set()
    wanted = [n for n in names if n not in documented and (by is None or is_offered(by, n))]
    passages = []
    for item in _module_items(compiled, wanted, whole=by is None):
        title = f"{public}.{item.name}" if item.name else public
        passages += object_passages(title, item, f"python:{public}")
    return passages


def _module_items(
    module: ModuleType, names: Iterable[str], whole: bool = False
) -> Iterator[Documented]:
    """The documented functions and classes of a C module, with the methods of the classes."""
    if whole and module.__doc__:
        yield Documented("", "", inspect.cleandoc(module.__doc__))
    for name in names:
        value = getattr(module, name, None)
        if name.startswith("_") or isinstance(value, ModuleType) or not callable(value):
            continue
        yield from _item(name, value)
        if isinstance(value, type):
            for method in sorted(vars(value)):
                if not method.startswith("_"):
                    yield from _item(f"{name}.{method}", getattr(value, method, None))


def _item(name: str, value: object) -> Iterator[Documented]:
    doc = getattr(value, "__doc__", None)
    if isinstance(doc, str) and len(doc) > 12:
        yield Documented(name, _signature(value), inspect.cleandoc(doc))


def _signature(value: object) -> str:
    text = getattr(value, "__text_signature__", None)
    if not text:
        return ""
    return re.sub(r"\(\$?(?:self|module|type)(?:, /)?(?:, )?", "(", str(text), count=1)


def _topic_passages() -> list[Passage]:
    """The language reference, chapter by chapter; a described method begins a new passage."""
    root = Path(sysconfig.get_path("stdlib"))
    path = root / "pydoc_data" / "topics.py"
    if not path.is_file():
        return []
    location = f"lib/{root.name}/pydoc_data/topics.py"
    passages: list[Passage] = []
    for topic, text in _topics(path.read_text("utf-8")).items():
        for title, body in _described(topic, text):
            passages += [Passage(title, location, topic, p) for p in split_passages(body)]
    return passages


def _topics(source: str) -> dict[str, str]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            return dict(ast.literal_eval(node.value))
    return {}


_DESCRIBED = re.compile(r"^(?:class |object\.)?[A-Za-z_][\w.]*\([^\n]*\)$", re.MULTILINE)


def _described(topic: str, text: str) -> Iterator[tuple[str, str]]:
    starts = [0, *(m.start() for m in _DESCRIBED.finditer(text)), len(text)]
    for start, end in pairwise(starts):
        body = text[start:end].strip("\n")
        first = body.partition("\n")[0]
        described = _DESCRIBED.match(first)
        yield (first if described else f"Python language reference: {topic}"), body
