"""One Chromium and one server with something in every view, for all tests of the page.

Both live as long as this folder's tests: Playwright keeps an event loop running in their thread,
in which no other test could start its own. A test that counts what is listed asks its own
question, or counts before and after.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.pages import CHROMIUM, PHONE, Site, grave_faults, opened, seeded, website


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Without it the tests are skipped."""
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no {CHROMIUM}; on Debian: apt install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM)
        yield found
        found.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    seeded(folder)
    with website(folder) as found:
        yield found


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """The first page, on which nothing moves by itself."""
    with opened(browser, site, reduced_motion="reduce") as found:
        yield found


def faults(page: Page) -> list[object]:
    """What keeps people from using the page as it stands, or from reading it on a phone."""
    found: list[object] = [*grave_faults(page)]
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size(PHONE)
    width = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size(size)
    return found + ([f"{width} wide"] if width > PHONE["width"] else [])
