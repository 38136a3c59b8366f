"""How the code is laid out: files, lines, imports, names, against the rules of the house.

    python -m benchmarks.house [--quick | --full] [--root DIR]

Read from the text of the rooms, nothing of them is run. A module is a file of more than three
lines; an `__init__` counts where it holds more than a face (40 lines). An edge is a pair of
modules of which one imports the other, anywhere in it. A function is public where it stands at
the top of its module without an underscore; a module uses it that imports it by name or reads it
off the imported module. `tests/test_house.py` holds the same rules.
"""

import argparse
import ast
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.report import emit

ROOMS = ("training", "agent", "judge", "memory")
"""in the order in which they may import: each only those to its right"""
PACKAGE = "rubricem"
FACE, SMALL = 40, 3
MOST_FILES, MOST_LINES, MOST_EDGES, MOST_ENTRIES = 185, 50_000, 22.0, 15
MOST_SINGLE, MOST_NARROW = 0.20, 0.22
MOST_TEST_LINES, MOST_TEST_FILES = 36_000, 130
MOST_PARTICIPLES = 13
"""ten that the served OpenAPI names, `told` and `ungraded`"""
MOST_FILE_LINES, REASONED_LINES, MOST_FUNCTION_LINES, MOST_IMPORTS = 1000, 600, 60, 10
TARGETS = {
    "files": f"<= {MOST_FILES}",
    "lines": f"<= {MOST_LINES}",
    "file_p50": "about 260",
    "file_p90": "about 560",
    "edges_per_1000_lines": f"<= {MOST_EDGES:g}",
    "imported_once_share": f"<= {MOST_SINGLE:g}",
    "narrow_function_share": f"<= {MOST_NARROW:g}",
    "repeated_class_names": "0",
    "participle_functions": f"<= {MOST_PARTICIPLES}",
    "largest_folder": f"<= {MOST_ENTRIES}",
    "test_lines": f"<= {MOST_TEST_LINES}",
    "test_files": f"about {MOST_TEST_FILES}",
    "file_circles": "0",
    "folder_circles": "0",
}

_PARTICIPLE = re.compile(
    r"_*(?!(?:embed|feed|need|seed|shed|speed)$)(?:[a-z]+ed|begun|bound|brought|built|caught|chosen|done"
    r"|drawn|fed|found|given|gone|heard|held|hidden|kept|known|led|left|lost|made|meant|met|paid|said"
    r"|seen|sent|shown|sought|spent|spoken|taken|taught|thought|told|understood|won|written)"
)


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

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def counts(self) -> bool:
        """Whether it is a module and not a face or an empty file."""
        return self.lines > (FACE if self.path.name == "__init__.py" else SMALL)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        nodes = ast.walk(self.tree)
        return [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]

    @cached_property
    def public_functions(self) -> list[str]:
        top = (n for n in self.tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        return [n.name for n in top if not n.name.startswith("_")]

    @cached_property
    def classes(self) -> list[str]:
        return [n.name for n in ast.walk(self.tree) if isinstance(n, ast.ClassDef)]


class House:
    """The rooms of a checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        found = (_module(root, path) for room in ROOMS for path in (root / room).rglob("*.py"))
        self.modules = {m.name: m for m in sorted(found, key=lambda m: m.name)}

    @cached_property
    def uses(self) -> dict[str, dict[str, set[str]]]:
        """Of each module: the modules it imports, and which of their names it uses."""
        return {name: self._uses(module) for name, module in self.modules.items()}

    def _uses(self, module: Module) -> dict[str, set[str]]:
        used: dict[str, set[str]] = defaultdict(set)
        aliases: dict[str, str] = {}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                source = _own(node.module)
                for alias in node.names:
                    if (inner := f"{source}.{alias.name}") in self.modules:
                        aliases[alias.asname or alias.name] = inner
                        used[inner] |= set()
                    elif source in self.modules:
                        used[source].add(alias.name)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used[aliases.get(node.value.id, "")].add(node.attr)
        return {other: names for other, names in used.items() if other not in ("", module.name)}

    @property
    def counted(self) -> list[Module]:
        return [module for module in self.modules.values() if module.counts]

    @property
    def edges(self) -> int:
        return sum(len(used) for used in self.uses.values())

    def importers(self) -> Counter[str]:
        return Counter(name for used in self.uses.values() for name in used)

    def modules_imported_once(self) -> list[str]:
        """Modules that a single other one imports."""
        importers = self.importers()
        return [module.name for module in self.counted if importers[module.name] == 1]

    def narrow_functions(self) -> tuple[list[str], int]:
        """Public functions that a single other module uses, and how many are public."""
        users = Counter(
            f"{name}.{one}"
            for used in self.uses.values()
            for name, names in used.items()
            for one in names
        )
        public = [f"{m.name}.{f}" for m in self.modules.values() for f in m.public_functions]
        return [name for name in public if users[name] == 1], len(public)

    def small_and_used_once(self) -> list[str]:
        """Private functions of at most six lines below their docstring that one place names."""
        found = []
        for module in self.modules.values():
            nodes = list(ast.walk(module.tree))
            named = Counter(n.id for n in nodes if isinstance(n, ast.Name))
            named += Counter(n.attr for n in nodes if isinstance(n, ast.Attribute))
            for f in module.functions:
                body = f.body[1:] if ast.get_docstring(f) else f.body
                length = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
                private = f.name.startswith("_") and not f.name.startswith("__")
                if private and 0 < length <= 6 and named[f.name] == 1 and not f.decorator_list:
                    found.append(f"{module.name}.{f.name}")
        return found

    def participle_functions(self) -> list[str]:
        """Functions that are named by a participle alone; properties are values, and may be."""
        return [
            f"{module.name}.{f.name}"
            for module in self.modules.values()
            for f in module.functions
            if _PARTICIPLE.fullmatch(f.name)
            and not any("property" in ast.unparse(d) for d in f.decorator_list)
        ]

    def repeated_classes(self) -> dict[str, list[str]]:
        places: dict[str, list[str]] = defaultdict(list)
        for module in self.modules.values():
            for name in module.classes:
                places[name].append(module.name)
        return {name: found for name, found in places.items() if len(set(found)) > 1}

    def repeated_files(self) -> dict[str, list[str]]:
        """File names that a room has twice; faces are called alike."""
        places: dict[str, list[str]] = defaultdict(list)
        for module in self.modules.values():
            if module.path.name != "__init__.py":
                room, _, rest = module.name.partition(".")
                places[f"{room}: {rest.rpartition('.')[2]}"].append(module.name)
        return {name: found for name, found in places.items() if len(found) > 1}

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
        return circles({name: set(used) for name, used in self.uses.items()})

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

    def leftward(self) -> list[str]:
        """Imports against the order of the rooms."""
        place = {room: number for number, room in enumerate(ROOMS)}
        return [
            f"{name} imports {other}"
            for name, used in self.uses.items()
            for other in used
            if place[other.split(".")[0]] < place[name.split(".")[0]]
        ]

    def reachable(self, name: str) -> set[str]:
        """The modules that importing this one can load, itself among them."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            if (one := waiting.pop()) in seen:
                continue
            seen.add(one)
            waiting += self.uses.get(one, {})
        return seen


def _module(root: Path, path: Path) -> Module:
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, path.read_text(encoding="utf-8"))


def _own(name: str) -> str:
    return name.removeprefix(f"{PACKAGE}.")


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, by Tarjan's algorithm (1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in order:
            visit(node)
    return found


def tests_of(root: Path) -> tuple[int, int, int]:
    """Lines and files of the tests, and the most entries that a folder of theirs has."""
    files = list((root / "tests").rglob("*.py"))
    folders = Counter(path.parent for path in files if path.name != "__init__.py")
    for folder in {path.parent for path in files}:
        folders[folder.parent] += 1
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    return lines, len(files), max(folders.values())


def measure(house: House) -> dict[str, float | int]:
    """The table, by the keys of `TARGETS`."""
    lengths = sorted(module.lines for module in house.counted)
    lines = sum(module.lines for module in house.modules.values())
    narrow, public = house.narrow_functions()
    test_lines, test_files, test_folder = tests_of(house.root)
    functions = sorted(
        (f.end_lineno or f.lineno) - f.lineno + 1
        for module in house.modules.values()
        for f in module.functions
    )
    return {
        "files": len(lengths),
        "lines": lines,
        "file_p50": int(statistics.median(lengths)),
        "file_p90": lengths[int(0.9 * len(lengths))],
        "edges_per_1000_lines": round(1000 * house.edges / lines, 1),
        "imported_once_share": round(len(house.modules_imported_once()) / len(lengths), 3),
        "narrow_function_share": round(len(narrow) / public, 3),
        "participle_functions": len(house.participle_functions()),
        "repeated_class_names": len(house.repeated_classes()),
        "largest_folder": max(house.folders().values()),
        "file_circles": len(house.file_circles()),
        "folder_circles": len(house.folder_circles()),
        "function_p50": int(statistics.median(functions)),
        "function_p90": functions[int(0.9 * len(functions))],
        "test_lines": test_lines,
        "test_files": test_files,
        "largest_test_folder": test_folder,
    }


def holds(found: Mapping[str, float | int]) -> bool:
    return (
        found["files"] <= MOST_FILES
        and found["lines"] <= MOST_LINES
        and found["edges_per_1000_lines"] <= MOST_EDGES
        and found["imported_once_share"] <= MOST_SINGLE
        and found["narrow_function_share"] <= MOST_NARROW
        and found["participle_functions"] <= MOST_PARTICIPLES
        and found["largest_folder"] <= MOST_ENTRIES
        and found["test_lines"] <= MOST_TEST_LINES
        and not found["repeated_class_names"]
        and not found["file_circles"]
        and not found["folder_circles"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="the same as the whole")
    parser.add_argument("--full", action="store_true", help="the same as the quick one")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--why", action="store_true", help="also name what counts against it")
    options = parser.parse_args()
    house = House(options.root)
    found = measure(house)
    for name, value in found.items():
        print(f"{name:24} {value:>10}   {TARGETS.get(name, '')}")
    if options.why:
        _explain(house)
    emit("house", found, TARGETS, holds(found), f"{found['files']} files read as text")


def _explain(house: House) -> None:
    print("imported once:", *house.modules_imported_once(), sep="\n  ")
    print("used by one module:", *house.narrow_functions()[0], sep="\n  ")
    print("small, private and used once:", *house.small_and_used_once(), sep="\n  ")
    print("named by a participle:", *house.participle_functions(), sep="\n  ")
    print("class names:", *house.repeated_classes().items(), sep="\n  ")
    print("file names:", *house.repeated_files().items(), sep="\n  ")
    print("circles:", *house.file_circles(), *house.folder_circles(), sep="\n  ")


if __name__ == "__main__":
    main()
