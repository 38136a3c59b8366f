"""What the tests of the web page do in a browser, in the words of who uses it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.waiting import PATIENCE, wait_for
from tests.web_site import Site

PHONE: ViewportSize = {"width": 360, "height": 740}
QUESTION = "What does lru_cache do with maxsize None?"
CSRF = {"X-Rubricem": "1"}
SOON = 60_000
"""milliseconds that are waited for what is to be on a page"""
expect.set_options(timeout=SOON)


@contextmanager
def opened(
    browser: Browser, site: Site, address: str = "", *, hostile: bool = False, **context: Any
) -> Iterator[Page]:
    """A page of the site; it fails at the end where a script did, or where the policy was broken.

    `hostile`: the test itself has the page parse what the policy forbids.
    """
    with browser.new_context(base_url=site.url, **context) as fresh:
        fresh.set_default_timeout(SOON)
        page = fresh.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"a script ran: {dialog.message}"))
        if not hostile:
            page.on("console", lambda said: _keep_policy(faults, said.text))
        page.on("request", lambda request: _keep_home(faults, site, request.url))
        page.goto(f"{site.url}{address}")
        yield page
        assert not faults, faults


def _keep_policy(faults: list[str], said: str) -> None:
    if "Content Security Policy" in said:
        faults.append(said)


def _keep_home(faults: list[str], site: Site, address: str) -> None:
    if not address.startswith(site.url):
        faults.append(f"it asked {address}")


def ask(page: Page, question: str = QUESTION) -> str:
    """Ask on the first page; returns the run's key."""
    page.get_by_role("textbox", name="Question").fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_url("**/#/run/*")
    return page.url.rpartition("/")[2]


def begun(site: Site, question: str = QUESTION, **more: Any) -> dict[str, str]:
    """A run that is asked for without a page: its key and its thread's."""
    body = {"question": question, **more}
    reply = httpx.post(f"{site.url}api/runs", json=body, headers=CSRF, timeout=PATIENCE)
    assert reply.status_code == 201, reply.text
    said: dict[str, str] = reply.json()
    return said


def finished(site: Site, question: str = QUESTION, **more: Any) -> dict[str, str]:
    """The same, come to its end."""
    asked = begun(site, question, **more)
    address = f"{site.url}api/runs/{asked['run']}"
    wait_for(lambda: httpx.get(address, timeout=PATIENCE).json()["status"])
    return asked


def run_address(run: str, tab: str = "") -> str:
    return f"#/run/{quote(run)}{tab}"


def has_heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1, name=text)).to_be_visible()


def is_told(site: Site, words: str) -> None:
    """The model is told these words, now or soon."""
    wait_for(lambda: any(words in str(told.body["messages"]) for told in site.model.requests))
