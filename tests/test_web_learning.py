"""Learning as it is seen and steered on the memory view of the page."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.learning import Server
from tests.scripted_server import Fault, Hang, Json, Scripted
from tests.web_pages import PHONE, QUESTION, finished, opened
from tests.web_scripts import reply
from tests.web_site import Site, website

LONG = 120_000
"""milliseconds for a run to be judged and reflected on"""


class Model:
    """The scripted model of the page; its stage judge answers with `judge`, where that is set."""

    def __init__(self) -> None:
        self.judge: Scripted | None = None
        self._learning = Server()

    def __call__(self, body: Json, number: int) -> Scripted:
        system = str(body["messages"][0]["content"])
        if system.startswith(("You review finished", "You judge reviews")):
            return self._learning(body, number)
        usual = reply(body, number)
        judging = "You are a research agent" not in system and not system.startswith("You check")
        return self.judge if judging and self.judge is not None else usual


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def site(tmp_path: Path, model: Model) -> Iterator[Site]:
    with website(tmp_path, model_says=model, memory="on") as found:
        yield found


def waiting(site: Site) -> int:
    """How many runs wait and are not learnt from just now."""
    state = httpx.get(f"{site.url}api/learning").json()
    return 0 if state["now"] else int(state["waiting"])


def panel(page: Page) -> "Page":
    return page.get_by_role("region", name="Learning")  # type: ignore[return-value]


def test_what_waits_is_learnt_from_stopped_and_learnt_from_again(
    browser: Browser, site: Site, model: Model
):
    model.judge = Fault(401)
    finished(site)
    with opened(browser, site, "#/memory") as page:
        said = panel(page).get_by_role("status")
        learn = panel(page).get_by_role("button", name="Learn from them now")
        expect(said).to_have_text("1 run waits to be learnt from.", timeout=LONG)
        panel(page).get_by_text("What the latest runs taught").click()
        expect(panel(page).get_by_text("Failed; it waits")).to_be_visible()
        expect(panel(page)).to_contain_text("API key")
        model.judge = Hang()
        learn.click()
        expect(said).to_contain_text(f"Judging this run: “{QUESTION}”", timeout=LONG)
        stop = panel(page).get_by_role("button", name="Stop")
        expect(stop).to_be_focused()
        stop.click()
        expect(said).to_have_text("1 run waits to be learnt from.", timeout=LONG)
        model.judge = None
        expect(learn).to_be_focused()
        learn.press("Enter")
        expect(said).to_contain_text("Nothing waits to be learnt from.", timeout=LONG)
        expect(said).to_contain_text("Runs are learnt from as they end.")
        expect(panel(page).get_by_text("Kept", exact=True)).to_be_visible()
        items = page.locator("main .list").get_by_role("listitem")
        expect(items).to_have_count(1)
        panel(page).get_by_role("link", name="what it taught").click()
        expect(page.get_by_role("heading", level=1, name=QUESTION)).to_be_visible()


def test_the_panel_has_no_serious_fault_and_fits_a_phone(
    browser: Browser, site: Site, model: Model
):
    model.judge = Fault(401)
    finished(site)
    with opened(browser, site, "#/memory", viewport=PHONE, reduced_motion="reduce") as page:
        expect(panel(page).get_by_role("status")).to_contain_text("1 run waits", timeout=LONG)
        panel(page).get_by_text("What the latest runs taught").press("Enter")
        faults = Axe().run(page).response["violations"]
        assert [f["id"] for f in faults if f["impact"] in ("serious", "critical")] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_nothing_is_said_of_learning_where_nothing_ever_waited(browser: Browser, site: Site):
    with opened(browser, site, "#/memory") as page:
        expect(page.get_by_role("heading", name="Nothing learnt yet")).to_be_visible()
        expect(panel(page)).to_have_count(0)
