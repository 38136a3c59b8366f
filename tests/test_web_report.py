"""Reading a report: its citations checked, its doubts in sight, hostile text harmless."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web_pages import QUESTION, finished, opened, run_address
from tests.web_scripts import PAYLOADS
from tests.web_site import Site, website

HOSTILE = f"What does the hostile page say? {' '.join(PAYLOADS)}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with website(tmp_path_factory.mktemp("site")) as found:
        yield found


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
