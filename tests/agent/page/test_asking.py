"""Asking on the page: watched, approved, stopped, reloaded in the middle, gone on with.

Chosen there: how claims are checked, what is uploaded. What runs teach is steered in its memory.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from rubricem.memory.runs import RunStore
from tests.agent.page.conftest import faults
from tests.support import pages
from tests.support.bank_cli import Server
from tests.support.scripted_server import Fault, Hang, Json, Scripted
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


def test_a_reload_in_the_middle_shows_everything_again(page: Page):
    pages.ask(page, f"{pages.QUESTION} slowly")
    research = page.get_by_role("region", name="Research")
    expect(research.get_by_text("lru_cache maxsize None bound")).to_be_visible()
    page.reload()
    pages.has_heading(page, f"{pages.QUESTION} slowly")
    expect(page.get_by_role("region", name="Plan")).to_contain_text("Two facts are asked for")
    expect(research.get_by_text("lru_cache maxsize None bound")).to_have_count(1)
    expect(page.get_by_text("Gives a measured figure for the hits").first).to_be_visible()
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")


def test_a_stopped_run_reports_what_there_is_and_goes_on_without_a_larger_budget(page: Page):
    pages.ask(page, f"{pages.QUESTION} forever")
    expect(page.get_by_text("4 passages", exact=False)).to_be_visible()
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
        slow.get_by_role("button", name="Stop").click()


def test_a_rejected_plan_is_written_anew_and_a_changed_one_is_followed(
    page: Page, site: pages.Site
):
    expect(page.get_by_role("checkbox", name="notes")).to_be_checked()
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


def test_what_the_server_refuses_is_said_and_the_question_stays(page: Page):
    page.get_by_role("textbox", name="Question").fill("   ")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_role("textbox", name="Question").fill("Half a question")
    page.reload()
    expect(page.get_by_role("textbox", name="Question")).to_have_value("Half a question")


def test_enter_sends_and_shift_enter_breaks_the_line(page: Page, site: pages.Site):
    question = page.get_by_role("textbox", name="Question")
    question.press_sequentially("lru_cache")
    question.press("Shift+Enter")
    question.press_sequentially("and maxsize?")
    expect(question).to_have_value("lru_cache\nand maxsize?")
    question.press("Enter")
    page.wait_for_url("**/#/run/*")


def test_who_asked_for_it_is_told_of_the_end_while_the_page_is_out_of_sight(page: Page):
    page.evaluate(
        """() => {
            window.told = [];
            window.Notification = class {
                static permission = "granted";
                static requestPermission = async () => "granted";
                constructor(title) { window.told.push(title); }
            };
        }"""
    )
    pages.ask(page, f"{pages.QUESTION} slowly")
    page.get_by_role("switch", name="Tell me when it is done").check()
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true })")
    expect(page.get_by_role("article")).to_be_visible()
    assert page.evaluate("told") == [f"Finished: {pages.QUESTION} slowly"]
    expect(page.get_by_text("Tell me when it is done")).to_be_hidden()


def test_a_run_that_is_not_there_is_said_to_be_so(page: Page, site: pages.Site):
    page.goto(f"{site.url}{pages.run_address('never-asked')}")
    pages.has_heading(page, "This run cannot be shown")
    expect(page.get_by_role("alert")).to_contain_text("run")


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


def kept(site: pages.Site, run: str) -> dict[str, object]:
    choices: dict[str, object] = RunStore(site.settings.data_dir).request(run)["choices"]
    return choices


def test_the_checking_of_the_citations_is_chosen_by_key(page: Page, site: pages.Site):
    checking = page.get_by_role("radiogroup", name="Checking of the citations")
    expect(checking.get_by_label("Mark doubts")).to_be_checked()
    checking.get_by_label("Mark doubts").press("ArrowLeft")
    expect(checking.get_by_label("Do not check")).to_be_checked()
    assert faults(page) == []
    run = pages.ask(page)
    assert kept(site, run)["verify"] == "off"
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")
    page.goto(f"{site.url}#/")
    checking.get_by_text("Repair").click()
    assert kept(site, pages.ask(page))["verify"] == "repair"


def test_the_model_and_the_memory_are_chosen_beside_the_question(page: Page, site: pages.Site):
    memory = page.get_by_role("radiogroup", name="Memory")
    expect(memory.get_by_label("Off")).to_be_checked()
    chosen = page.get_by_label("Model", exact=True)
    expect(chosen.get_by_role("option")).to_have_text(["scripted", "larger"])
    assert kept(site, pages.ask(page))["model"] == "scripted"
    page.goto(f"{site.url}#/")
    chosen.select_option("larger")
    memory.get_by_text("Use it", exact=True).click()
    assert faults(page) == []
    choices = kept(site, pages.ask(page))
    assert (choices["model"], choices["memory"]) == ("larger", "read-only")
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")
    expect(page.locator(".kicker")).to_contain_text("larger@")


def test_a_run_shown_before_its_model_was_opened_names_it_in_the_end(page: Page):
    def unopened(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "model": None})

    page.route(re.compile(r"/api/runs/[0-9a-f]+$"), unopened, times=1)
    pages.ask(page)
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")
    expect(page.locator(".kicker")).to_contain_text("scripted@")


def test_what_a_run_may_still_take_is_told_while_it_goes_on(page: Page, site: pages.Site):
    left = page.locator("[data-count=left]")
    pages.ask(page, f"{pages.QUESTION} forever")
    expect(left).to_have_text(re.compile(r"^at most 1[34]:\d\d$"))
    run = page.url.rpartition("/")[2]

    def known(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "usual_seconds": 500})

    page.route(f"**/api/runs/{run}", known)
    page.reload()
    expect(left).to_have_text(re.compile(r"^about [78]:\d\d$"))
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    expect(left).to_be_hidden()


def test_settings_say_where_each_comes_from(page: Page):
    page.get_by_role("link", name="Settings").click()
    pages.has_heading(page, "Settings")
    here = page.get_by_role("region", name="Set here")
    expect(here.locator(".setting", has_text="RUBRICEM_MODELS")).to_contain_text("larger")
    usual = page.get_by_role("region", name="As it comes")
    expect(usual.locator(".setting", has_text="RUBRICEM_CONCURRENCY")).to_contain_text("64")
    assert "`" not in page.locator("main").inner_text()


def test_a_choice_made_before_the_server_offers_its_own_stays(page: Page, site: pages.Site):
    page.route("**/api/status", lambda route: None)
    page.reload()
    checking = page.get_by_role("radiogroup", name="Checking of the citations")
    checking.get_by_label("Mark doubts").press("ArrowLeft")
    page.get_by_text("Show me the plan before it is followed").click()
    # A route that is taken away lets go what it held.
    page.unroute("**/api/status")
    expect(page.get_by_role("checkbox", name="notes")).to_be_checked()
    expect(checking.get_by_label("Do not check")).to_be_checked()
    expect(page.get_by_label("Show me the plan before it is followed")).to_be_checked()


def test_uploaded_documents_are_listed_and_deleted(page: Page, site: pages.Site):
    page.get_by_label("Documents to search").set_input_files([MOON])  # type: ignore[list-item]
    chip = page.locator(".chip").filter(has_text="documents-")
    expect(chip).to_have_count(1)
    expect(chip.locator("input")).to_be_checked()
    page.get_by_text("Uploaded documents").press("Enter")
    expect(page.get_by_role("listitem").filter(has_text="moon.md").last).to_be_visible()
    assert faults(page) == []
    delete = page.get_by_role("button", name="Delete documents-")
    delete.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(delete).to_be_visible()
    delete.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 document of documents-")
    dialog.get_by_role("button", name="Delete").press("Enter")
    expect(chip).to_have_count(0)
    expect(page.get_by_role("button", name="Add documents")).to_be_focused()
    assert not list((Path(site.settings.data_dir) / "uploads").glob("documents-*"))
    page.reload()
    expect(page.get_by_role("checkbox", name="notes")).to_be_checked()
    expect(page.get_by_text("Uploaded documents")).to_be_hidden()


def test_a_run_that_met_a_budget_goes_on_with_a_larger_one(page: Page, site: pages.Site):
    run = pages.finished(site, max_total_tokens=20)["run"]
    page.goto(f"{site.url}{pages.run_address(run)}")
    expect(page.get_by_text("Partial", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Go on").click()
    form = page.get_by_role("form", name="A larger budget")
    tokens = form.get_by_label("Tokens in all")
    expect(tokens).to_be_focused()
    # Twice what it took, which is more than what it might take.
    taken = page.locator("[data-count=tokens]").inner_text()
    expect(tokens).to_have_value(str(2 * int(taken)))
    expect(form).to_contain_text("Its budget was 20.")
    assert faults(page) == []
    form.get_by_role("button", name="Cancel").click()
    expect(form).to_have_count(0)
    expect(page.get_by_role("button", name="Go on")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Go on", exact=True).click()
    expect(form).to_have_count(1)
    tokens.fill("100000")
    tokens.press("Enter")
    expect(page.get_by_text("Finished", exact=True).first).to_be_visible()
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")
    request = RunStore(site.settings.data_dir).request(run)
    assert request["budgets"]["tokens"] == 100_000


def test_a_run_of_the_command_line_gets_a_thread_with_its_first_follow_up(
    page: Page, site: pages.Site
):
    asked = pages.finished(site)
    (site.settings.data_dir / "threads" / f"{asked['thread']}.json").unlink()
    page.goto(f"{site.url}{pages.run_address(asked['run'])}")
    pages.has_heading(page, pages.QUESTION)
    expect(page.get_by_role("link", name="Thread", exact=True)).to_have_count(0)
    page.get_by_role("textbox", name="Follow-up question").fill("What does maxsize 0 do?")
    page.get_by_role("button", name="Ask in this thread").click()
    expect(page.locator("h2", has_text="What does maxsize 0 do?")).to_be_visible()
    page.get_by_role("link", name="Thread", exact=True).click()
    turns = page.locator("main .turns > li")
    expect(turns).to_have_count(2)
    expect(turns.first).to_contain_text(pages.QUESTION)


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
        usual = pages.reply(body, number)
        judging = "You are a research agent" not in system and not system.startswith("You check")
        return self.judge if judging and self.judge is not None else usual


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def taught(tmp_path: Path, model: Model) -> Iterator[pages.Site]:
    with pages.website(tmp_path, model_says=model, memory="on") as found:
        yield found


def waiting(site: pages.Site) -> int:
    """How many runs wait and are not learnt from just now."""
    state = httpx.get(f"{site.url}api/learning").json()
    return 0 if state["now"] else int(state["waiting"])


def panel(page: Page) -> "Page":
    return page.get_by_role("region", name="Learning")  # type: ignore[return-value]


def test_what_waits_is_learnt_from_stopped_and_learnt_from_again(
    browser: Browser, taught: pages.Site, model: Model
):
    model.judge = Fault(401)
    with pages.opened(browser, taught, "#/memory", reduced_motion="reduce") as page:
        expect(page.get_by_role("heading", name="No lessons yet")).to_be_visible()
        expect(panel(page)).to_have_count(0)
        pages.finished(taught)
        page.reload()
        said = panel(page).get_by_role("status")
        learn = panel(page).get_by_role("button", name="Learn from them now")
        expect(said).to_have_text("1 run waits to be learnt from.", timeout=LONG)
        panel(page).get_by_text("What the latest runs taught").click()
        expect(panel(page).get_by_text("Failed; it waits")).to_be_visible()
        assert faults(page) == []
        expect(panel(page)).to_contain_text("API key")
        model.judge = Hang()
        learn.click()
        expect(said).to_contain_text(f"Judging this run: “{pages.QUESTION}”", timeout=LONG)
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
        expect(page.get_by_role("heading", level=1, name=pages.QUESTION)).to_be_visible()


def test_a_past_run_is_found_named_tagged_and_deleted_on_a_phone_too(
    browser: Browser, site: pages.Site
):
    run = pages.finished(site, "Which zebra sleeps?")["run"]
    with pages.opened(browser, site, "#/history", viewport=pages.PHONE) as page:
        search = page.get_by_role("searchbox", name="Search in questions and reports")
        with page.expect_response("**/api/runs?q=zebra*"):
            search.fill("zebra sleeps")
        expect(page.locator("main .list > li")).to_have_count(1)
        row = page.locator("main .list > li").first
        expect(row).to_contain_text("Which zebra sleeps?")
        row.get_by_role("button", name="Name and tags").click()
        page.get_by_label("Name").fill("Stripes")
        page.get_by_label("Tags").fill("animals, sleep")
        page.get_by_role("button", name="Keep").click()
        expect(row).to_contain_text("Stripes")
        with page.expect_response("**/api/runs?limit=30"):
            search.fill("")
        page.get_by_role("button", name="animals 1").click()
        expect(page.locator("main .list > li")).to_have_count(1)
        row.get_by_role("button", name="Delete").click()
        dialog = page.get_by_role("dialog", name="Delete this run?")
        expect(dialog).to_contain_text("taken out of its thread")
        dialog.get_by_role("button", name="Delete").click()
        expect(page.get_by_text("Deleted.")).to_be_visible()
        search.fill("nothing-holds-this")
        expect(page.get_by_text("Nothing was found")).to_be_visible()
    assert not (site.settings.data_dir / "runs" / run).exists()
