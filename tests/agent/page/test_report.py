"""A report on the page: its citations checked, its doubts in sight, hostile text harmless.

So are threads, the memory, the judge and the curves, as somebody finds and changes them.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.pages import (
    HOSTILE_TAG,
    PAYLOADS,
    QUESTION,
    Site,
    finished,
    has_heading,
    opened,
    run_address,
)

HOSTILE = f"What does the hostile page say? {' '.join(PAYLOADS)}"


@pytest.fixture(scope="module")
def run(site: Site) -> str:
    return finished(site)["run"]


@pytest.fixture
def page(browser: Browser, site: Site, run: str) -> Iterator[Page]:
    with opened(browser, site, run_address(run)) as found:
        expect(found.get_by_role("article")).to_contain_text("grow without bound")
        yield found


def test_a_citation_opens_its_passage_place_and_verdict(page: Page):
    page.get_by_role("button", name="Source 1").first.click()
    sheet = page.get_by_role("dialog", name="Citation 1 of 3")
    expect(sheet.get_by_text("can grow without bound", exact=True)).to_be_visible()
    expect(sheet.get_by_text("Supported by this passage")).to_be_visible()
    expect(sheet.locator("mark")).to_contain_text("the cache can grow without bound")
    expect(sheet.get_by_text("lru_cache.md")).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(page.get_by_role("button", name="Source 1").first).to_be_focused()


def test_claims_that_no_source_holds_are_counted_marked_and_found(page: Page):
    checked = page.get_by_role("region", name="Citations checked")
    expect(checked).to_contain_text("2 supported")
    expect(checked).to_contain_text("1 not supported")
    expect(page.get_by_role("article")).to_contain_text("2: not supported")
    checked.get_by_role("button", name="Show doubts").click()
    sheet = page.get_by_role("dialog")
    expect(sheet.get_by_text("Not supported by this passage")).to_be_visible()
    expect(sheet.locator("mark")).to_contain_text("82 percent")
    sheet.get_by_role("button", name="Previous").click()
    expect(page.get_by_role("dialog", name="Citation 2 of 3")).to_be_visible()
    sheet.get_by_role("button", name="Next in doubt").click()
    expect(page.get_by_role("dialog", name="Citation 3 of 3")).to_be_visible()


def test_sources_are_listed_under_their_numbers_with_their_passages(page: Page):
    sources = page.locator(".sources").first.get_by_role("listitem")
    expect(sources).to_have_count(2)
    expect(sources.first).to_contain_text("functools.lru_cache")
    sources.nth(1).get_by_text("Passage").click()
    expect(sources.nth(1)).to_contain_text("82 percent of the hits")


def test_a_report_is_taken_away_in_four_forms(page: Page, site: Site):
    for label, kind in (("Markdown", "md"), ("Page", "html"), ("PDF", "pdf"), ("JSON", "json")):
        link = page.get_by_role("link", name=label, exact=True)
        assert str(link.get_attribute("href")).endswith(f"/export/{kind}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Markdown").click()
    assert "without bound" in download.value.path().read_text()


def test_a_report_is_rated_once_a_number_is_chosen(page: Page):
    page.get_by_role("button", name="Rate").click()
    expect(page.get_by_text("Choose a number")).to_be_visible()
    page.get_by_role("radio", name="4").check(force=True)
    page.get_by_label("Remark").fill("The figure is wrong")
    page.get_by_role("button", name="Rate").click()
    expect(page.get_by_text("Thank you.")).to_be_visible()


def test_a_follow_up_is_asked_in_the_same_thread(page: Page, run: str):
    page.get_by_role("textbox", name="Follow-up question").fill("And lru_cache with 128?")
    page.get_by_role("button", name="Ask in this thread").click()
    page.wait_for_url(lambda address: "#/run/" in address and run not in address)
    page.get_by_role("link", name="Thread", exact=True).click()
    turns = page.locator(".turns").get_by_role("listitem")
    expect(turns).to_have_count(2)
    expect(turns.first).to_contain_text(QUESTION)


def test_hostile_text_is_shown_as_text_everywhere(browser: Browser, site: Site):
    run = finished(site, HOSTILE)["run"]
    with opened(browser, site, run_address(run)) as page:
        article = page.get_by_role("article")
        expect(article).to_contain_text("<script>alert(5)</script>")
        expect(article).to_contain_text("<svg/onload=alert(7)>")
        expect(page.get_by_role("heading", level=1)).to_contain_text("<script>alert(5)</script>")
        expect(page.get_by_role("complementary")).to_contain_text("<img src=x onerror=alert(6)>")
        page.locator("[data-citation]").first.click()
        expect(page.get_by_role("dialog")).to_contain_text("javascript:alert(4)")
        page.keyboard.press("Escape")
        page.get_by_role("link", name="How it was found").click()
        expect(page.get_by_role("region", name="Answer")).to_contain_text("alert(10)")
        for address in ("#/threads", f"#/judge/{run}"):
            page.goto(f"{site.url}{address}")
            expect(page.locator("main")).to_contain_text("<script>alert(5)</script>")
        living = "script:not([src]), main :is(img, iframe, style, [onerror], [onload], [onclick])"
        assert page.locator(living).count() == 0
        assert page.locator('a[href^="javascript"]').count() == 0


OWN = "Which entry does lru_cache discard first?"


@pytest.fixture(scope="module")
def asked(site: Site) -> dict[str, str]:
    return finished(site, OWN)


@pytest.fixture
def place(browser: Browser, site: Site) -> Iterator[Page]:
    with opened(browser, site) as found:
        yield found


def test_a_thread_is_opened_renamed_branched_and_deleted(place: Page, asked: dict[str, str]):
    place.get_by_role("link", name="Threads").click()
    threads = place.locator("main .list").get_by_role("listitem")
    link = place.locator("main").get_by_role("link", name=OWN)
    expect(link).to_be_visible()
    before = threads.count()
    link.click()
    has_heading(place, OWN)
    place.get_by_role("button", name="Rename").click()
    place.get_by_label("Title").fill("Caches <b>of</b> Python")
    place.get_by_role("button", name="Keep").click()
    has_heading(place, "Caches <b>of</b> Python")
    place.get_by_role("button", name="Branch from here").click()
    expect(place.get_by_text("Branched from")).to_be_visible()
    place.get_by_role("button", name="Delete").click()
    place.get_by_role("dialog").get_by_role("button", name="Delete").click()
    has_heading(place, "Threads")
    expect(threads).to_have_count(before)


def test_a_reflection_is_edited_pinned_and_switched_off(place: Page):
    place.get_by_role("link", name="Memory").click()
    items = place.locator("main .list").get_by_role("listitem")
    expect(items).to_have_count(3)
    place.get_by_role("radiogroup", name="State").get_by_text("Active").click()
    expect(items).to_have_count(1)
    items.get_by_role("link").click()
    takeaways = place.get_by_label("Takeaways")
    expect(takeaways).to_have_value(f"- read {HOSTILE_TAG} first")
    takeaways.fill("- read the release notes, too")
    place.get_by_role("button", name="Keep the changes").click()
    expect(place.get_by_text("Kept.")).to_be_visible()
    expect(place.get_by_text("edited by hand")).to_be_visible()
    place.get_by_role("switch", name="Pinned").check()
    expect(place.get_by_text("Pinned", exact=True)).to_be_visible()
    place.reload()
    expect(takeaways).to_have_value("- read the release notes, too")
    expect(place.get_by_role("switch", name="Pinned")).to_be_checked()
    place.get_by_role("switch", name="Disabled").check()
    expect(place.get_by_text("Disabled", exact=True)).to_be_visible()


def test_what_is_in_quarantine_is_searched_says_why_and_is_released(place: Page, site: Site):
    place.goto(f"{site.url}#/memory")
    place.get_by_role("radiogroup", name="State").get_by_text("Quarantine").click()
    search = place.get_by_role("searchbox")
    search.fill("nothing like it")
    expect(place.get_by_role("heading", name="Nothing found")).to_be_visible()
    search.fill("heap")
    place.get_by_role("link", name="What is a heap?").click()
    held = place.get_by_role("region", name="Quarantine")
    expect(held).to_contain_text("It gives orders to the reader.")
    held.get_by_role("button", name="Release it").click()
    expect(place.get_by_text("Released.")).to_be_visible()
    expect(held).to_have_count(0)


def test_somebody_elses_change_is_not_overwritten(browser: Browser, site: Site, place: Page):
    place.goto(f"{site.url}#/memory/off")
    place.get_by_label("Rubrics").fill("Mine")
    with opened(browser, site, "#/memory/off") as other:
        other.get_by_role("switch", name="Disabled").uncheck()
        expect(other.get_by_text("Disabled", exact=True)).to_have_count(0)
    place.get_by_role("button", name="Keep the changes").click()
    expect(place.get_by_role("alert")).to_contain_text("changed in the meantime")
    expect(place.get_by_label("Rubrics")).to_have_value("Mine")


def test_a_run_is_judged_and_stands_beside_another(place: Page, site: Site, asked: dict[str, str]):
    second = finished(site, "What is the other cache?")["run"]
    place.goto(f"{site.url}#/judge")
    place.get_by_label("Run").select_option(asked["run"])
    place.get_by_role("button", name="Judge this run").click()
    answer = place.get_by_role("region", name=OWN).get_by_role("region", name="Answer")
    expect(answer).to_contain_text("Answers both parts")
    expect(answer).to_contain_text("Only in passing.")
    expect(answer.get_by_role("meter")).to_have_attribute("aria-label", re.compile("of 1$"))
    place.get_by_label("Compared with").select_option(second)
    expect(place.get_by_role("region", name="What is the other cache?")).to_be_visible()
    expect(place.get_by_role("region", name=OWN)).to_be_visible()


def test_curves_are_read_by_key_and_as_a_table(place: Page):
    place.get_by_role("link", name="Training").click()
    place.get_by_role("link", name="adapter").click()
    loss = place.get_by_role("slider", name="Loss")
    expect(loss).to_have_attribute("aria-valuetext", "step 6: Loss 0.1667")
    loss.press("Home")
    expect(loss).to_have_attribute("aria-valuetext", "step 1: Loss 1")
    loss.press("ArrowRight")
    expect(loss).to_have_attribute("aria-valuetext", "step 2: Loss 0.5")
    figure = place.get_by_role("figure", name="Loss")
    figure.get_by_text("As a table").click()
    expect(figure.get_by_role("row")).to_have_count(7)


def test_a_collected_run_is_drawn_with_its_gaps(place: Page, site: Site):
    place.goto(f"{site.url}#/training")
    place.get_by_role("link", name="september").click()
    scores = place.get_by_role("slider", name="Score of each stage")
    expect(scores).to_have_attribute("aria-valuetext", re.compile("^step 1: Plan no value, "))
    scores.press("Home")
    expect(scores).to_have_attribute("aria-valuetext", re.compile("^step 0: Plan 0.5, "))
