"""What the Python libraries installed here document, as passages.

A distribution is read from its package inwards, public modules first, until its share of source is
spent. Tests and vendored copies are left out.

Of the standard library, what is written in C is documented only in the running objects, so those
modules, and only those, are imported. The chapters of the language reference (pydoc_data.topics)
are read as source too.
"""

import builtins
import importlib
import inspect
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from rubricem.agent.sources.python_api import (
    FEWEST_CHARACTERS,
    Documented,
    ModuleSource,
    PublicApi,
    defaults_in,
    is_private,
)
from rubricem.agent.sources.readers.passages import split_passages
from rubricem.agent.sources.readers.plain.markdown import markdown_sections
from rubricem.memory.schema import Passage

MOST_SOURCE = 60_000_000
"""Characters of source read of one distribution. Of 240 measured, one has more (kubernetes)."""
MOST_TEXT = 10_000_000
"""Characters of documentation of one distribution, after which no further module is read."""
_MOST_README = 40
_NAMES_LEFT_OUT = """
    test tests testing _testing conftest _vendor vendor vendored typeshed externals extern examples
    example benchmarks benchmark docs doc migrations __main__ setup site-packages
"""
LEFT_OUT = frozenset(_NAMES_LEFT_OUT.split())


def module_files(distribution: Distribution) -> dict[str, ModuleSource]:
    """The modules of a distribution by name, without tests and vendored copies.

    A `.pyi` file counts only where the module has no `.py`: it documents a compiled module.
    """
    root = Path(str(distribution.locate_file("")))
    files: dict[str, ModuleSource] = {}
    for line in sorted((distribution.read_text("RECORD") or "").splitlines()):
        location = line.partition(",")[0]
        stem, _, suffix = location.rpartition(".")
        parts, package = _module_parts(stem.split("/"))
        documented = all(
            part.isidentifier() and part not in LEFT_OUT and not part.startswith("test_")
            for part in parts
        )
        if suffix in ("py", "pyi") and parts and documented:
            name = ".".join(parts)
            files.setdefault(name, ModuleSource(name, root / location, location, package))
    return files


def _module_parts(path: list[str]) -> tuple[list[str], bool]:
    """The parts of a module's name, and whether its file is a package's __init__."""
    package = path[-1] == "__init__"
    return (path[:-1] if package else path), package


def read_modules(
    files: Mapping[str, ModuleSource], budget: int = MOST_SOURCE
) -> list[ModuleSource]:
    """The modules worth reading, most public first, until `budget` characters are read."""
    read, text = list[ModuleSource](), MOST_TEXT
    for name in sorted(files, key=lambda name: (is_private(name), name.count("."), name)):
        if budget <= 0 or text <= 0:
            break
        read.append(module := files[name])
        budget -= module.read()
        text -= sum(len(item.text) for item in module.documented)
    return read


def library_passages() -> list[Passage]:
    """What is known of the standard library, builtins first."""
    modules = read_modules(library_files(Path(sysconfig.get_path("stdlib"))))
    passages = [*_named_passages("", builtins, sorted(vars(builtins)))]
    return [*passages, *_topic_passages(), *_passages_of(modules), *_compiled_passages(modules)]


def distribution_passages(distribution: Distribution) -> tuple[list[Passage], str]:
    """The README, without its history of changes, and the documented public objects.

    And what is left out of it, if anything.
    """
    text = (distribution.read_text("METADATA") or "").partition("\n\n")[2]
    title = f"{distribution.name} {distribution.version} README"
    location = f"{distribution.name}-{distribution.version}.dist-info/METADATA"
    passages: list[Passage] = []
    for section in markdown_sections(text):
        heading = section.heading.lower()
        if "change" in heading or "history" in heading or "release" in heading:
            break
        pieces = split_passages(section.text)
        passages += (Passage(title, location, section.heading, piece) for piece in pieces)
    files = module_files(distribution)
    modules = read_modules(files)
    public = {name for name in files if not is_private(name)}
    unread = len(public.difference(module.name for module in modules))
    left_out = f"{distribution.name} ({unread:,} of {len(public):,} modules)" if unread else ""
    return [*passages[:_MOST_README], *_passages_of(modules)], left_out


def _passages_of(modules: Sequence[ModuleSource]) -> Iterator[Passage]:
    """The passages of the modules' public objects, each object once."""
    for public, item, location in PublicApi(modules).objects():
        yield from object_passages(public, item, location)


def object_passages(public: str, item: Documented, location: str) -> list[Passage]:
    """The object's passages; the first begins with its signature, and its defaults in words."""
    named = f"{public}{item.signature}" if item.signature else ""
    text = "\n\n".join(filter(None, (named, item.text and defaults_in(item.signature), item.text)))
    return [Passage(public, location, public, piece) for piece in split_passages(text)]


_LIBRARY_LEFT_OUT = """
    this antigravity idlelib turtle turtledemo test tests lib2to3 tkinter pydoc_data ensurepip
    distutils encodings __hello__ __phello__ msilib venv nturl2path sre_compile sre_constants
    sre_parse posix nt posixpath ntpath
"""
_MODULES_LEFT_OUT = frozenset(_LIBRARY_LEFT_OUT.split()) - {os.path.__name__}
_NOT_IMPORTED = re.compile(r"_tkinter|_test|_xx|xx|_ctypes_test|_curses|_dbm|_gdbm|winreg")
_PUBLIC_MODULES = {os.path.__name__: "os.path"}
_DESCRIBED = re.compile(r"^(?:class |object\.)?[A-Za-z_][\w.]*\([^\n]*\)$", re.MULTILINE)


def library_files(root: Path) -> dict[str, ModuleSource]:
    """The public source modules under the library's folder."""
    files: dict[str, ModuleSource] = {}
    shown = Path("lib") / root.name
    # Below the library's folder stand also the installed packages, ten times as many files.
    packages = (top for top in root.iterdir() if top.name in sys.stdlib_module_names)
    inner = (path for package in packages for path in package.rglob("*.py"))
    for path in sorted([*root.glob("*.py"), *inner]):
        parts, package = _module_parts([*path.relative_to(root).parts[:-1], path.stem])
        if parts and parts[0] in sys.stdlib_module_names and not _MODULES_LEFT_OUT & set(parts):
            name = _PUBLIC_MODULES.get(parts[0], ".".join(parts))
            location = (shown / path.relative_to(root)).as_posix()
            files[name] = ModuleSource(name, path, location, package)
    return files


def _compiled_passages(modules: Iterable[ModuleSource]) -> list[Passage]:
    """C modules without a source file, and what source modules take from such ones."""
    passages: list[Passage] = []
    names = {module.name for module in modules}
    for name in sorted(sys.stdlib_module_names - names - _MODULES_LEFT_OUT):
        if not name.startswith("_") and (compiled := _import_compiled(name)):
            if compiled.__doc__:
                whole = Documented("", "", inspect.cleandoc(compiled.__doc__))
                passages += object_passages(name, whole, f"python:{name}")
            passages += _named_passages(name, compiled, sorted(vars(compiled)))
    for module in modules:
        taken_from: dict[str, list[str]] = {origin: ["*"] for origin in module.stars}
        for local, (origin, name) in module.imported.items():
            if local == name and not name.startswith("_"):
                taken_from.setdefault(origin, []).append(name)
        known = {item.name for item in module.documented}
        for origin, taken in taken_from.items():
            internal = origin.startswith("_") or "*" in taken
            if internal and origin not in names and (compiled := _import_compiled(origin)):
                every = sorted(vars(compiled)) if "*" in taken else taken
                wanted = [name for name in every if name not in known and module.offers(name)]
                passages += _named_passages(module.name, compiled, wanted)
    return passages


def _import_compiled(name: str) -> ModuleType | None:
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


def _named_passages(public: str, module: ModuleType, names: Iterable[str]) -> Iterator[Passage]:
    """Of the documented functions and classes of a C module, with the classes' methods."""
    for name in names:
        value = getattr(module, name, None)
        if name.startswith("_") or isinstance(value, ModuleType) or not callable(value):
            continue
        items = [*_item(name, value)]
        for method in sorted(vars(value)) if isinstance(value, type) else ():
            if not method.startswith("_"):
                items += _item(f"{name}.{method}", getattr(value, method, None))
        for item in items:
            title = f"{public}.{item.name}" if public else item.name
            yield from object_passages(title, item, f"python:{public or module.__name__}")


def _item(name: str, value: object) -> Iterator[Documented]:
    doc = getattr(value, "__doc__", None)
    if isinstance(doc, str) and len(doc) > FEWEST_CHARACTERS:
        text = str(getattr(value, "__text_signature__", None) or "")
        public = re.sub(r"\(\$?(?:self|module|type)(?:, /)?(?:, )?", "(", text, count=1)
        yield Documented(name, public, inspect.cleandoc(doc))


def _topic_passages() -> list[Passage]:
    """The language reference, chapter by chapter; a described method begins a new passage."""
    from pydoc_data.topics import topics  # half a megabyte

    root = Path(sysconfig.get_path("stdlib"))
    location = f"lib/{root.name}/pydoc_data/topics.py"
    passages: list[Passage] = []
    for topic, text in topics.items():
        starts = [0, *(m.start() for m in _DESCRIBED.finditer(text)), len(text)]
        for start, end in pairwise(starts):
            body = text[start:end].strip("\n")
            first = body.partition("\n")[0]
            title = first if _DESCRIBED.match(first) else f"Python language reference: {topic}"
            passages += [Passage(title, location, topic, p) for p in split_passages(body)]
    return passages
