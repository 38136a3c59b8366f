"""The house stays in order: the rules of CONTRIBUTING, held against the text of the rooms."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from benchmarks.house import (
    MOST_EDGES,
    MOST_ENTRIES,
    MOST_FILE_LINES,
    MOST_FILES,
    MOST_FUNCTION_LINES,
    MOST_NARROW,
    MOST_PARTICIPLES,
    MOST_SINGLE,
    PACKAGE,
    ROOMS,
    House,
    circles,
    measure,
)
from tests.conftest import ROOT

EXTRAS = ("docx", "embedders", "local", "mcp", "memory", "postgres", "train", "trl", "verl")
HOUSE = House(ROOT)


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a file names in an import, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """Four empty rooms."""
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
    return tmp_path


def test_rooms_import_only_rooms_to_their_right():
    assert all((ROOT / room / "__init__.py").is_file() for room in ROOMS)
    assert HOUSE.leftward() == []


def test_a_leftward_import_is_found_even_inside_a_function(draft: Path):
    (draft / "agent" / "cli.py").touch()
    (draft / "judge" / "bad.py").write_text("def f():\n    from rubricem.agent.cli import main\n")
    (draft / "judge" / "worse.py").write_text("from rubricem.agent import cli\n")
    assert House(draft).leftward() == [
        "judge.bad imports agent.cli",
        "judge.worse imports agent.cli",
    ]


def test_every_import_of_our_own_names_the_package():
    for module in HOUSE.modules.values():
        for name in imported(module.tree):
            assert not name.startswith("."), f"{module.name} has a relative import"
            assert name.split(".")[0] not in ROOMS, f"{module.name} imports {name}: a bare room"
        # Only `from rubricem.x import y` is read as an edge.
        plain = [n for n in ast.walk(module.tree) if isinstance(n, ast.Import)]
        assert not [a for n in plain for a in n.names if a.name.startswith(PACKAGE)], module.name


def test_the_graph_cannot_import_the_judge():
    modules = HOUSE.reachable("agent.research.graph")
    assert {"agent.research.run", "memory.schema"} <= modules, "the walk follows imports"
    assert not [name for name in modules if name.split(".")[0] == "judge"]


def test_a_judge_behind_two_imports_is_found(draft: Path):
    (draft / "agent" / "graph.py").write_text("from rubricem.agent import nodes\n")
    (draft / "agent" / "nodes.py").write_text("def f():\n    from rubricem.judge import stage\n")
    (draft / "judge" / "stage.py").touch()
    assert House(draft).reachable("agent.graph") == {"agent.graph", "agent.nodes", "judge.stage"}


def test_no_file_and_no_function_is_too_long():
    for module in HOUSE.modules.values():
        assert module.lines <= MOST_FILE_LINES, f"{module.name} has {module.lines} lines"
        for function in module.functions:
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            assert length <= MOST_FUNCTION_LINES, f"{module.name}.{function.name}: {length} lines"


def test_folders_names_circles_and_edges_keep_to_the_rules():
    assert {name: n for name, n in HOUSE.folders().items() if n > MOST_ENTRIES} == {}
    assert HOUSE.file_circles() == HOUSE.folder_circles() == []
    assert HOUSE.repeated_classes() == HOUSE.repeated_files() == {}
    found = measure(HOUSE)
    assert found["files"] <= MOST_FILES
    assert found["edges_per_1000_lines"] <= MOST_EDGES
    assert found["participle_functions"] <= MOST_PARTICIPLES, HOUSE.participle_functions()
    assert found["imported_once_share"] <= MOST_SINGLE
    # A function may be used by one module until a second needs it.
    assert found["narrow_function_share"] <= 1.05 * MOST_NARROW


def test_circles_are_found_with_all_that_is_on_them():
    assert circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": []}) == [["a", "b", "c"]]
    assert circles({"a": ["b"], "b": []}) == []


def test_what_is_counted_by_hand_comes_out(draft: Path):
    (draft / "memory" / "a.py").write_text("class A:\n    pass\n\n\ndef f(): ...\ndef g(): ...\n")
    (draft / "judge" / "b.py").write_text(
        "from rubricem.memory.a import f\n\n\nclass A:\n    pass\n"
    )
    (draft / "agent" / "c.py").write_text(
        "from rubricem.judge import b\nfrom rubricem.memory.a import f, g\n\nprint(b.A, f, g)\n"
    )
    house = House(draft)
    assert house.edges == 3
    assert house.modules_imported_once() == ["judge.b"]
    assert house.narrow_functions() == (["memory.a.g"], 2)
    assert house.repeated_classes() == {"A": ["judge.b", "memory.a"]}


def test_a_function_named_by_a_participle_alone_is_counted(draft: Path):
    names = ("found", "_asked", "find", "feed", "_need", "cited_answer", "made_of", "done")
    values = "".join(f"\ndef {name}(): ...\n" for name in names)
    (draft / "memory" / "a.py").write_text(f"{values}\n@property\ndef shown(self): ...\n")
    found = House(draft).participle_functions()
    assert found == ["memory.a.found", "memory.a._asked", "memory.a.done"]


def test_every_package_that_is_imported_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # What an extra brings is imported by the one module that says so where it is missing.
    extras = project["optional-dependencies"]
    extra = [requirement for name in EXTRAS for requirement in extras[name]]
    declared = {_normal(requirement) for requirement in [*project["dependencies"], *extra]}
    distributions = packages_distributions()
    for module in HOUSE.modules.values():
        for name in {name.split(".")[0] for name in imported(module.tree)}:
            if name == PACKAGE or name in sys.stdlib_module_names:
                continue
            owners = {_normal(owner) for owner in distributions.get(name, [name])}
            assert owners & declared, f"{module.name} imports {name}: not declared"


@pytest.mark.parametrize(
    ("file", "extra"), [("constraints.txt", "dev"), ("constraints-ask.txt", "local")]
)
def test_every_declared_package_is_locked_by_hashes(file: str, extra: str):
    """`make lock` writes them; torch has another hash for each build and stands in the Makefile."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted, waiting = set(), [*project["dependencies"], f"rubricem[{extra}]"]
    while waiting:
        requirement = waiting.pop()
        wanted.add(_normal(requirement))
        for name in requirement.partition("[")[2].partition("]")[0].split(","):
            if _normal(requirement) == PACKAGE:
                waiting += project["optional-dependencies"][name]
    blocks = re.split(r"\n(?=\S)", (ROOT / file).read_text(encoding="utf-8").strip())
    assert all("==" in block and "--hash=sha256:" in block for block in blocks)
    assert wanted - {_normal(block) for block in blocks} <= {PACKAGE, "torch"}


def _normal(requirement: str) -> str:
    name = requirement
    for mark in "[<>=!~; ":
        name = name.split(mark)[0]
    return name.lower().replace("_", "-")


def lost(root: Path) -> list[str]:
    """The claims of `moved_tests.tsv` that no test makes any more, though nothing says why."""
    tests: dict[str, str] = {}
    gone = []
    for row in (root / "tests" / "data" / "moved_tests.tsv").read_text().splitlines():
        claim, new = row.split("\t")
        path, _, name = new.partition("::")
        if new.startswith("dropped: "):
            continue
        if path not in tests:
            file = root / path
            tests[path] = file.read_text(encoding="utf-8") if file.is_file() else ""
        if not re.search(rf"^(async )?def {name}\(", tests[path], re.M):
            gone.append(claim)
    return gone


def test_every_claim_of_the_tests_before_the_house_is_made_or_says_why_it_went():
    remedy = "write into tests/data/moved_tests.tsv where it is made now, or `dropped: ` and why"
    assert lost(ROOT) == [], remedy


def test_a_claim_that_went_without_a_word_is_found(draft: Path):
    (draft / "tests" / "data").mkdir(parents=True)
    (draft / "tests" / "test_a.py").write_text("async def test_kept():\n    assert_test_lost()\n")
    new = ("a.py::test_kept", "a.py::test_lost", "b.py::test_kept", "a.py::test_kep")
    rows = [f"test_old.py::{n}\ttests/test_{target}" for n, target in enumerate(new)]
    rows.append("test_old.py::4\tdropped: nothing does it any more")
    (draft / "tests" / "data" / "moved_tests.tsv").write_text("\n".join(rows))
    assert lost(draft) == ["test_old.py::1", "test_old.py::2", "test_old.py::3"]
