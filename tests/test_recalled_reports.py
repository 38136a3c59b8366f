"""What was recalled, as every kind of report shows it."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from agent.reports.recalled import TITLE, recalled_lines
from agent.reports.report import as_json, markdown, write_report
from agent.reports.report_page import page
from agent.reports.view import print_report
from memory.schema import Recollection, Trajectory
from tests.trajectories import trajectory

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
