"""A report on the page: its citations checked, its doubts in sight, hostile text harmless.

So are threads, the memory, the judge and the curves, as somebody finds and changes them.
"""

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from rubricem.agent.reports.changes import FILE, Delivered, ReportChange
from rubricem.agent.reports.page import page as exported
from rubricem.memory.runs import RunStore
from rubricem.training.collect.directory import RunDirectory
from tests.agent.page.conftest import faults
from tests.agent.reports.runs import CITED
from tests.support import pages
from tests.support.values import trajectory
from tests.support.waiting import PATIENCE

HOSTILE = f"What does the hostile page say? {' '.join(pages.PAYLOADS)}"


@pytest.fixture(scope="module")
def run(site: pages.Site) -> str:
    return pages.finished(site)["run"]


@pytest.fixture
def report(page: Page, site: pages.Site, run: str) -> Page:
    page.goto(f"{site.url}{pages.run_address(run)}")
    expect(page.get_by_role("article")).to_contain_text("grow without bound")
    return page


def test_citations_open_doubts_are_counted_and_found_sources_are_listed_and_it_is_rated(
    report: Page,
):
    report.get_by_role("button", name="Source 1").first.click()
    sheet = report.get_by_role("dialog", name="Citation 1 of 3")
    expect(sheet.get_by_text("can grow without bound", exact=True)).to_be_visible()
    expect(sheet.get_by_text("Supported by this passage")).to_be_visible()
    expect(sheet.locator("mark")).to_contain_text("the cache can grow without bound")
    expect(sheet.get_by_text("lru_cache.md")).to_be_visible()
    report.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(report.get_by_role("button", name="Source 1").first).to_be_focused()
    checked = report.get_by_role("region", name="Citations checked")
    expect(checked).to_contain_text("2 supported")
    expect(checked).to_contain_text("1 not supported")
    expect(report.get_by_role("article")).to_contain_text("2: not supported")
    checked.get_by_role("button", name="Show doubts").click()
    sheet = report.get_by_role("dialog")
    expect(sheet.get_by_text("Not supported by this passage")).to_be_visible()
    expect(sheet.locator("mark")).to_contain_text("82 percent")
    sheet.get_by_role("button", name="Previous").click()
    expect(report.get_by_role("dialog", name="Citation 2 of 3")).to_be_visible()
    sheet.get_by_role("button", name="Next in doubt").click()
    expect(report.get_by_role("dialog", name="Citation 3 of 3")).to_be_visible()
    report.keyboard.press("Escape")
    sources = report.locator(".sources").first.get_by_role("listitem")
    expect(sources).to_have_count(2)
    expect(sources.first).to_contain_text("functools.lru_cache")
    sources.nth(1).get_by_text("Passage").click()
    expect(sources.nth(1)).to_contain_text("82 percent of the hits")
    # What is uncited, and what was read, stands behind the sources: the answer is seen first.
    headings = report.get_by_role("heading", level=2).all_inner_texts()
    assert headings.index("Sources") < headings.index("Notes")
    expect(report.locator(".part", has_text="Notes").first).to_contain_text("2 sentences state")
    expect(checked).not_to_contain_text("2 sentences state")
    report.get_by_role("button", name="Rate").click()
    expect(report.get_by_text("Choose a number")).to_be_visible()
    report.get_by_role("radio", name="4").check(force=True)
    report.get_by_label("Remark").fill("The figure is wrong")
    report.get_by_role("button", name="Rate").click()
    expect(report.get_by_text("Thank you.")).to_be_visible()


def test_a_thread_is_shown_with_its_answers_saved_as_one_file_and_goes_on_in_it(
    page: Page, site: pages.Site
):
    asked = pages.finished(site)
    pages.finished(site, "And lru_cache with 128?", thread=asked["thread"])
    page.goto(f"{site.url}#/threads/{asked['thread']}")
    page.wait_for_url(f"**/#/conversations/{asked['thread']}")
    turns = page.locator(".turns > li")
    expect(turns).to_have_count(2)
    expect(turns.first).to_contain_text(pages.QUESTION)
    expect(turns.first.get_by_role("article")).to_contain_text("can grow without bound")
    turns.first.get_by_role("button", name="Source 1").first.click()
    expect(page.get_by_role("dialog", name="Citation 1 of 3")).to_be_visible()
    page.keyboard.press("Escape")
    share = page.get_by_role("button", name="Share as one file").first
    with page.expect_download() as saved:
        share.click()
    assert saved.value.suggested_filename == f"rubricem-{asked['thread']}.html"
    written = saved.value.path().read_text()
    assert written.count("<article") == 2 and "And lru_cache with 128?" in written
    page.get_by_role("textbox", name="Follow-up question").fill("And with 256?")
    page.get_by_role("button", name="Ask in this conversation").click()
    expect(turns.nth(2).get_by_role("article")).to_contain_text("can grow without bound")
    assert not faults(page)


def test_hostile_text_is_shown_as_text_everywhere(page: Page, site: pages.Site):
    run = pages.finished(site, HOSTILE)["run"]
    page.goto(f"{site.url}{pages.run_address(run)}")
    article = page.get_by_role("article")
    expect(article).to_contain_text("<script>alert(5)</script>")
    expect(article).to_contain_text("<svg/onload=alert(7)>")
    expect(page.get_by_role("heading", level=1)).to_contain_text("<script>alert(5)</script>")
    expect(page.get_by_role("complementary")).to_contain_text("<img src=x onerror=alert(6)>")
    page.locator("[data-citation]").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("The hostile page says")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="How it was found").click()
    expect(page.get_by_role("region", name="Answer")).to_contain_text("alert(10)")
    for address in ("#/conversations", f"#/judge/{run}"):
        page.goto(f"{site.url}{address}")
        expect(page.locator("main")).to_contain_text("<script>alert(5)</script>")
    living = "script:not([src]), main :is(img, iframe, style, [onerror], [onload], [onclick])"
    assert page.locator(living).count() == 0
    assert page.locator('a[href^="javascript"]').count() == 0


@pytest.mark.parametrize(
    ("question", "ticks", "count"),
    [(pages.QUESTION, ["met", "met", "met in part"], "2 of 3 met"),
     (f"{pages.QUESTION} unmarked", ["", "", ""], "3 items")],
)  # fmt: skip
def test_the_rubric_is_ticked_where_the_review_marked_it_and_nowhere_else(
    page: Page, site: pages.Site, question: str, ticks: list[str], count: str
):
    run = pages.finished(site, question)["run"]
    page.goto(f"{site.url}{pages.run_address(run)}")
    expect(page.get_by_role("article")).to_be_visible()
    rubric = page.get_by_role("complementary", name="Rubric and limits")
    expect(rubric).to_contain_text(count)
    items = rubric.get_by_role("listitem")
    shown = [item.locator(".state").text_content(timeout=500) if tick else "" for item, tick in
             zip(items.all(), ticks, strict=True)]  # fmt: skip
    assert shown == ticks
    expect(rubric).not_to_contain_text(re.compile(r"\bS\d"))
    assert rubric.locator(".tick svg").count() == len(list(filter(None, ticks)))


SIZES: tuple[ViewportSize, ...] = (pages.PHONE, {"width": 1280, "height": 720})


def test_tables_code_and_formulas_read_well_and_are_drawn_by_what_comes_late(
    browser: Browser, site: pages.Site
):
    run = pages.finished(site, f"{pages.QUESTION} rich")["run"]
    asked: list[str] = []
    with pages.opened(browser, site, reduced_motion="reduce") as page:
        page.on("request", lambda request: asked.append(request.url))
        page.reload()
        expect(page.get_by_role("textbox", name="Question")).to_be_visible()
        assert not any("katex" in url for url in asked)
        page.goto(f"{site.url}{pages.run_address(run)}")
        article = page.get_by_role("article")
        expect(article.locator(".katex")).to_have_count(2)
        expect(article.locator(".katex-display")).to_be_visible()
        page.wait_for_function("() => document.fonts.check('16px KaTeX_Math')")
        lines = (
            "cell => (r => (r.selectNodeContents(cell), r.getClientRects().length))(new Range())"
        )
        column = "cell => getComputedStyle(cell).textAlign"
        cells = article.locator("th, td").all()
        table = article.get_by_role("region", name="Table")
        for size in SIZES:
            page.set_viewport_size(size)
            assert [c.evaluate(lines) for c in article.locator("td").all()[:2]] == [1, 1]
            assert [c.evaluate(column) for c in cells] == ["start", "right", "start"] * 2
            wide = table.evaluate("it => it.scrollWidth > it.clientWidth")
            assert wide is (size == pages.PHONE)
        expect(article.get_by_role("link", name="the manual")).to_have_attribute("target", "_blank")
        expect(article.get_by_role("link", name="seen")).to_be_visible()
        expect(article.locator(".c-k")).to_have_text("return")
        expect(article.get_by_role("listitem")).to_have_text("\u2611 Size told")
        assert not faults(page)


@pytest.mark.parametrize(("columns", "wide"), [(3, False), (9, True)])
def test_a_table_of_few_columns_is_as_wide_as_the_text(browser: Browser, columns: int, wide: bool):
    row = "|" + "A cell that tells in many words what it has to tell. |" * columns
    written = exported(trajectory(f"{CITED}\n\n{row}\n{'|---' * columns}|\n{row}\n"))
    with browser.new_context(viewport={"width": 1000, "height": 700}) as fresh:
        page = fresh.new_page()
        page.set_content(written)
        table = page.get_by_role("region", name="Table")
        assert table.evaluate("it => it.scrollWidth > it.clientWidth") is wide


def test_a_question_and_its_answer_stand_in_the_direction_of_their_language(
    browser: Browser, site: pages.Site
):
    asked = "ماذا يحدث عندما تكون maxsize فارغة؟ arabic lru_cache"
    run = pages.finished(site, asked)["run"]
    way = "it => getComputedStyle(it).direction"
    with pages.opened(browser, site, reduced_motion="reduce") as page:
        question = page.get_by_role("textbox", name="Question")
        question.fill(asked)
        assert question.evaluate(way) == "rtl"
        page.goto(f"{site.url}{pages.run_address(run)}")
        article = page.get_by_role("article")
        expect(article).to_contain_text("الذاكرة")
        assert [article.evaluate(way), page.locator("h1").evaluate(way)] == ["rtl", "rtl"]
        first = article.get_by_role("listitem").first
        for size in SIZES:
            page.set_viewport_size(size)
            inside, item = article.bounding_box(), first.bounding_box()
            assert inside and item and item["x"] + item["width"] < inside["x"] + inside["width"]
        assert page.locator("html").evaluate(way) == "ltr", "the interface stays as it is"
        assert not faults(page)
    html = httpx.get(f"{site.url}api/runs/{run}/export/html", timeout=PATIENCE).text
    assert '<article class="answer" dir="auto" lang="ar">' in html


def test_the_page_speaks_the_language_that_it_has_a_table_for(browser: Browser, site: pages.Site):
    german = {
        "What would you like to know?": "Was möchten Sie wissen?",
        "Ask": "Fragen",
        "Latest conversations": "Zuletzt",
        "question|questions": "Frage|Fragen",
    }
    with pages.opened(browser, site, locale="de-DE") as page:
        page.route("**/texts/de.json", lambda route: route.fulfill(json=german))
        page.reload()
        pages.has_heading(page, "Was möchten Sie wissen?")
        expect(page.get_by_role("link", name="Fragen")).to_be_visible()
        expect(page.get_by_role("heading", name="Zuletzt")).to_be_visible()
        expect(page.get_by_text("Short answer")).to_be_visible()
        assert page.locator("html").get_attribute("lang") == "de"
        said = "async () => (await import('/static/format.js')).counted(1200, 'question')"
        assert page.evaluate(said) == "1.200 Fragen"
        assert not faults(page)
    with pages.opened(browser, site, locale="de-DE") as page:
        pages.has_heading(page, "What would you like to know?")
        assert page.locator("html").get_attribute("lang") == "en"


def test_an_answer_is_drawn_while_it_is_written(page: Page, site: pages.Site):
    pages.ask(page, f"{pages.QUESTION} rich halfway")
    draft = page.get_by_role("region", name="Answer").locator(".report")
    expect(draft.get_by_role("cell", name="Marie Curie")).to_be_visible()
    expect(draft.locator(".katex")).to_have_count(1)
    expect(draft.locator(".maths > code")).to_have_count(0)
    expect(draft.locator("sup")).to_have_text("S1")
    expect(page.get_by_role("article")).to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("article")).to_contain_text("Marie Curie")


OWN = "Which entry does lru_cache discard first?"


def test_one_list_has_each_conversation_once_with_what_was_sought_in_it(
    page: Page, site: pages.Site
):
    asked = pages.finished(site, "Who fed the zebra? lru_cache")
    pages.finished(site, "And the okapi? lru_cache", thread=asked["thread"])
    alone = pages.finished(site, "Where is a quagga? lru_cache")["run"]
    page.goto(f"{site.url}#/conversations")
    rows = page.get_by_role("main").locator(".list > li")
    row = rows.filter(has_text="Who fed the zebra?")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("2 questions")
    expect(row.locator(".hits a")).to_have_text(re.compile("^And the okapi"))
    latest = page.get_by_role("navigation", name="Latest conversations").get_by_role("link")
    expect(latest.filter(has_text="Who fed the zebra?")).to_have_count(1)
    expect(latest.filter(has_text="okapi")).to_have_count(0)
    search = page.get_by_label("Search in questions and reports")
    search.fill("zebra")
    expect(rows).to_have_count(1)
    expect(row.locator(".hits mark")).to_have_text("zebra")
    search.fill("quagga")
    found = rows.filter(has_text="quagga").get_by_role("link")
    expect(found).to_have_attribute("href", f"#/run/{alone}")
    rows.get_by_role("button", name="Name and tags").click()
    page.get_by_label("Name").fill("Extinct")
    page.get_by_label("Tags").fill("animals")
    assert faults(page) == []
    page.get_by_role("button", name="Keep").click()
    expect(rows).to_contain_text("Extinct")
    page.reload()
    page.get_by_role("button", name="animals 1").click()
    expect(rows).to_have_count(1)


def test_what_changed_with_a_watched_run_stands_in_the_list_and_above_its_report(
    page: Page, site: pages.Site
):
    store = RunStore(site.settings.data_dir)
    before, now, cut, damaged = (
        pages.finished(site, f"Which {name} does lru_cache keep?")["run"]
        for name in ("mink", "stoat", "vole", "otter")
    )
    said = [ReportChange(text=f"It keeps {number}.", places=("a.md",)) for number in range(9)]
    gone = ReportChange(text="b.md", gone=True)
    told = {
        before: Delivered(),
        now: Delivered(since=before, changes=(said[0], said[1], gone, *said[2:])),
        cut: Delivered(not_compared="a search failed: <b>503</b>"),
    }
    for run, each in told.items():
        (store.folder_of(run) / FILE).write_text(each.model_dump_json())
    (store.folder_of(damaged) / FILE).write_text("{")
    page.goto(f"{site.url}#/conversations")
    rows = page.get_by_role("main").locator(".list > li")
    first, second, third = (rows.filter(has_text=name) for name in ("mink", "stoat", "vole"))
    expect(second).to_contain_text("New It keeps 0.New It keeps 1.Source no longer cited b.md")
    expect(second).to_contain_text("and 7 changes more")
    expect(third).to_contain_text("Not compared with the report before: a search failed: <b>503")
    expect(first).not_to_contain_text("the report before")
    expect(rows.filter(has_text="otter")).to_be_visible()
    assert faults(page) == []
    second.get_by_role("link").click()
    part = page.locator("section").filter(has=page.get_by_role("heading", name="What changed"))
    expect(part.get_by_role("listitem")).to_have_count(8)
    part.get_by_text("and 2 changes more").click()
    expect(part.get_by_role("listitem")).to_have_count(10)
    part.get_by_role("link", name="The report before").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("mink")
    expect(page.get_by_role("article")).to_be_visible()
    expect(part).to_have_count(0)


def test_a_conversation_is_renamed_branched_and_deleted_with_its_own_questions(
    page: Page, site: pages.Site
):
    asked = pages.finished(site, OWN)
    pages.finished(site, "And lru_cache with 128?", thread=asked["thread"])
    page.get_by_role("link", name="Conversations").click()
    rows = page.get_by_role("main").locator(".list > li")
    rows.get_by_role("link", name=OWN).first.click()
    pages.has_heading(page, OWN)
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("Caches <b>of</b> Python")
    page.get_by_role("button", name="Keep").click()
    pages.has_heading(page, "Caches <b>of</b> Python")
    page.get_by_role("button", name="Branch from here").first.click()
    expect(page.get_by_text("Branched from")).to_be_visible()
    page.get_by_role("link", name="Conversations").click()
    named = rows.filter(has_text="Caches <b>of</b> Python").filter(has_text="2 questions")
    branch = rows.filter(has_text="Nothing was asked in this conversation yet.")
    expect(named).to_have_count(1)
    branch.get_by_role("link").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("stay there")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(branch).to_have_count(0)
    named.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("All files of its 2 questions")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Deleted.")).to_be_visible()
    gone = httpx.get(f"{site.url}api/runs/{asked['run']}", timeout=PATIENCE)
    assert gone.status_code == 404


def test_a_reflection_is_edited_and_says_so(page: Page):
    page.get_by_role("link", name="Memory").click()
    heading = page.get_by_role("heading", level=1, name="Memory")
    expect(heading).to_be_focused()  # as after every change of view
    items = page.locator("main .list").get_by_role("listitem")
    expect(items).to_have_count(3)
    page.get_by_role("radiogroup", name="State").get_by_text("Active").click()
    expect(items).to_have_count(2)
    items.get_by_role("link", name="How does the cache evict?").click()
    takeaways = page.get_by_label("Takeaways")
    expect(takeaways).to_have_value(f"- read {pages.HOSTILE_TAG} first")
    takeaways.fill("- read the release notes, too")
    page.get_by_role("button", name="Keep the changes").click()
    expect(page.get_by_text("Kept as you wrote it")).to_be_visible()
    expect(page.get_by_text("edited by hand")).to_be_visible()
    page.reload()
    expect(takeaways).to_have_value("- read the release notes, too")
    expect(page.get_by_text("Edited", exact=True)).to_be_visible()


def test_what_is_in_quarantine_is_searched_says_why_and_is_released(page: Page, site: pages.Site):
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


def test_somebody_elses_change_is_not_overwritten(browser: Browser, site: pages.Site, page: Page):
    page.goto(f"{site.url}#/memory/rome")
    page.get_by_label("Rubrics").fill("Mine")
    with pages.opened(browser, site, "#/memory/rome") as other:
        other.get_by_label("Rubrics").fill("Theirs")
        other.get_by_role("button", name="Keep the changes").click()
        expect(other.get_by_text("Kept as you wrote it")).to_be_visible()
    page.get_by_role("button", name="Keep the changes").click()
    expect(page.get_by_role("alert")).to_contain_text("replaced")
    expect(page.get_by_label("Rubrics")).to_have_value("Mine")


def test_a_run_is_judged_and_stands_beside_another(page: Page, site: pages.Site):
    asked = pages.finished(site, OWN)
    second = pages.finished(site, "What is the other cache?")["run"]
    page.goto(f"{site.url}#/judge")
    page.get_by_label("Run", exact=True).select_option(asked["run"])
    page.get_by_role("button", name="Judge this run").click()
    answer = page.get_by_role("region", name=OWN).get_by_role("region", name="Answer")
    expect(answer).to_contain_text("Answers both parts")
    expect(answer).to_contain_text("Only in passing.")
    expect(answer.get_by_role("meter")).to_have_attribute("aria-label", re.compile("of 1$"))
    page.get_by_label("Compared with").select_option(second)
    expect(page.get_by_role("region", name="What is the other cache?")).to_be_visible()
    expect(page.get_by_role("region", name=OWN)).to_be_visible()


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
    canvas = figure.locator("canvas")
    expect(canvas).to_be_visible()
    expect(loss).to_have_attribute("aria-valuetext", "step 2: Loss 0.5")
    box = canvas.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 60)
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 60)
    expect(loss).to_have_attribute("aria-valuetext", "step 6: Loss 0.1667")
    assert not faults(page)


def test_a_collected_run_is_drawn_with_its_gaps(page: Page, site: pages.Site):
    page.goto(f"{site.url}#/training")
    page.get_by_role("link", name="september").click()
    scores = page.get_by_role("slider", name="Score of each stage")
    expect(scores).to_have_attribute("aria-valuetext", re.compile("^step 1: Plan no value, "))
    scores.press("Home")
    expect(scores).to_have_attribute("aria-valuetext", re.compile("^step 0: Plan 0.5, "))
    cells = page.get_by_role("region", name="All groups").get_by_role("cell")
    expect(cells).to_have_count(2)
    expect(cells.first).to_contain_text("0.63")
    expect(cells.first).to_contain_text("2 rollouts, 1 failed")
    expect(cells.nth(1).locator(".unscored")).to_contain_text("answer unscored")


def test_what_is_trained_and_collected_is_seen_as_it_comes(browser: Browser, tmp_path: Path):
    pages.seeded(tmp_path)
    folder = tmp_path / "results"
    run = RunDirectory(folder / "september")
    with pages.website(tmp_path) as here:
        with pages.opened(browser, here, "#/training/trained/adapter") as page:
            loss = page.get_by_role("slider", name="Loss")
            expect(loss).to_have_attribute("aria-valuetext", "step 6: Loss 0.1667")
            with (folder / "adapter" / "metrics.jsonl").open("a") as file:
                file.write('{"step": 7, "loss": 0.125}\n')
            expect(loss).to_have_attribute("aria-valuetext", "step 7: Loss 0.125")
        with pages.opened(browser, here, "#/training/collected/september") as page:
            cells = page.get_by_role("region", name="All groups").get_by_role("cell")
            expect(cells).to_have_count(2)
            judged = run.judgement_of(0, "a")
            assert judged is not None
            run.save_part(2, "c-judged", judged)
            expect(cells).to_have_count(3)
            expect(cells.nth(2).locator(".running")).to_contain_text("its step goes on")
