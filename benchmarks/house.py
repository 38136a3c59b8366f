"""What the code weighs and how its rooms import, against the budget of `tests/data/budget.toml`.

    python -m benchmarks.house [--quick | --full] [--root DIR]

Read from the text of the rooms; commands, settings and training keys are counted off the objects.
An edge is a pair of modules of which one imports the other, anywhere in it.
"""

import ast
import inspect
import re
import statistics
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click

from benchmarks.report import Value, emit, sized_parser

ROOMS = ("training", "agent", "judge", "memory")
"""in the order in which they may import: each only those to its right"""
PACKAGE = "rubricem"
BUDGET = Path("tests", "data", "budget.toml")
READING = (
    "agent/research", "agent/transcript", "agent/reports/rules.py", "agent/sources/choice.py",
    "memory/language.py", "memory/text.py",
)  # fmt: skip
"""where the language of questions and passages is read"""
DOCUMENTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md")


@dataclass(frozen=True)
class Module:
    """One Python file of the rooms."""

    name: str
    """without the package's own name: agent.research.graph"""
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return [*ast.walk(self.tree)]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [n for n in self.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]

    @cached_property
    def classes(self) -> list[str]:
        return [n.name for n in self.nodes if isinstance(n, ast.ClassDef)]


class House:
    """The rooms of a checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        found = (_module(root, path) for room in ROOMS for path in (root / room).rglob("*.py"))
        self.modules = {m.name: m for m in sorted(found, key=lambda m: m.name)}

    @cached_property
    def uses(self) -> dict[str, set[str]]:
        """Of each module: the modules it imports."""
        return {name: self._uses(module) for name, module in self.modules.items()}

    def _uses(self, module: Module) -> set[str]:
        used = set[str]()
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                source = node.module.removeprefix(f"{PACKAGE}.")
                for alias in node.names:
                    inner = f"{source}.{alias.name}"
                    used.add(inner if inner in self.modules else source)
        return (used & {*self.modules}) - {module.name}

    def repeated_classes(self) -> dict[str, list[str]]:
        places: dict[str, list[str]] = defaultdict(list)
        for module in self.modules.values():
            for name in module.classes:
                places[name].append(module.name)
        return {name: found for name, found in places.items() if len(set(found)) > 1}

    def folders(self) -> dict[str, int]:
        """Modules and packages of each folder."""
        return {str(path.relative_to(self.root)): count for path, count in self._folders()}

    def _folders(self) -> Iterator[tuple[Path, int]]:
        for room in ROOMS:
            for folder in [self.root / room, *(self.root / room).rglob("*/")]:
                entries = [
                    path
                    for path in folder.iterdir()
                    if (path.suffix == ".py" and path.name != "__init__.py")
                    or (path / "__init__.py").is_file()
                ]
                if entries:
                    yield folder, len(entries)

    def file_circles(self) -> list[list[str]]:
        return circles(self.uses)

    def folder_circles(self) -> list[list[str]]:
        """Folders that import each other; a module at the top of a room counts as one of them."""
        graph: dict[str, set[str]] = defaultdict(set)
        for name, used in self.uses.items():
            for other in used:
                if self._folder(name) != self._folder(other):
                    graph[self._folder(name)].add(self._folder(other))
        return circles(graph)

    def _folder(self, name: str) -> str:
        parts = name.split(".")
        in_folder = len(parts) > 2 or self.modules[name].path.name == "__init__.py"
        return ".".join(parts[:2]) if in_folder else name

    def against(self, order: Iterable[Iterable[str]]) -> list[str]:
        """Imports from a later group of packages by an earlier one; a module is of the longest."""
        place = {package: at for at, group in enumerate(order) for package in group}

        def at(name: str) -> int | None:
            parts = name.split(".")
            tops = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
            return next((place[top] for top in tops if top in place), None)

        pairs = [(name, other) for name, used in self.uses.items() for other in sorted(used)]
        placed = [(name, other, at(name), at(other)) for name, other in pairs]
        return [
            f"{name} imports {other}"
            for name, other, here, there in placed
            if here is not None and there is not None and there < here
        ]

    def reachable(self, name: str) -> set[str]:
        """The modules that importing this one can load, itself among them."""
        return reach(self.uses, name)


def _module(root: Path, path: Path) -> Module:
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, path.read_text(encoding="utf-8"))


def reach(graph: Mapping[str, Iterable[str]], name: str) -> set[str]:
    """The nodes that can be reached from one, itself among them."""
    seen, waiting = set[str](), [name]
    while waiting:
        if (one := waiting.pop()) not in seen:
            seen.add(one)
            waiting += graph.get(one, ())
    return seen


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node."""
    reached = {name: reach(graph, name) for name in graph}
    found = {tuple(sorted(o for o in reached[n] if n in reached.get(o, ()))) for n in graph}
    return sorted([*component] for component in found if len(component) > 1)


def lines_in(folder: Path) -> int:
    """All lines of the Python files of a folder."""
    return sum(len(p.read_text(encoding="utf-8").splitlines()) for p in folder.rglob("*.py"))


def words_of_documents(root: Path) -> int:
    paths = [path for pattern in DOCUMENTS for path in root.glob(pattern)]
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


def reading_patterns(root: Path) -> int:
    """Calls of `re` where questions and passages are read."""
    paths = [root / part for part in READING]
    files = [file for p in paths for file in ([p] if p.is_file() else p.rglob("*.py"))]
    return sum(len(re.findall(r"\bre\.[a-z]+\(", file.read_text())) for file in files)


def commands_and_options(group: click.Command, path: str = "") -> Iterator[tuple[str, int]]:
    """Each command that has none below it, with its options other than help."""
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            if (inner := group.get_command(context, name)) is not None:
                yield from commands_and_options(inner, f"{path} {name}".strip())
        return
    shared = {"help", "debug"}
    own = [p for p in group.params if isinstance(p, click.Option) and p.name not in shared]
    yield path, len(own)


def surface() -> dict[str, int]:
    """Settings, training keys, commands and options of the code that is imported."""
    from docs.configuration import TABLES
    from rubricem.agent.cli import main as command

    leaves = [*commands_and_options(command)]
    models = {name: model for name, (model, _) in TABLES.items() if name != "mcp_servers"}
    settings = models.pop("settings")
    keys = {
        (each, name)
        for model in models.values()
        for each in model.__mro__
        for name in inspect.get_annotations(each)
        if name in model.model_fields
    }
    return {
        "settings": len(settings.model_fields),
        "training_keys": len(keys),
        "commands": len(leaves),
        "options": sum(options for _, options in leaves),
    }


def packages(root: Path) -> dict[str, int]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return {"dependencies": len(project["dependencies"]), "extras": len(extras)}


def measure(house: House) -> dict[str, int]:
    """Everything that the budget has a number for, by its keys."""
    root = house.root
    rooms = Counter[str]()
    for module in house.modules.values():
        rooms[module.name.split(".")[0]] += module.lines
    functions = [
        (f.end_lineno or f.lineno) - f.lineno + 1
        for module in house.modules.values()
        for f in module.functions
    ]
    return {
        **{room: rooms[room] for room in ROOMS},
        "tests": lines_in(root / "tests"),
        "benchmarks": lines_in(root / "benchmarks"),
        "lines_of_a_function": max(functions),
        "lines_of_a_file": max(module.lines for module in house.modules.values()),
        "entries_of_a_folder": max(house.folders().values()),
        "words_of_documents": words_of_documents(root),
        **packages(root),
        "reading_patterns": reading_patterns(root),
    }


def budget_of(root: Path) -> dict[str, int]:
    """The largest value that each measure may have."""
    tables = tomllib.loads((root / BUDGET).read_text(encoding="utf-8"))
    return {name: most for table in tables.values() for name, most in table.items()}


def main() -> None:
    parser = sized_parser(__doc__, "the same as the whole", "the same as the quick one")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    options = parser.parse_args()
    house, budget = House(options.root), budget_of(options.root)
    found = measure(house) | surface()
    for name, value in found.items():
        print(f"{name:24} {value:>10}   <= {budget[name]}")
    broken = [*house.against([[room] for room in ROOMS]), *house.repeated_classes()]
    broken += [str(circle) for circle in house.file_circles() + house.folder_circles()]
    print(*broken, sep="\n")
    lengths = [module.lines for module in house.modules.values() if module.lines > 3]
    more: dict[str, Value] = {
        "source": sum(found[room] for room in ROOMS),
        "files": len(lengths),
        "file_p50": int(statistics.median(lengths)),
        "broken_rules": len(broken),
    }
    how = f"{len(lengths)} files read as text"
    emit("house", {**found, **more}, how, most={**budget, "broken_rules": 0})


if __name__ == "__main__":
    main()
