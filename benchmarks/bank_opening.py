"""A bank opened and asked once in a process of its own: how long it takes, and what it loads.

    python -m benchmarks.bank_opening FOLDER QUESTION VECTOR K [--after FOLDER]

VECTOR is a file with the question's vector, so that nothing is embedded. With `--after`, another
bank is asked first: all imports have then been made, and only opening and asking are timed.
Prints one JSON object: `seconds`, `cpu_seconds` (of all threads), `grown_bytes` (of resident
memory; null where the system does not tell) and `loaded`, which of the heavy packages are
imported at the end.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rubricem.memory.bank import RubricBank
from rubricem.memory.schema import Embedder

HEAVY = ("chromadb", "sentence_transformers", "torch")
Vectors = NDArray[np.float32]


class VectorTable:
    """An `Embedder` that knows the vectors of its texts and of no others."""

    name = "looked up"

    def __init__(self, rows: Mapping[str, int], vectors: Vectors) -> None:
        """`vectors` (n, d); `rows` names the row of each text."""
        self._rows = rows
        self._vectors = vectors

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        return self._vectors[[self._rows[text] for text in texts]]


def bank_over(data_dir: Path, table: Embedder) -> RubricBank:
    """The bank of a data directory, its vectors looked up."""

    async def open_table() -> Embedder:
        return table

    return RubricBank(data_dir, open_table)


def open_in_process(
    folder: Path, question: str, vector: Path, k: int, after: Path | None = None
) -> dict[str, Any]:
    """What the process of one opening says."""
    asked = [
        str(folder),
        question,
        str(vector),
        str(k),
        *(["--after", str(after)] if after else []),
    ]
    command = [sys.executable, "-m", "benchmarks.bank_opening", *asked]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


async def main(arguments: argparse.Namespace) -> None:
    table = VectorTable({arguments.question: 0}, np.load(arguments.vector)[None])
    if arguments.after:
        await bank_over(arguments.after, table).recall(arguments.question)
    before = resident()
    began, cpu = time.perf_counter(), time.process_time()
    await bank_over(arguments.folder, table).recall(arguments.question, arguments.k)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    after = resident()
    said = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "grown_bytes": None if before is None or after is None else after - before,
        "loaded": [name for name in HEAVY if name in sys.modules],
    }
    print(json.dumps(said))


def resident() -> int | None:
    """Bytes of this process in memory; None where there is no /proc."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a data directory")
    parser.add_argument("question")
    parser.add_argument("vector", type=Path, help="the question's vector (.npy)")
    parser.add_argument("k", type=int, help="items recalled at most")
    parser.add_argument("--after", type=Path, help="a data directory asked before")
    asyncio.run(main(parser.parse_args()))
