"""What the source files of a Python library document, under the names that its users know.

Files are read from their syntax trees; nothing is imported or run. Found are docstrings, also of
attributes, signatures, and texts put on an object by `f.__doc__ = ...`, `add_docstr` or
`add_newdoc` (with which NumPy and PyTorch document their C functions).

An object is known by the shortest public dotted name under which it is offered, by imports, star
imports, `__all__` and assignments: `httpx.Client`, though it is written in `httpx/_client.py`. A
class of no public name that others are made of keeps its own.
"""

import ast
import inspect
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

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

    def add(self, item: Documented) -> None:
        text = _VERSION_NOTE.sub("", inspect.cleandoc(item.text)).strip()
        text = _MARKED.sub(lambda found: f"`{found[1]}`" if found[1] else "", text)
        text = text if len(text) >= FEWEST_CHARACTERS else ""
        # A method without a word is left out; so is a module.
        if text or ("." not in item.name and item.signature):
            self.documented.append(replace(item, text=text))

    def offers(self, name: str) -> bool:
        return name in self.exported if self.exported is not None else not name.startswith("_")

    def read(self) -> int:
        """How long its source is; 0 where the file is gone or is no Python of this version."""
        try:
            source = self.path.read_text("utf-8")
            _SourceReader(self).read(source)
            if _EXTENDED.search(source):
                # By a function of its own, perhaps, whose body is not read.
                self.exported = None
            return len(source)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return 0


class _SourceReader:
    """The statements of a file, read into its `ModuleSource`."""

    def __init__(self, module: ModuleSource) -> None:
        self.module = module
        self._instances: dict[str, str] = {}
        """module-level name -> the class it is an instance of"""
        self._texts: dict[str, str] = {}
        """module-level literals, of which docstrings are put together"""

    def read(self, source: str) -> None:
        """Raises SyntaxError or ValueError where it is not Python."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of escapes in other people's strings
            tree = ast.parse(source)
        self._add("", "", ast.get_docstring(tree, clean=False))
        self.body(tree.body)

    def _add(self, name: str, signature: str, doc: str | None, absolute: bool = False) -> None:
        self.module.add(Documented(name, signature, doc or "", absolute))

    def body(self, body: Iterable[ast.stmt], outer: str = "") -> None:
        """Read statements; `outer` is the class that they stand in, "" for the module itself."""
        before: ast.stmt | None = None
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self._definition(node, outer)
                case ast.If() | ast.Try() | ast.With() | ast.For():
                    clauses = [node, *getattr(node, "handlers", [])]
                    inner = [statement for clause in clauses for statement in clause.body]
                    self.body([*inner, *getattr(node, "orelse", [])], outer)
                case ast.Expr(value):
                    self._expression(value, before, outer)
                case ast.Assign() | ast.AnnAssign() if not outer:
                    self._assignment(node)
                case ast.Import() | ast.ImportFrom() if not outer:
                    self._import(node)
            before = node

    def _definition(self, node: Function | ast.ClassDef, outer: str) -> None:
        if not outer:
            self.module.defined.add(node.name)
        # What an internal class documents, the public classes made of it have, too.
        inner = isinstance(node, ast.ClassDef) and not outer
        if node.name.startswith("_") and not inner and (outer or not self.module.offers(node.name)):
            return
        name = f"{outer}.{node.name}" if outer else node.name
        doc = ast.get_docstring(node, clean=False)
        if isinstance(node, ast.ClassDef):
            if not outer:
                paths = map(_path_of, node.bases)
                self.module.bases |= {path.rpartition(".")[2] for path in paths}
            shown = class_signature(node)
            if not shown and not doc and node.bases:
                shown = f": a class made of {', '.join(map(ast.unparse, node.bases))}"
            self._add(name, shown, doc)
            self.body(node.body, name)
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
        package = self.module.name
        if not self.module.package:
            package = package.rpartition(".")[0]
        match called.rpartition(".")[2], args:
            case "add_docstr", [target, doc, *_] if name := _path_of(target):
                if "." in name and name.partition(".")[0] not in self.module.defined:
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
                    self.module.exported = frozenset(texts) if plain else None
                case ast.Attribute(owner, "__doc__"), ast.expr() as doc if _path_of(owner):
                    self._add(_path_of(owner), "", self._string(doc))
                case ast.Name(name), value:
                    self.module.defined.add(name)
                    if value is not None:
                        self._add_value(name, value)

    def _add_value(self, name: str, value: ast.expr) -> None:
        """What a module-level name stands for: a text, a function or class, an instance."""
        known = self.module.defined | self.module.imported.keys()
        match value:
            case ast.Constant() | ast.BinOp() | ast.JoinedStr():
                self._texts[name] = self._string(value) or ""
            case ast.Call(ast.Name(made)) if name.startswith("_"):
                self._instances[name] = made
            case _ if name.startswith("_"):
                return
            case ast.Name(other) if other != name and other in known:
                self.module.assigned[name] = other
            case ast.Attribute(ast.Name(instance), attribute) if instance in self._instances:
                # `choice = _inst.choice` makes a function of a method of the module's own instance.
                method = f"{self._instances[instance]}.{attribute}"
                for item in [item for item in self.module.documented if item.name == method][:1]:
                    self._add(name, item.signature, item.text)
            case ast.Call(func, [_, doc, *_]) if _path_of(func).endswith("add_docstr"):
                self._add(name, "", self._string(doc))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    self.module.imported[alias.asname] = alias.name, ""
            return
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
