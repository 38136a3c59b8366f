"""A bank whose writers are killed at random moments, and one that is killed while it is migrated.

    python -m tests.programs.bank_killed writers FOLDER SEED KILLS
    python -m tests.programs.bank_killed migrating FOLDER FIXTURE

Every writer is a fork that puts, edits, removes, searches and copies until it is killed (SIGKILL);
what it was told is done stands in a log, and after each kill another fork looks at everything. The
older bank is killed once at each moment at which it opens, makes or renames something.
"""

import asyncio
import itertools
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import chromadb  # noqa: F401  (once, before the forks)

from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.index import HNSW
from rubricem.memory.bank.store import BankStore
from tests.programs.killing import Moments, ended_well, forked
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
        BankStore(bank.folder).snapshot(folder / "snapshot")
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
    live = {item.reflection.id for item in held if item.state == "active"}
    assert set(ids(await bank.search("cache", len(held) + 1))) == live
    whole = b"".join(path.read_bytes() for path in (folder / "bank").glob("bank.db*"))
    assert not [name for name in gone if f"lesson-{name} ".encode() in whole], "text was left"
    if log.said("snapshot"):
        other = folder / f"other{time.time_ns()}"
        BankStore(other).restore(folder / "snapshot")
        assert BankStore(other).generation() > 0


def kill_writers(folder: Path, seed: int, kills: int) -> None:
    # Its files are then written while a few dozen are put, not every hundred.
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


EVENTS = ("open", "os.mkdir", "os.rename", "shutil.rmtree", "sqlite3.connect")


def migrate(folder: Path, last: int | None) -> None:
    moments = Moments(last)

    def heard(event: str, args: tuple[object, ...]) -> None:
        if event in EVENTS and str(args[0]).startswith(str(folder)):
            moments.pass_one()

    sys.addaudithook(heard)
    print(*ids(asyncio.run(bank_in(folder).items())), flush=True)


def kill_migrating(folder: Path, fixture: Path) -> None:
    for last in itertools.count(1):
        at = folder / str(last)
        shutil.copytree(fixture, at / "bank")
        through = ended_well(forked(lambda at=at, n=last: migrate(at, n)))  # type: ignore[misc]
        if not through and not ended_well(forked(lambda at=at: migrate(at, None))):  # type: ignore[misc]
            raise SystemExit(f"after a kill at moment {last}")
        if through:
            return


if __name__ == "__main__":
    what, place, *how = sys.argv[1:]
    if what == "migrating":
        kill_migrating(Path(place), Path(how[0]))
    else:
        kill_writers(Path(place), *map(int, how))
