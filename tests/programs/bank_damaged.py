"""A bank whose index is damaged, file by file, and asked in forks, as Chroma may crash on it.

    python -m tests.programs.bank_damaged FOLDER cut|garbage|gone

It prints, for each damaged file, what each of three processes in a row found.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import chromadb  # noqa: F401  (once, before the forks)

from rubricem.memory.bank.vectors import HNSW
from tests.programs.bank_killed import forked
from tests.support.banks import bank_in, ids, reflection

FILES = (
    "chroma.sqlite3", "data_level0.bin", "header.bin", "index_metadata.pickle", "link_lists.bin",
    "current.json",
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


def main(folder: Path, how: str) -> None:
    # With so few items Chroma would else keep them in its database alone.
    HNSW.update(sync_threshold=20, batch_size=10)
    os.waitpid(forked(lambda: asyncio.run(fill(folder / "whole"))), 0)
    for name in FILES:
        copy = folder / name
        shutil.copytree(folder / "whole", copy)
        [path] = (copy / "bank" / "index").rglob(name)
        damage(path, how)
        found = []
        for _ in range(3):
            (copy / "found").write_text("crashed")
            os.waitpid(forked(lambda copy=copy: search(copy)), 0)  # type: ignore[misc]
            found.append((copy / "found").read_text())
        print(name, *found, sep=",")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
