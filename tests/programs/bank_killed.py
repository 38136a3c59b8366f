"""A bank whose writers are killed at random moments, or whose index is damaged file by file.

    python -m tests.programs.bank_killed writers FOLDER SEED KILLS
    python -m tests.programs.bank_killed index FOLDER cut|garbage|gone

Every writer is a fork that puts, edits, removes, searches and copies until it is killed (SIGKILL);
what it was told is done stands in a log. After each kill another fork looks at everything. A
damaged index is asked in forks, as Chroma may crash on it; printed is, for each damaged file, what
each of three processes in a row found.
"""

import asyncio
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import chromadb  # noqa: F401  (once, before the forks)

from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.vectors import HNSW
from tests.programs.killing import ended_well, forked
from tests.support.banks import bank_in, ids, reflection

MOST_SECONDS = 0.8


class Log:
    """What was begun and what was told to be done, one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, *words: str) -> None:
        with self.path.open("a") as file:
            file.write(" ".join(words) + "\n")

    def said(self, *start: str) -> list[str]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [line.split()[-1] for line in lines if tuple(line.split()[:-1]) == start]


async def write(folder: Path, log: Log, seed: int) -> None:
    bank, draw = bank_in(folder), random.Random(seed)
    for number in range(10_000):
        name = f"{seed:x}x{number}"
        await bank.put(reflection(f"cache {name}", name, f"- lesson-{name} " + "long " * 400))
        log.write("put", name)
        await one_more(bank, folder, log, draw, name)


async def one_more(
    bank: RubricBank, folder: Path, log: Log, draw: random.Random, name: str
) -> None:
    what = draw.choice(("remove", "edit", "search", "snapshot"))
    log.write("begun", what, name)
    if what == "remove":
        await bank.remove(name)
    elif what == "edit":
        await bank.edit(name, "rubrics", f"- lesson-{name}-edited")
    elif what == "search":
        await bank.search("cache", 2)
    else:
        await bank.snapshot(folder / "snapshot")
    log.write(what, name)


async def look(folder: Path, log: Log) -> None:
    bank = bank_in(folder)
    await bank.put(reflection("heap", f"look{time.time_ns()}"))
    held = await bank.items(every=True)
    begun, gone = set(log.said("begun", "remove")), set(log.said("remove"))
    put, there = set(log.said("put")), set(ids(held))
    assert put - begun <= there, f"lost: {put - begun - there}"
    assert not gone & there, f"came back: {gone & there}"
    edited = {item.reflection.replaces for item in held}
    assert set(log.said("edit")) <= edited, "an edit was lost"
    live = {item.reflection.id for item in held if item.live}
    assert set(ids(await bank.search("cache", len(held) + 1))) == live
    whole = b"".join(path.read_bytes() for path in (folder / "bank").rglob("*") if path.is_file())
    assert not [name for name in gone if f"lesson-{name} ".encode() in whole], "text was left"
    if log.said("snapshot"):
        await look_at_snapshot(folder, there)


async def look_at_snapshot(folder: Path, there: set[str]) -> None:
    """The last snapshot is whole, or was being made anew when the process was killed."""
    if (folder / "snapshot" / "snapshot.json").exists():
        other = bank_in(folder / f"other{time.time_ns()}")
        assert await other.restore(folder / "snapshot") > 0
        assert ids(await other.items())


COPIED = "vectors-*"
FILES = (
    "chroma.sqlite3", "data_level0.bin", "header.bin", "index_metadata.pickle", "link_lists.bin",
    "current.json", COPIED,
)  # fmt: skip


async def fill(folder: Path) -> None:
    bank = bank_in(folder)
    await bank.bring_in(reflection(f"heap {'path ' * n}", f"h{n}") for n in range(60))
    await bank.bring_in([reflection("cache rome", "near"), reflection("cache", "next")])
    await bank.search("heap")


def search(folder: Path) -> None:
    found = asyncio.run(bank_in(folder).search("cache rome", 2))
    (folder / "found").write_text(" ".join(ids(found)))


def damage(path: Path, how: str) -> None:
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(bytes([255, 7, 0, 1]) * (path.stat().st_size // 4))


def kill_writers(folder: Path, seed: int, kills: int) -> None:
    # Its files are then written while a few dozen are put, not every thousand.
    HNSW.update(sync_threshold=8, batch_size=4)
    folder.mkdir(parents=True, exist_ok=True)
    draw, log = random.Random(seed), Log(folder / "log")
    for number in range(kills):
        child = forked(lambda n=number: asyncio.run(write(folder, log, seed + n)))  # type: ignore[misc]
        time.sleep(draw.uniform(0.05, MOST_SECONDS))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if not ended_well(forked(lambda: asyncio.run(look(folder, log)))):
            raise SystemExit(f"after kill {number} with the seed {seed}")
    print(len(log.said("put")), len(log.said("remove")), len(log.said("edit")))


def damage_index(folder: Path, how: str) -> None:
    # With so few items Chroma would else keep them in its database alone.
    HNSW.update(sync_threshold=20, batch_size=10)
    ended_well(forked(lambda: asyncio.run(fill(folder / "whole"))))
    for name in FILES:
        copy = folder / name.strip("-*")
        shutil.copytree(folder / "whole", copy)
        index = copy / "bank" / "index"
        if name != COPIED:  # beside which nothing else is read while nothing is put
            for path in index.glob(COPIED):
                path.unlink()
        [path] = index.rglob(name)
        damage(path, how)
        found = []
        for _ in range(3):
            (copy / "found").write_text("crashed")
            ended_well(forked(lambda copy=copy: search(copy)))  # type: ignore[misc]
            found.append((copy / "found").read_text())
        print(name, *found, sep=",")


if __name__ == "__main__":
    what, place, *how = sys.argv[1:]
    if what == "index":
        damage_index(Path(place), *how)
    else:
        kill_writers(Path(place), *map(int, how))
