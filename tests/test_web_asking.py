"""Asking on the page: watched, approved, stopped, reloaded in the middle."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.waiting import PATIENCE
from tests.web_pages import (
    QUESTION,
    ask,
    begun,
    finished,
    has_heading,
    is_told,
    opened,
    run_address,
)
from tests.web_site import Site, website


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with website(tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with opened(browser, site) as found:
        yield found


def plan_panel(page: Page) -> Page:
    expect(page.get_by_role("heading", name="Is this the right plan?")).to_be_visible()
    return page


def test_a_question_is_watched_from_its_plan_to_its_report(page: Page):
    expect(page.get_by_role("checkbox", name="notes")).to_be_checked()
    ask(page)
    has_heading(page, QUESTION)
    rubric = page.get_by_role("complementary", name="Rubric and limits")
    expect(rubric.get_by_text("Gives a measured figure for the hits")).to_be_visible()
    expect(page.get_by_text("lru_cache maxsize None bound")).to_be_visible()
    expect(page.get_by_text("functools.lru_cache").first).to_be_visible()
    article = page.get_by_role("article")
    expect(article).to_contain_text("can grow without bound")
    expect(rubric.get_by_text("2 of 3 met")).to_be_visible()
    expect(page.get_by_text("Finished", exact=True).first).to_be_visible()
    assert page.get_by_role("list", name="Stages").locator(".done").count() == 4
    expect(page.locator("[data-count=tokens]")).not_to_have_text("0")


def test_a_reload_in_the_middle_shows_everything_again(page: Page):
    ask(page, f"{QUESTION} slowly")
    research = page.get_by_role("region", name="Research")
    expect(research.get_by_text("lru_cache maxsize None bound")).to_be_visible()
    page.reload()
    has_heading(page, f"{QUESTION} slowly")
    expect(page.get_by_role("region", name="Plan")).to_contain_text("Two facts are asked for")
    expect(research.get_by_text("lru_cache maxsize None bound")).to_have_count(1)
    expect(page.get_by_text("Gives a measured figure for the hits").first).to_be_visible()
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")


def test_stopping_gives_a_report_of_what_there_is(page: Page):
    ask(page, f"{QUESTION} forever")
    expect(page.get_by_text("4 passages", exact=False)).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    expect(page.get_by_text("Partial", exact=True).first).to_be_visible()
    page.get_by_role("link", name="How it was found").click()
    expect(page.get_by_text("lru_cache maxsize None bound")).to_be_visible()


def test_a_plan_is_approved_once_and_the_other_window_is_told(browser: Browser, site: Site):
    run = begun(site, approve_plan=True)["run"]
    with (
        opened(browser, site, run_address(run)) as slow,
        opened(browser, site, run_address(run)) as fast,
    ):
        held: list[Route] = []
        slow.route("**/answer", lambda route: held.append(route))
        expect(plan_panel(slow).get_by_text("2. Look for a measurement.").first).to_be_visible()
        expect(slow.get_by_text("Waits for you").first).to_be_visible()
        slow.get_by_role("button", name="Follow this plan").click()
        plan_panel(fast).get_by_role("button", name="Follow this plan").click()
        expect(fast.get_by_text("The plan was approved.")).to_be_visible()
        expect(slow.get_by_text("The plan was approved.")).to_be_visible()
        expect(slow.get_by_role("button", name="Follow this plan")).to_have_count(0)
        held[0].continue_()
        said = slow.get_by_text("This was answered already, in another window.")
        expect(said).to_be_visible()


def test_a_changed_plan_is_the_one_that_is_followed(page: Page, site: Site):
    page.get_by_text("Show me the plan before it is followed").click()
    ask(page)
    plan_panel(page).get_by_role("button", name="Change it").click()
    page.get_by_label("Rubric, one item in each line").fill("Names the author\nNames the year")
    page.get_by_label("First search").fill("measured hits")
    page.get_by_role("button", name="Follow the changed plan").click()
    expect(page.get_by_text("The plan was changed")).to_be_visible()
    expect(page.get_by_role("region", name="Research").locator("q").first).to_have_text(
        "measured hits"
    )
    is_told(site, "Names the author")


def test_a_rejected_plan_is_written_anew_and_asked_for_again(page: Page, site: Site):
    page.get_by_text("Show me the plan before it is followed").click()
    ask(page)
    plan_panel(page).get_by_role("button", name="Another plan").click()
    page.get_by_label("Reason").fill("Look at the release notes too")
    page.get_by_role("button", name="Write another plan").click()
    expect(page.get_by_text("The plan was rejected")).to_be_visible()
    plan_panel(page)
    is_told(site, "Look at the release notes too")


def test_what_the_server_refuses_is_said_and_the_question_stays(page: Page):
    page.get_by_role("textbox", name="Question").fill("   ")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_role("textbox", name="Question").fill("Half a question")
    page.reload()
    expect(page.get_by_role("textbox", name="Question")).to_have_value("Half a question")


def test_a_run_that_is_not_there_is_said_to_be_so(browser: Browser, site: Site):
    with opened(browser, site, run_address("never-asked")) as page:
        has_heading(page, "This run cannot be shown")
        expect(page.get_by_role("alert")).to_contain_text("run")


def test_a_stream_that_breaks_off_is_taken_up_where_it_was(browser: Browser, site: Site):
    run = finished(site)["run"]
    whole = httpx.get(f"{site.url}api/runs/{run}/events", timeout=PATIENCE).text.split("\n\n")
    asked: list[str] = []

    def break_off(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) > 1:
            route.continue_()
            return
        begun = "retry: 50\n" + "\n\n".join(whole[:8]) + "\n\n"
        route.fulfill(body=begun, content_type="text/event-stream")

    with opened(browser, site) as page:
        page.route("**/events*", break_off)
        page.goto(f"{site.url}{run_address(run, '/steps')}")
        answer = page.get_by_role("region", name="Answer")
        expect(answer).to_contain_text("can grow without bound")
        expect(page.get_by_role("region", name="Plan").locator("h3")).to_have_text(
            ["Thinking", "Analysis", "Rubric", "Research plan"]
        )
        expect(answer.locator(".written-answer")).to_have_count(1)
    assert len(asked) == 2
