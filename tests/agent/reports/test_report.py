"""Reports: what Markdown, JSON, HTML and files say, and that untrusted text stays text.

Reports as files: by suffix, whole, and refused in a sentence where none can be written.

A report as a PDF: what stands in it, that nothing is loaded for it, what is said without it.

What was recalled, as every kind of report shows it.
"""

import base64
import hashlib
import io
import json
import os
import re
import sys
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pypdf
import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from rubricem.agent.reports.display import print_report
from rubricem.agent.reports.page import _refusing, check_report_path, page, pdf, write_report
from rubricem.agent.reports.report import (
    TITLE,
    as_json,
    duration,
    link,
    literal,
    markdown,
    prose,
    recalled_lines,
    web_address,
)
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import AnswerFormat, Recollection, Status, Trajectory
from tests.support.values import BOUND, run_of, source, trajectory

CITED = '<cite id="S1">With maxsize None the cache grows.</cite>'
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "[x]: http://evil.example\n\n[x]",
    "![pixel](http://evil.example/p.png)",
    "<http://evil.example>",
    "`a` <b>`<script>`",
    "```\n````\n<script>alert(1)</script>",
    "- ```\n<script>alert(1)</script>",
    "~~~\n<script>\n~~~",
    "\\`<script>`",
    "`\n`<script>`",
    '"><script>',
    "\x1b[31mred\x1b[0m <style>*{}</style>",
)


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


def test_markdown_says_question_answer_sources_and_numbers():
    assert markdown(trajectory(CITED)) == (
        "# How does lru_cache evict?\n\n"
        "With maxsize None the cache grows [1].\n\n"
        "## Sources\n\n"
        "**[1]** lru_cache · lib.py · line 3\n\n"
        "> If maxsize is None the cache grows without bound.\n\n"
        "---\n\n"
        "finished · test-policy · 1 search · 1,200 tokens read, 80 written · $0.0021 · 1 min 5 s\n"
    )


def test_markdown_says_why_a_run_ended_early():
    text = markdown(trajectory("Some.", status=Status.PARTIAL, reason="out of tokens"))
    assert "\n\nEnded early: out of tokens\n\nSome.\n" in text
    failed = markdown(trajectory(status=Status.FAILED, reason="the server is down"))
    assert "\n\nFailed: the server is down\n\nNo answer was written.\n" in failed


def test_markdown_says_how_many_marks_were_dropped():
    assert "1 citation mark named no retrieved source and was removed." in markdown(
        trajectory('<cite id="S8">x</cite>')
    )
    assert "2 citation marks named no retrieved source and were removed." in markdown(
        trajectory('<cite id="S8, S9">x</cite>')
    )


def test_the_last_line_of_an_exact_report_is_the_bare_answer():
    exact = trajectory(f"{CITED}\nAnswer: None", answer_format=AnswerFormat.EXACT)
    assert markdown(exact).splitlines()[-1] == "None"
    assert as_json(exact)["answer"].splitlines()[-1] == "None"


def test_a_web_source_is_linked_and_a_path_is_not():
    web = source(1, BOUND, "A [title] *x*", "https://docs.example/a b?x=1&y=(2)")
    text = markdown(trajectory(CITED, sources=(web,)))
    assert "[A \\[title\\] \\*x\\*](https://docs.example/a%20b?x=1&y=%282%29)" in text


@pytest.mark.parametrize(
    "location",
    ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "lib.py", "http://", "//x.y",
     "http://[bad"],
)  # fmt: skip
def test_only_web_addresses_become_links(location: str):
    assert web_address(location) is None
    assert link("T", location) == "T"
    assert "<a " not in page(trajectory(CITED, sources=(source(1, BOUND, "T", location),))).replace(
        '<a href="#s1">', ""
    )


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_stays_text_in_markdown(hostile: str):
    everywhere = trajectory(
        f'{hostile}\n\n<cite id="S1">{hostile} claim</cite>',
        question=hostile,
        sources=(source(1, f"{hostile} claim", hostile, hostile),),
        status=Status.PARTIAL,
        reason=hostile,
    )
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = [
        inner
        for block in parser.parse(markdown(everywhere))
        for inner in [block, *(block.children or [])]
    ]
    alive = [t for t in tokens if t.type in ("link_open", "image", "html_block", "html_inline")]
    assert {t.content for t in alive} <= {"<code>", "</code>"}
    assert "\x1b" not in markdown(everywhere)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_stays_text_in_the_page(hostile: str):
    everywhere = trajectory(
        f'{hostile}\n\n<cite id="S1">{hostile} claim</cite>',
        question=hostile,
        sources=(source(1, f"{hostile} claim", hostile, hostile),),
        status=Status.PARTIAL,
        reason=hostile,
    )
    text = page(everywhere)
    read = Page(text)
    assert not read.all("script") and not read.all("img") and len(read.all("style")) == 1
    assert not any(name.startswith("on") for _, attrs in read.tags for name in attrs)
    links = {attrs["href"] for attrs in read.all("a")}
    assert all(str(href).startswith("#") for href in links)
    assert "\x1b" not in text


def test_code_and_structure_of_an_answer_survive():
    kept = "## Head\n\n- *a* `x[0]`\n\n```python\nif a < b:\n    x[0] = '<b>'\n```"
    assert prose(kept) == kept
    assert prose("```\nopen") == "```\nopen\n```"


def test_literal_text_begins_no_list_heading_or_emphasis():
    assert literal("# a") == "\\# a"
    assert literal("1. a") == "1\\. a"
    assert literal("- lru_cache _x_") == "\\- lru_cache \\_x\\_"


def test_json_holds_exactly_what_programs_are_promised():
    report = as_json(trajectory(f'{CITED} <cite id="S9">No.</cite>'))
    assert list(report) == [
        "question",
        "answer",
        "citations",
        "dropped_citations",
        "verification",
        "conflicts",
        "stages",
        "usage",
        "status",
        "reason",
        "ended_by",
        "trajectory_id",
        "thread",
        "recalled",
        "recollections",
    ]
    assert report["answer"] == "With maxsize None the cache grows [1]. No [no source]."
    assert report["dropped_citations"] == 1
    assert report["citations"] == [
        {
            "id": "S1",
            "number": 1,
            "claim": "With maxsize None the cache grows.",
            "support": {"verdict": "unchecked", "reason": "", "overlap": 1.0},
            "source": {
                "id": "S1",
                "title": "lru_cache",
                "location": "lib.py",
                "place": "line 3",
                "passage": BOUND,
                "copies": [],
            },
        }
    ]
    assert [s["stage"] for s in report["stages"]] == ["plan", "research", "review", "answer"]
    assert report["stages"][1]["text"].startswith("<call_tool>lru</call_tool>\n<tool_output>")
    assert (report["trajectory_id"], report["thread"]) == ("run-1", "thread-1")
    assert json.loads(json.dumps(report)) == report


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


def test_the_page_shows_rubric_stages_and_numbers():
    read = Page(page(trajectory(CITED)))
    for shown in ("Names the rule", "Research", "1 search", "Both met.", "1,200", "$0.0021"):
        assert shown in read.text


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


def test_a_page_without_an_answer_says_so():
    read = Page(page(trajectory(status=Status.FAILED, reason="the server is down")))
    assert "No answer was written." in read.text and "the server is down" in read.text


def test_durations():
    assert [duration(s) for s in (0.04, 9.96, 41.4, 60, 125.2)] == [
        "0.0 s", "10.0 s", "41 s", "1 min 0 s", "2 min 5 s",
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".md", ".html", ".json", ".HTML"])
def test_reports_are_written_by_suffix(tmp_path: Path, suffix: str):
    path = tmp_path / f"report{suffix}"
    write_report(trajectory(CITED), path)
    begins = {".md": "# How", ".html": "<!doctype html>", ".json": "{"}[suffix.lower()]
    assert path.read_text(encoding="utf-8").startswith(begins)
    assert os.listdir(tmp_path) == [path.name]


def test_a_json_file_is_the_trajectory_itself(tmp_path: Path):
    write_report(trajectory(CITED), tmp_path / "run.json")
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert Trajectory.model_validate_json(text) == trajectory(CITED)


def test_a_report_replaces_what_was_there(tmp_path: Path):
    path = tmp_path / "report.md"
    path.write_text("old " * 10_000)
    write_report(trajectory(CITED), path)
    assert path.read_text(encoding="utf-8") == markdown(trajectory(CITED))


def test_a_symbolic_link_stays_one(tmp_path: Path):
    (tmp_path / "link.md").symlink_to(tmp_path / "real.md")
    write_report(trajectory(CITED), tmp_path / "link.md")
    assert (tmp_path / "link.md").is_symlink() and (tmp_path / "real.md").exists()


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


def words_of(content: bytes) -> str:
    reader = pypdf.PdfReader(io.BytesIO(content))
    return " ".join(" ".join(page.extract_text() for page in reader.pages).split())


def test_it_holds_the_question_the_answer_and_the_numbers():
    words = words_of(pdf(run_of()))
    assert "How does lru_cache evict?" in words
    assert "The least recently used entry goes first." in words
    assert "Passages found" in words and "Look up lru_cache." not in words


def test_it_is_written_like_the_other_forms(tmp_path: Path):
    write_report(run_of(), tmp_path / "report.PDF")
    assert (tmp_path / "report.PDF").read_bytes().startswith(b"%PDF-")
    assert [path.name for path in tmp_path.iterdir()] == ["report.PDF"]


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


def test_without_weasyprint_the_extra_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(SettingsError, match="weasyprint") as refused:
        check_report_path(tmp_path / "report.pdf")
    assert refused.value.remedy == "Install it: pip install 'rubricem[pdf]'"
    check_report_path(tmp_path / "report.html")


def test_without_pango_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "weasyprint.py").write_text("raise OSError('cannot load library libpango')")
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingsError, match="Pango") as refused:
        check_report_path(tmp_path / "report.pdf")
    assert "libpango" in refused.value.remedy


OWN = Recollection(id="0a1b", question="How does it evict?", own=True, score=0.8)
SIMILAR = Recollection(
    id="2c3d", question="What <b>is</b> *kept*?\x1b[31m\nNow", similarity=0.876, score=0.5
)


def recalling(*items: Recollection) -> Trajectory:
    ids = tuple(item.id for item in items)
    return trajectory("It is.").model_copy(update={"recalled": ids, "recollections": items})


RUN = recalling(OWN, SIMILAR)


def test_each_line_says_what_it_was_and_how_near_and_good():
    assert recalled_lines(RUN) == [
        "this very question: How does it evict? \u00b7 scored 0.80 \u00b7 0a1b",
        "a similar question (0.88): What <b>is</b> *kept*? Now \u00b7 scored 0.50 \u00b7 2c3d",
    ]
    assert recalled_lines(trajectory("It is.")) == []


def test_a_run_that_kept_ids_alone_shows_them():
    assert recalled_lines(RUN.model_copy(update={"recollections": ()})) == ["0a1b", "2c3d"]


def test_markdown_lists_them_after_the_sources_with_nothing_left_to_render():
    text = markdown(RUN)
    assert f"## {TITLE}\n\n- this very question: How does it evict?" in text
    assert "<b>" not in text and "*kept*" not in text.replace("\\*", "")
    assert TITLE not in markdown(trajectory("It is."))


def test_the_page_has_a_section_of_them_escaped():
    text = page(RUN)
    assert f'<h2 id="recalled-title">{TITLE}</h2>' in text
    assert "What &lt;b&gt;is&lt;/b&gt; *kept*? Now" in text and "\x1b" not in text
    assert TITLE not in page(trajectory("It is."))


@pytest.mark.parametrize("terminal", [True, False])
def test_the_terminal_shows_them_below_the_sources(terminal: bool):
    written = StringIO()
    print_report(RUN, Console(file=written, force_terminal=terminal, width=120, color_system=None))
    shown = written.getvalue()
    assert f"{TITLE}\n  - this very question: How does it evict?" in shown
    assert "(0.88): What <b>is</b> *kept*? Now" in shown


def test_json_holds_all_that_is_known_of_them(tmp_path: Path):
    report = as_json(RUN)
    assert report["recalled"] == ["0a1b", "2c3d"]
    assert report["recollections"][0] == {
        "id": "0a1b",
        "question": "How does it evict?",
        "own": True,
        "similarity": None,
        "score": 0.8,
    }
    write_report(RUN, tmp_path / "run.json")
    kept = Trajectory.model_validate_json((tmp_path / "run.json").read_text())
    assert kept.recollections == (OWN, SIMILAR)
