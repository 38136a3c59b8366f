from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from rubricem.agent.sources.index import LexicalIndex, stored_index
from rubricem.agent.sources.python import (
    distribution_passages,
    library_passages,
    module_files,
    read_modules,
)

README = """Metadata-Version: 2.1
Name: toy
Version: 1.0

# Toy

Toy builds kites.

## Changelog

Nothing here.
"""
FILES = {
    "toy/__init__.py": '"""Kites of all kinds."""\nfrom ._kite import *\nfrom .wind import gust\n',
    "toy/_kite.py": '''
__all__ = ["Kite"]

class _Flyer:
    def land(self):
        """Come down gently."""

class Kite(_Flyer):
    """A thing that flies on a line."""

    tail: int = 3
    """How many bows the tail has."""

    def __init__(self, line: float, *, colour="red"):
        """Not documented: it belongs to the class."""

    def fly(self, height=100):
        """Rise to the height, in metres."""
        text = """
def not_a_function():
"""
        return text

    def _secret(self):
        """Nobody should read this."""

def helper_of_kite():
    """Not offered to anyone."""
''',
    "toy/wind.py": '''
def gust(force):
    """Blow once, and hard.

    .. versionadded:: 0.9
    """
''',
    "toy/broken.py": "def (:\n",
    "toy/tests/test_kite.py": 'def test_it():\n    """A test is no documentation."""\n',
    "toy/_vendor/other.py": 'def other():\n    """A vendored copy."""\n',
}


@pytest.fixture
def toy(tmp_path: Path) -> Distribution:
    """A distribution as an installer leaves it; importing it would raise."""
    for name, source in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(README)
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in FILES))
    return PathDistribution(info)


def test_a_distribution_is_known_by_the_names_signatures_and_present_of_its_users(
    toy: Distribution,
) -> None:
    passages = {passage.place: passage for passage in distribution_passages(toy)[0]}
    names = "Toy toy toy.Kite toy.Kite.tail toy.Kite.fly toy._kite._Flyer.land toy.gust"
    assert passages.keys() == set(names.split())
    kite = passages["toy.Kite"]
    told = "toy.Kite(line: float, *, colour='red')\n\nBy default, colour is 'red'.\n\n"
    assert kite.text == f"{told}A thing that flies on a line."
    assert (kite.title, kite.location) == ("toy.Kite", "toy/_kite.py")
    assert passages["toy.Kite.fly"].text.startswith("toy.Kite.fly(height=100)\n")
    assert passages["toy.gust"].text == "toy.gust(force)\n\nBlow once, and hard."
    assert passages["Toy"].text == "Toy builds kites."
    assert passages["Toy"].title == "toy 1.0 README"


def test_budget_is_spent_on_the_public_package_first(toy: Distribution) -> None:
    read = read_modules(module_files(toy), budget=1)
    assert [module.name for module in read] == ["toy"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> LexicalIndex:
    return stored_index(tmp_path_factory.mktemp("index"), "library", "a", library_passages)


@pytest.mark.parametrize(
    ("question", "symbol", "facts"),
    [
        (
            "How does functools.lru_cache choose what to evict, and what does maxsize=None do?",
            "functools.lru_cache",
            ("Least-recently-used", "grow without bound"),
        ),
        ("Is heapq a min-heap?", "heapq.heappop", ("smallest",)),
        (
            "Which encoding does pathlib Path.read_text take?",
            "pathlib.Path.read_text",
            ("encoding=None", "text mode"),
        ),
        ("What does itertools.pairwise return?", "itertools.pairwise", ("overlapping pairs",)),
        ("What does a with statement do on exit?", "with", ("__exit__()",)),
    ],
)
def test_fact_is_in_the_first_three_passages(
    library: LexicalIndex, question: str, symbol: str, facts: tuple[str, ...]
) -> None:
    found = [p for p in library.search(question, 3) if p.place == symbol]
    text = " ".join(" ".join(passage.text for passage in found).split())
    assert all(fact in text for fact in facts), (question, text)


def test_library_passages_are_short_name_no_place_of_the_machine_and_import_no_side_effect(
    library: LexicalIndex,
) -> None:
    passages = list(library.passages)
    assert len(passages) > 3000
    assert max(len(p.text.split()) for p in passages) <= 110
    assert all(p.location.startswith(("lib/python3", "python:")) for p in passages)
    assert all(p.title and p.place and p.text.strip() for p in passages)
    names = {passage.place for passage in passages}
    assert not names & {"this", "antigravity", "turtle", "idlelib", "tkinter"}
