from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from rubricem.agent.sources.index import stored_index
from rubricem.agent.sources.python import (
    ModuleSource,
    PublicApi,
    defaults_in,
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


FACTS = [
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
]


@pytest.mark.slow
def test_passages_of_the_library_are_short_name_no_place_and_hold_facts_among_the_first_three(
    tmp_path: Path,
) -> None:
    library = stored_index(tmp_path, "library", "a", library_passages)
    for question, symbol, facts in FACTS:
        found = [p for p in library.search(question, 3) if p.place == symbol]
        text = " ".join(" ".join(passage.text for passage in found).split())
        assert all(fact in text for fact in facts), (question, text)
    passages = list(library.passages)
    assert len(passages) > 3000
    assert max(len(p.text.split()) for p in passages) <= 110
    assert all(p.location.startswith(("lib/python3", "python:")) for p in passages)
    assert all(p.title and p.place and p.text.strip() for p in passages)
    names = {passage.place for passage in passages}
    assert not names & {"this", "antigravity", "turtle", "idlelib", "tkinter"}, "none is imported"


def read(folder: Path, files: dict[str, str]) -> PublicApi:
    """The public API of a library that consists of these files."""
    modules = {}
    for location, source in files.items():
        path = folder / location
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        parts = location.rpartition(".")[0].split("/")
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        modules[name] = ModuleSource(name, path, location, package)
    return PublicApi(read_modules(modules))


def texts(api: PublicApi) -> dict[str, str]:
    return {name: item.text or item.signature for name, item, _ in api.objects()}


KITE = '''
class Kite:
    """A thing that flies on a line."""
    def fly(self):
        """Rise into the air."""
'''


@pytest.mark.parametrize(
    "files",
    [
        {"toy/__init__.py": "from toy.api import Kite", "toy/api.py": "from toy._k import Kite",
         "toy/_k.py": KITE},
        {"toy/__init__.py": "from ._k import _Kite as Kite",
         "toy/_k.py": "__all__ = ['_Kite']\n" + KITE.replace("Kite", "_Kite")},
        {"toy/__init__.py": "from ._a import *", "toy/_a.py": "from ._k import *",
         "toy/_k.py": KITE},
        {"toy/__init__.py": "__all__ = ['Kite']\ndef __getattr__(name):\n    ...\n",
         "toy/inner/k.py": KITE},
        {"toy/__init__.py": "from .dense import Kite", "toy/dense.py": KITE},
        {"toy/__init__.py": "from .web import *", "toy/web.py": KITE, "other.py":
         "from toy import *"},
        {"toy/__init__.py": "from .core import Kite", "toy/core/__init__.py":
         "from ._all import *\n__all__ = _all.__all__", "toy/_k.py": KITE, "toy/core/_all.py":
         "from toy._k import Kite\nfrom toy._k import *\n__all__ = ['gust']\n"
         "def extend(module):\n    for name in module.__all__:\n        __all__.append(name)\n"},
    ],
    ids=["through a plain module", "under another name", "by stars", "fetched when used",
         "shorter", "of its own package", "by a list that a function fills"],
)  # fmt: skip
def test_an_object_is_known_by_the_shortest_public_name(
    tmp_path: Path, files: dict[str, str]
) -> None:
    found = texts(read(tmp_path, files))
    assert found["toy.Kite"] == "A thing that flies on a line."
    assert found["toy.Kite.fly"] == "Rise into the air."
    assert [name for name in found if "ite" in name] == ["toy.Kite", "toy.Kite.fly"]


DOCUMENTED = {
    "f.__doc__ = r'''Turns the kite.'''": "a text put on it",
    "_more = 'kite.'\nf.__doc__ = ('Turns the ' + f'''{_more}''')": "put together",
    "add_docstr(toy.f, r'''\nTurns the kite.\n''')": "by add_docstr",
    "f = _add_docstr(other, 'Turns the kite.')": "given with its value",
    "add_newdoc('toy.core', 'f', '''Turns the kite.''')": "by add_newdoc",
    "def add_newdoc(name, doc):\n    docs[name] = doc\nadd_newdoc('f', 'Turns the kite.')":
        "by an add_newdoc of the module's own",
}  # fmt: skip


@pytest.mark.parametrize("source", DOCUMENTED, ids=DOCUMENTED.values())
def test_a_text_is_found_wherever_it_is_put_on_an_object(tmp_path: Path, source: str) -> None:
    begun = 'class C:\n    """Of the toy."""\ndef g():\n    """Turns the kite."""\n'
    begun += "def f(): pass\n" if not source.startswith(("@", "f = ")) else ""
    found = texts(read(tmp_path, {"toy/__init__.py": begun + source}))
    assert "Turns the kite." in (found.get("toy.f"), found.get("toy.C.f"))


def test_many_names_are_resolved_in_time(tmp_path: Path) -> None:
    # Each of 40 modules takes everything from all others: following names one by one never ends.
    stars = "".join(f"from .m{i} import *\n" for i in range(40))
    files = {f"toy/m{i}.py": f"{stars}def f{i}(): pass\n" for i in range(40)}
    files["toy/__init__.py"] = stars + "from .m0 import nothing\n"
    assert len(texts(read(tmp_path, files))) == 40


@pytest.mark.parametrize(
    ("signature", "told"),
    [
        ("(word, possibilities, n=3, cutoff=0.6)", "By default, n is 3 and cutoff is 0.6."),
        ("(a, /, b: int=1, *args, c, d=None, e='x', **kw)",
         "By default, b is 1, d is None and e is 'x'."),
        ("(a: Literal['='])", ""),
        ("(a, b=1…", ""),
        (": a class made of Kite", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_defaults_are_told_in_words(signature: str, told: str) -> None:
    assert defaults_in(signature) == told


def test_markup_of_docstrings_is_taken_off(tmp_path: Path) -> None:
    text = "Makes a :class:`~toy.Kite`, see :ref:`how <k>`.\n\n>>> fly()  # doctest: +SKIP"
    files = {"toy/__init__.py": f'def fly():\n    """{text}"""'}
    assert texts(read(tmp_path, files))["toy.fly"] == (
        "Makes a `toy.Kite`, see `how`.\n\n>>> fly()"
    )
