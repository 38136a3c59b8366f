"""The wheel holds the whole program: installed elsewhere, it runs from a foreign directory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("agent", "memory", "judge", "training")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel, built from a copy so that no build is left behind."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for room in (*ROOMS, "benchmarks", "tests"):
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    wheels = source / "wheels"
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(wheels), str(source))
    (wheel,) = wheels.glob("rubricem-*.whl")
    pip("install", "--target", str(target), str(wheel))
    return target


def pip(command: str, *args: str) -> None:
    quiet = ("--quiet", "--no-deps", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", command, *quiet, *args], check=True, timeout=120)


def python(installed: Path, elsewhere: Path, code: str, *args: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_and_prompt_is_inside(installed: Path) -> None:
    wanted = {
        path.relative_to(ROOT)
        for room in ROOMS
        for pattern in ("*.py", "*.md", "py.typed")
        for path in (ROOT / room).rglob(pattern)
    }
    held = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    assert any(path.match("agent/prompts/*.md") for path in held)
    assert wanted <= held, sorted(wanted - held)


def test_every_static_file_of_the_page_is_inside(installed: Path) -> None:
    static = Path("agent") / "serve" / "static"
    wanted = {path.relative_to(ROOT): path for path in (ROOT / static).rglob("*") if path.is_file()}
    assert static / "index.html" in wanted
    for place, path in wanted.items():
        assert (installed / place).is_file(), place
        assert (installed / place).read_bytes() == path.read_bytes()


def test_nothing_but_the_rooms_is_installed(installed: Path) -> None:
    folders = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert folders - {"bin"} == set(ROOMS)


def test_every_room_is_imported_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = f"import {', '.join(ROOMS)}\nfor m in ({', '.join(ROOMS)}): print(m.__file__)"
    files = [Path(line) for line in python(installed, tmp_path, code).splitlines()]
    assert files == [installed / room / "__init__.py" for room in ROOMS]


def test_the_command_runs_from_a_foreign_directory(installed: Path, tmp_path: Path) -> None:
    code = (installed / "bin" / "rubricem").read_text(encoding="utf-8")
    assert "Commands:" in python(installed, tmp_path, code, "--help")
    assert "doctor" in python(installed, tmp_path, code, "doctor", "--help")


def test_the_version_is_that_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = (installed / "bin" / "rubricem").read_text(encoding="utf-8")
    (info,) = installed.glob("rubricem-*.dist-info")
    version = info.name.removeprefix("rubricem-").removesuffix(".dist-info")
    assert python(installed, tmp_path, code, "--version").split()[-1] == version
