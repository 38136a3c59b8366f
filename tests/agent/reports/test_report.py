"""Reports: what Markdown, JSON and the terminal say, and that untrusted text stays text.

With the verdicts, the figures on which sources differ, and what was recalled.
"""

import json
from io import StringIO

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from rubricem.agent.reports.cited import Citation, Cited, CitedAnswer, cited_answer
from rubricem.agent.reports.display import print_report
from rubricem.agent.reports.page import page
from rubricem.agent.reports.report import (
    TITLE,
    alive,
    as_json,
    end_notes,
    link,
    literal,
    markdown,
    notes,
    prose,
    quotes,
    web_address,
)
from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.memory.schema import Investigation, Status, Trajectory, Verification
from tests.agent.reports.runs import CITED, DOUBTED, HOSTILE, MARKED, OWN, RECALLING, hostile
from tests.support.values import BOUND, source, trajectory


def test_markdown_says_question_answer_sources_and_numbers():
    assert markdown(trajectory(CITED)) == (
        "# How does lru_cache evict?\n\n"
        "With maxsize None the cache grows [1].\n\n"
        "## Sources\n\n"
        "**[1]** lru_cache · lib.py · line 3\n\n"
        "> If maxsize is None the cache grows without bound.\n\n"
        "---\n\n"
        "finished · test-policy · 1 search · 1,200 new tokens read, 80 written · $0.0021 · "
        "1 min 5 s\n"
    )


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


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_in_markdown(text: str):
    written = markdown(hostile(text))
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = [
        inner for block in parser.parse(written) for inner in [block, *(block.children or [])]
    ]
    html = [t.content for t in tokens if t.type in ("image", "html_block", "html_inline")]
    assert set(html) <= {"<code>", "</code>"}
    assert all(web_address(str(t.attrs["href"])) for t in tokens if t.type == "link_open")
    assert "\x1b" not in written


def test_code_and_structure_of_an_answer_survive_and_of_literal_text_nothing():
    kept = (
        "## Head\n\n- *a* `x[0] -> <b>`, a[i] > b && 3 < 4 [l](https://a.test) \\(x\\)\n\n"
        "```python\nif a < b:\n    x[0] = '<b>'\n```"
    )
    assert prose(kept) == kept
    assert prose("![p](https://a.test/p) Vec<T> &lt;") == "[p](https://a.test/p) Vec\\<T> \\&lt;"
    assert prose("```\nopen") == "```\nopen\n```"
    assert literal("# a") == "\\# a"
    assert literal("a > b [x] R&D") == "a > b [x] R&D"
    assert literal("1. a") == "1\\. a"
    assert literal("- lru_cache _x_") == "\\- lru_cache \\_x\\_"


def test_json_holds_exactly_what_programs_are_promised():
    report = as_json(trajectory(f'{CITED} <cite id="S9">No.</cite>'))
    names = (
        "question answer citations dropped_citations verification stages usage seconds status "
        "reason ended_by trajectory_id thread recalled recollections investigations sent missed"
    )
    assert list(report) == names.split()
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


def test_what_is_not_certain_is_told_apart_in_every_form():
    reason = {"status": Status.PARTIAL, "reason": "What is eaten?", "ended_by": "uncertain"}
    run = trajectory(
        '<cite id="S1" certainty="uncertain">It grows.</cite>\n\n'
        'It rests on: <cite id="S1">It is not bounded.</cite>'
    )
    found = AnswerVerifier("mark", None).by_rules(run, "")
    run = run.model_copy(update={**reason, "verification": found})
    (note,) = notes(run, cited_answer(run))
    assert note.startswith("Not certain: the model itself doubts what is marked so below")
    body = "It grows [1: not certain]."
    assert note in markdown(run) and body in markdown(run) and body in printed(run, True)
    assert f'<p class="note">{note}</p>' in page(run) and 'class="partial"' in page(run)
    told = as_json(run)
    assert told["status"] == "partial" and body in told["answer"]
    first, second = (c["support"] for c in told["citations"])
    assert first["verdict"] == "partial" and first["reason"] and second["verdict"] == "unchecked"
    colours = StringIO()
    print_report(run, Console(file=colours, force_terminal=True, width=120))
    assert "\x1b[33m[1: not certain]\x1b[0m" in colours.getvalue()


def printed(run: Trajectory, terminal: bool) -> str:
    written = StringIO()
    print_report(run, Console(file=written, force_terminal=terminal, width=120, color_system=None))
    return written.getvalue()


def test_every_form_shows_what_was_recalled_with_nothing_left_to_render():
    text, html = markdown(RECALLING), page(RECALLING)
    assert f"## {TITLE}\n\n- this very question: How does it evict?" in text
    assert not alive(text) and "*kept*" not in text.replace("\\*", "")
    assert f'<h2 id="recalled-title">{TITLE}</h2>' in html
    assert "What &lt;b&gt;is&lt;/b&gt; *kept*? Now" in html and "\x1b" not in html
    for shown in (printed(RECALLING, terminal=True), printed(RECALLING, terminal=False)):
        assert f"{TITLE}\n  - this very question: How does it evict?" in shown
        assert "(0.88): What <b>is</b> *kept*? Now" in shown
    report = as_json(RECALLING)
    assert report["recalled"] == ["0a1b", "2c3d"]
    assert report["recollections"][0] == OWN.model_dump()
    nothing = trajectory("It is.")
    assert TITLE not in markdown(nothing) and TITLE not in page(nothing)


def test_every_form_marks_what_is_not_supported():
    assert cited_answer(DOUBTED).text() == MARKED
    assert MARKED in printed(DOUBTED, terminal=False)
    text = markdown(DOUBTED)
    assert f"\n\n{MARKED}\n\n" in text
    assert "\n\nMarked below: 1 claim was not supported by a cited source.\n\n" in text
    assert "citations checked by lexical rules: 1 supported, 1 in part, 1 not supported" in text
    report = as_json(DOUBTED)
    assert [c["support"]["verdict"] for c in report["citations"]] == [
        "supported", "unsupported", "partial",
    ]  # fmt: skip
    assert report["citations"][2]["support"]["reason"] == "only a part"
    assert report["verification"]["checker"] == "lexical rules"
    noted = Verification(mode="mark", checker="lexical rules", note="no model checked")
    run = DOUBTED.model_copy(update={"verification": noted})
    assert notes(run, cited_answer(run))[-1] == "No model checked."


def test_a_quote_that_another_one_holds_is_not_said_twice():
    held = source(1, "It grows. Then it stops. It is full.")
    told = ("It grows.", "It grows. Then it stops.", "2.", "It is full.", "Then it stops.")
    claims = [Citation(1, said, held, decided=(said,)) for said in told]
    answer = CitedAnswer(tuple(Cited(c.claim, (c,)) for c in claims))
    assert quotes(answer, held) == ["It grows. Then it stops.", "It is full."]
    refuted = Citation(1, "It is half full", held, "unsupported")
    assert quotes(CitedAnswer((Cited("So", (refuted,)),)), held) == ["Then it stops. It is full."]


def test_of_an_investigation_that_another_one_finished_nothing_is_told():
    cut = Investigation(
        thread="t.1", question="Why?", status=Status.PARTIAL, reason="it was stopped"
    )
    more = Investigation(thread="t.2", question="Why?", after=1, status=Status.FINISHED)
    told = [
        notes(run := DOUBTED.model_copy(update={"investigations": parts}), cited_answer(run))
        for parts in ((cut,), (cut, more))
    ]
    assert ["An investigation ended early" in " ".join(said) for said in told] == [True, False]


def test_copies_are_told_where_the_source_is_listed():
    says = "The revenue of Acme in 2023 was 12.5 million dollars."
    first = source(1, says, "A", "https://a.test/").model_copy(
        update={"copies": ("https://b.test/x", "https://c.test/")}
    )
    made = trajectory(f'<cite id="S1">{says}</cite>', sources=(first,))
    for text in (markdown(made).replace("\\", ""), page(made)):
        assert "also at https://b.test/x, https://c.test/" in text
    assert as_json(made)["citations"][0]["source"]["copies"] == list(first.copies)


def test_what_of_the_sources_was_not_read_is_told_in_every_form():
    line = "read 3 files of notes; not read: 1 .doc (a .docx can be read)."
    run = trajectory('<cite id="S1">It is not bounded.</cite>').model_copy(
        update={"reading": (line,), "missed": ("The web is down.", "notes: gone.", "again.")}
    )
    *_, missed, told = end_notes(run, cited_answer(run))
    assert missed == "Not all was searched: The web is down; notes: gone; ..."
    assert missed in printed(run, True) and told[1:] == line[1:]
    assert told.startswith("Read 3") and told in printed(run, True)
    assert "not read: 1 .doc" in markdown(run) and "not read: 1 .doc" in page(run)
