"""The documentation of the Python libraries installed here, as a source of passages.

The index is built before the first search, kept in the data directory, and built again when a
distribution is installed, removed or changes its version. Of two passages that match equally
well, the one from the standard library comes first: a bare `lru_cache` is the one of functools.

Source files are read from their syntax trees; nothing is imported or run. Found are the
docstrings of a module and of its public classes, functions and methods, with signatures;
attribute docstrings (the string under a field); texts handed to `add_newdoc` or `add_docstr`, by
which NumPy and PyTorch document their C functions; and the names that a file takes from others.
By these, an object is known by the name that its users know: `httpx.Client`, though it is
written in `httpx/_client.py`. (griffe, which reads much of the same, took 1.7 times the CPU on
the standard library, 3.1 times without the cutting below.)

A distribution is read from its package inwards: first the public packages and what they take
from other modules, as that is what users meet, then the remaining public modules, the shallow
ones first, until its share of source is spent. Tests, vendored copies and private modules that
nothing public takes from are left out.

Of the standard library, what is written in C (builtins, itertools, deque and so on) is
documented only in the running objects, so those modules, and only those, are imported and their
`__doc__` and signatures read. The chapters of the language reference that come with Python for
`help()` (pydoc_data.topics) are read as source too.

The parts stand here together, above 600 lines, since each is of use to this source alone.
"""

import ast
import builtins
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from rubricem.agent.sources.index import (
    HybridIndex,
    Indexed,
    LexicalIndex,
    OnProgress,
    build_index,
    open_index,
    split_passages,
)
from rubricem.agent.sources.readers import markdown_sections
from rubricem.memory.errors import SourceError, boundary
from rubricem.memory.schema import Passage

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
    path: Path
    location: str
    """the path as it is shown"""
    package: bool
    """its file is an __init__"""
    documented: list[Documented] = field(default_factory=list)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """local name -> (module, name there; "" for the module itself)"""
    stars: list[str] = field(default_factory=list)
    exported: frozenset[str] | None = None
    """the literal `__all__`, where there is one and nothing is added to it"""
    defined: set[str] = field(default_factory=set)

    def add(self, name: str, signature: str, doc: str | None, absolute: bool = False) -> None:
        text = _VERSION_NOTE.sub("", inspect.cleandoc(doc)).strip() if doc else ""
        if len(text) >= _FEWEST_CHARACTERS:
            self.documented.append(Documented(name, signature, text, absolute))

    def offers(self, name: str) -> bool:
        return name in self.exported if self.exported is not None else not name.startswith("_")


class _SourceReader:
    """The statements of a file, read into its `ModuleSource`."""

    def __init__(self, module: ModuleSource) -> None:
        self.module = module
        self._instances: dict[str, str] = {}
        """module-level name -> the class it is an instance of"""
        self._private: dict[str, ast.ClassDef] = {}
        """internal classes, whose methods are documented under the public classes made of them"""

    def read(self, source: str) -> None:
        """Raises SyntaxError or ValueError where it is not Python."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of escapes in other people's strings
            tree = ast.parse(source)
        self.module.add("", "", ast.get_docstring(tree, clean=False))
        self.body(tree.body)

    def body(self, body: Iterable[ast.stmt], outer: str = "") -> None:
        """Read statements; `outer` is the class that they stand in, "" for the module itself."""
        before: ast.stmt | None = None
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self._definition(node, outer)
                case ast.If() | ast.Try() | ast.With():
                    clauses = [node, *getattr(node, "handlers", [])]
                    inner = [statement for clause in clauses for statement in clause.body]
                    self.body([*inner, *getattr(node, "orelse", [])], outer)
                case ast.Expr(value):
                    self._expression(value, before, outer)
                case ast.Assign() if not outer:
                    self._assignment(node)
                case ast.ImportFrom() if not outer:
                    self._import(node)
                case ast.AugAssign(ast.Name("__all__")) if not outer:
                    self.module.exported = None
            before = node

    def _definition(self, node: Function | ast.ClassDef, outer: str) -> None:
        if not outer:
            self.module.defined.add(node.name)
        exported = None if outer else self.module.exported
        if node.name.startswith("_") and node.name not in (exported or ()):
            if isinstance(node, ast.ClassDef):
                self._private[node.name] = node
            return
        name = f"{outer}.{node.name}" if outer else node.name
        doc = ast.get_docstring(node, clean=False)
        if isinstance(node, ast.ClassDef):
            made = (i for i in node.body if isinstance(i, ast.FunctionDef) and i.name == "__init__")
            init = next(made, None)
            self.module.add(name, signature(init, method=True) if init else "", doc)
            self.body(self._whole_body(node), name)
        elif doc:
            self.module.add(name, signature(node, method=bool(outer)), doc)

    def _whole_body(self, node: ast.ClassDef) -> list[ast.stmt]:
        """The class's own body, then what it inherits from internal classes of its module."""
        body = list(node.body)
        own = {item.name for item in body if isinstance(item, Function)}
        for base in node.bases:
            inner = self._private.get(base.id) if isinstance(base, ast.Name) else None
            if inner is not None:
                inherited = self._whole_body(inner)
                body += [i for i in inherited if isinstance(i, Function) and i.name not in own]
        return body

    def _expression(self, value: ast.expr, before: ast.stmt | None, outer: str) -> None:
        """The docstring of the attribute before it, or a call that documents something."""
        text = _string(value)
        if text is not None:
            target = _assigned_name(before)
            if target and not target.startswith("_"):
                self.module.add(f"{outer}.{target}" if outer else target, "", text)
        elif isinstance(value, ast.Call) and not outer:
            self._call(ast.unparse(value.func), value.args)

    def _call(self, called: str, args: Sequence[ast.expr]) -> None:
        """What `__all__.append`, `add_docstr(module.name, doc)` and `add_newdoc` change."""
        if called.startswith("__all__."):
            self.module.exported = None
        match called.rpartition(".")[2], args:
            case "add_docstr", [target, doc, *_]:
                self.module.add(ast.unparse(target), "", _string(doc), absolute=True)
            case "add_newdoc", [owner, name, doc, *_]:
                root, own = _string(owner), _string(name)
                public = f"{root.partition('.')[0]}.{own}" if root and own else ""
                # A text, a (method, text) pair, or a list of pairs.
                for pair in (doc.elts if isinstance(doc, ast.List) else [doc]) if public else []:
                    match pair:
                        case ast.Tuple([method, text]):
                            part = f"{public}.{_string(method)}"
                            self.module.add(part, "", _string(text), absolute=True)
                        case _:
                            self.module.add(public, "", _string(pair), absolute=True)

    def _assignment(self, node: ast.Assign) -> None:
        target = _assigned_name(node)
        if target:
            self.module.defined.add(target)
        match node.value:
            case ast.List(items) | ast.Tuple(items) if target == "__all__":
                self.module.exported = frozenset(filter(None, map(_string, items)))
            case value if target == "__about__":
                self.module.add("", "", _string(value))
            case ast.Attribute(ast.Name(instance), attribute) if not target.startswith("_"):
                # `choice = _inst.choice` makes a function of a method of the module's own instance.
                method = f"{self._instances.get(instance)}.{attribute}"
                for item in [item for item in self.module.documented if item.name == method][:1]:
                    self.module.add(target, item.signature, item.text)
            case ast.Call(ast.Name(made)):
                self._instances[target] = made

    def _import(self, node: ast.ImportFrom) -> None:
        origin = node.module or ""
        if node.level:
            parts = self.module.name.split(".")
            keep = len(parts) - node.level + (1 if self.module.package else 0)
            origin = ".".join([*parts[: max(0, keep)], *filter(None, [node.module])])
        for alias in node.names:
            if alias.name == "*":
                self.module.stars.append(origin)
            else:
                self.module.imported[alias.asname or alias.name] = (origin, alias.name)


def signature(node: Function, method: bool) -> str:
    """The parameters in parentheses, without `self`; a long one loses its types for good."""
    full = _unparsed(node.args, method)
    if len(full) > _MOST_TYPED:
        args = node.args
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if arg is not None:
                arg.annotation = None
        full = _unparsed(args, method)
    short = full if len(full) <= _MOST_SIGNATURE else full[: _MOST_SIGNATURE - 1].rstrip() + "…"
    return f"({short})"


def _unparsed(args: ast.arguments, method: bool) -> str:
    text = ast.unparse(args)
    if not method:
        return text
    first, _, rest = text.partition(",")
    return rest.removeprefix(" /,").strip() if first in ("self", "cls") else text


def _assigned_name(node: ast.stmt | None) -> str:
    target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _string(value: ast.expr) -> str | None:
    """A literal string, also inside `"...".format(...)` and the like."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    if isinstance(value, ast.BinOp):
        value = value.left
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return None


Modules = Mapping[str, ModuleSource]
_DEEPEST = 8
"""Hops followed from a package to where a name is defined; also ends circular imports."""


def is_private(module: str) -> bool:
    """`genericpath` has no underscore and yet serves others only (here os.path)."""
    return module == "genericpath" or any(part.startswith("_") for part in module.split("."))


def public_names(modules: Modules) -> dict[tuple[str, str], str]:
    """(defining module, name there) -> the shortest public name."""
    names: dict[tuple[str, str], str] = {}
    for module in modules.values():
        if is_private(module.name) or not (module.package or module.exported):
            continue
        taken = [(local, *origin) for local, origin in module.imported.items()]
        for star in module.stars:
            taken += [(local, star, local) for local in sorted(_star_names(modules, star))]
        for local, origin, name in taken:
            if module.offers(local) and (home := _home(modules, origin, name)):
                alias = f"{module.name}.{local}"
                names[home] = min(names.get(home, alias), alias, key=_order)
    return names


def _order(name: str) -> tuple[int, int]:
    return name.count("."), len(name)


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
    if not is_private(module.name) and module.offers(top):
        alias = own if alias is None else min(own, alias, key=_order)
    return None if alias is None else alias + dot + rest


_DOCSTRING = re.compile(r"[rRuUbBfF]{0,2}(\"\"\"|'''|\"|')")
_TRIPLE = re.compile(r"\"\"\"|'''")
_BRACKETS = str.maketrans({"[": "(", "{": "(", "]": ")", "}": ")"})


class _Skeleton:
    """The lines of a source, with each function body replaced by its docstring and `pass`.

    Most of the time of parsing goes into function bodies. They are cut out line by line, by
    indentation, before the parse; measured on the libraries of one environment this takes 0.4
    of the time of parsing whole files. Source laid out in a way that this misreads (a string at
    the margin inside a body) mostly gives a syntax error, upon which the caller parses it whole.
    """

    def __init__(self, source: str) -> None:
        self.kept: list[str] = []
        self._lines = [*source.splitlines(keepends=True), ""]
        self._at = 0
        while line := self._lines[self._at]:
            if line.lstrip().startswith(("def ", "async def ")):
                self._function(_margin(line))
            elif quote := _open_quote(self._copy()):
                self._copy_through(quote)

    def _copy(self) -> str:
        """Copy the next line; "" at the end."""
        line = self._lines[self._at]
        self.kept.append(line)
        self._at += 1 if line else 0
        return line

    def _copy_through(self, quote: str) -> None:
        """Copy lines up to the one that holds `quote`."""
        while (line := self._copy()) and quote not in line:
            pass

    def _function(self, margin: int) -> None:
        # `def ...:` with its parameters over as many lines as they take.
        depth = 0
        while line := self._copy():
            code = line.partition("#")[0].translate(_BRACKETS)
            depth += code.count("(") - code.count(")")
            if depth <= 0 and ":" in code:
                break
        while (line := self._lines[self._at]) and (not line.strip() or line.lstrip()[0] == "#"):
            self._at += 1
        if _margin(line) <= margin:
            return
        start = line.lstrip()
        if begun := _DOCSTRING.match(start):
            self._copy()
            quote = begun[1]
            if len(quote) == 3 and quote not in start[begun.end() :]:
                self._copy_through(quote)
        self.kept.append(f"{line[: _margin(line)]}pass\n")
        while (line := self._lines[self._at]) and (not line.strip() or _margin(line) > margin):
            self._at += 1


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _open_quote(line: str) -> str:
    """The triple quote that the line leaves open, or ""."""
    quote = ""
    for found in _TRIPLE.findall(line):
        if not quote:
            quote = found
        elif found == quote:
            quote = ""
    return quote


MOST_SOURCE = 4_000_000
"""Bytes of source read of one distribution."""
MOST_PASSAGES = 3600
"""Passages kept of one distribution."""
_MOST_README = 40
_NAMES_LEFT_OUT = """
    test tests testing _testing conftest _vendor vendor vendored externals extern examples
    example benchmarks benchmark docs doc migrations __main__ setup site-packages
"""
_LEFT_OUT = frozenset(_NAMES_LEFT_OUT.split())


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
            part.isidentifier() and part not in _LEFT_OUT and not part.startswith("test_")
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


def read_modules(files: dict[str, ModuleSource], budget: int = MOST_SOURCE) -> list[ModuleSource]:
    """The modules worth reading, most public first, until `budget` bytes are read."""
    read: dict[str, ModuleSource] = {}
    waiting = [(float(_depth(name)), name) for name in files if not is_private(name)]
    heapq.heapify(waiting)
    while waiting and budget > 0:
        distance, name = heapq.heappop(waiting)
        if name in read:
            continue
        module = read[name] = files[name]
        budget -= _read_file(module)
        if module.package or module.stars:
            # What is behind the names that it offers, and what holds documentation.
            behind = set(module.stars)
            for local, (origin, inner) in module.imported.items():
                if module.offers(local) or local.endswith("docs"):
                    behind |= {origin, f"{origin}.{inner}"}
            for taken in behind & files.keys() - read.keys():
                heapq.heappush(waiting, (min(_depth(taken), distance + 0.5), taken))
    return list(read.values())


def _depth(module: str) -> int:
    """How far a module is from its library's users; a private package is no step away."""
    return sum(not part.startswith("_") for part in module.split("."))


def _read_file(module: ModuleSource) -> int:
    """How long its source is; 0 where the file is gone or is no Python of this version."""
    try:
        source = module.path.read_text("utf-8")
        try:
            _SourceReader(module).read("".join(_Skeleton(source).kept))
        except SyntaxError:
            _SourceReader(module).read(source)
        return len(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return 0


def documented_passages(modules: list[ModuleSource], most: int = MOST_PASSAGES) -> list[Passage]:
    """The passages of the modules' public objects, each object once."""
    names = public_names({module.name: module for module in modules})
    passages: list[Passage] = []
    seen: set[str] = set()
    for module in modules:
        for item in module.documented:
            public = symbol(module, item, names)
            if public is not None and public not in seen:
                seen.add(public)
                passages += object_passages(public, item, module.location)
    return passages[:most]


def object_passages(public: str, item: Documented, location: str) -> list[Passage]:
    """The object's passages; the first begins with its signature, which holds the defaults."""
    text = f"{public}{item.signature}\n\n{item.text}" if item.signature else item.text
    return [Passage(public, location, public, piece) for piece in split_passages(text)]


def distribution_passages(distribution: Distribution) -> list[Passage]:
    """The README, without its history of changes, and the documented public objects."""
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
    documented = documented_passages(read_modules(module_files(distribution)))
    return [*passages[:_MOST_README], *documented]


_LIBRARY_LEFT_OUT = """
    this antigravity idlelib turtle turtledemo test tests lib2to3 tkinter pydoc_data ensurepip
    distutils encodings __hello__ __phello__ msilib venv nturl2path sre_compile sre_constants
    sre_parse posix nt posixpath ntpath
"""
_MODULES_LEFT_OUT = frozenset(_LIBRARY_LEFT_OUT.split()) - {os.path.__name__}
_NOT_IMPORTED = re.compile(r"_tkinter|_test|_xx|xx|_ctypes_test|_curses|_dbm|_gdbm|winreg")
_PUBLIC_MODULES = {os.path.__name__: "os.path"}
_UNLIMITED = 1_000_000_000
_DESCRIBED = re.compile(r"^(?:class |object\.)?[A-Za-z_][\w.]*\([^\n]*\)$", re.MULTILINE)


def library_passages() -> list[Passage]:
    """All passages of the standard library, builtins first."""
    modules = read_modules(library_files(Path(sysconfig.get_path("stdlib"))), budget=_UNLIMITED)
    passages = []
    for item in _module_items(builtins, sorted(vars(builtins))):
        passages += object_passages(item.name, item, "python:builtins")
    return [
        *passages,
        *_topic_passages(),
        *documented_passages(modules, most=_UNLIMITED),
        *_compiled_passages(modules),
    ]


def library_files(root: Path) -> dict[str, ModuleSource]:
    """The public source modules under the library's folder."""
    files: dict[str, ModuleSource] = {}
    shown = Path("lib") / root.name
    for path in sorted(root.rglob("*.py")):
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
        if not name.startswith("_") and (compiled := _compiled(name)):
            passages += _named_passages(name, compiled, sorted(vars(compiled)))
    for module in modules:
        taken_from: dict[str, list[str]] = {origin: ["*"] for origin in module.stars}
        for local, (origin, name) in module.imported.items():
            if local == name and not name.startswith("_"):
                taken_from.setdefault(origin, []).append(name)
        for origin, taken in taken_from.items():
            internal = origin.startswith("_") or "*" in taken
            if internal and origin not in names and (compiled := _compiled(origin)):
                passages += _named_passages(module.name, compiled, taken, module)
    return passages


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
    wanted = [n for n in names if n not in documented and (by is None or by.offers(n))]
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
    if isinstance(doc, str) and len(doc) > _FEWEST_CHARACTERS:
        text = str(getattr(value, "__text_signature__", None) or "")
        public = re.sub(r"\(\$?(?:self|module|type)(?:, /)?(?:, )?", "(", text, count=1)
        yield Documented(name, public, inspect.cleandoc(doc))


def _topic_passages() -> list[Passage]:
    """The language reference, chapter by chapter; a described method begins a new passage."""
    root = Path(sysconfig.get_path("stdlib"))
    path = root / "pydoc_data" / "topics.py"
    source = path.read_text("utf-8") if path.is_file() else ""
    location = f"lib/{root.name}/pydoc_data/topics.py"
    tables = (getattr(node, "value", None) for node in ast.parse(source).body)
    topics = [ast.literal_eval(table) for table in tables if isinstance(table, ast.Dict)][:1]
    passages: list[Passage] = []
    for topic, text in (pair for table in topics for pair in table.items()):
        starts = [0, *(m.start() for m in _DESCRIBED.finditer(text)), len(text)]
        for start, end in pairwise(starts):
            body = text[start:end].strip("\n")
            first = body.partition("\n")[0]
            title = first if _DESCRIBED.match(first) else f"Python language reference: {topic}"
            passages += [Passage(title, location, topic, p) for p in split_passages(body)]
    return passages


DOCS_VERSION = 1
"""Part of the index's key: raise it when other passages are made of the same libraries."""
_OUTSIDE_WEIGHT = 0.85


class PythonDocs(Indexed):
    """Passages from docstrings, signatures, READMEs and the language reference."""

    name = "python"

    def _open(self) -> LexicalIndex | HybridIndex:
        with boundary(SourceError, "Reading the documentation of the installed libraries"):
            found = installed()
            key = fingerprint(found)
            name = f"python-{DOCS_VERSION}"
            index = open_index(self._cache_dir, name, key)
            if index is None:
                passages = collect(found, self._on_progress)
                index = build_index(passages, self._cache_dir, name, key, _weight)
        return self._with_vectors(index)


def collect(found: list[Distribution], on_progress: OnProgress | None = None) -> list[Passage]:
    """All passages of the standard library and of the distributions."""
    passages: list[Passage] = []
    # Syntax trees hold no cycles, but make the collector run all the time (a fifth of it).
    running = gc.isenabled()
    gc.disable()
    try:
        for done, distribution in enumerate([None, *found]):
            if on_progress:
                what = distribution.name if distribution else "the standard library"
                on_progress(done, len(found) + 1, f"reading {what}")
            passages += distribution_passages(distribution) if distribution else library_passages()
    finally:
        if running:
            gc.enable()
    return passages


def _weight(passage: Passage) -> float:
    own = passage.location.startswith(("lib/python", "python:"))
    return 1.0 if own else _OUTSIDE_WEIGHT
