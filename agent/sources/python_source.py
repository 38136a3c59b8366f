"""The documentation inside one Python source file, read from its syntax tree.

Nothing is imported or run. Found are the docstrings of the module and of its public classes,
functions and methods, with signatures; attribute docstrings (the string under a field); texts
handed to `add_newdoc` or `add_docstr`, by which NumPy and PyTorch document their C functions;
and the names that the file takes from others, by which public aliases are known.
"""

import ast
import inspect
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.sources.passages import shortened

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
