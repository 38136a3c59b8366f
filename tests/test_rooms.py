"""The house stays in order: imports go one way, the graph is blind to the judge, code is small."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ORDER = ("training", "agent", "judge", "memory")
ROOT = Path(__file__).parent.parent
EXTRAS = ("postgres", "mcp", "trl", "verl")
MOST_FILE_LINES, MOST_FUNCTION_LINES = 300, 60


def imports_of(path: Path) -> Iterator[str]:
    """Full names of what a file imports, anywhere in it; `from a import b` gives a and a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} is a relative import"
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def leftward_imports(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)} imports {name}"
        for place, room in enumerate(ORDER)
        for path in sorted((root / room).rglob("*.py"))
        for name in imports_of(path)
        if name.split(".")[0] in ORDER[:place]
    ]


def reachable(root: Path, module: str) -> set[str]:
    """The modules of the rooms that importing a module can load, itself among them."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        stem = root.joinpath(*name.split("."))
        file = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
        if name in seen or name.split(".")[0] not in ORDER or not file.is_file():
            continue
        seen.add(name)
        waiting += imports_of(file)
    return seen


def too_large(root: Path, folders: tuple[str, ...]) -> list[str]:
    found = []
    for path in sorted(file for folder in folders for file in (root / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (lines := len(text.splitlines())) > MOST_FILE_LINES:
            found.append(f"{path.relative_to(root)} has {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MOST_FUNCTION_LINES:
                    found.append(f"{path.relative_to(root)}: {node.name} has {length} lines")
    return found


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for room in ORDER:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
    return tmp_path


def test_rooms_import_only_rooms_to_their_right() -> None:
    assert all((ROOT / room / "__init__.py").is_file() for room in ORDER)
    assert leftward_imports(ROOT) == []


def test_a_leftward_import_is_found_even_inside_a_function(house: Path) -> None:
    (house / "judge" / "bad.py").write_text("def f():\n    from agent.cli import main\n")
    (house / "agent" / "good.py").write_text("import judge.stage\nimport memory.schema\n")
    assert set(leftward_imports(house)) == {
        "judge/bad.py imports agent.cli",
        "judge/bad.py imports agent.cli.main",
    }


def test_the_graph_cannot_import_the_judge() -> None:
    modules = reachable(ROOT, "agent.graph")
    assert "agent.graph" in modules
    assert {"agent.run", "memory.schema"} <= modules, "the walk follows imports"
    assert not [name for name in modules if name.split(".")[0] == "judge"]


def test_a_judge_behind_two_imports_is_found(house: Path) -> None:
    (house / "agent" / "graph.py").write_text("from agent import nodes\n")
    (house / "agent" / "nodes.py").write_text("def f():\n    import judge\n")
    assert reachable(house, "agent.graph") == {"agent", "agent.graph", "agent.nodes", "judge"}


def test_files_and_functions_stay_small() -> None:
    assert too_large(ROOT, (*ORDER, "benchmarks")) == []


def test_a_large_function_and_a_large_file_are_found(house: Path) -> None:
    long = "async def f():\n" + "    pass\n" * MOST_FUNCTION_LINES
    (house / "memory" / "a.py").write_text(long)
    (house / "memory" / "b.py").write_text("\n" * (MOST_FILE_LINES + 1))
    (house / "memory" / "c.py").write_text("def f():\n" + "    pass\n" * (MOST_FUNCTION_LINES - 1))
    assert too_large(house, ("memory",)) == [
        f"memory/a.py: f has {MOST_FUNCTION_LINES + 1} lines",
        f"memory/b.py has {MOST_FILE_LINES + 1} lines",
    ]


def test_no_module_is_called_like_a_room() -> None:
    modules = [path for room in ORDER for path in (ROOT / room).rglob("*.py")]
    assert not [path for path in modules if path.stem in ORDER]


def test_every_package_that_is_imported_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # What an extra brings is imported by the one module that says so where it is missing.
    extras = project["optional-dependencies"]
    extra = [requirement for name in EXTRAS for requirement in extras[name]]
    declared = {_normal(requirement) for requirement in [*project["dependencies"], *extra]}
    distributions = packages_distributions()
    for path in (file for room in ORDER for file in (ROOT / room).rglob("*.py")):
        for name in {name.split(".")[0] for name in imports_of(path)}:
            if name in ORDER or name in sys.stdlib_module_names:
                continue
            owners = {_normal(owner) for owner in distributions.get(name, [name])}
            assert owners & declared, f"{path.relative_to(ROOT)} imports {name}: not declared"


def _normal(requirement: str) -> str:
    name = requirement
    for mark in "[<>=!~; ":
        name = name.split(mark)[0]
    return name.lower().replace("_", "-")
