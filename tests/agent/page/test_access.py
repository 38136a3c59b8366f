"""The page for everybody: by keyboard, on a phone, in the dark, heard instead of seen.

Its own lock on the report's markup is tried on what the server would never send.
"""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, ViewportSize, expect

from tests.support.pages import (
    PHONE,
    QUESTION,
    Site,
    begun,
    finished,
    grave_faults,
    opened,
    run_address,
    website,
)

VIEWS = (
    "#/", "#/run/{run}", "#/run/{run}/steps", "#/run/{asking}", "#/threads", "#/threads/{thread}",
    "#/memory", "#/memory/kept", "#/memory/held", "#/judge", "#/judge/{run}", "#/training",
    "#/training/collected/september", "#/training/trained/adapter", "#/run/none",
)  # fmt: skip
LONG = "Why does functools.lru_cache(maxsize=None)_never_discard_anything_whatever_is_asked_of_it?"


@pytest.fixture(scope="module")
def views(site: Site) -> list[str]:
    """The address of every view, with something to be seen in it."""
    asking = begun(site, f"{LONG} lru_cache", approve_plan=True)["run"]
    asked = finished(site)
    return [view.format(asking=asking, **asked) for view in VIEWS]


def shown(page: Page, site: Site, view: str) -> None:
    page.goto(f"{site.url}{view}")
    expect(page.locator("main h1").first).to_be_attached()
    expect(page.locator("main .waiting")).to_have_count(0)
    if "/run/" in view and not view.endswith("none"):
        ready = page.locator(":is(.report, .feed-stage, .ask-card):visible").first
        expect(ready).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_has_a_serious_fault(browser: Browser, site: Site, views: list[str], theme: str):
    found = {}
    with opened(browser, site, color_scheme=theme, reduced_motion="reduce") as page:
        for view in views:
            shown(page, site, view)
            if grave := grave_faults(page):
                found[view] = grave
    assert not found


def test_an_open_citation_has_no_serious_fault(browser: Browser, site: Site, views: list[str]):
    with opened(browser, site, reduced_motion="reduce") as page:
        shown(page, site, views[1])
        page.locator("[data-citation='3']").click()
        assert grave_faults(page) == []


def test_no_view_is_wider_than_a_phone(browser: Browser, site: Site, views: list[str]):
    wide = {}
    with opened(browser, site, viewport=PHONE) as page:
        for view in views:
            shown(page, site, view)
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > PHONE["width"]:
                wide[view] = width
    assert not wide


def test_a_question_is_asked_and_its_citation_read_by_keyboard_alone(browser: Browser, site: Site):
    with opened(browser, site) as page:
        expect(page.get_by_role("checkbox").first).to_be_attached()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_role("textbox", name="Question")).to_be_focused()
        page.keyboard.type(QUESTION)
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


def test_a_change_of_view_puts_the_focus_on_its_heading(browser: Browser, site: Site):
    with opened(browser, site) as page:
        page.get_by_role("link", name="Memory").click()
        expect(page.get_by_role("heading", level=1, name="Memory")).to_be_focused()


@pytest.mark.parametrize("late", ["app.js", "ask.js"])
def test_a_link_followed_before_the_first_view_is_there_has_its_heading_focused_too(
    browser: Browser, site: Site, late: str
):
    held: list[Route] = []
    with opened(browser, site) as page:
        page.route(f"**/{late}*", lambda route: held.append(route))
        with page.expect_request(f"**/{late}*"):
            page.reload(wait_until="commit")
        page.get_by_role("link", name="Memory").click()
        page.wait_for_function("location.hash === '#/memory'")
        held[0].continue_()
        expect(page.get_by_role("heading", level=1, name="Memory")).to_be_focused()


def test_the_chosen_theme_holds_and_the_systems_is_followed(browser: Browser, site: Site):
    with opened(browser, site, color_scheme="light") as page:
        paper = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(paper) == "rgb(251, 250, 247)"
        page.get_by_role("radio", name="Dark theme").check(force=True)
        assert page.evaluate(paper) == "rgb(22, 24, 27)"
        page.reload()
        assert page.evaluate(paper) == "rgb(22, 24, 27)"
        page.get_by_role("radio", name="Theme of the system").check(force=True)
        assert page.evaluate(paper) == "rgb(251, 250, 247)"
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(paper) == "rgb(22, 24, 27)"


def test_who_listens_is_told_the_stages_and_the_end_but_no_text(browser: Browser, site: Site):
    run = begun(site, f"{QUESTION} slowly")["run"]
    with opened(browser, site, run_address(run)) as page:
        page.evaluate(
            """() => {
                window.heard = [];
                const said = document.getElementById("said");
                const hear = () => window.heard.push(said.textContent);
                new MutationObserver(hear).observe(said, { childList: true });
            }"""
        )
        expect(page.get_by_role("article")).to_be_visible()
        page.wait_for_function(
            "() => window.heard.some((said) => said.startsWith('The run ended'))"
        )
        heard = page.evaluate("window.heard")
    assert "Stage: research" in heard
    assert len(heard) <= 6


@pytest.mark.parametrize("size", [PHONE, {"width": 1280, "height": 720}])
def test_nothing_moves_under_the_reader_while_a_run_is_written(
    browser: Browser, site: Site, size: ViewportSize
):
    run = begun(site, f"{QUESTION} slowly", approve_plan=True)["run"]
    with opened(browser, site, run_address(run), viewport=size) as page:
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


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with website(tmp_path_factory.mktemp("guarded"), token="right-token") as found:
        yield found


def test_a_wrong_token_is_refused_and_the_right_one_opens_the_page(browser: Browser, guarded: Site):
    with opened(browser, guarded) as page:
        dialog = page.get_by_role("dialog", name="Enter the token")
        dialog.get_by_label("Token").fill("wrong")
        dialog.get_by_role("button", name="Enter").click()
        expect(dialog.get_by_role("alert")).to_contain_text("not the token")
        dialog.get_by_label("Token").fill("right-token")
        dialog.get_by_label("Token").press("Enter")
        expect(dialog).to_have_count(0)
        expect(page.get_by_text("scripted")).to_be_visible()
        expect(page.get_by_text("notes", exact=True)).to_be_visible()
        assert "right-token" not in page.content()


def test_the_link_that_the_server_prints_opens_the_page_and_leaves_no_token_behind(
    browser: Browser, guarded: Site
):
    with opened(browser, guarded, "#token=right-token") as page:
        expect(page.get_by_text("scripted")).to_be_visible()
        assert page.url.endswith("/#/")
        assert page.get_by_role("dialog").count() == 0
    with opened(browser, guarded, "#token=wrong") as page:
        expect(page.get_by_role("dialog", name="Enter the token")).to_be_visible()


CASES = {
    "<p>a<script>alert(1)</script>b</p>": "<p>ab</p>",
    "<p onclick=alert(1) style='color:red' id=x class='tied evil'>a</p>": '<p class="tied">a</p>',
    "<svg><a href=javascript:alert(1)>a</a><script>alert(1)</script></svg>b": "b",
    "<math><mtext><img src=x onerror=alert(1)></mtext></math>b": "b",
    "<img src=x onerror=alert(1)>a": "a",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>a": "a",
    "<div><em>a</em></div>": "<em>a</em>",
    '<a href="javascript:alert(1)">a</a>': "<a>a</a>",
    '<a href=" java\tscript:alert(1)">a</a>': "<a>a</a>",
    '<a href="data:text/html,x">a</a>': "<a>a</a>",
    '<a href="//elsewhere.example">a</a>': "<a>a</a>",
    '<a href="https://docs.python.org/3/" onclick=x>a</a>': (
        '<a href="https://docs.python.org/3/" target="_blank" '
        'rel="noopener noreferrer nofollow">a</a>'
    ),
    "<style>*{display:none}</style><link rel=stylesheet href=x>a": "a",
    "<form action=/x><button>press</button></form>a": "a",
    '<button formaction="javascript:alert(1)">press</button>': "press",
    '<button popovertarget="c12" onclick=x aria-label="Source 2">2</button>': (
        '<button type="button" data-citation="12" aria-label="Source 2">2</button>'
    ),
    '<ol start="3"><li>a</ol>': '<ol start="3"><li>a</li></ol>',
    "<template><p>a</p></template>b": "b",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>b": "<p>b</p>",
    "<table><tr><td colspan=9 background=x>a</table>": (
        "<table><tbody><tr><td>a</td></tr></tbody></table>"
    ),
    "&lt;script&gt;": "&lt;script&gt;",
}


@pytest.fixture(scope="module")
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with opened(browser, site, hostile=True) as found:
        yield found


def sanitised(page: Page, markup: str) -> str:
    script = f"""async () => {{
        const {{ sanitised }} = await import("/static/sanitise.js");
        const place = document.createElement("div");
        place.append(sanitised({json.dumps(markup)}));
        return place.innerHTML;
    }}"""
    result: str = page.evaluate(script)
    return result


@pytest.mark.parametrize("markup", CASES)
def test_only_what_is_allowed_is_made_anew(page: Page, markup: str):
    assert sanitised(page, markup) == CASES[markup]


def test_markup_of_any_depth_becomes_text_and_ends(page: Page):
    deep = sanitised(page, "<blockquote>" * 5000 + "bottom" + "</blockquote>" * 5000)
    assert "bottom" in deep
    assert deep.count("<blockquote>") <= 60


def test_clobbering_names_change_nothing(page: Page):
    found = sanitised(page, '<p id="main" name="said">a</p><form name="body"></form>')
    assert found == "<p>a</p>"
