"""The bank under kill -9, many processes, a full disk, and as commit ec15fe0e wrote it."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import StoreError
from tests.conftest import ROOT
from tests.programs.killing import ran
from tests.support.banks import bank_in, ids, reflection
from tests.support.waiting import PATIENCE, Process

OLDER = ROOT / "tests" / "data" / "ec15fe0e" / "bank"


def run(code: str, *arguments: str | Path) -> Process:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return Process(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_process_killed_anywhere_loses_nothing_it_was_told_is_done(tmp_path: Path):
    seed = str(time.time_ns() % 10**6)
    told = ran("bank_killed", "writers", tmp_path, seed, 4, seconds=PATIENCE)
    assert int(told.split()[0]) > 0, "nothing was put"


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.support.banks import bank_in, reflection

async def put():
    bank = bank_in(Path(sys.argv[1]))
    for number in range(12):
        name = f"{sys.argv[2]}{number}"
        await bank.put(reflection(f"cache {name}", name, "- " + "long " * 2000))
        if number % 4 == 1:
            await bank.search("cache", 1)
            await bank.remove(name)

asyncio.run(put())
"""
READER = """
import asyncio, sys
from pathlib import Path
from tests.support.banks import bank_in, ids

async def read():
    bank, seen = bank_in(Path(sys.argv[1])), 0
    while seen < 24 + 6:
        found = await bank.search("cache", 100)
        assert all(m.reflection.takeaways.startswith("- long") for m in found)
        seen = await bank.generation()
    print(len(await bank.search("cache", 100)), len(await bank.items()))

asyncio.run(read())
"""


@pytest.mark.slow
async def test_two_writers_and_a_reader_lose_nothing_and_see_everything(tmp_path: Path):
    running = [run(WRITER, tmp_path, "a"), run(WRITER, tmp_path, "b"), run(READER, tmp_path)]
    told = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], told
    wanted = {f"{w}{n}" for w in "ab" for n in range(12) if n % 4 != 1}
    assert told[2][0].split() == [str(len(wanted))] * 2
    bank = bank_in(tmp_path)
    assert set(ids(await bank.items())) == set(ids(await bank.search("cache", 50))) == wanted


FULL = """
import asyncio, resource, sys
from pathlib import Path
from rubricem.memory.errors import StoreError
from tests.support.banks import bank_in, ids, reflection

async def fill():
    bank = bank_in(Path(sys.argv[1]))
    for number in range(1000):
        try:
            await bank.put(reflection(f"heap {number}", f"r{number}", "- long " * 2000))
        except StoreError as error:
            print(number, error.remedy)
            break
    print(*ids(await bank.items()))
    try:
        print(len(await bank.search("heap", 3)), "found")
    except StoreError as error:
        print(error)

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
asyncio.run(fill())
"""


async def test_on_a_full_disk_nothing_is_lost_and_what_is_there_is_still_found(
    bank: RubricBank, tmp_path: Path
):
    for number in range(3):
        await bank.put(reflection(f"cache {number}", f"c{number}"))
    assert len(await bank.search("cache")) == 3
    # What the system says of a file that may not grow is what it says of a full disk.
    largest = max(p.stat().st_size for p in (tmp_path / "bank" / "index").rglob("*") if p.is_file())
    process = run(FULL, tmp_path, str(largest))
    out, err = process.communicate()
    assert process.returncode == 0, err
    failed, held, found = out.splitlines()
    number, remedy = failed.split(maxsplit=1)
    assert "disk is not full" in remedy
    wanted = ["c0", "c1", "c2", *(f"r{n}" for n in range(int(number)))]
    assert held.split() == wanted
    assert found == "3 found" or "cannot be used" in found
    assert await bank.put(reflection("path", "after"))
    wanted.append("after")
    assert ids(await bank_in(tmp_path).items()) == wanted
    assert set(ids(await bank_in(tmp_path).search("cache", 1000))) == set(wanted)


async def test_a_bank_of_ec15fe0e_is_migrated_once_and_its_folder_kept(tmp_path: Path):
    shutil.copytree(OLDER, tmp_path / "bank")
    for _ in range(2):
        bank = bank_in(tmp_path)
        items = {item.reflection.id: item for item in await bank.items(every=True)}
        worded = "6434d30c564f"
        assert {name: (item.state, item.fixed) for name, item in items.items()} == {
            "old": ("replaced", False), "new": ("active", False), "pinned": ("active", True),
            "after": ("replaced", False), "off": ("quarantine", False),
            "waits": ("quarantine", False), "freed": ("active", False),
            "worded": ("replaced", False), worded: ("active", True),
        }  # fmt: skip
        assert {name: item.added for name, item in items.items() if item.added > 10} == {
            "waits": 11, "freed": 12, "worded": 14, worded: 15
        }  # fmt: skip
        assert await bank.generation() == 15 and ids(await bank.items(1)) == ["old"]
        assert (items["new"].recalled, items["new"].mean_score) == (2, 1.0)
        assert (items["freed"].released_by, items[worded].edited_by) == ("terminal", "web page")
        assert not await bank.put(reflection("rome", "again", "- a secret lesson"))
        found = set(ids(await bank.search("cache", 9)))
        assert found == {"new", "pinned", "freed", worded}
    kept = tmp_path / "bank.ec15fe0e"
    assert {p.name: p.read_bytes() for p in kept.iterdir()} == {
        p.name: p.read_bytes() for p in OLDER.iterdir()
    }
    assert not (tmp_path / "bank" / "journal.jsonl").exists()


@pytest.mark.slow
def test_a_kill_at_any_moment_of_migrating_loses_nothing(tmp_path: Path):
    told = ran("bank_killed", "migrating", tmp_path, OLDER, seconds=PATIENCE)
    lines = told.splitlines()
    assert len(lines) > 5 and set(lines) == {"new pinned freed 6434d30c564f"}


@pytest.mark.parametrize("name", ["journal.jsonl", "uses.jsonl"])
async def test_a_damaged_line_of_an_older_bank_is_told_and_the_bank_left(tmp_path: Path, name: str):
    shutil.copytree(OLDER, tmp_path / "bank")
    with (tmp_path / "bank" / name).open("a") as file:
        file.write("{no JSON\n{cut")
    number = len((OLDER / name).read_text().splitlines()) + 1
    with pytest.raises(StoreError, match=f"line {number} of the bank's {name}"):
        await bank_in(tmp_path).items()
    assert (tmp_path / "bank" / "journal.jsonl").exists()
