"""What the Python libraries installed here document, as passages, under the names of their users.

Source files are read from their syntax trees; nothing is run. Found are docstrings, also of
attributes, signatures, and texts put on an object by `f.__doc__ = ...`, `add_docstr` or
`add_newdoc` (with which NumPy and PyTorch document their C functions). A distribution is read from
its package inwards, public modules first, until its share of source is spent. Tests and vendored
copies are left out.

An object is known by the shortest public dotted name under which it is offered, by imports, star
imports, `__all__` and assignments: `httpx.Client`, though it is written in `httpx/_client.py`. A
class of no public name that others are made of keeps its own.

Of the standard library, what is written in C is documented only in the running objects, so those
modules, and only those, are imported. The chapters of the language reference (pydoc_data.topics)
are read as source too.
"""

import ast
import builtins
import importlib
import inspect
import os
import re
import sys
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import Distribution
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from rubricem.agent.sources.readers.passages import split_passages
from rubricem.agent.sources.readers.plain.markdown import markdown_sections
from rubricem.memory.schema import Passage

_MOST_SIGNATURE = 320
_MOST_TYPED = 140
FEWEST_CHARACTERS = 12
"""Shorter docstrings say nothing that the name does not."""

_VERSION_NOTE = re.compile(
    r"^([ \t]*)\.\. version(?:added|changed)::.*\n?(?:\1[ \t]+.*\n?|[ \t]*\n)*", re.MULTILINE
)
"""Notes on the past of a function, which crowd out what it does."""

_EXTENDED = re.compile(r"\b__all__(?:\.(?:append|extend|insert)\b|\s*\+=)")

_MARKED = re.compile(r":[a-z][\w:+-]*:`[~!]?([^`<]+?)(?:\s*<[^`>]*>)?`|[ \t]*# doctest:[^\n]*")
"""a role of reStructuredText around a name, and what is told the doctest module alone"""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Home = tuple[str, str]
"""(defining module, name there; "" for the module itself)"""


@dataclass(frozen=True, slots=True)
class Documented:
    """A documented object: its name inside the module ("" for the module), and its text."""

    name: str
    signature: str
    text: str
    """ "" where only the signature is known"""
    absolute: bool = False
    """the name already begins with its package"""


@dataclass(slots=True)
class ModuleSource:
    """What one file documents, defines and takes from elsewhere."""

    name: str
    path: Path
    location: str
    package: bool
    documented: list[Documented] = field(default_factory=list)
    imported: dict[str, Home] = field(default_factory=dict)
    """local name -> (module, name there; "" for the module itself)"""
    stars: list[str] = field(default_factory=list)
    exported: frozenset[str] | None = None
    """the literal `__all__`, where there is one and nothing is added to it"""
    defined: set[str] = field(default_factory=set)
    assigned: dict[str, str] = field(default_factory=dict)
    """name -> the other name of this module whose value it has"""
    bases: set[str] = field(default_factory=set)
    """names of the classes that others are made of"""
    _instances: dict[str, str] = field(default_factory=dict)
    """module-level name -> the class it is an instance of"""
    _texts: dict[str, str] = field(default_factory=dict)
    """module-level literals, of which docstrings are put together"""

    def offers(self, name: str) -> bool:
        return name in self.exported if self.exported is not None else not name.startswith("_")

    def read(self) -> int:
        """How long its source is; 0 where the file is gone or is no Python of this version."""
        try:
            source = self.path.read_text("utf-8")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as of escapes in other people's strings
                tree = ast.parse(source)
            self._add("", "", ast.get_docstring(tree, clean=False))
            self._body(tree.body)
            if _EXTENDED.search(source):
                # By a function of its own, perhaps, whose body is not read.
                self.exported = None
            return len(source)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return 0

    def _add(self, name: str, signature: str, doc: str | None, absolute: bool = False) -> None:
        text = _VERSION_NOTE.sub("", inspect.cleandoc(doc or "")).strip()
        text = _MARKED.sub(lambda found: f"`{found[1]}`" if found[1] else "", text)
        text = text if len(text) >= FEWEST_CHARACTERS else ""
        # A method without a word is left out; so is a module.
        if text or ("." not in name and signature):
            self.documented.append(Documented(name, signature, text, absolute))

    def _body(self, body: Iterable[ast.stmt], outer: str = "") -> None:
        """Read statements; `outer` is the class that they stand in, "" for the module itself."""
        before: ast.stmt | None = None
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self._definition(node, outer)
                case ast.If() | ast.Try() | ast.With() | ast.For():
                    clauses = [node, *getattr(node, "handlers", [])]
                    inner = [statement for clause in clauses for statement in clause.body]
                    self._body([*inner, *getattr(node, "orelse", [])], outer)
                case ast.Expr(value):
                    self._expression(value, before, outer)
                case ast.Assign() | ast.AnnAssign() if not outer:
                    self._assignment(node)
                case ast.Import() | ast.ImportFrom() if not outer:
                    self._import(node)
            before = node

    def _definition(self, node: Function | ast.ClassDef, outer: str) -> None:
        if not outer:
            self.defined.add(node.name)
        # What an internal class documents, the public classes made of it have, too.
        inner = isinstance(node, ast.ClassDef) and not outer
        if node.name.startswith("_") and not inner and (outer or not self.offers(node.name)):
            return
        name = f"{outer}.{node.name}" if outer else node.name
        doc = ast.get_docstring(node, clean=False)
        if isinstance(node, ast.ClassDef):
            if not outer:
                paths = map(_path_of, node.bases)
                self.bases |= {path.rpartition(".")[2] for path in paths}
            shown = class_signature(node)
            if not shown and not doc and node.bases:
                shown = f": a class made of {', '.join(map(ast.unparse, node.bases))}"
            self._add(name, shown, doc)
            self._body(node.body, name)
        elif doc or not outer:
            self._add(name, signature(node, method=bool(outer)), doc)

    def _expression(self, value: ast.expr, before: ast.stmt | None, outer: str) -> None:
        """The docstring of the attribute before it, or a call that documents something."""
        text = self._string(value) if not isinstance(value, ast.Call) else None
        if text is not None:
            target = _assigned_name(before)
            if target and not target.startswith("_"):
                self._add(f"{outer}.{target}" if outer else target, "", text)
        elif isinstance(value, ast.Call) and not outer:
            self._call(value)

    def _call(self, call: ast.Call) -> None:
        """What `add_docstr(module.name, doc)` and `add_newdoc` change."""
        called, args = _path_of(call.func), call.args
        package = self.name
        if not self.package:
            package = package.rpartition(".")[0]
        match called.rpartition(".")[2], args:
            case "add_docstr", [target, doc, *_] if name := _path_of(target):
                if "." in name and name.partition(".")[0] not in self.defined:
                    # `torch._C.TensorBase.view` is offered by the package: `torch.TensorBase.view`.
                    offered = ".".join(p for p in name.split(".") if not p.startswith("_"))
                    self._add(offered, "", self._string(doc), absolute=True)
                else:
                    self._add(name, "", self._string(doc))
            case "add_newdoc", [own, doc] if ufunc := self._string(own):
                self._add(f"{package}.{ufunc}", "", self._string(doc), absolute=True)
            case "add_newdoc", [owner, own, doc, *_]:
                root, inner = self._string(owner), self._string(own)
                public = f"{root.partition('.')[0]}.{inner}" if root and inner else ""
                # A text, a (method, text) pair, or a list of pairs.
                for pair in (doc.elts if isinstance(doc, ast.List) else [doc]) if public else []:
                    match pair:
                        case ast.Tuple([method, text]):
                            part = f"{public}.{self._string(method)}"
                            self._add(part, "", self._string(text), absolute=True)
                        case _:
                            self._add(public, "", self._string(pair), absolute=True)

    def _assignment(self, node: ast.Assign | ast.AnnAssign) -> None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            match target, node.value:
                case ast.Name("__all__"), ast.expr() as listed:
                    items = listed.elts if isinstance(listed, ast.List | ast.Tuple) else []
                    # What is put in by `*others` or a sum is not known.
                    plain = items and not any(isinstance(item, ast.Starred) for item in items)
                    texts = filter(None, map(self._string, items))
                    self.exported = frozenset(texts) if plain else None
                case ast.Attribute(owner, "__doc__"), ast.expr() as doc if _path_of(owner):
                    self._add(_path_of(owner), "", self._string(doc))
                case ast.Name(name), value:
                    self.defined.add(name)
                    if value is not None:
                        self._add_value(name, value)

    def _add_value(self, name: str, value: ast.expr) -> None:
        """What a module-level name stands for: a text, a function or class, an instance."""
        known = self.defined | self.imported.keys()
        match value:
            case ast.Constant() | ast.BinOp() | ast.JoinedStr():
                self._texts[name] = self._string(value) or ""
            case ast.Call(ast.Name(made)) if name.startswith("_"):
                self._instances[name] = made
            case _ if name.startswith("_"):
                return
            case ast.Name(other) if other != name and other in known:
                self.assigned[name] = other
            case ast.Attribute(ast.Name(instance), attribute) if instance in self._instances:
                # `choice = _inst.choice` makes a function of a method of the module's own instance.
                method = f"{self._instances[instance]}.{attribute}"
                for item in [item for item in self.documented if item.name == method][:1]:
                    self._add(name, item.signature, item.text)
            case ast.Call(func, [_, doc, *_]) if _path_of(func).endswith("add_docstr"):
                self._add(name, "", self._string(doc))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    self.imported[alias.asname] = alias.name, ""
            return
        origin = node.module or ""
        if node.level:
            parts = self.name.split(".")
            keep = len(parts) - node.level + (1 if self.package else 0)
            origin = ".".join([*parts[: max(0, keep)], *filter(None, [node.module])])
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(origin)
            else:
                self.imported[alias.asname or alias.name] = (origin, alias.name)

    def _string(self, value: ast.expr) -> str | None:
        """A literal string, put together or not, also inside `"...".format(...)` and the like."""
        match value:
            case ast.Constant(str() as text):
                return text
            case ast.Name(name):
                return self._texts.get(name)
            case ast.BinOp(left, op, right):
                first = self._string(left)
                more = self._string(right) if isinstance(op, ast.Add) else None
                return None if first is None else first + (more or "")
            case ast.JoinedStr(parts):
                return "".join(self._string(part) or "" for part in parts)
            case ast.FormattedValue(inner):
                return self._string(inner)
            case ast.Call(ast.Attribute(text, _)) if found := self._string(text):
                return found
            case ast.Call(func, [text]) if _path_of(func).endswith(("dedent", "cleandoc")):
                return self._string(text)
        return None


def _path_of(value: ast.expr) -> str:
    """`a.b.c` of an expression that is one, without what stands in square brackets; else ""."""
    match value:
        case ast.Name(name):
            return name
        case ast.Attribute(inner, name):
            return f"{found}.{name}" if (found := _path_of(inner)) else ""
        case ast.Subscript(inner):
            return _path_of(inner)
    return ""


def class_signature(node: ast.ClassDef) -> str:
    """The parameters of `__init__`, or the fields of a class that is made of its fields."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return signature(item, method=True)
    marks = [_path_of(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
    marks += map(_path_of, node.bases)
    if not any(re.search(r"dataclass|\battrs?\b|define|NamedTuple|TypedDict", m) for m in marks):
        return ""
    fields = [
        ast.unparse(item)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and not _assigned_name(item).startswith("_")
    ]
    return f"({_shorten(', '.join(fields))})" if fields else ""


def signature(node: Function, method: bool) -> str:
    """The parameters in parentheses, without `self`; a long one loses its types for good."""
    args = node.args
    named = args.posonlyargs or args.args
    if method and named and named[0].arg in ("self", "cls"):
        del named[0]
    typed = [arg for arg in ast.walk(args) if isinstance(arg, ast.arg) and arg.annotation]
    full = ast.unparse(args)
    if len(full) > _MOST_TYPED:
        for arg in typed:
            arg.annotation = None
        full = ast.unparse(args)
    return f"({_shorten(full)})"


def defaults_in(signature: str) -> str:
    """`By default, n is 3 and cutoff is 0.6.`; "" where it has none or cannot be parsed."""
    with suppress(SyntaxError, ValueError, RecursionError):
        [node] = ast.parse(f"def f{signature}: ...").body if "=" in signature else [ast.Pass()]
        if isinstance(node, ast.FunctionDef):
            args, named = node.args, [*node.args.posonlyargs, *node.args.args]
            pairs = [*zip(named[len(named) - len(args.defaults) :], args.defaults, strict=True)]
            pairs += [(a, v) for a, v in zip(args.kwonlyargs, args.kw_defaults, strict=True) if v]
            *told, last = [f"{arg.arg} is {ast.unparse(value)}" for arg, value in pairs] or [""]
            return f"By default, {', '.join(told)}{' and ' if told else ''}{last}." if last else ""
    return ""


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_SIGNATURE else text[: _MOST_SIGNATURE - 1].rstrip() + "…"


def _assigned_name(node: ast.stmt | None) -> str:
    target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


_DEEPEST = 8
"""Hops followed from a package to where a name is defined; also ends circular imports."""


def is_private(module: str) -> bool:
    """`genericpath` has no underscore and yet serves others only (here os.path)."""
    return module == "genericpath" or any(part.startswith("_") for part in module.split("."))


class PublicApi:
    """The documented public objects of a library's modules, each once, by their public names."""

    def __init__(self, modules: Sequence[ModuleSource]) -> None:
        self._modules = {module.name: module for module in modules}
        self._spaces: dict[str, dict[str, Home]] = {}
        self._where = defaultdict[str, list[str]](list)
        for module in modules:
            for name in module.defined:
                self._where[name].append(module.name)
        self._shortest: dict[Home, str] = {}
        """the shortest name under which a package offers an object, or a module says it does"""
        for module in modules:
            self._take_names(module)
        self._bases = {base for module in modules for base in module.bases}
        """the names of classes that others are made of"""

    def _take_names(self, module: ModuleSource) -> None:
        """The names under which a public module offers what is defined elsewhere."""
        if is_private(module.name) or not (module.package or module.exported or module.stars):
            return
        names = self._space(module.name).keys() | (module.exported or set())
        if not module.package and module.exported is None:
            names -= module.imported.keys()  # what it needs itself
        for local in filter(module.offers, sorted(names)):
            home = self._home(module.name, local)
            if not home or not home[1] or home == (module.name, local):
                continue
            if module.package or module.exported or is_private(home[0]):
                # Else a module that takes all of another, which is no better home.
                alias = f"{module.name}.{local}"
                known = self._shortest.get(home, alias)
                self._shortest[home] = min(known, alias, key=lambda name: _fitness(name, home))

    def _space(self, name: str) -> dict[str, Home]:
        """What each name in a module stands for, as far as one step tells."""
        if name in self._spaces:
            return self._spaces[name]
        space = self._spaces[name] = {}
        if (module := self._modules.get(name)) is None:
            return space
        for star in module.stars:
            if (origin := self._modules.get(star)) is not None:
                names = self._space(star)
                lazily = {n: (star, n) for n in origin.exported or () if n not in names}
                space |= {n: h for n, h in (names | lazily).items() if origin.offers(n)}
        space |= module.imported
        space |= {defined: (name, defined) for defined in module.defined}
        return space

    def _home(self, origin: str, name: str) -> Home | None:
        """Where what `origin` calls `name` is defined; None where that is not among the modules."""
        for _ in range(_DEEPEST):
            if origin not in self._modules:
                return None
            found = self._space(origin).get(name)
            own = name in self._modules[origin].defined
            if found is None or (found == (origin, name) and not own):
                submodule = f"{origin}.{name}"
                return (submodule, "") if submodule in self._modules else self._late(origin, name)
            if found == (origin, name):
                other = self._modules[origin].assigned.get(name)
                if other is None:
                    return found
                found = origin, other
            elif not found[1]:
                return found if found[0] in self._modules else None
            origin, name = found
        return None

    def _late(self, origin: str, name: str) -> Home | None:
        """Where a name of `__all__` is defined that the module itself fetches when it is used."""
        if name not in (self._modules[origin].exported or ()):
            return None
        inside = [m for m in self._where.get(name, ()) if m.startswith(f"{origin}.")]
        return (min(inside, key=lambda m: (m.count("."), len(m), m)), name) if inside else None

    def _top(self, module: str, name: str) -> str | None:
        """The public name of a top-level object; None where it has none."""
        alias = self._shortest.get((module, name))
        source = self._modules[module]
        if is_private(module) or not source.offers(name):
            # What public classes are made of has methods that they have, too.
            return alias or (f"{module}.{name}" if name in self._bases else None)
        own = f"{module}.{name}"
        # Of two that are as short, the one that a package offers on purpose.
        better = alias and _fitness(alias, (module, name))[:3] <= _fitness(own, (module, name))[:3]
        return alias if better else own

    def symbol(self, module: str, name: str) -> str:
        """The public dotted name of an object; "" for an internal one."""
        if not name:
            return "" if is_private(module) else module
        top, dot, rest = name.partition(".")
        public = self._top(module, top) if top in self._modules[module].defined else None
        return public + dot + rest if public else ""

    def objects(self) -> Iterator[tuple[str, Documented, str]]:
        """(public name, what documents it, location); the documented ones of a module first."""
        seen: set[str] = set()
        for module in self._modules.values():
            for item in sorted(module.documented, key=lambda each: not each.text):
                home = module.name, item.name.partition(".")[0]
                # A signature alone says something where a package or `__all__` names it.
                offered = home in self._shortest or home[1] in (module.exported or ())
                public = item.name if item.absolute else self.symbol(home[0], item.name)
                if public and public not in seen and (item.text or item.absolute or offered):
                    seen.add(public)
                    yield public, item, module.location


def _fitness(alias: str, home: Home) -> tuple[bool, int, bool, int, int]:
    """The least is the name an object is known by: short, its own, and near where it is defined."""
    parts, defined = alias.split("."), home[0].split(".")
    shared = sum(1 for one, other in zip(parts, defined, strict=False) if one == other)
    foreign = parts[0] != defined[0]
    return foreign, len(parts), parts[-1] != home[1], -shared, len(alias)


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
