"""The page never goes silent: who waits is told for what, since when, and what can be done.

Servers that end or hang are ones of their own; what is shown of a run holds what was done.
"""

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.agent.page.conftest import faults
from tests.support import pages
from tests.support.scripted_server import Fault
from tests.support.waiting import PATIENCE

TIME = r"\d\d:\d\d:\d\d"


def test_a_server_that_ends_is_told_at_once_and_so_is_its_return(
    browser: Browser, site: pages.Site
):
    run = pages.begun(site, f"{pages.QUESTION} forever")["run"]
    with pages.opened(browser, site, pages.run_address(run)) as page:
        expect(page.get_by_text(re.compile(r"[1-9] passages")).first).to_be_visible()
        page.route("**/healthz", lambda route: route.abort())
        page.route("**/events*", lambda route: route.abort())
        page.reload()
        gone = page.get_by_role("alert")
        expect(gone).to_contain_text(re.compile(f"The server does not answer, since {TIME}"))
        expect(gone).to_contain_text("rubricem serve")
        assert faults(page) == []
        page.unroute_all(behavior="ignoreErrors")
        expect(gone).to_have_count(0)
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Partial", exact=True).first).to_be_visible()


def test_a_view_whose_code_does_not_come_says_so_and_can_be_tried_again(
    browser: Browser, site: pages.Site
):
    with pages.opened(browser, site) as page:
        page.route("**/conversations.js", lambda route: route.abort())
        page.get_by_role("link", name="Conversations").click()
        pages.has_heading(page, "This page did not arrive")
        page.unroute_all(behavior="ignoreErrors")
        page.get_by_role("button", name="Try again").click()
        pages.has_heading(page, "Conversations")
        page.goto(f"{site.url}#/nonsense")
        expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()


def test_a_model_that_hangs_is_told_after_ten_seconds_with_what_to_do(page: Page, site: pages.Site):
    run = pages.begun(site, f"{pages.QUESTION} forever")["run"]
    page.goto(f"{site.url}{pages.run_address(run)}")
    still = page.locator(".still")
    expect(still).to_contain_text(re.compile(f"Nothing was heard from the model since {TIME}"))
    expect(still).to_contain_text("Stop ends the run")
    assert faults(page) == []
    page.get_by_role("button", name="Stop").click()
    # What was broken off has no mark, nor has what was never reached.
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    expect(page.get_by_role("list", name="Stages").locator(".done")).to_have_text(["Plan"])
    expect(still).to_be_hidden()


def test_a_run_that_waits_is_told_its_place(browser: Browser, tmp_path: Path):
    with pages.website(tmp_path, running=1) as small, pages.opened(browser, small) as page:
        runs = [pages.begun(small, f"{pages.QUESTION} forever")["run"] for _ in range(3)]
        page.goto(f"{small.url}{pages.run_address(runs[2])}")
        expect(page.locator(".still")).to_contain_text("1 question waits before it")
        httpx.post(f"{small.url}api/runs/{runs[1]}/stop", headers=pages.CHANGING, timeout=PATIENCE)
        expect(page.locator(".still")).to_contain_text("It comes next")
        assert faults(page) == []
        httpx.post(f"{small.url}api/runs/{runs[0]}/stop", headers=pages.CHANGING, timeout=PATIENCE)
        expect(page.get_by_text("Researching").first).to_be_visible()
        page.get_by_role("button", name="Stop").click()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(401, "no such key"), "requires an API key and none is set (401)"),
        (Fault(429, "You exceeded your current quota"), "has no quota left (429)"),
        (Fault(404, "no such model"), "rejected the request (404): no such model"),
    ],
)
def test_a_run_that_failed_says_why_and_offers_to_be_tried_again_and_nothing_else(
    browser: Browser, tmp_path: Path, fault: Fault, said: str
):
    refusing = pages.website(tmp_path, model_says=lambda body, number: fault)
    with refusing as broken:
        run = pages.finished(broken)["run"]
        with pages.opened(browser, broken, pages.run_address(run)) as page:
            expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
            expect(page.get_by_role("button", name="Try again")).to_be_visible()
            expect(page.get_by_role("alert")).to_contain_text(said)
            expect(page.get_by_role("link", name="Model and keys")).to_be_visible()
            expect(page.get_by_text("No answer was written")).to_be_visible()
            expect(page.get_by_role("main").get_by_text(said)).to_have_count(1)
            for name in ("Take it with you", "How good is it?", "Follow up"):
                expect(page.get_by_role("heading", name=name)).to_have_count(0)


def test_the_first_page_has_the_focus_examples_and_a_question_from_its_address(
    page: Page, site: pages.Site
):
    box = page.get_by_role("textbox", name="Question")
    expect(box).to_be_focused()
    examples = page.get_by_role("group", name="Examples").get_by_role("button")
    expect(examples).to_have_count(3)
    example = examples.first.text_content() or ""
    examples.first.click()
    expect(box).to_have_value(example)
    expect(examples.first).to_be_hidden()
    page.get_by_role("link", name="Conversations").click()
    pages.has_heading(page, "Conversations")
    page.get_by_role("heading", level=1).press("/")
    expect(box).to_be_focused()
    page.goto(f"{site.url}?q=What+is+a+heap%3F")
    expect(box).to_have_value("What is a heap?")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chosen_segment_stands_out_from_its_track(
    browser: Browser, site: pages.Site, theme: str
):
    with pages.opened(browser, site, color_scheme=theme) as page:
        expect(page.get_by_role("radiogroup", name="Effort")).to_be_visible()
        contrast = page.evaluate(
            """() => {
                const canvas = document.createElement("canvas").getContext("2d");
                const light = (...colours) => {
                    for (canvas.fillStyle of colours) canvas.fillRect(0, 0, 1, 1);
                    const part = (n) => n < 11 ? n / 3295 : ((n / 255 + 0.055) / 1.055) ** 2.4;
                    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data.map(Number);
                    return 0.05 + 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
                };
                const of = (place) => getComputedStyle(document.querySelector(place));
                const chosen = of(".composer .choices label:has(:checked)").boxShadow;
                const edge = light(chosen.match(/^[a-z]+\\([^)]*\\)/)[0]);
                const card = of(".composer.card").backgroundColor;
                const track = light(card, of(".composer .choices").backgroundColor);
                return Math.max(edge, track) / Math.min(edge, track);
            }"""
        )
    assert contrast >= 3


def test_an_export_that_cannot_be_made_says_why_and_one_that_can_is_saved(
    page: Page, site: pages.Site
):
    run = pages.finished(site)["run"]
    page.goto(f"{site.url}{pages.run_address(run)}")

    def refuse(route: Route) -> None:
        told = {"error": "PDF needs a package.", "remedy": "pip install rubricem[pdf]"}
        route.fulfill(status=422, json=told)

    page.route("**/export/pdf", refuse)
    page.get_by_role("link", name="PDF").click()
    expect(page.get_by_role("alert")).to_contain_text("pip install rubricem[pdf]")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Markdown").click()
    assert saved.value.suggested_filename == f"rubricem-{run}.md"
    assert "can grow without bound" in saved.value.path().read_text()


def test_the_list_shows_rendered_text_with_the_words_that_were_sought(page: Page, site: pages.Site):
    pages.finished(site, f"{pages.QUESTION} rich")
    page.goto(f"{site.url}#/history")
    page.wait_for_url("**/#/conversations")
    page.get_by_label("Search in questions and reports").fill("pitchblende")
    hit = page.get_by_role("main").locator("mark").first
    expect(hit).to_have_text("pitchblende")
    expect(page.get_by_role("main").get_by_text("|---")).to_have_count(0)
    shown = hit.locator("..").text_content() or ""
    assert not any(markup in shown for markup in ("|", "](", "http"))
