from pathlib import Path

import pytest

from rubricem.agent.sources.python import read_modules
from rubricem.agent.sources.python_api import ModuleSource, PublicApi, defaults_in


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
