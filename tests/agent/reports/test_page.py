"""The page: every mark opens its passage, nothing is loaded, untrusted text stays text.

On paper the same is read, without the way to the answer; files are written whole or not at all.
"""

import base64
import hashlib
import io
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pypdf
import pytest

from rubricem.agent.reports.page import (
    _refusing,
    check_report_path,
    figure,
    page,
    pdf,
    write_report,
)
from rubricem.agent.reports.report import markdown
from rubricem.judge.evaluation.report import share
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import Repair, Status, Trajectory
from tests.agent.reports.runs import (
    CITED,
    DOUBTED,
    HOSTILE,
    RECALLING,
    SCRIPT,
    check,
    checked,
    hostile,
)
from tests.support.values import BOUND, run_of, source, trajectory


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


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        (trajectory(CITED),
         ("Names the rule", "Research", "1 search", "Both met.", "1,200", "$0.0021")),
        (trajectory(status=Status.FAILED, reason="the server is down"),
         ("No answer was written.", "the server is down")),
    ],
)  # fmt: skip
def test_the_page_shows_rubric_stages_and_numbers_or_why_there_is_no_answer(
    run: Trajectory, shown: tuple[str, ...]
):
    text = Page(page(run)).text
    assert [each for each in shown if each not in text] == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_in_the_page(text: str):
    shown = page(hostile(text))
    read = Page(shown)
    assert not read.all("script") and not read.all("img") and len(read.all("style")) == 1
    assert not any(name.startswith("on") for _, attrs in read.tags for name in attrs)
    links = {attrs["href"] for attrs in read.all("a")}
    assert all(str(href).startswith("#") for href in links)
    assert "\x1b" not in shown


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


def test_a_long_passage_is_shown_around_what_it_supports():
    long = source(1, "Filler here. " * 5_000 + BOUND + " Filler there." * 5_000)
    text = page(trajectory(CITED, sources=(long,)))
    assert "<mark>If maxsize is None the cache grows without bound.</mark>" in text
    assert len(text) < 40_000


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
        repairs=(Repair(claim=claim),),
    )
    html = page(run)
    assert "as they were written</h2>" in html and '<li dir="auto">It is &lt;script&gt;' in html
    assert SCRIPT not in html
    assert "1 claim was not supported by any cited source, and removed." in markdown(run)


@pytest.mark.parametrize(
    ("suffix", "begins"),
    [(".md", b"# How"), (".html", b"<!doctype html>"), (".json", b"{"), (".HTML", b"<!doctype"),
     (".PDF", b"%PDF-")],
)  # fmt: skip
def test_reports_are_written_by_suffix_in_the_place_of_what_was_there(
    tmp_path: Path, suffix: str, begins: bytes
):
    path = tmp_path / f"report{suffix}"
    path.write_text("old " * 10_000)
    write_report(trajectory(CITED), path)
    assert path.read_bytes().startswith(begins) and b"old old" not in path.read_bytes()
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("run", [trajectory(CITED), DOUBTED, RECALLING])
def test_a_json_file_is_the_trajectory_itself_and_a_symbolic_link_stays_one(
    tmp_path: Path, run: Trajectory
):
    (tmp_path / "run.json").symlink_to(tmp_path / "real.json")
    write_report(run, tmp_path / "run.json")
    text = (tmp_path / "real.json").read_text(encoding="utf-8")
    assert Trajectory.model_validate_json(text) == run
    assert (tmp_path / "run.json").is_symlink()


@pytest.mark.parametrize("name", ["report", "report.docx", "report.txt"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path: Path, name: str):
    with pytest.raises(SettingsError, match=name) as refused:
        write_report(trajectory(CITED), tmp_path / name)
    assert ".md, .html, .pdf or .json" in refused.value.remedy
    assert os.listdir(tmp_path) == []


def test_a_path_that_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.md").mkdir()
    for path in (tmp_path / "file" / "a.md", tmp_path / "folder.md"):
        with pytest.raises(StoreError) as refused:
            check_report_path(path)
        assert str(tmp_path) in str(refused.value) and refused.value.remedy
    with pytest.raises(StoreError) as refused:
        write_report(trajectory(CITED), tmp_path / ("n" * 300 + ".md"))
    assert "another folder" in refused.value.remedy


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_rights_is_refused(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="no file can be written"):
        check_report_path(tmp_path / "a.md")


def test_on_paper_stand_the_question_the_answer_and_the_numbers():
    reader = pypdf.PdfReader(io.BytesIO(pdf(run_of())))
    words = " ".join(" ".join(page.extract_text() for page in reader.pages).split())
    assert "How does lru_cache evict?" in words
    assert "The least recently used entry goes first." in words
    assert "Passages found" in words and "Look up lru_cache." not in words


@pytest.mark.parametrize(
    "markup",
    [
        '<img src="{}">',
        '<link rel="stylesheet" href="{}">',
        '<style>@import "{}"; p {{ background: url({}) }}</style><p>x</p>',
        '<link rel="attachment" href="{}">',
        '<object data="{}"></object>',
    ],
)
def test_nothing_is_read_and_nobody_is_asked_while_it_is_made(
    markup: str, tmp_path: Path, forbidden_attempts: list[str]
):
    import weasyprint

    secret = tmp_path / "secret.txt"
    secret.write_text("p { content: 'secret' }")
    opened: list[str] = []

    def watch(event: str, args: tuple[object, ...]) -> None:
        if watching and event == "open" and args[0] == str(secret):
            opened.append(str(args[0]))

    watching = True
    sys.addaudithook(watch)
    for address in (secret.as_uri(), "http://203.0.113.1/x", "ftp://203.0.113.1/x"):
        html = markup.replace("{{", "{").replace("}}", "}").replace("{}", address)
        made = weasyprint.HTML(string=html, url_fetcher=_refusing()).write_pdf()
        assert b"secret" not in made
    watching = False
    assert opened == [] and forbidden_attempts == []


def test_without_weasyprint_or_pango_it_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(SettingsError, match="weasyprint") as refused:
        check_report_path(tmp_path / "report.pdf")
    assert refused.value.remedy == "Install it: pip install 'rubricem[pdf]'"
    check_report_path(tmp_path / "report.html")
    (tmp_path / "weasyprint.py").write_text("raise OSError('cannot load library libpango')")
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingsError, match="Pango") as refused:
        check_report_path(tmp_path / "report.pdf")
    assert "libpango" in refused.value.remedy


def test_a_figure_holds_names_without_markup_and_bars_of_the_shares():
    drawn = figure("a < b", [("x & y", share(1, 2)), ("none", share(0, 0))])
    assert "a &lt; b" in drawn and "x &amp; y" in drawn
    assert '<rect x="230" y="50" width="200.0"' in drawn, "half of 400 pixels"
    assert drawn == figure("a < b", [("x & y", share(1, 2)), ("none", share(0, 0))])
