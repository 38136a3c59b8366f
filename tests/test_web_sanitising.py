"""The page's own lock on the report's markup, tried on what the server would never send."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.web_pages import opened
from tests.web_site import website

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
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("site")
    with website(folder) as site, opened(browser, site, hostile=True) as found:
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
