"""Threads, memory, the judge and the curves, as somebody finds and changes them on the page."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web_pages import QUESTION, finished, has_heading, opened
from tests.web_site import HOSTILE_TAG, Site, seeded, website


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    seeded(folder)
    with website(folder) as found:
        yield found


@pytest.fixture(scope="module")
def asked(site: Site) -> dict[str, str]:
    return finished(site)


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with opened(browser, site) as found:
        yield found


def test_a_thread_is_opened_renamed_branched_and_deleted(page: Page, asked: dict[str, str]):
    page.get_by_role("link", name="Threads").click()
    page.locator("main").get_by_role("link", name=QUESTION).click()
    has_heading(page, QUESTION)
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("Caches <b>of</b> Python")
    page.get_by_role("button", name="Keep").click()
    has_heading(page, "Caches <b>of</b> Python")
    page.get_by_role("button", name="Branch from here").click()
    expect(page.get_by_text("Branched from")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    has_heading(page, "Threads")
    expect(page.locator("main .list").get_by_role("listitem")).to_have_count(1)


def test_a_reflection_is_edited_pinned_and_switched_off(page: Page):
    page.get_by_role("link", name="Memory").click()
    items = page.locator("main .list").get_by_role("listitem")
    expect(items).to_have_count(3)
    page.get_by_role("radiogroup", name="State").get_by_text("Active").click()
    expect(items).to_have_count(1)
    items.get_by_role("link").click()
    takeaways = page.get_by_label("Takeaways")
    expect(takeaways).to_have_value(f"- read {HOSTILE_TAG} first")
    takeaways.fill("- read the release notes, too")
    page.get_by_role("button", name="Keep the changes").click()
    expect(page.get_by_text("Kept.")).to_be_visible()
    expect(page.get_by_text("edited by hand")).to_be_visible()
    page.get_by_role("switch", name="Pinned").check()
    expect(page.get_by_text("Pinned", exact=True)).to_be_visible()
    page.reload()
    expect(takeaways).to_have_value("- read the release notes, too")
    expect(page.get_by_role("switch", name="Pinned")).to_be_checked()
    page.get_by_role("switch", name="Disabled").check()
    expect(page.get_by_text("Disabled", exact=True)).to_be_visible()


def test_what_is_in_quarantine_is_searched_says_why_and_is_released(page: Page, site: Site):
    page.goto(f"{site.url}#/memory")
    page.get_by_role("radiogroup", name="State").get_by_text("Quarantine").click()
    search = page.get_by_role("searchbox")
    search.fill("nothing like it")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    search.fill("heap")
    page.get_by_role("link", name="What is a heap?").click()
    held = page.get_by_role("region", name="Quarantine")
    expect(held).to_contain_text("It gives orders to the reader.")
    held.get_by_role("button", name="Release it").click()
    expect(page.get_by_text("Released.")).to_be_visible()
    expect(held).to_have_count(0)


def test_somebody_elses_change_is_not_overwritten(browser: Browser, site: Site, page: Page):
    page.goto(f"{site.url}#/memory/off")
    page.get_by_label("Rubrics").fill("Mine")
    with opened(browser, site, "#/memory/off") as other:
        other.get_by_role("switch", name="Disabled").uncheck()
        expect(other.get_by_text("Disabled", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Keep the changes").click()
    expect(page.get_by_role("alert")).to_contain_text("changed in the meantime")
    expect(page.get_by_label("Rubrics")).to_have_value("Mine")


def test_a_run_is_judged_and_stands_beside_another(page: Page, site: Site, asked: dict[str, str]):
    second = finished(site, "What is the other cache?")["run"]
    page.goto(f"{site.url}#/judge")
    page.get_by_label("Run").select_option(asked["run"])
    page.get_by_role("button", name="Judge this run").click()
    answer = page.get_by_role("region", name=QUESTION).get_by_role("region", name="Answer")
    expect(answer).to_contain_text("Answers both parts")
    expect(answer).to_contain_text("Only in passing.")
    expect(answer.get_by_role("meter")).to_have_attribute("aria-label", re.compile("of 1$"))
    page.get_by_label("Compared with").select_option(second)
    expect(page.get_by_role("region", name="What is the other cache?")).to_be_visible()
    expect(page.get_by_role("region", name=QUESTION)).to_be_visible()


def test_curves_are_read_by_key_and_as_a_table(page: Page):
    page.get_by_role("link", name="Training").click()
    page.get_by_role("link", name="adapter").click()
    loss = page.get_by_role("slider", name="Loss")
    expect(loss).to_have_attribute("aria-valuetext", "step 6: Loss 0.1667")
    loss.press("Home")
    expect(loss).to_have_attribute("aria-valuetext", "step 1: Loss 1")
    loss.press("ArrowRight")
    expect(loss).to_have_attribute("aria-valuetext", "step 2: Loss 0.5")
    figure = page.get_by_role("figure", name="Loss")
    figure.get_by_text("As a table").click()
    expect(figure.get_by_role("row")).to_have_count(7)


def test_a_collected_run_is_drawn_with_its_gaps(page: Page, site: Site):
    page.goto(f"{site.url}#/training")
    page.get_by_role("link", name="september").click()
    scores = page.get_by_role("slider", name="Score of each stage")
    expect(scores).to_have_attribute("aria-valuetext", re.compile("^step 1: Plan no value, "))
    scores.press("Home")
    expect(scores).to_have_attribute("aria-valuetext", re.compile("^step 0: Plan 0.5, "))


def test_documents_are_uploaded_and_searched(page: Page):
    page.get_by_label("Documents to search").set_input_files(
        [
            {
                "name": "moon.md",
                "mimeType": "text/markdown",
                "buffer": b"# Moon\n\nlru_cache on the moon.",
            }
        ]
    )
    expect(page.locator(".chip").last).to_contain_text("documents-")
    expect(page.locator(".chip input").last).to_be_checked()
