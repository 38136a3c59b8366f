"""How soon the web page is painted, what it weighs, and how much moves while a run is written.

    python -m benchmarks.page [--quick | --full]

`rubricem serve` runs as a process of its own over a loopback model; Chromium opens the page
several times, each time as a visitor that was never there. First paint is the browser's own
first contentful paint, counted from the navigation. The weight is that of every file that the
server sends for the page, all views opened once, without compression; formulas come late, where a
report holds one. Grave faults are what axe calls serious or critical there. Layout shift is the
sum of what moved by itself while one run went from its question to its answer, as the browser
counts it.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.loopback import serving
from benchmarks.report import Value, emit, sized_parser

CHROMIUM = "/usr/bin/chromium"
MOST_PAINT_SECONDS = 1.0
MOST_KILOBYTES = 450
MOST_SHIFT = 0.1
"""what browsers' makers call good"""
GRAVE = ("serious", "critical")
VIEWS = ("Conversations", "Memory", "Judge", "Training", "Settings")
SERVE = "from rubricem.agent.cli import main; main(prog_name='rubricem')"
WAIT = 60_000
"""milliseconds"""

_PAINT = """() => new Promise((done) => {
    const known = performance.getEntriesByName("first-contentful-paint")[0];
    if (known) done(known.startTime);
    new PerformanceObserver((list) => {
        const found = list.getEntriesByName("first-contentful-paint")[0];
        if (found) done(found.startTime);
    }).observe({ type: "paint", buffered: true });
})"""
_FILES = """() => ["navigation", "resource"]
    .flatMap((kind) => performance.getEntriesByType(kind))
    .map((entry) => [entry.name, entry.decodedBodySize])"""
_WATCH = """() => {
    window.moved = 0;
    const add = (shift) => { if (!shift.hadRecentInput) window.moved += shift.value; };
    new PerformanceObserver((list) => list.getEntries().forEach(add))
        .observe({ type: "layout-shift", buffered: true });
}"""


@contextmanager
def serve(model: str, folder: Path) -> Iterator[str]:
    """The address of a server over this model, in a process of its own."""
    (folder / "notes").mkdir()
    (folder / "notes" / "rules.md").write_text("# Rules\n\nThe rule decides the order.\n")
    options = ["--port", "0", "--base-url", model, "--source", str(folder / "notes")]
    command = [sys.executable, "-c", SERVE, "serve", *options, "--set", "memory=off", "--no-token"]
    environment = os.environ | {"RUBRICEM_DATA_DIR": str(folder / "data")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, "the server did not say its address"
            yield found[0]
        finally:
            process.terminate()


def first_paint(browser: Browser, address: str) -> float:
    """Seconds from the navigation to the first content, for somebody who was never there."""
    with browser.new_context() as visitor:
        page = visitor.new_page()
        page.goto(address)
        return float(page.evaluate(_PAINT)) / 1000


def weight(browser: Browser, address: str) -> tuple[dict[str, int], int]:
    """Bytes of each file that the page is made of, by its path; grave faults of its views."""
    with browser.new_context() as visitor:
        page = visitor.new_page()
        watch(page, address)
        faults = grave(page)
        for view in VIEWS:
            page.get_by_role("link", name=view, exact=True).click()
            page.get_by_role("heading", level=1, name=view).wait_for()
            faults += grave(page)
        sizes = {urlsplit(name).path: int(size) for name, size in page.evaluate(_FILES)}
    return {path: size for path, size in sizes.items() if not path.startswith("/api/")}, faults


def grave(page: Page) -> int:
    found = Axe().run(page).response["violations"]
    return sum(fault["impact"] in GRAVE for fault in found)


def watch(page: Page, address: str) -> float:
    """Ask, watch until the answer is being written, read the report; what moved until then."""
    page.goto(address)
    page.get_by_role("textbox", name="Question").fill("Which rule decides the order?")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_url("**/#/run/*")
    page.evaluate(_WATCH)
    # A run that ends meanwhile is its report.
    writing, read = page.get_by_role("region", name="Answer"), page.get_by_role("article")
    writing.or_(read).first.wait_for(timeout=WAIT)
    moved = float(page.evaluate("window.moved"))
    read.wait_for(timeout=WAIT)
    return moved


def main() -> None:
    parser = sized_parser(__doc__, "5 visits (the default)", "25 visits")
    visits = 25 if parser.parse_args().full else 5
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(delay=1.0, chunks=40) as model,
        serve(model, Path(folder)) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        first_paint(browser, address)
        paints = [first_paint(browser, address) for _ in range(visits)]
        sizes, faults = weight(browser, address)
        with browser.new_context() as visitor:
            moved = watch(visitor.new_page(), address)
        version = browser.version
        browser.close()
    report(paints, sizes, (moved, faults), version)


def report(
    paints: list[float], sizes: dict[str, int], seen: tuple[float, int], version: str
) -> None:
    moved, faults = seen
    kilobytes, paint = sum(sizes.values()) / 1000, statistics.median(paints)
    values: dict[str, Value] = {
        "first_paint_s_median": round(paint, 3),
        "first_paint_s_max": round(max(paints), 3),
        "weight_kB": round(kilobytes, 1),
        "files": len(sizes),
        "layout_shift": round(moved, 4),
        "grave_faults": faults,
    }
    most = {"first_paint_s_median": MOST_PAINT_SECONDS, "weight_kB": MOST_KILOBYTES}
    most |= {"layout_shift": MOST_SHIFT, "grave_faults": 0}
    how = (
        f"Chromium {version}, {len(paints)} visits with an empty cache after one to warm the "
        f"disk's; all views opened; loopback, uncompressed; {os.cpu_count()} cores"
    )
    emit("page", values, how, most=most)


if __name__ == "__main__":
    main()
