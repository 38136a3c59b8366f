"""What is chosen on the page: how claims are checked, what is uploaded, how a run goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from memory.runs import RunStore
from tests.web_pages import PHONE, QUESTION, ask, finished, has_heading, opened, run_address
from tests.web_site import Site, website

MOON = {"name": "moon.md", "mimeType": "text/markdown", "buffer": b"# Moon\n\nlru_cache there."}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with website(tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with opened(browser, site, reduced_motion="reduce") as found:
        yield found


def sound(page: Page) -> None:
    """See that the page as it stands has no serious fault and fits a phone."""
    faults = Axe().run(page).response["violations"]
    grave = [(f["id"], f["nodes"][0]["html"][:120]) for f in faults
             if f["impact"] in ("serious", "critical")]  # fmt: skip
    assert not grave
    size = page.viewport_size
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert size is not None
    page.set_viewport_size(size)


def kept(site: Site, run: str) -> dict[str, object]:
    choices: dict[str, object] = RunStore(site.settings.data_dir).request(run)["choices"]
    return choices


def test_the_checking_of_the_citations_is_chosen_by_key(page: Page, site: Site):
    checking = page.get_by_role("radiogroup", name="Checking of the citations")
    expect(checking.get_by_label("Mark doubts")).to_be_checked()
    checking.get_by_label("Mark doubts").press("ArrowLeft")
    expect(checking.get_by_label("Do not check")).to_be_checked()
    sound(page)
    run = ask(page)
    assert kept(site, run)["verify"] == "off"
    expect(page.get_by_role("article")).to_contain_text("can grow without bound")
    page.goto(f"{site.url}#/")
    checking.get_by_text("Repair").click()
    assert kept(site, ask(page))["verify"] == "repair"


def test_uploaded_documents_are_listed_and_deleted(page: Page, site: Site):
    page.get_by_label("Documents to search").set_input_files([MOON])  # type: ignore[list-item]
    chip = page.locator(".chip").filter(has_text="documents-")
    expect(chip).to_have_count(1)
    page.get_by_text("Uploaded documents").press("Enter")
    expect(page.get_by_role("listitem").filter(has_text="moon.md").last).to_be_visible()
    sound(page)
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


def test_a_run_that_met_a_budget_goes_on_with_a_larger_one(page: Page, site: Site):
    run = finished(site, max_total_tokens=20)["run"]
    page.goto(f"{site.url}{run_address(run)}")
    expect(page.get_by_text("Partial", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Go on").click()
    form = page.get_by_role("form", name="A larger budget")
    tokens = form.get_by_label("Tokens in all")
    expect(tokens).to_be_focused()
    # Twice what it took, which is more than what it might take.
    taken = page.locator("[data-count=tokens]").inner_text()
    expect(tokens).to_have_value(str(2 * int(taken)))
    expect(form).to_contain_text("Its budget was 20.")
    sound(page)
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


def test_a_run_that_was_stopped_goes_on_without_being_asked_for_a_budget(
    browser: Browser, site: Site
):
    with opened(browser, site) as page:
        ask(page, f"{QUESTION} forever")
        expect(page.get_by_text("4 passages", exact=False)).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        expect(page.get_by_role("form", name="A larger budget")).to_have_count(0)
        page.get_by_role("button", name="Stop").click()


def test_a_run_of_the_command_line_gets_a_thread_with_its_first_follow_up(page: Page, site: Site):
    asked = finished(site)
    (site.settings.data_dir / "threads" / f"{asked['thread']}.json").unlink()
    page.goto(f"{site.url}{run_address(asked['run'])}")
    has_heading(page, QUESTION)
    expect(page.get_by_role("link", name="Thread", exact=True)).to_have_count(0)
    page.get_by_role("textbox", name="Follow-up question").fill("What does maxsize 0 do?")
    page.get_by_role("button", name="Ask in this thread").click()
    has_heading(page, "What does maxsize 0 do?")
    page.get_by_role("link", name="Thread", exact=True).click()
    turns = page.locator("main .turns").get_by_role("listitem")
    expect(turns).to_have_count(2)
    expect(turns.first).to_contain_text(QUESTION)
