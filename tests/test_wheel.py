"""The wheel holds the whole program: installed elsewhere, it runs from a foreign directory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

ROOMS = ("agent", "judge", "memory", "training")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel, built from a copy so that no build is left behind."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for folder in (*ROOMS, "src", "benchmarks", "tests"):
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=leave)
    wheels = source / "wheels"
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(wheels), str(source))
    (wheel,) = wheels.glob("rubricem-*.whl")
    pip("install", "--target", str(target), str(wheel))
    return target


def pip(command: str, *args: str) -> None:
    quiet = ("--quiet", "--no-deps", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", command, *quiet, *args], check=True, timeout=120)


def python(
    installed: Path, elsewhere: Path, code: str, *args: str, more: Path | None = None
) -> str:
    """What this code prints, run in a foreign folder with these first on the path."""
    path = [str(installed), *([str(more)] if more else [])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_prompt_and_file_of_the_page_is_inside(installed: Path):
    static, package = ROOT / "agent" / "serve" / "static", installed / "rubricem"
    found = [path for path in static.rglob("*") if path.is_file()]
    for pattern in ("*.py", "*.md", "*.html", "*.jsonl", "*.sh", "*.yaml"):
        found += [path for room in ROOMS for path in (ROOT / room).rglob(pattern)]
    wanted = {path.relative_to(ROOT) for path in found}
    held = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    assert any(path.match("agent/prompts/*.md") for path in held) and static / "index.html" in found
    assert wanted <= held, sorted(wanted - held)
    assert [p for p in wanted if (package / p).read_bytes() != (ROOT / p).read_bytes()] == []


def test_nothing_but_one_package_is_installed(installed: Path):
    folders = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert folders - {"bin"} == {"rubricem"}
    inside = {path.name for path in (installed / "rubricem").iterdir()}
    assert inside - {"__pycache__"} == {*ROOMS, "__init__.py", "__main__.py", "py.typed"}


@pytest.fixture
def namesakes(tmp_path: Path) -> Path:
    """A foreign project with packages of its own that are called as the rooms are."""
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(f"NAME = 'my own {room}'\n", encoding="utf-8")
    return tmp_path


BOTH = """
import agent, judge, memory, training
from rubricem import research
from rubricem.judge.rubrics import Sequential
import rubricem.agent, rubricem.judge, rubricem.memory, rubricem.training
print(agent.NAME, judge.NAME, memory.NAME, training.NAME, research.__module__, sep="\\n")
print(rubricem.agent.__file__)
"""


def check_both(printed: str, place: Path) -> None:
    *names, module, file = printed.splitlines()
    assert names == [f"my own {room}" for room in ROOMS]
    assert module == "rubricem.agent.library"
    assert Path(file).resolve() == (place / "agent" / "__init__.py").resolve()


def test_the_wheel_works_beside_packages_of_the_same_names(installed: Path, namesakes: Path):
    check_both(python(installed, namesakes, BOTH), installed / "rubricem")
    code = (installed / "bin" / "rubricem").read_text(encoding="utf-8")
    told = python(namesakes, namesakes, code, "--help", more=installed)
    assert "What it learns:" in told


def test_an_editable_install_works_beside_packages_of_the_same_names(
    namesakes: Path, tmp_path_factory: pytest.TempPathFactory
):
    target = tmp_path_factory.mktemp("editable")
    pip("install", "--no-build-isolation", "--target", str(target), "--editable", str(ROOT))
    (link,) = target.glob("*rubricem*.pth")
    sources = Path(link.read_text(encoding="utf-8").strip())
    assert sources == ROOT / "src"
    check_both(python(sources, namesakes, BOTH), ROOT)
    code = (target / "bin" / "rubricem").read_text(encoding="utf-8")
    assert "What it learns:" in python(namesakes, namesakes, code, "--help", more=sources)


def test_the_version_is_that_of_the_wheel(installed: Path, tmp_path: Path):
    code = (installed / "bin" / "rubricem").read_text(encoding="utf-8")
    (info,) = installed.glob("rubricem-*.dist-info")
    version = info.name.removeprefix("rubricem-").removesuffix(".dist-info")
    assert python(installed, tmp_path, code, "--version").split()[-1] == version
