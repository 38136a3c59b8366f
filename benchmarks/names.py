"""Whether what is there is found: `python -m benchmarks.names [--quick|--full]`.

The libraries installed here are indexed as the source `python` does it, and each of the 200
everyday names of `names.txt` is searched for by itself: it is found if one of the first three
passages stands under it. Names of libraries that are not installed do not count, and are said. The
first answer is one over an empty shelf.
`--quick` reads only the libraries of the list, `--full` (default) all that are installed.
"""

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Value, emit
from rubricem.agent.sources.index import LexicalIndex
from rubricem.agent.sources.libraries import PythonDocs, Shelf, find_distributions

NAMES = Path(__file__).parent / "names.txt"
FIRST = 3
ASKED = "How do I read a CSV file with semicolons with pandas.read_csv?"
TARGETS = {"found_share": ">= 0.98", "first_answer_cpu_s": "<= 5"}


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
    there = {"python", *(distribution.name.lower() for distribution in find_distributions())}
    missing_libraries = sorted(libraries - there)
    sought = [one for one in sought if one.library in there]
    only = frozenset(name.replace("-", "_") for name in libraries) if args.quick else None
    with tempfile.TemporaryDirectory() as folder:
        index, values = _make_index(only, Path(folder))
        lost = _find_lost(index, sought)
        values |= asyncio.run(_first_answers(Path(folder)))
    for one, places in lost:
        print(f"missing {one.name}: {', '.join(places)}")
    for library in missing_libraries:
        print(f"not installed: {library}")
    share = 1 - len(lost) / len(sought)
    values = {"found_share": round(share, 3), "names": len(sought), "missing": len(lost), **values}
    cpu = float(values["first_answer_cpu_s"] or 0)
    emit("names", values, TARGETS, share >= 0.98 and cpu <= 5, _how(len(index.segments)))


def read_names(text: str) -> list[Sought]:
    """The names of a list: lines of a library, a colon, and names with `|` between equals."""
    found: list[Sought] = []
    for line in text.splitlines():
        library, _, names = line.partition(": ")
        for name in names.split() if not line.startswith("#") else ():
            places = tuple(name.split("|"))
            found.append(Sought(library, places[0], places))
    return found


def _make_index(only: frozenset[str] | None, folder: Path) -> tuple[LexicalIndex, dict[str, Value]]:
    """The index of all, or of what has one of the names, and what it took."""
    shelf = Shelf(folder / "all")
    if only is not None:
        shelf.libraries = [one for one in shelf.libraries if one.names & only or not one.names]
    start, cpu = time.perf_counter(), time.process_time()
    shelf.read_all()
    index = shelf.index()
    values: dict[str, Value] = {
        "reading_and_indexing_cpu_s": round(time.process_time() - cpu, 1),
        "reading_and_indexing_s": round(time.perf_counter() - start, 1),
        "libraries": len(index.segments),
        "passages": len(index.passages),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "left_out": ", ".join(index.notes),
    }
    return index, values


async def _first_answers(folder: Path) -> dict[str, Value]:
    """CPU seconds of this process until a first search is answered: on an empty shelf, on a full.

    What the process behind takes meanwhile is not among them.
    """
    values: dict[str, Value] = {}
    for name, place in (("first", folder / "first"), ("later", folder / "all")):
        cpu = time.process_time()
        source = PythonDocs(place)
        await source.search(ASKED, FIRST)
        values[f"{name}_answer_cpu_s"] = round(time.process_time() - cpu, 2)
        await asyncio.to_thread(source.close, wait=True)
    return values


def _find_lost(index: LexicalIndex, sought: Sequence[Sought]) -> list[tuple[Sought, list[str]]]:
    """The names that are not found, with what is found instead."""
    lost = []
    for one in sought:
        places = [passage.place for passage in index.search(one.name, FIRST)]
        if not set(places) & set(one.places):
            lost.append((one, places))
    return lost


def _how(libraries: int) -> str:
    return (
        f"each name alone as the query, over {libraries} installed libraries, the standard "
        f"library among them, first {FIRST} passages, {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
