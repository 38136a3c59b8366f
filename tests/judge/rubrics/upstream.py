"""Run OpenEnv's own rubric tests on our rubrics: python -m tests.judge.rubrics.upstream CHECKOUT.

The tests are copied to a temporary folder, and in the copies only the import path is changed.
Those of the glue to OpenEnv's `Environment` need the package `openenv` and are left out without
it. Arguments after the checkout go to pytest. The checkout is no part of this project.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import ROOT

TESTS = Path("tests") / "core" / "test_rubrics"
PATHS = {
    "openenv.core.rubrics.base": "rubricem.judge.rubrics.core",
    "openenv.core.rubrics.containers": "rubricem.judge.rubrics.core",
    "openenv.core.rubrics.trajectory": "rubricem.judge.rubrics.core",
    "openenv.core.rubrics.llm_judge": "rubricem.judge.rubrics.llm",
    "openenv.core.rubrics": "rubricem.judge.rubrics",
    "openenv.core.llm_client": "rubricem.judge.rubrics.llm",
}
GLUE = "openenv.core.env_server"


def renamed(text: str) -> str:
    for theirs, ours in PATHS.items():
        text = text.replace(theirs, ours)
    return text


def chosen(checkout: Path, *, glue: bool) -> Iterator[tuple[str, str]]:
    """Name and text of each test file that can be run, with our import path."""
    for path in sorted((checkout / TESTS).glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if glue or GLUE not in text:
            yield path.name, renamed(text)


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print("error: name a checkout: make upstream OPENENV=DIR", file=sys.stderr)
        return 2
    files = dict(chosen(Path(arguments[0]), glue=find_spec("openenv") is not None))
    if not files:
        print(f"error: there is no {TESTS} with tests in {arguments[0]}", file=sys.stderr)
        return 2
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        return subprocess.run(_command(folder, arguments[1:]), cwd=ROOT, check=False).returncode


def _command(folder: Path, more: Sequence[str]) -> list[str]:
    settings = ("asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function")
    options = [part for setting in settings for part in ("-o", setting)]
    config = ["-c", str(folder / "pytest.ini"), "--rootdir", str(folder), "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", "-q", *config, *options, *more, str(folder)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
