import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rubricem.agent.sources.index import write_segment
from rubricem.agent.sources.libraries import STANDARD, Library, PythonDocs, Shelf
from rubricem.memory.runs import folder_locked
from rubricem.memory.schema import Passage

COLOURS = [f"{shade}{colour}" for shade in ("pale", "dark") for colour in ("red", "blue", "grey")]


def put(path: Path, name: str, version: str = "1.0", told: str = "Flies") -> None:
    """A distribution with one function, as an installer leaves it."""
    info = path / f"{name}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.py").write_text(f'def fly():\n    """{told} as {name} kites do."""\n')
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n\n{name} kites.\n")
    (info / "RECORD").write_text(f"{name}.py,sha256={len(told)},\n")


@pytest.fixture
def path(tmp_path: Path) -> list[str]:
    for name in COLOURS:
        put(tmp_path / "site", name)
    return [str(tmp_path / "site")]


@pytest.fixture
def cache(tmp_path: Path, path: list[str]) -> Path:
    """An index folder with a standard library that documents nothing, so that it is read soon."""
    shelf = Shelf(tmp_path / "cache", path)
    write_segment([], shelf.place(shelf.libraries[0]))
    return tmp_path / "cache"


def read_all(cache: Path, path: list[str]) -> list[str]:
    """What had to be read, in order."""
    steps: list[tuple[int, int, str]] = []
    Shelf(cache, path).read_all(lambda *step: steps.append(step))
    return [doing.removeprefix("reading ") for _, _, doing in steps]


def test_only_what_changed_is_read_again_in_a_later_process(cache: Path, path: list[str]) -> None:
    assert sorted(read_all(cache, path)) == sorted(COLOURS)
    assert read_all(cache, path) == []
    put(Path(path[0]), "palered", "1.1", "Soars high")
    put(Path(path[0]), "darkblue", "1.0", "Dives low")
    assert sorted(read_all(cache, path)) == ["darkblue", "palered"]
    index = Shelf(cache, path).index()
    (found,) = index.search("palered.fly", 1)
    assert found.text.endswith("Soars high as palered kites do.")
    assert not any("Flies as palered" in passage.text for passage in index.passages)


def begin(cache: Path, path: list[str]) -> subprocess.Popen[str]:
    module = "rubricem.agent.sources.libraries"
    command = [sys.executable, "-m", module, str(cache), json.dumps(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_reading_that_was_killed_goes_on(cache: Path, path: list[str]) -> None:
    with begin(cache, path) as killed:
        assert killed.stdout
        told = [json.loads(killed.stdout.readline())[2] for _ in range(3)]
        killed.kill()
    rest = read_all(cache, path)
    assert len(rest) <= len(COLOURS) - 2 and not set(rest) & {t.split()[1] for t in told[:2]}
    assert all(Shelf(cache, path).index().search(f"{name}.fly", 1) for name in COLOURS)


FLIGHT = "How high does it fly?"


@pytest.mark.parametrize(
    ("query", "first"),
    [
        (FLIGHT, "kites.fly"),
        (f"{FLIGHT} With palered", "palered.fly"),
        (f"{FLIGHT} With plt.fly", "palered.fly"),
        (f"{FLIGHT} After the tests", "kites.fly"),
    ],
    ids=["none is named", "a library", "one of its modules for short", "no library's name"],
)
def test_the_standard_library_comes_first_unless_another_is_named(
    tmp_path: Path, path: list[str], query: str, first: str
) -> None:
    record = Path(path[0]) / "palered.dist-info" / "RECORD"
    record.write_text(record.read_text() + "tests/test_palered.py,,\nmatplotlib/pyplot.py,,\n")
    shelf = Shelf(tmp_path / "cache", path)
    standard = Passage("kites.fly", "lib/python3/kites.py", "kites.fly", "Says how high kites fly.")
    write_segment([standard], shelf.place(shelf.libraries[0]))
    for name in ("palered", "darkblue"):
        text = f"{name}.fly()\n\nSays how high {name} kites fly, and how high it can fly."
        each = next(library for library in shelf.libraries if library.name == name)
        write_segment([Passage(f"{name}.fly", name, f"{name}.fly", text)], shelf.place(each))
    assert shelf.index().search(query, 1)[0].title == first


async def test_what_a_search_names_is_read_first_and_the_rest_behind(
    cache: Path, path: list[str]
) -> None:
    told: list[str] = []
    source = PythonDocs(cache, lambda done, of, doing: told.append(doing), path=path)
    with folder_locked(Shelf(cache, path).place(Library.standard()).parent):
        # Nobody else reads meanwhile.
        (problem,) = await source.prepare()
        assert problem.startswith("6 of 7 installed libraries are not read yet")
        assert await source.search("How do kites fly?", 3) == []
        (found, *_) = await source.search("How does palered.fly go?", 3)
        assert found.place == "palered.fly" and found.public
        assert told == ["reading palered, which the question names"]
    for _ in range(600):
        if await source.search("darkgrey", 1) and not await source.prepare():
            break
        await asyncio.sleep(0.1)
    assert await source.prepare() == ()
    await asyncio.to_thread(source.close, wait=True)
    assert not {"reading palered", f"reading {STANDARD}"} & set(told)
