"""Asking on the page: watched, approved, stopped, reloaded in the middle, gone on with.

Chosen there: what is uploaded.
"""

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.agent.page.conftest import faults
from tests.support import pages
from tests.support.waiting import PATIENCE


def plan_panel(page: Page) -> Page:
    expect(page.get_by_role("heading", name="Is this the right plan?")).to_be_visible()
    return page


def test_a_question_is_watched_from_its_plan_to_its_report(page: Page):
    expect(page.get_by_role("checkbox", name="notes")).to_be_checked()
    pages.ask(page, f"{pages.QUESTION} slowly")
    pages.has_heading(page, f"{pages.QUESTION} slowly")
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


def test_the_cost_is_told_before_it_is_asked_by_effort_form_and_budget(
    page: Page, site: pages.Site
):
    cost = page.locator(".cost")
    # Others may have asked before.
    expect(cost).to_contain_text(re.compile(r"[Aa]t most 30 searches · 300,000 tokens · 20:00"))
    page.get_by_role("radiogroup", name="Effort").get_by_text("Deep").click()
    expect(cost).to_contain_text("At most 30 searches in each investigation · 1,000,000 tokens")
    for _ in range(3):
        pages.finished(site, f"{pages.QUESTION} quickly", effort="quick", format="exact")
    httpx.get(f"{site.url}api/runs", timeout=PATIENCE)  # the index takes them in
    page.reload()
    page.get_by_role("radiogroup", name="Effort").get_by_text("Quick").click()
    expect(cost).to_contain_text("At most 4 searches")
    page.get_by_role("radiogroup", name="Form of the answer").get_by_text("Exact value").click()
    expect(cost).to_have_text(
        re.compile(
            r"2 searches · .+ tokens · 0:0\d.*, as the last 3 such questions took; at most 4 "
        )
    )
    page.get_by_text("Options", exact=True).click()
    page.get_by_text("Budgets", exact=True).click()
    page.get_by_label("Tokens").fill("5000")
    page.get_by_label("Seconds").focus()
    expect(cost).to_contain_text("4 searches · 5,000 tokens · 2:00")
    assert faults(page) == []


def test_a_stopped_run_reports_what_there_is_and_goes_on_without_a_larger_budget(page: Page):
    pages.ask(page, f"{pages.QUESTION} forever")
    expect(page.get_by_text(re.compile(r"[1-9] passages")).first).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    expect(page.get_by_text("Partial", exact=True).first).to_be_visible()
    report = page.url
    page.get_by_role("link", name="How it was found").click()
    expect(page.get_by_text("lru_cache maxsize None bound")).to_be_visible()
    page.goto(report)
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.get_by_role("form", name="A larger budget")).to_have_count(0)
    page.get_by_role("button", name="Stop").click()


def test_a_plan_is_approved_once_and_the_other_window_is_told(browser: Browser, site: pages.Site):
    run = pages.begun(site, f"{pages.QUESTION} rich halfway", approve_plan=True)["run"]
    with (
        pages.opened(browser, site, pages.run_address(run)) as slow,
        pages.opened(browser, site, pages.run_address(run)) as fast,
    ):
        held: list[Route] = []
        slow.route("**/answer", lambda route: held.append(route))
        expect(
            plan_panel(slow).locator(".plan").get_by_text("2. Look for a measurement.")
        ).to_be_visible()
        expect(slow.get_by_text("Waits for you").first).to_be_visible()
        item = slow.get_by_text("Gives a measured figure for the hits").filter(visible=True)
        expect(item).to_have_count(1)
        slow.get_by_role("button", name="Follow this plan").click()
        plan_panel(fast).get_by_role("button", name="Follow this plan").click()
        expect(fast.get_by_text("The plan was approved.")).to_be_visible()
        expect(slow.get_by_text("The plan was approved.")).to_be_visible()
        expect(slow.get_by_role("button", name="Follow this plan")).to_have_count(0)
        held[0].continue_()
        said = slow.get_by_text("This was answered already, in another window.")
        expect(said).to_be_visible()
        slow.get_by_role("button", name="Stop").click()


def test_a_rejected_plan_is_written_anew_and_a_changed_one_is_followed(
    page: Page, site: pages.Site
):
    expect(page.get_by_role("checkbox", name="notes")).to_be_checked()
    page.get_by_text("Options", exact=True).click()
    page.get_by_text("Show me the plan before it is followed").click()
    pages.ask(page, f"{pages.QUESTION} slowly")
    plan_panel(page).get_by_role("button", name="Another plan").click()
    page.get_by_label("Reason").fill("Look at the release notes too")
    page.get_by_role("button", name="Write another plan").click()
    expect(page.get_by_text("The plan was rejected")).to_be_visible()
    plan_panel(page).get_by_role("button", name="Change it").click()
    pages.is_told(site, "Look at the release notes too")
    page.get_by_label("Rubric, one item in each line").fill("Names the author\nNames the year")
    page.get_by_label("First search").fill("measured hits")
    page.get_by_role("button", name="Follow the changed plan").click()
    expect(page.get_by_text("The plan was changed")).to_be_visible()
    first = page.get_by_role("region", name="Research").locator("q").first
    expect(first).to_have_text("measured hits")
    pages.is_told(site, "Names the author")


def test_deep_research_is_watched_part_by_part_and_each_part_is_read(page: Page, site: pages.Site):
    page.get_by_role("radiogroup", name="Effort").get_by_text("Deep").click()
    question = f"{pages.QUESTION} in depth"
    pages.ask(page, question)
    tree = page.get_by_role("region", name="Investigations")
    parts = tree.get_by_role("listitem")
    expect(parts).to_have_count(2)
    expect(tree.get_by_text("Working").first).to_be_visible()
    expect(page.locator("[data-count=searches]")).not_to_have_text("0")
    page.set_viewport_size(pages.PHONE)
    box, rubric = tree.bounding_box(), page.locator(".rubric-card").bounding_box()
    assert box and rubric and box["y"] < rubric["y"], "on a phone the work stands above its rubric"
    searched = re.compile("Reads what it found on (maxsize None bound|measured hits)")
    expect(parts.first.get_by_text(searched)).to_be_visible()
    page.reload()
    expect(parts).to_have_text([re.compile(re.escape(part)) for part in pages.PARTS])
    assert faults(page) == []
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")
    expect(tree).to_be_hidden()
    expect(page.locator("[data-count=searches]")).to_have_text("4")
    page.get_by_role("link", name="How it was found").click()
    expect(tree).to_contain_text("2 of 2 ended")
    expect(parts.first).to_contain_text("Finished2 calls · 3 passages found · 2 cited")
    expect(parts.first.locator(".investigation-doing")).to_be_hidden()
    parts.first.get_by_role("link").click()
    pages.has_heading(page, pages.PARTS[0])
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")
    expect(page.get_by_role("textbox", name="Follow-up question")).to_have_count(0)
    page.get_by_role("link", name="Part of a larger research").click()
    pages.has_heading(page, question)
    page.get_by_role("link", name="Conversations").click()
    expect(page.get_by_role("link", name=question).first).to_be_visible()
    expect(page.get_by_role("main").get_by_text(pages.PARTS[0])).to_have_count(0)


def test_what_is_left_is_told_while_a_run_goes_on(page: Page, site: pages.Site):
    run = pages.begun(site, f"{pages.QUESTION} forever", max_seconds=300)["run"]
    page.goto(f"{site.url}{pages.run_address(run)}")
    left = page.get_by_role("complementary", name="Rubric and limits").locator(".remains")
    expect(left).to_have_text(re.compile(r"Left: 4:\d\d · 29\d,\d{3} tokens"))
    before = left.text_content() or ""
    expect(left).not_to_have_text(before)
    page.get_by_role("button", name="Stop").click()
    expect(left).to_be_hidden()


@pytest.mark.slow
def test_a_report_is_deepened_in_its_thread_over_its_sources(page: Page, site: pages.Site):
    asked = pages.finished(site)
    page.goto(f"{site.url}{pages.run_address(asked['run'])}")
    page.get_by_role("button", name="Deepen").click()
    dialog = page.get_by_role("dialog", name="Deepen this research")
    dialog.get_by_label("What should be looked into further?").fill("And its cost?")
    assert faults(page) == []
    dialog.get_by_role("button", name="Deepen").click()
    turn = page.locator(".turn-live")
    expect(turn.get_by_role("heading", name="And its cost?")).to_be_focused()
    expect(turn.get_by_role("region", name="Investigations")).to_be_visible()
    expect(turn.get_by_role("article")).to_contain_text("can grow without bound")
    thread = httpx.get(f"{site.url}api/threads/{asked['thread']}", timeout=PATIENCE).json()
    deeper = httpx.get(f"{site.url}api/runs/{thread['runs'][1]['run']}", timeout=PATIENCE).json()
    assert (deeper["question"], deeper["source"]) == ("And its cost?", ["notes"])


def test_one_part_is_stopped_and_the_lead_is_told_a_remark(page: Page, site: pages.Site):
    run = pages.begun(site, f"{pages.QUESTION} silently", effort="deep")["run"]
    page.goto(f"{site.url}{pages.run_address(run)}")
    tree = page.get_by_role("region", name="Investigations")
    parts = tree.get_by_role("list").first.get_by_role("listitem")
    expect(parts.nth(1)).to_contain_text("Reads what it found on")
    tree.get_by_label("Anything else to look at?").fill("Also look at licences")
    tree.get_by_role("button", name="Tell the lead").press("Enter")
    expect(tree.get_by_text("Heard at the lead's next turn")).to_be_visible()
    assert faults(page) == []
    expect(parts.first).to_contain_text("Finished")
    tree.get_by_role("button", name="Stop investigation 2").press("Enter")
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")
    page.get_by_role("link", name="How it was found").click()
    expect(parts.nth(1)).to_contain_text("Partial")
    expect(parts.nth(1)).to_contain_text("It was stopped.")
    expect(tree.get_by_text("Taken up")).to_be_visible()
    expect(tree.get_by_label("Anything else to look at?")).to_be_hidden()
    pages.is_told(site, "The person who asked adds: Also look at licences")


def test_a_stream_that_breaks_off_is_taken_up_where_it_was(page: Page, site: pages.Site):
    run = pages.finished(site)["run"]
    whole = httpx.get(f"{site.url}api/runs/{run}/events", timeout=PATIENCE).text.split("\n\n")
    asked: list[str] = []

    def break_off(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) > 1:
            route.continue_()
            return
        first = "retry: 50\n" + "\n\n".join(whole[:8]) + "\n\n"
        route.fulfill(body=first, content_type="text/event-stream")

    page.route("**/events*", break_off)
    page.goto(f"{site.url}{pages.run_address(run, '/steps')}")
    answer = page.get_by_role("region", name="Answer")
    expect(answer).to_contain_text("can grow without bound")
    expect(page.get_by_role("region", name="Plan").locator("h3")).to_have_text(
        ["Thinking", "Analysis", "Rubric", "Research plan"]
    )
    expect(answer.locator(".written-answer")).to_have_count(1)
    assert len(asked) == 2


MOON = {"name": "moon.md", "mimeType": "text/markdown", "buffer": b"# Moon\n\nlru_cache there."}


@pytest.mark.slow
def test_uploaded_documents_are_listed_and_deleted(page: Page, site: pages.Site):
    page.get_by_label("Documents to search").set_input_files([MOON])  # type: ignore[list-item]
    chip = page.locator(".chip").filter(has_text="moon")
    expect(chip).to_have_count(1)
    expect(chip.locator("input")).to_be_checked()
    page.get_by_text("Uploaded documents").press("Enter")
    expect(page.get_by_role("listitem").filter(has_text="moon.md").last).to_be_visible()
    assert faults(page) == []
    run = pages.finished(site, "How far is the moon?", source=["@handbook"])["run"]
    asked = httpx.get(f"{site.url}api/runs/{run}", timeout=PATIENCE).json()
    assert asked["source"] == ["notes", "@handbook", "upload:moon"]
    assert any("lru_cache there" in str(told.body) for told in site.model.requests)
    delete = page.get_by_role("button", name="Delete moon")
    delete.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(delete).to_be_visible()
    delete.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 document of moon")
    dialog.get_by_role("button", name="Delete").press("Enter")
    expect(chip).to_have_count(0)
    expect(page.get_by_role("button", name="Add documents")).to_be_focused()
    assert not list((Path(site.settings.data_dir) / "uploads").glob("moon*"))
    page.reload()
    expect(page.get_by_role("checkbox", name="notes")).to_be_checked()
    expect(page.get_by_text("Uploaded documents")).to_be_hidden()


def test_a_collection_is_chosen_as_any_other_source(page: Page):
    page.get_by_role("checkbox", name="@handbook").check()
    page.get_by_role("checkbox", name="notes").uncheck()
    with page.expect_request(lambda sent: sent.method == "POST") as asking:
        page.get_by_role("textbox", name="Question").fill(pages.QUESTION)
        page.get_by_role("button", name="Ask", exact=True).click()
    assert asking.value.post_data_json["source"] == ["@handbook"]


def test_what_the_server_has_not_told_yet_is_left_to_it(page: Page):
    page.route("**/api/status", lambda route: None)
    page.reload()
    page.get_by_role("radiogroup", name="Form of the answer").get_by_text("Short answer").click()
    with page.expect_request(lambda sent: sent.method == "POST") as asking:
        pages.ask(page)
    told = {"question": pages.QUESTION, "format": "short", "attended": True}
    assert asking.value.post_data_json == told
