"""`make bench` runs every benchmark there is, and none that there is not."""

import re

from tests.conftest import ROOT

TELLS = re.compile(r"^from benchmarks\.report import .*\bemit\b", re.M)


def test_make_bench_runs_every_benchmark():
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^bench:.*?for name in (.*?); do", makefile, re.S | re.M)
    assert recipe is not None
    files = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks").glob("*/__main__.py")]
    found = {
        file.parent.name if file.stem == "__main__" else file.stem
        for file in files
        if TELLS.search(file.read_text())
    }
    assert sorted(recipe[1].replace("\\", "").split()) == sorted(found)
    assert len(found) > 20
