"""Whether what is there is found: `python -m benchmarks.names [--quick|--full]`.

The libraries installed here are indexed as the source `python` does it, and each of the 200
everyday names of `names.txt` is searched for by itself: it is found if one of the first three
passages stands under it. Names of libraries that are not installed do not count, and are said.
`--quick` reads only the libraries of the list, `--full` (default) all that are installed.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from benchmarks.report import Value, emit
from rubricem.agent.sources.index import LexicalIndex, build_index
from rubricem.agent.sources.python import collect, installed, weight_of

NAMES = Path(__file__).parent / "names.txt"
FIRST = 3
TARGETS = {"found_share": ">= 0.98", "reading_and_indexing_cpu_s": "<= 120"}


@dataclass(frozen=True, slots=True)
class Sought:
    """A name as its users write it, and the places that are it."""

    library: str
    name: str
    places: tuple[str, ...]


def main() -> None:
    """Index, search, print what is missing, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="only the libraries of the list")
    size.add_argument("--full", action="store_true", help="all that are installed (default)")
    args = parser.parse_args()
    sought = read_names(NAMES.read_text("utf-8"))
    libraries = {one.library for one in sought}
    # `langgraph-checkpoint` holds a part of langgraph.
    found = [
        distribution
        for distribution in installed()
        if not args.quick or {name := distribution.name.lower(), name.split("-")[0]} & libraries
    ]
    there = {"python", *(distribution.name.lower() for distribution in found)}
    missing_libraries = sorted(libraries - there)
    sought = [one for one in sought if one.library in there]
    with tempfile.TemporaryDirectory() as folder:
        index, values = _indexed(found, Path(folder))
        lost = _lost(index, sought)
    for one, places in lost:
        print(f"missing {one.name}: {', '.join(places)}")
    for library in missing_libraries:
        print(f"not installed: {library}")
    share = 1 - len(lost) / len(sought)
    values = {"found_share": round(share, 3), "names": len(sought), "missing": len(lost), **values}
    cpu = float(values["reading_and_indexing_cpu_s"] or 0)
    emit("names", values, TARGETS, share >= 0.98 and cpu <= 120, _how(len(found)))


def read_names(text: str) -> list[Sought]:
    """The names of a list: lines of a library, a colon, and names with `|` between equals."""
    found: list[Sought] = []
    for line in text.splitlines():
        library, _, names = line.partition(": ")
        for name in names.split() if not line.startswith("#") else ():
            places = tuple(name.split("|"))
            found.append(Sought(library, places[0], places))
    return found


def _indexed(found: list[Distribution], folder: Path) -> tuple[LexicalIndex, dict[str, Value]]:
    start, cpu = time.perf_counter(), time.process_time()
    read = collect(found)
    read_cpu = time.process_time() - cpu
    index = build_index(read.passages, folder, "names", "0" * 24, weight_of, see=read.see)
    values: dict[str, Value] = {
        "reading_cpu_s": round(read_cpu, 1),
        "reading_and_indexing_cpu_s": round(time.process_time() - cpu, 1),
        "reading_and_indexing_s": round(time.perf_counter() - start, 1),
        "passages": len(read.passages),
        "other_names": len(read.see),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "left_out": read.left_out,
    }
    return index, values


def _lost(index: LexicalIndex, sought: Sequence[Sought]) -> list[tuple[Sought, list[str]]]:
    """The names that are not found, with what is found instead."""
    lost = []
    for one in sought:
        places = [passage.place for passage in index.search(one.name, FIRST)]
        if not set(places) & set(one.places):
            lost.append((one, places))
    return lost


def _how(libraries: int) -> str:
    return (
        f"each name alone as the query, over {libraries} installed distributions and the standard "
        f"library, first {FIRST} passages, {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
