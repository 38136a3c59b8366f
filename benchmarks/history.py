"""How soon one of 10,000 past runs is found, and the history of them all is shown.

    python -m benchmarks.history [--quick | --full]

As many runs as a busy person has after years are written into a data directory: questions and
reports of words that are as common as words of a text are (Zipf's law), each with its journal's
folder. A search takes in what changed since the last one, looks at every folder for that, and
reads a page of rows; the slowest of several kinds of queries counts, each its median. The first row
is counted in Chromium from the navigation to the history view to the first row in it, by a server
that has the index. `indexing` is the time that the index takes where there is none.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.page import CHROMIUM, serve
from benchmarks.report import Value, emit
from rubricem.agent.research.history import History
from rubricem.memory.runs import RunStore
from tests.support.values import trajectory

RUNS, QUICK_RUNS = 10_000, 2_000
WORDS = 20_000
MOST_SEARCH_MS, MOST_FIRST_ROW_SECONDS = 100.0, 0.5
LOOKS = 7
QUERIES = ("w7", "w3 w40", "w1500", "w12345 w2", "w88 nothing", "")
"""common words, rare ones, one that is nowhere, and the list itself"""


def write_runs(data_dir: Path, number: int) -> RunStore:
    """The same runs each time, one a minute, the first in 2023."""
    store, draw = RunStore(data_dir), random.Random(7)
    names = [f"w{n}" for n in range(1, WORDS)]
    weights = [1 / n for n in range(1, WORDS)]
    for at in range(number):
        thread = f"run{at:06}"
        words = draw.choices(names, weights, k=260)
        question, report = " ".join(words[:12]), " ".join(words[12:])
        folder = store.folder / thread
        folder.mkdir(parents=True)
        request = {
            "ask": {"question": question, "answer_format": "long"},
            "choices": {"model": "m"},
        }
        (folder / "request.json").write_text(json.dumps(request))
        ended = trajectory(f"{report}.", question=question)
        ended = ended.model_copy(update={"thread": thread})
        (folder / "trajectory.json").write_text(ended.model_dump_json())
        when = 1_700_000_000 + 60 * at
        for path in (folder / "request.json", folder):
            os.utime(path, (when, when))
    return store


def searches(history: History, query: str, clock: Callable[[], float]) -> list[float]:
    """Milliseconds of each look by a clock: follow the folders, count, and read a page."""
    taken = []
    for _ in range(LOOKS):
        began = clock()
        history.follow()
        history.count(query)
        history.page(query, limit=30)
        taken.append(1000 * (clock() - began))
    return taken


def first_rows(address: str) -> list[float]:
    """Seconds from the navigation to the first row, each by a visitor that was never there."""
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        for _ in range(LOOKS):
            with browser.new_context() as visitor:
                page = visitor.new_page()
                page.goto(f"{address}#/history", wait_until="commit")
                page.locator("main .list > li").first.wait_for()
                taken.append(float(page.evaluate("performance.now()")) / 1000)
        browser.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS:,} runs")
    length.add_argument("--full", action="store_true", help=f"{RUNS:,} runs, which is the default")
    number = QUICK_RUNS if parser.parse_args().quick else RUNS
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        history = History(write_runs(folder / "data", number))
        began = time.perf_counter()
        history.follow()
        indexing = time.perf_counter() - began
        medians, cpu = (
            {query: statistics.median(searches(history, query, clock)) for query in QUERIES}
            for clock in (time.perf_counter, time.process_time)
        )
        with serve("http://127.0.0.1:9/v1", folder) as address:
            rows = first_rows(address)
    slowest = max(medians, key=medians.__getitem__)
    values: dict[str, Value] = {
        "runs": number,
        "search_ms": round(medians[slowest], 1),
        "search_cpu_ms": round(max(cpu.values()), 1),
        "slowest_query": slowest,
        "first_row_seconds": round(statistics.median(rows), 3),
        "indexing_seconds": round(indexing, 1),
    }
    targets = {
        "search_ms": f"<= {MOST_SEARCH_MS:g}",
        "first_row_seconds": f"<= {MOST_FIRST_ROW_SECONDS:g}",
    }
    holds = medians[slowest] <= MOST_SEARCH_MS and statistics.median(rows) <= MOST_FIRST_ROW_SECONDS
    how = f"medians of {LOOKS}, the slowest of {len(QUERIES)} queries, {os.cpu_count()} cores"
    emit("history", values, targets, holds, how)


if __name__ == "__main__":
    main()
