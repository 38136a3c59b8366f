"""The documentation of the Python libraries installed here, as a source of passages.

The index is built on the first search, kept in the data directory, and built again when a
distribution is installed, removed or changes its version. Of two passages that match equally
well, the one from the standard library comes first: a bare `lru_cache` is the one of
functools.

The documentation inside one Python source file, read from its syntax tree.

Nothing is imported or run. Found are the docstrings of the module and of its public classes,
functions and methods, with signatures; attribute docstrings (the string under a field); texts
handed to `add_newdoc` or `add_docstr`, by which NumPy and PyTorch document their C functions;
and the names that the file takes from others, by which public aliases are known.

The installed distributions, and the documentation that their files carry.

A distribution is read from its package inwards: first the public packages and what they take
from other modules, as that is what users meet, then the remaining public modules, the
shallow ones first, until its share of source is spent. Tests, vendored copies and private
modules that nothing public takes from are left out. Only files are read; nothing is imported.

The documentation of the standard library and of the language itself.

Python modules are read as source, like any other. What is written in C (builtins, itertools,
deque and so on) is documented only in the running objects, so those modules, and only those,
are imported and their `__doc__` and signatures read. The chapters of the language reference
that come with Python for `help()` (pydoc_data.topics) are read as source too.

The names by which a library's users know its objects.

`httpx.Client` is written in `httpx/_client.py` and taken into `httpx/__init__.py`; what a
reader asks about, and what its documentation should be found by, is `httpx.Client`. An
object's public name is the shortest one under which a public package offers it.

Python source without the bodies of its functions, for reading documentation fast.

Most of the time of parsing goes into function bodies, of which documentation needs only the
docstring. They are cut out line by line, by indentation, before the parse; measured on the
libraries of one environment this takes 0.4 of the time of parsing whole files. Source laid
out in a way that this misreads (a string at the margin inside a body) mostly gives a syntax
error, upon which the caller parses the whole file.
"""

import ast
import asyncio
import gc
import hashlib
import heapq
import importlib
import inspect
import os
import platform
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from rubricem.agent.sources.index import (
    HybridIndex,
    LexicalIndex,
    OnProgress,
    build_index,
    open_index,
    shortened,
    split_passages,
    with_vectors,
)
from rubricem.agent.sources.readers import markdown_sections
from rubricem.agent.sources.web import read_query
from rubricem.memory.errors import SourceError, boundary
from rubricem.memory.interfaces import Embedder, Passage

_MOST_SIGNATURE = 320
_MOST_TYPED = 140
_FEWEST_CHARACTERS = 12
"""Shorter docstrings say nothing that the name does not."""

_VERSION_NOTE = re.compile(
    r"^([ \t]*)\.\. version(?:added|changed)::.*\n?(?:\1[ \t]+.*\n?|[ \t]*\n)*", re.MULTILINE
)
"""Notes on the past of a function, which crowd out what it does."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Documented:
    """A documented object: its name inside the module ("" for the module), and its text."""

    name: str
    signature: str
    text: str
    absolute: bool = False
    """the name already begins with its package"""


@dataclass(slots=True)
class ModuleSource:
    """What one file documents, defines and takes from elsewhere."""

    name: str
    package: bool
    """its file is an __init__"""
    documented: list[Documented] = field(default_factory=list)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """local name -> (module, name there; "" for the module itself)"""
    stars: list[str] = field(default_factory=list)
    exported: frozenset[str] | None = None
    """the literal `__all__`, where there is one and nothing is added to it"""
    defined: set[str] = field(default_factory=set)
    instances: dict[str, str] = field(default_factory=dict)
    """module-level name -> the class it is an instance of"""
    private_bases: dict[str, ast.ClassDef] = field(default_factory=dict)
    """internal classes, whose methods are documented under the public classes made of them"""


def read_source(name: str, source: str, package: bool = False) -> ModuleSource:
    """Read a module's source. Raises SyntaxError or ValueError where it is not Python."""
    module = ModuleSource(name, package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as of escapes in other people's strings
        tree = ast.parse(source)
    _add(module, "", "", ast.get_docstring(tree, clean=False))
    _read_body(module, tree.body, "")
    return module


def _add(
    module: ModuleSource, name: str, signature: str, doc: str | None, absolute: bool = False
) -> None:
    text = _VERSION_NOTE.sub("", inspect.cleandoc(doc)).strip() if doc else ""
    if len(text) >= _FEWEST_CHARACTERS:
        module.documented.append(Documented(name, signature, text, absolute))


def _read_body(module: ModuleSource, body: list[ast.stmt], outer: str) -> None:
    before: ast.stmt | None = None
    for node in body:
        if isinstance(node, Function | ast.ClassDef):
            _read_definition(module, node, outer)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            _read_body(module, list(_branches(node)), outer)
        elif isinstance(node, ast.Expr):
            _read_expression(module, node.value, before, outer)
        elif not outer:
            _read_statement(module, node)
        before = node


def _read_statement(module: ModuleSource, node: ast.stmt) -> None:
    """A statement of the module itself that gives or takes names."""
    if isinstance(node, ast.Assign):
        _read_assignment(module, node)
    elif isinstance(node, ast.ImportFrom):
        _read_import(module, node)
    elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "__all__":
        module.exported = None


def _branches(node: ast.If | ast.Try | ast.With) -> Iterator[ast.stmt]:
    yield from node.body
    if isinstance(node, ast.Try):
        for clause in node.handlers:
            yield from clause.body
    if isinstance(node, ast.If | ast.Try):
        yield from node.orelse


def _read_definition(module: ModuleSource, node: Function | ast.ClassDef, outer: str) -> None:
    if not outer:
        module.defined.add(node.name)
    if node.name.startswith("_") and not _has_public_name(module, node.name, outer):
        if isinstance(node, ast.ClassDef):
            module.private_bases[node.name] = node
        return
    name = f"{outer}.{node.name}" if outer else node.name
    doc = ast.get_docstring(node, clean=False)
    if isinstance(node, ast.ClassDef):
        _add(module, name, _class_signature(node), doc)
        _read_body(module, _whole_body(module, node), name)
    elif doc:
        _add(module, name, signature(node, method=bool(outer)), doc)


def _whole_body(module: ModuleSource, node: ast.ClassDef) -> list[ast.stmt]:
    """The class's own body, then what it inherits from internal classes of its module."""
    body = list(node.body)
    own = {item.name for item in body if isinstance(item, Function)}
    for base in node.bases:
        inner = module.private_bases.get(base.id) if isinstance(base, ast.Name) else None
        if inner is not None:
            inherited = _whole_body(module, inner)
            body += [i for i in inherited if isinstance(i, Function) and i.name not in own]
    return body


def _has_public_name(module: ModuleSource, name: str, outer: str) -> bool:
    return not outer and module.exported is not None and name in module.exported


def _class_signature(node: ast.ClassDef) -> str:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return signature(item, method=True)
    return ""


def signature(node: Function, method: bool) -> str:
    """The parameters in parentheses, without `self`; a long one loses its types for good."""
    full = _unparsed(node.args, method)
    if len(full) > _MOST_TYPED:
        args = node.args
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if arg is not None:
                arg.annotation = None
        full = _unparsed(args, method)
    return f"({shortened(full, _MOST_SIGNATURE)})"


def _unparsed(args: ast.arguments, method: bool) -> str:
    text = ast.unparse(args)
    if not method:
        return text
    first, _, rest = text.partition(",")
    return rest.removeprefix(" /,").strip() if first in ("self", "cls") else text


def _read_expression(
    module: ModuleSource, value: ast.expr, before: ast.stmt | None, outer: str
) -> None:
    text = _string(value)
    if text is not None:
        target = _assigned_name(before)
        if target and not target.startswith("_"):
            _add(module, f"{outer}.{target}" if outer else target, "", text)
    elif isinstance(value, ast.Call) and not outer:
        _read_added_doc(module, value)
        if ast.unparse(value.func).startswith("__all__."):
            module.exported = None


def _assigned_name(node: ast.stmt | None) -> str:
    target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _read_added_doc(module: ModuleSource, call: ast.Call) -> None:
    """`add_newdoc(module, name, doc)` and `add_docstr(module.name, doc)`."""
    called = ast.unparse(call.func).rpartition(".")[2]
    if called == "add_docstr" and len(call.args) > 1:
        _add(module, ast.unparse(call.args[0]), "", _string(call.args[1]), absolute=True)
    elif called == "add_newdoc" and len(call.args) > 2:
        owner, name = _string(call.args[0]), _string(call.args[1])
        if owner and name:
            _read_newdoc(module, f"{owner.partition('.')[0]}.{name}", call.args[2])


def _read_newdoc(module: ModuleSource, name: str, doc: ast.expr) -> None:
    """The doc is a text, or a (method, text) pair, or a list of such pairs."""
    for pair in doc.elts if isinstance(doc, ast.List) else [doc]:
        if isinstance(pair, ast.Tuple) and len(pair.elts) == 2:
            method = f"{name}.{_string(pair.elts[0])}"
            _add(module, method, "", _string(pair.elts[1]), absolute=True)
        else:
            _add(module, name, "", _string(pair), absolute=True)


def _string(value: ast.expr) -> str | None:
    """A literal string, also inside `"...".format(...)` and the like."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    if isinstance(value, ast.BinOp):
        value = value.left
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return None


def _read_assignment(module: ModuleSource, node: ast.Assign) -> None:
    target = _assigned_name(node)
    if target:
        module.defined.add(target)
    if target == "__all__" and isinstance(node.value, ast.List | ast.Tuple):
        names = (_string(item) for item in node.value.elts)
        module.exported = frozenset(name for name in names if name)
    elif target == "__about__":
        _add(module, "", "", _string(node.value))
    elif isinstance(node.value, ast.Attribute) and isinstance(node.value.value, ast.Name):
        _read_bound_method(module, target, f"{node.value.value.id}.{node.value.attr}")
    elif isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
        module.instances[target] = node.value.func.id


def _read_bound_method(module: ModuleSource, name: str, method: str) -> None:
    """`choice = _inst.choice` makes a function of a method of the module's own instance."""
    instance, _, attribute = method.partition(".")
    original = f"{module.instances.get(instance)}.{attribute}"
    for item in module.documented:
        if item.name == original and not name.startswith("_"):
            _add(module, name, item.signature, item.text)
            break


def _read_import(module: ModuleSource, node: ast.ImportFrom) -> None:
    origin = _absolute(module, node)
    for alias in node.names:
        if alias.name == "*":
            module.stars.append(origin)
        else:
            module.imported[alias.asname or alias.name] = (origin, alias.name)


def _absolute(module: ModuleSource, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    keep = len(parts) - node.level + (1 if module.package else 0)
    return ".".join([*parts[: max(0, keep)], *([node.module] if node.module else [])])


Modules = Mapping[str, ModuleSource]
_DEEPEST = 8
"""Hops followed from a package to where a name is defined; also ends circular imports."""


_INTERNAL = frozenset({"genericpath"})
"""Modules without an underscore that only serve others (here os.path)."""


def is_private(module: str) -> bool:
    return module in _INTERNAL or any(part.startswith("_") for part in module.split("."))


def public_names(modules: Modules) -> dict[tuple[str, str], str]:
    """(defining module, name there) -> the shortest public name."""
    names: dict[tuple[str, str], str] = {}
    for module in modules.values():
        if is_private(module.name) or not (module.package or module.exported):
            continue
        for local, home in _offered(modules, module):
            alias = f"{module.name}.{local}"
            current = names.get(home)
            if current is None or _order(alias) < _order(current):
                names[home] = alias
    return names


def _order(name: str) -> tuple[int, int]:
    return name.count("."), len(name)


def _offered(modules: Modules, module: ModuleSource) -> Iterator[tuple[str, tuple[str, str]]]:
    """(local name, where it is defined) of what a package takes from its own modules."""
    for local, (origin, name) in module.imported.items():
        if is_offered(module, local) and (home := _home(modules, origin, name)):
            yield local, home
    for origin in module.stars:
        for local in _star_names(modules, origin):
            if is_offered(module, local) and (home := _home(modules, origin, local)):
                yield local, home


def is_offered(module: ModuleSource, name: str) -> bool:
    return name in module.exported if module.exported is not None else not name.startswith("_")


def _star_names(modules: Modules, origin: str, depth: int = 0) -> set[str]:
    module = modules.get(origin)
    if module is None or depth > _DEEPEST:
        return set()
    if module.exported is not None:
        return set(module.exported)
    names = module.defined | module.imported.keys()
    for star in module.stars:
        names |= _star_names(modules, star, depth + 1)
    return {name for name in names if not name.startswith("_")}


def _home(modules: Modules, origin: str, name: str, depth: int = 0) -> tuple[str, str] | None:
    module = modules.get(origin)
    if module is None or depth > _DEEPEST:
        return None
    if name in module.defined:
        return origin, name
    if name in module.imported:
        return _home(modules, *module.imported[name], depth=depth + 1)
    found = (_home(modules, star, name, depth + 1) for star in module.stars)
    return next((home for home in found if home), None)


def symbol(
    module: ModuleSource, item: Documented, names: Mapping[tuple[str, str], str]
) -> str | None:
    """The public dotted name of a documented object, or None for an internal one."""
    if item.absolute:
        return item.name
    if not item.name:
        return None if is_private(module.name) else module.name
    top, dot, rest = item.name.partition(".")
    alias = names.get((module.name, top))
    own = f"{module.name}.{top}"
    if not is_private(module.name) and is_offered(module, top):
        alias = own if alias is None else min(own, alias, key=_order)
    return None if alias is None else alias + dot + rest


_DOCSTRING = re.compile(r"[rRuUbBfF]{0,2}(\"\"\"|'''|\"|')")
_TRIPLE = re.compile(r"\"\"\"|'''")
_BRACKETS = str.maketrans({"[": "(", "{": "(", "]": ")", "}": ")"})


def skeleton(source: str) -> str:
    """The source with each function body replaced by its docstring and `pass`."""
    lines = source.splitlines(keepends=True)
    kept: list[str] = []
    at = 0
    while at < len(lines):
        if lines[at].lstrip().startswith(("def ", "async def ")):
            at = _copy_function(lines, at, kept)
        else:
            at = _copy_statement(lines, at, kept)
    return "".join(kept)


def _copy_statement(lines: list[str], at: int, kept: list[str]) -> int:
    """Copy a line, and the rest of a string that begins in it; the line after them."""
    quote = _open_quote(lines[at])
    kept.append(lines[at])
    at += 1
    return _copy_through(lines, at, kept, quote) if quote else at


def _open_quote(line: str) -> str:
    """The triple quote that the line leaves open, or ""."""
    quote = ""
    for found in _TRIPLE.findall(line):
        if not quote:
            quote = found
        elif found == quote:
            quote = ""
    return quote


def _copy_through(lines: list[str], at: int, kept: list[str], quote: str) -> int:
    """Copy lines up to the one that holds `quote`; the line after it."""
    while at < len(lines):
        kept.append(lines[at])
        at += 1
        if quote in lines[at - 1]:
            break
    return at


def _copy_function(lines: list[str], at: int, kept: list[str]) -> int:
    margin = _margin(lines[at])
    at = _copy_header(lines, at, kept)
    while at < len(lines) and _is_blank(lines[at]):
        at += 1
    if at == len(lines) or _margin(lines[at]) <= margin:
        return at
    kept_from = lines[at][: _margin(lines[at])]
    at = _copy_docstring(lines, at, kept)
    kept.append(f"{kept_from}pass\n")
    while at < len(lines) and (not lines[at].strip() or _margin(lines[at]) > margin):
        at += 1
    return at


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_blank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _copy_header(lines: list[str], at: int, kept: list[str]) -> int:
    """Copy `def ...:` with its parameters over as many lines as they take."""
    depth = 0
    while at < len(lines):
        line = lines[at]
        kept.append(line)
        at += 1
        code = line.partition("#")[0].translate(_BRACKETS)
        depth += code.count("(") - code.count(")")
        if depth <= 0 and ":" in code:
            break
    return at


def _copy_docstring(lines: list[str], at: int, kept: list[str]) -> int:
    start = lines[at].lstrip()
    begun = _DOCSTRING.match(start)
    if not begun:
        return at
    kept.append(lines[at])
    quote = begun[1]
    if len(quote) == 3 and quote not in start[begun.end() :]:
        return _copy_through(lines, at + 1, kept, quote)
    return at + 1


MOST_SOURCE = 4_000_000
"""Bytes of source read of one distribution."""
MOST_PASSAGES = 3600
"""Passages kept of one distribution."""
_MOST_README = 40
_LEFT_OUT = frozenset(
    [
        "test",
        "tests",
        "testing",
        "_testing",
        "conftest",
        "_vendor",
        "vendor",
        "vendored",
        "externals",
        "extern",
        "examples",
        "example",
        "benchmarks",
        "benchmark",
        "docs",
        "doc",
        "migrations",
        "__main__",
        "setup",
        "site-packages",
    ]
)


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A source file: its module's dotted name, its path, and its path as shown."""

    module: str
    path: Path
    location: str
    package: bool


def installed() -> list[Distribution]:
    """The installed distributions by name; of two with one name the first on the path.

    This program itself is left out: its README quotes questions, and would be found for them.
    """
    found: dict[str, Distribution] = {}
    for distribution in distributions():
        found.setdefault(distribution.name.lower(), distribution)
    found.pop("rubricem", None)
    return [found[name] for name in sorted(found)]


def fingerprint(distributions: list[Distribution]) -> str:
    """Changes with the Python version and with any distribution's name or version."""
    lines = [platform.python_version(), *(f"{d.name}=={d.version}" for d in distributions)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def module_files(distribution: Distribution) -> dict[str, ModuleFile]:
    """The modules of a distribution by name, without tests and vendored copies.

    A `.pyi` file counts only where the module has no `.py`: it documents a compiled module.
    """
    root = Path(str(distribution.locate_file("")))
    files: dict[str, ModuleFile] = {}
    for line in sorted((distribution.read_text("RECORD") or "").splitlines()):
        location = line.partition(",")[0]
        stem, _, suffix = location.rpartition(".")
        if suffix not in ("py", "pyi"):
            continue
        parts = stem.split("/")
        package = parts[-1] == "__init__"
        if package:
            parts.pop()
        if parts and all(_is_documented_part(part) for part in parts):
            name = ".".join(parts)
            files.setdefault(name, ModuleFile(name, root / location, location, package))
    return files


def _is_documented_part(part: str) -> bool:
    return part.isidentifier() and part not in _LEFT_OUT and not part.startswith("test_")


def read_modules(files: dict[str, ModuleFile], budget: int = MOST_SOURCE) -> list[ModuleSource]:
    """The modules worth reading, most public first, until `budget` bytes are read."""
    modules: dict[str, ModuleSource] = {}
    waiting = [(float(_depth(name)), name) for name in files if not is_private(name)]
    heapq.heapify(waiting)
    while waiting and budget > 0:
        distance, name = heapq.heappop(waiting)
        if name in modules:
            continue
        module, size = _read_file(files[name])
        budget -= size
        modules[name] = module
        if module.package or module.stars:
            for taken in {*_taken_from(module)} & files.keys() - modules.keys():
                heapq.heappush(waiting, (min(_depth(taken), distance + 0.5), taken))
    return list(modules.values())


def _depth(module: str) -> int:
    """How far a module is from its library's users; a private package is no step away."""
    return sum(not part.startswith("_") for part in module.split("."))


def _read_file(file: ModuleFile) -> tuple[ModuleSource, int]:
    """The module, or an empty one where the file is gone or is no Python of this version."""
    try:
        source = file.path.read_text("utf-8")
        try:
            module = read_source(file.module, skeleton(source), file.package)
        except SyntaxError:
            module = read_source(file.module, source, file.package)
        return module, len(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ModuleSource(file.module, file.package), 0


def _taken_from(module: ModuleSource) -> Iterator[str]:
    """Modules behind the names that a package offers, and those that hold documentation."""
    for local, (origin, name) in module.imported.items():
        if is_offered(module, local) or local.endswith("docs"):
            yield origin
            yield f"{origin}.{name}"
    yield from module.stars


def documented_passages(
    modules: list[ModuleSource], files: dict[str, ModuleFile], most: int = MOST_PASSAGES
) -> list[Passage]:
    """The passages of the modules' public objects, each object once."""
    names = public_names({module.name: module for module in modules})
    passages: list[Passage] = []
    seen: set[str] = set()
    for module in modules:
        for item in module.documented:
            public = symbol(module, item, names)
            if public is not None and public not in seen:
                seen.add(public)
                passages += object_passages(public, item, files[module.name].location)
    return passages[:most]


def object_passages(public: str, item: Documented, location: str) -> list[Passage]:
    """The object's passages; the first begins with its signature, which holds the defaults."""
    text = f"{public}{item.signature}\n\n{item.text}" if item.signature else item.text
    return [Passage(public, location, public, piece) for piece in split_passages(text)]


def distribution_passages(distribution: Distribution) -> list[Passage]:
    """The README and the documented public objects of a distribution."""
    files = module_files(distribution)
    return [
        *readme_passages(distribution),
        *documented_passages(read_modules(files), files),
    ]


def readme_passages(distribution: Distribution) -> list[Passage]:
    """The description in the metadata, without its history of changes."""
    text = (distribution.read_text("METADATA") or "").partition("\n\n")[2]
    title = f"{distribution.name} {distribution.version} README"
    location = f"{distribution.name}-{distribution.version}.dist-info/METADATA"
    passages: list[Passage] = []
    for section in markdown_sections(text):
        heading = section.heading.lower()
        if "change" in heading or "history" in heading or "release" in heading:
            break
        for piece in split_passages(section.text):
            passages.append(Passage(title, location, section.heading, piece))
    return passages[:_MOST_README]


_MODULES_LEFT_OUT = frozenset(
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
        if parts and parts[0] in sys.stdlib_module_names and not _MODULES_LEFT_OUT & set(parts):
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
    for name in sorted(sys.stdlib_module_names - names - _MODULES_LEFT_OUT):
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


DOCS_VERSION = 1
"""Part of the index's key: raise it when other passages are made of the same libraries."""
_OUTSIDE_WEIGHT = 0.85


class PythonDocs:
    """Passages from docstrings, signatures, READMEs and the language reference."""

    def __init__(
        self,
        cache_dir: Path,
        embedder: Embedder | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """With an embedder, search is hybrid; without one it is lexical."""
        self._cache_dir = cache_dir
        self._embedder = embedder
        self._on_progress = on_progress
        self._index: LexicalIndex | HybridIndex | None = None
        self._opening = asyncio.Lock()

    @property
    def name(self) -> str:
        return "python"

    async def search(self, query: str, limit: int) -> list[Passage]:
        index = await self._ready()
        return await asyncio.to_thread(index.search, read_query(query).text, limit)

    async def prepare(self) -> tuple[str, ...]:
        """Open the index, building it where there is none; there is nothing to complain of."""
        await self._ready()
        return ()

    async def _ready(self) -> LexicalIndex | HybridIndex:
        async with self._opening:
            if self._index is None:
                self._index = await asyncio.to_thread(self._open)
            return self._index

    def _open(self) -> LexicalIndex | HybridIndex:
        with boundary(SourceError, "Reading the documentation of the installed libraries"):
            found = installed()
            key = fingerprint(found)
            name = f"python-{DOCS_VERSION}"
            index = open_index(self._cache_dir, name, key)
            if index is None:
                passages = collect(found, self._on_progress)
                index = build_index(passages, self._cache_dir, name, key, _weight)
            if self._embedder is None:
                return index
            return with_vectors(index, self._embedder, self._cache_dir, self._on_progress)


def collect(found: list[Distribution], on_progress: OnProgress | None = None) -> list[Passage]:
    """All passages of the standard library and of the distributions."""
    with _collector_paused():
        passages: list[Passage] = []
        for done, distribution in enumerate([None, *found]):
            if on_progress:
                what = distribution.name if distribution else "the standard library"
                on_progress(done, len(found) + 1, f"reading {what}")
            read = distribution_passages(distribution) if distribution else library_passages()
            passages += read
    return passages


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Syntax trees hold no cycles, but make the collector run all the time (a fifth of it)."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _weight(passage: Passage) -> float:
    own = passage.location.startswith(("lib/python", "python:"))
    return 1.0 if own else _OUTSIDE_WEIGHT
