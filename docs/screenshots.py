"""The pictures of the documentation: of the real server over a scripted model, and of a terminal.

    python -m docs.screenshots [--folder docs/images] [--theme light|dark] [--phone] [VIEW ...]

`terminal` is what a command prints with the embedded 1.5B, drawn as a terminal shows it; it takes a
minute or two. `deep` is a whole run of deep research over `benchmarks.deep.model`. All but the
first need Chromium (Debian: apt install chromium) and what the tests need.
Colours are reduced to a palette, so that a picture stays within some tens of kilobytes.
"""

import argparse
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright
from rich.console import Console
from rich.text import Text

from benchmarks.deep.__main__ import serving
from benchmarks.deep.model import QUESTION as LINES_QUESTION
from rubricem.agent.serve.app import create_app
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.security import Security
from rubricem.agent.settings import Settings
from rubricem.agent.transcript.question import Effort
from tests.conftest import COMMAND
from tests.support.pages import CHROMIUM, PHONE, Site, begun, finished, run_address, seeded, website
from tests.support.tool_servers import serving_http

DESK: ViewportSize = {"width": 1200, "height": 780}
COLOURS = 192
COLUMNS = 100
NOTES = """# Heating

The boiler in the cellar was serviced on 12 March 2025; the next service is due in March 2027.
If the display shows F5, the water pressure is too low: open the blue tap until the gauge reads
1.5 bar, then press reset.
"""
QUESTION = "What does lru_cache do when maxsize is None, and what does a bound cost?"


def ask(page: Page, site: Site) -> None:
    page.goto(site.url)
    page.locator(".chip").first.wait_for()
    page.get_by_role("textbox", name="Question").fill(QUESTION)


def plan(page: Page, site: Site) -> None:
    page.goto(f"{site.url}{run_address(begun(site, QUESTION, approve_plan=True)['run'])}")
    page.get_by_role("button", name="Follow this plan").wait_for()


def watch(page: Page, site: Site) -> None:
    page.goto(f"{site.url}{run_address(begun(site, f'{QUESTION} slowly')['run'])}")
    page.get_by_text("measured hits of a bounded cache").last.wait_for()


def report(page: Page, site: Site) -> None:
    page.goto(f"{site.url}{run_address(finished(site, QUESTION)['run'])}")
    page.get_by_role("article").wait_for()


def thread(page: Page, site: Site) -> None:
    asked = finished(site, QUESTION)["thread"]
    finished(site, "And who found the elements? It is a rich lru_cache", thread=asked)
    page.goto(f"{site.url}#/conversations/{asked}")
    page.get_by_role("article").nth(1).wait_for()
    page.get_by_role("article").last.scroll_into_view_if_needed()


def citation(page: Page, site: Site) -> None:
    report(page, site)
    page.locator("[data-citation='3']").click()
    page.get_by_role("dialog").wait_for()


def conversations(page: Page, site: Site) -> None:
    for asked in ("Which runs are kept, and where?", "What does typed=True do to lru_cache?"):
        finished(site, asked)
    page.goto(f"{site.url}#/conversations")
    page.locator("main .list > li").first.wait_for()


def memory(page: Page, site: Site) -> None:
    page.goto(f"{site.url}#/memory")
    page.locator("main .list a").first.wait_for()


def settings(page: Page, site: Site) -> None:
    page.goto(f"{site.url}#/settings")
    page.locator(".setting").first.wait_for()


def judge(page: Page, site: Site) -> None:
    page.goto(f"{site.url}#/judge/{finished(site, QUESTION)['run']}")
    page.get_by_role("button", name="Judge this run").click()
    page.locator(".criteria").first.wait_for()


def training(page: Page, site: Site) -> None:
    page.goto(f"{site.url}#/training/trained/adapter")
    page.locator(".chart").first.wait_for()


def deep(page: Page, site: Site) -> None:
    """Of a server of its own, over the model and the pages of `benchmarks.deep`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(0.05) as model,
        serving_http(
            create_app(RunDesk(researching(model.root, Path(folder))), Security())
        ) as address,
    ):
        here = Site(f"{address}/", site.settings, site.model)
        page.goto(f"{here.url}{run_address(begun(here, LINES_QUESTION)['run'])}")
        page.get_by_role("article").wait_for(timeout=180_000)


def researching(root: str, folder: Path) -> Settings:
    return Settings(
        base_url=f"{root}/v1",
        model="loopback",
        source=(f"searxng:{root}",),
        allow_hosts=(root.removeprefix("http://"),),
        effort=Effort.DEEP,
        data_dir=folder / "data",
        weights_dir=folder / "none",
    )


VIEWS: tuple[Callable[[Page, Site], None], ...] = (
    ask, plan, watch, report, citation, thread, conversations, memory, judge, training, settings,
    deep,
)  # fmt: skip


def terminal(folder: Path, path: Path) -> None:
    """Ask the embedded model on the command line over a folder of notes, and draw what it said."""
    (folder / "notes").mkdir()
    (folder / "notes" / "house.md").write_text(NOTES, encoding="utf-8")
    asked = "The heating shows F5, what do I do?"
    command = ["rubricem", "ask", asked, "--source", "notes"]
    environment = os.environ | {"RUBRICEM_DATA_DIR": str(folder / "asked")}
    done = subprocess.run(
        [*COMMAND, *command[1:]],
        cwd=folder, env=environment, check=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    console = Console(record=True, width=COLUMNS, file=StringIO())
    console.print(Text.assemble(("$ ", "green"), (shlex.join(command), "bold")))
    console.print(Text(done.stdout.rstrip()))
    # The letters are those that whoever looks at it has: nothing is fetched.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="rubricem"), flags=re.S)
    path.write_text(drawn, encoding="utf-8")


@contextmanager
def opened(browser: Browser, theme: str, phone: bool) -> Iterator[Page]:
    """A page of one size and theme, without movement."""
    with browser.new_context(
        viewport=PHONE if phone else DESK,
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
        device_scale_factor=2 if phone else 1,
    ) as context:
        yield context.new_page()


def take(page: Page, path: Path) -> None:
    """Keep what is seen, in few colours."""
    page.evaluate("document.fonts.ready")
    seen = Image.open(BytesIO(page.screenshot())).convert("RGB")
    seen.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "images")
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    parser.add_argument("--phone", action="store_true")
    parser.add_argument("views", nargs="*", help="some of them; all, if none is named")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if not options.views or terminal.__name__ in options.views:
        with tempfile.TemporaryDirectory() as folder:
            terminal(Path(folder), options.folder / "terminal.svg")
    if options.views == [terminal.__name__]:
        return
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        seeded(Path(folder))
        with website(Path(folder)) as site, opened(browser, options.theme, options.phone) as page:
            wanted = options.views or [view.__name__ for view in VIEWS]
            for view in (each for each in VIEWS if each.__name__ in wanted):
                page.goto("about:blank")  # what a view waits for may stand in the one before
                view(page, site)
                take(page, options.folder / f"{view.__name__}.png")
        browser.close()


if __name__ == "__main__":
    main()
