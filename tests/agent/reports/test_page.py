"""The page: every mark opens its passage, nothing is loaded, untrusted text stays text."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from rubricem.agent.reports.page import page
from rubricem.agent.reports.report import markdown
from rubricem.memory.schema import Repair
from tests.agent.reports.runs import CITED, DOUBTED, HOSTILE, SCRIPT, check, checked, hostile
from tests.support.values import BOUND, source, trajectory


class Page(HTMLParser):
    """The tags of a page with their attributes, and the text of each element by class or id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.marked: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.tags and self.tags[-1][0] == "mark":
            self.marked.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_every_mark_of_the_page_opens_the_passage_it_stands_on():
    text = page(trajectory(f'{CITED} <cite id="S2, S1">It holds 128 calls.</cite>'))
    read = Page(text)
    opened = [b["popovertarget"] for b in read.all("button") if b.get("class") != "close"]
    assert opened == ["c1", "c2", "c3"]
    assert [aside["id"] for aside in read.all("aside")] == ["c1", "c2", "c3"]
    popovers = text.split("<aside ")[1:]
    assert "<mark>If maxsize is None the cache grows without bound.</mark>" in popovers[0]
    assert "<mark>Otherwise it holds 128 calls.</mark>" in popovers[1]
    assert "<mark>functools.lru_cache(maxsize=128)</mark>" in popovers[2]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_in_the_page(text: str):
    shown = page(hostile(text))
    read = Page(shown)
    assert not read.all("script") and not read.all("img") and len(read.all("style")) == 1
    assert not any(name.startswith("on") for _, attrs in read.tags for name in attrs)
    links = {attrs["href"] for attrs in read.all("a")}
    assert {str(href).partition("/p")[0] for href in links} <= {"#s1", "http://evil.example"}
    assert "\x1b" not in shown


def test_runs_of_a_thread_are_one_page_in_which_every_id_is_its_own():
    second = trajectory(CITED, question="And in Arabic: ما هي الذاكرة المخبأة؟")
    read = Page(text := page(trajectory(CITED), second, title="Caches"))
    ids = [attrs["id"] for _, attrs in read.tags if attrs.get("id")]
    assert len(ids) == len(set(ids)) and len(read.all("article")) == 2
    opened = [b["popovertarget"] for b in read.all("button") if b.get("class") != "close"]
    assert opened and set(opened) == {aside["id"] for aside in read.all("aside")}
    assert text.count("<h1") == 1 and ">Caches</h1>" in text
    assert [len(read.all(name)) for name in ("h2", "title")] == [2, 1]


def test_the_page_loads_nothing_and_allows_only_its_own_style():
    text = page(trajectory(CITED, sources=(source(1, BOUND, "T", "https://docs.example/x"),)))
    read = Page(text)
    assert not any(attrs.get("src") or attrs.get("style") for _, attrs in read.tags)
    assert not read.all("link") and "url(" not in text and "@import" not in text
    (policy,) = [m["content"] for m in read.all("meta") if m.get("http-equiv")]
    style = re.search("<style>(.*?)</style>", text, re.S)
    assert style and policy
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


def test_the_page_marks_them_and_says_why_where_the_passage_opens():
    html = page(DOUBTED)
    assert '<button type="button" class="unsupported" popovertarget="c2"' in html
    assert ">2: not supported</button>" in html
    assert '<button type="button" class="partial" popovertarget="c3"' in html
    assert "This passage does not support the claim: no 3 in it, &lt;script&gt;" in html
    assert "This passage supports the claim in part: only a part." in html
    assert SCRIPT not in html
    assert "1 supported, 1 in part, 1 not supported" in html


def test_the_page_lists_what_was_removed_escaped():
    claim = f"It is {SCRIPT}"
    run = checked(
        f'<cite id="S1">{claim}</cite> Rest.',
        check("unsupported", claim),
        repairs=(Repair(claim=claim, statement=True),),
    )
    html = page(run)
    assert "as they were written</h2>" in html and '<li dir="auto">It is &lt;script&gt;' in html
    assert SCRIPT not in html
    assert "1 sentence said what no cited source supports: removed." in markdown(run)
