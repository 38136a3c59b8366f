"""The house stays in order: the rules of CONTRIBUTING, held against the text of the rooms."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmarks.house import PACKAGE, ROOMS, House, budget_of, circles, measure, surface
from tests.conftest import ROOT

EXTRAS = ("browser", "embedders", "local", "mcp", "memory", "otel", "train", "verl")
AGENT = (
    ("agent.cli", "agent.chat"), ("agent.serve",), ("agent.mcp",), ("agent.library",),
    ("agent.settings",), ("agent.evaluate",), ("agent.learning",), ("agent.research",),
    ("agent.record",), ("agent.reports",), ("agent.sources",), ("agent.models", "agent.weights"),
    ("agent.transcript",),
)  # fmt: skip
"""the folders of `agent` in the order in which they may import, each only what comes later"""
HOUSE = House(ROOT)


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that a file names in an import, anywhere in it."""
    for node in nodes:
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
    assert HOUSE.against([[room] for room in ROOMS]) == []


def test_inside_agent_commands_stand_above_serving_research_sources_models_and_the_record():
    listed = {name for group in AGENT for name in group}
    found = {".".join(name.split(".")[:2]) for name in HOUSE.modules if name.startswith("agent.")}
    assert listed == found
    assert HOUSE.against(AGENT) == []


def test_a_leftward_import_is_found_even_inside_a_function(draft: Path):
    (draft / "agent" / "cli.py").touch()
    (draft / "judge" / "bad.py").write_text("def f():\n    from rubricem.agent.cli import main\n")
    (draft / "judge" / "worse.py").write_text("from rubricem.agent import cli\n")
    assert House(draft).against([[room] for room in ROOMS]) == [
        "judge.bad imports agent.cli",
        "judge.worse imports agent.cli",
    ]


def test_every_import_of_our_own_names_the_package():
    for module in HOUSE.modules.values():
        for name in imported(module.nodes):
            assert not name.startswith("."), f"{module.name} has a relative import"
            assert name.split(".")[0] not in ROOMS, f"{module.name} imports {name}: a bare room"
        # Only `from rubricem.x import y` is read as an edge.
        plain = [n for n in module.nodes if isinstance(n, ast.Import)]
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


def test_the_house_keeps_to_its_budget():
    budget, found = budget_of(ROOT), measure(HOUSE) | surface()
    assert {*budget} == {*found}
    over = {name: f"{found[name]} > {most}" for name, most in budget.items() if found[name] > most}
    assert over == {}, "python -m benchmarks.house --why"


def test_names_and_circles_keep_to_the_rules():
    assert HOUSE.file_circles() == HOUSE.folder_circles() == []
    assert HOUSE.repeated_classes() == {}


def test_circles_are_found_with_all_that_is_on_them():
    assert circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": []}) == [["a", "b", "c"]]
    assert circles({"a": ["b"], "b": []}) == []


def test_repeated_names_are_found(draft: Path):
    (draft / "memory" / "a.py").write_text("class A:\n    pass\n")
    (draft / "judge" / "b.py").write_text("class A:\n    pass\n")
    assert House(draft).repeated_classes() == {"A": ["judge.b", "memory.a"]}


def test_every_package_that_is_imported_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # What an extra brings is imported by the one module that says so where it is missing.
    extras = project["optional-dependencies"]
    extra = [requirement for name in EXTRAS for requirement in extras[name]]
    declared = {_normal(requirement) for requirement in [*project["dependencies"], *extra]}
    distributions = packages_distributions()
    for module in HOUSE.modules.values():
        for name in {name.split(".")[0] for name in imported(module.nodes)}:
            if name == PACKAGE or name in sys.stdlib_module_names:
                continue
            owners = {_normal(owner) for owner in distributions.get(name, [name])}
            assert owners & declared, f"{module.name} imports {name}: not declared"


@pytest.mark.parametrize(
    ("file", "extra"), [("constraints.txt", "dev"), ("constraints-ask.txt", "local")]
)
def test_every_declared_package_is_locked_by_hashes(file: str, extra: str):
    """`make lock` writes them; torch has another hash for each build, and a file of its own."""
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


def test_one_torch_is_locked_by_hashes_for_each_platform():
    text = (ROOT / "constraints-torch.txt").read_text(encoding="utf-8")
    lines = [Requirement(line.strip(" \\")) for line in re.findall("torch==.*", text)]
    assert len({*re.findall(r"torch==([\d.]+)", text)}) == 1
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")):
        here = {"sys_platform": system, "platform_machine": machine}
        assert sum(bool(line.marker and line.marker.evaluate(here)) for line in lines) == 1
    hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", text)
    assert len({*hashes}) == 4 * len(lines) == text.count("--hash")


def _normal(requirement: str) -> str:
    name = requirement
    for mark in "[<>=!~; ":
        name = name.split(mark)[0]
    return name.lower().replace("_", "-")


def test_no_link_that_is_kept_leads_out_of_the_repository():
    """A merge of one called .venv would replace the environment that is there."""
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True)
    kept = [line.partition("\t")[2] for line in listed.stdout.splitlines() if line[:6] == "120000"]
    assert [link for link in kept if os.path.isabs(os.readlink(ROOT / link))] == []
