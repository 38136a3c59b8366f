"""The page for everybody: by keyboard, on a phone, in the dark, heard instead of seen.

Its own lock on the report's markup is tried on what the server would never send.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.agent.page.conftest import faults
from tests.support import pages

VIEWS = (
    "#/", "#/run/{run}", "#/run/{run}/steps", "#/run/{asking}", "#/conversations",
    "#/conversations/{thread}", "#/memory", "#/memory/kept", "#/memory/held", "#/judge",
    "#/judge/{run}",
    "#/training", "#/training/collected/september", "#/training/trained/adapter", "#/settings",
    "#/run/none",
)  # fmt: skip
LONG = "Why does functools.lru_cache(maxsize=None)_never_discard_anything_whatever_is_asked_of_it?"


@pytest.fixture(scope="module")
def views(site: pages.Site) -> list[str]:
    """The address of every view, with something to be seen in it."""
    asking = pages.begun(site, f"{LONG} lru_cache", approve_plan=True)["run"]
    asked = pages.finished(site)
    return [view.format(asking=asking, **asked) for view in VIEWS]


def shown(page: Page, site: pages.Site, view: str) -> None:
    page.goto(f"{site.url}{view}")
    expect(page.locator("main h1").first).to_be_attached()
    expect(page.locator("main .waiting")).to_have_count(0)
    if "/run/" in view and not view.endswith("none"):
        ready = page.locator(":is(.report, .feed-stage, .ask-card):visible").first
        expect(ready).to_be_visible()


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_no_view_has_a_serious_fault_or_is_wider_than_a_phone(
    browser: Browser, site: pages.Site, views: list[str], theme: str
):
    found = {}
    with pages.opened(browser, site, color_scheme=theme, reduced_motion="reduce") as page:
        for view in views:
            shown(page, site, view)
            found[view] = faults(page)
        shown(page, site, views[1])
        page.locator("[data-citation='3']").click()
        found["an open citation"] = [*pages.grave_faults(page)]
    assert not {view: wrong for view, wrong in found.items() if wrong}


@pytest.mark.parametrize(
    ("width", "locale"),
    [(320, "ar"), (640, "en"), *(pytest.param(*e, marks=pytest.mark.slow)
                                 for e in ((320, "en"), (640, "ar")))],
)  # fmt: skip
def test_every_view_fits_the_narrowest_phone_and_a_zoom_of_twice_also_from_right_to_left(
    browser: Browser, site: pages.Site, width: int, locale: str
):
    run = pages.finished(site, f"{pages.QUESTION} rich")
    size: ViewportSize = {"width": width, "height": 360}
    found = {}
    with pages.opened(browser, site, viewport=size, locale=locale) as page:
        page.route("**/texts/ar.json", lambda route: route.fulfill(json={"Ask": "اسأل"}))
        page.reload()
        for view in (each.format(asking=run["run"], **run) for each in VIEWS):
            shown(page, site, view)
            wide = page.evaluate("document.documentElement.scrollWidth")
            found |= {view: wide} if wide > width else {}
        direction = "rtl" if locale == "ar" else "ltr"
        assert page.locator("html").get_attribute("dir") == direction
        page.set_viewport_size({"width": 1280, "height": 720})
        rail = page.locator(".side").bounding_box()
        assert rail is not None and (rail["x"] > 640) is (locale == "ar")
    assert not found


def test_nothing_moves_for_who_wants_no_movement(browser: Browser, site: pages.Site):
    run = pages.begun(site, f"{pages.QUESTION} forever")["run"]
    moving = "document.getAnimations().filter((one) => one.playState === 'running').length"
    counts = {}
    for wish in ("reduce", "no-preference"):
        with pages.opened(browser, site, pages.run_address(run), reduced_motion=wish) as page:
            expect(page.locator(".recent .dot.live").first).to_be_visible()
            counts[wish] = page.evaluate(moving)
            if wish == "no-preference":
                page.get_by_role("button", name="Stop").click()
    assert counts["reduce"] == 0 < counts["no-preference"]


SELDOM = ("no modules", "not understood")


@pytest.mark.parametrize(
    "cause", ["no scripts", *(pytest.param(c, marks=pytest.mark.slow) for c in SELDOM)]
)
def test_a_browser_that_cannot_run_the_page_says_what_to_do(
    browser: Browser, site: pages.Site, cause: str
):
    with browser.new_context(java_script_enabled=cause != "no scripts") as context:
        page = context.new_page()
        if cause == "no modules":
            page.route("**/app.js", lambda route: route.abort())
        elif cause == "not understood":
            kind = "text/javascript"
            page.route("**/app.js", lambda route: route.fulfill(body="¿", content_type=kind))
        page.goto(site.url)
        said = page.locator(".noscript:visible")
        expect(said).to_have_count(1)
        expect(said).to_contain_text("rubricem ask")
    with pages.opened(browser, site) as page:
        page.wait_for_timeout(4500)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".noscript:visible")).to_have_count(0)


def test_a_question_is_asked_and_its_citation_read_by_keyboard_alone(
    browser: Browser, site: pages.Site
):
    with pages.opened(browser, site) as page:
        expect(page.get_by_role("checkbox").first).to_be_attached()
        expect(page.get_by_role("textbox", name="Question")).to_be_focused()
        page.get_by_role("link", name="Skip to the content").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_role("textbox", name="Question")).to_be_focused()
        page.keyboard.type(pages.QUESTION)
        page.keyboard.press("Control+Enter")
        page.wait_for_url("**/#/run/*")
        expect(page.get_by_role("article")).to_be_visible()
        mark = page.get_by_role("button", name="Source 2").first
        for _ in range(40):
            if mark.evaluate("mark => mark === document.activeElement"):
                break
            page.keyboard.press("Tab")
        expect(mark).to_be_focused()
        outline = mark.evaluate("mark => getComputedStyle(mark).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_contain_text("Not supported")
        page.keyboard.press("Escape")
        expect(mark).to_be_focused()


def test_who_listens_is_told_the_stages_and_the_end_but_no_text(browser: Browser, site: pages.Site):
    # It waits for its plan to be approved, so that the page is there before anything is said.
    run = pages.begun(site, f"{pages.QUESTION} slowly", approve_plan=True)["run"]
    with pages.opened(browser, site, pages.run_address(run)) as page:
        page.evaluate(
            """() => {
                window.heard = [];
                const said = document.getElementById("said");
                const hear = () => window.heard.push(said.textContent);
                new MutationObserver(hear).observe(said, { childList: true });
            }"""
        )
        page.get_by_role("button", name="Follow this plan").click()
        page.wait_for_function(
            "() => window.heard.some((said) => said.startsWith('The run ended'))"
        )
        heard = page.evaluate("window.heard")
    assert "Stage: research" in heard
    assert len(heard) <= 6


@pytest.mark.parametrize("size", [pages.PHONE, {"width": 1280, "height": 720}])
@pytest.mark.slow
def test_nothing_moves_under_the_reader_while_a_run_is_written(
    browser: Browser, site: pages.Site, size: ViewportSize
):
    run = pages.begun(site, f"{pages.QUESTION} rich slowly halfway", approve_plan=True)["run"]
    with pages.opened(browser, site, pages.run_address(run), viewport=size) as page:
        page.evaluate(
            """() => {
                window.moved = 0;
                const add = (shift) => { if (!shift.hadRecentInput) window.moved += shift.value; };
                new PerformanceObserver((list) => list.getEntries().forEach(add))
                    .observe({ type: "layout-shift", buffered: true });
            }"""
        )
        page.get_by_role("button", name="Follow this plan").click()
        expect(page.get_by_role("region", name="Answer")).to_be_visible()
        assert page.evaluate("window.moved") < 0.02
        page.get_by_role("button", name="Stop").click()


def test_the_token_opens_the_page_typed_or_in_the_link_that_leaves_none_behind(
    browser: Browser, tmp_path: Path
):
    with pages.website(tmp_path, token="right-token") as guarded:
        with pages.opened(browser, guarded) as page:
            dialog = page.get_by_role("dialog", name="Enter the token")
            dialog.get_by_label("Token").fill("wrong")
            dialog.get_by_role("button", name="Enter").click()
            expect(dialog.get_by_role("alert")).to_contain_text("not the token")
            dialog.get_by_label("Token").fill("right-token")
            dialog.get_by_label("Token").press("Enter")
            expect(dialog).to_have_count(0)
            expect(page.locator("#side-foot").get_by_text("scripted")).to_be_visible()
            expect(page.get_by_text("notes", exact=True)).to_be_visible()
            assert "right-token" not in page.content()
            pages.ask(page)
            expect(page.get_by_role("article")).to_contain_text("can grow without bound")
        with pages.opened(browser, guarded, "#token=right-token") as page:
            expect(page.locator("#side-foot").get_by_text("scripted")).to_be_visible()
            assert page.url.endswith("/#/")
            assert page.get_by_role("dialog").count() == 0
        with pages.opened(browser, guarded, "#token=wrong") as page:
            expect(page.get_by_role("dialog", name="Enter the token")).to_be_visible()


CASES = {
    "<p>a<script>alert(1)</script>b</p>": "<p>ab</p>",
    "<p onclick=alert(1) style='color:red' id=x class='tied evil'>a</p>": '<p class="tied">a</p>',
    "<svg><a href=javascript:alert(1)>a</a><script>alert(1)</script></svg>b": "b",
    "<math><mtext><img src=x onerror=alert(1)></mtext></math>b": "b",
    "<img src=x onerror=alert(1)>a": "a",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>a": "a",
    "<div onclick=x><em>a</em></div>": "<div><em>a</em></div>",
    "<section><em>a</em></section>": "<em>a</em>",
    '<a href="javascript:alert(1)">a</a>': "<a>a</a>",
    '<a href=" java\tscript:alert(1)">a</a>': "<a>a</a>",
    '<a href="data:text/html,x">a</a>': "<a>a</a>",
    '<a href="//elsewhere.example">a</a>': "<a>a</a>",
    '<a href="https://docs.python.org/3/" onclick=x>a</a>': (
        '<a href="https://docs.python.org/3/" target="_blank" '
        'rel="noopener noreferrer nofollow">a</a>'
    ),
    "<style>*{display:none}</style><link rel=stylesheet href=x>a": "a",
    "<form action=/x><button>press</button></form>a": "pressa",
    '<button formaction="javascript:alert(1)">press</button>': "press",
    '<button popovertarget="c12" onclick=x aria-label="Source 2">2</button>': (
        '<button aria-label="Source 2" type="button" data-citation="12">2</button>'
    ),
    '<ol start="3"><li>a</ol>': '<ol start="3"><li>a</li></ol>',
    "<template><p>a</p></template>b": "b",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>b": "<p>b</p>",
    "<table><tr><td colspan=9 background=x>a</table>": (
        "<table><tbody><tr><td>a</td></tr></tbody></table>"
    ),
    "&lt;script&gt;": "&lt;script&gt;",
    '<p id="main" name="said">a</p><form name="body"></form>': "<p>a</p>",
}


@pytest.fixture
def hostile(browser: Browser, site: pages.Site) -> Iterator[Page]:
    with pages.opened(browser, site, hostile=True) as found:
        yield found


def sanitised(hostile: Page, markup: str) -> str:
    script = f"""async () => {{
        const {{ sanitised }} = await import("/static/sanitise.js");
        const place = document.createElement("div");
        place.append(sanitised({json.dumps(markup)}));
        return place.innerHTML;
    }}"""
    result: str = hostile.evaluate(script)
    return result


def test_only_what_is_allowed_is_left_and_markup_of_any_depth_ends(hostile: Page):
    assert {markup: sanitised(hostile, markup) for markup in CASES} == CASES
    deep = sanitised(hostile, "<blockquote>" * 5000 + "bottom" + "</blockquote>" * 5000)
    assert "bottom" in deep
