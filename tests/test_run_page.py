"""The page of a collected run: nothing is loaded, nothing runs, everything is escaped."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from agent.cli import main
from tests.collected import manifest
from tests.run_pages import NASTY, written_run
from training.run_directory import RunDirectory
from training.run_page import page
from training.run_page_numbers import run_numbers
from training.run_page_terminal import MOST, print_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written_run(tmp_path / "run").folder


def show(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["runs", "show", *arguments])


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_text_is_shown_and_does_nothing(folder: Path):
    text = page(run_numbers(RunDirectory(folder)), f"run {NASTY}")
    read = Tags(text)
    assert "<script>alert(1)</script>" in read.text, "it is shown as it was written"
    names = {tag for tag, _ in read.tags}
    assert not names & {"script", "img", "iframe", "link", "object", "a", "form"}
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    assert "\x1b" not in text and "\u202e" not in text
    # In question, reasons, notes, criteria, justifications, failures and the title.
    assert read.text.count("alert(1)") >= 9


def test_a_page_loads_nothing(folder: Path):
    text = page(run_numbers(RunDirectory(folder)), "run")
    attributes = {name for _, found in Tags(text).tags for name in found}
    assert not attributes & {"src", "href", "srcset", "action", "style"}
    assert not re.search(r"url\(|@import|https?://", text)
    assert "default-src 'none'" in text and "style-src 'sha256-" in text


def test_a_page_tells_the_numbers(folder: Path):
    told = " ".join(Tags(page(run_numbers(RunDirectory(folder)), "run")).text.split())
    for fact in (
        "Rollouts3 2 finished, 1 failed", "Unscored stages 12%", "Malformed rollouts 33%",
        "1 criteria added, 1 retired", "answer score 1.00 against 0.25", "judge2", "1 accepted",
        "step 1: answer score", "Best, plan 0.50", "Worst, review unscored",
    ):  # fmt: skip
        assert fact.replace(" ", "") in told.replace(" ", ""), fact
    variety = run_numbers(RunDirectory(folder)).variety.told()
    assert variety and all(line[1:] in told for line in variety)


def test_a_run_that_has_only_begun_has_a_page(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    run.begin(manifest(), [])
    assert "No finished step has a rollout yet." in page(run_numbers(run), "run")
    done = show(str(run.folder))
    assert done.exit_code == 0 and "0 rollouts, 0 failed, in 0 groups" in done.stdout


def test_the_command_writes_the_page_beside_the_run_or_where_it_is_told(folder: Path):
    done = show(str(folder), "--html")
    assert done.exit_code == 0 and f"in {folder / 'run.html'}" in done.stdout, done.output
    other = folder.parent / "other.html"
    assert show(str(folder), "--html", str(other)).exit_code == 0
    assert other.read_text() == (folder / "run.html").read_text()


def test_the_terminal_shows_steps_reasons_and_extremes(folder: Path):
    told = show(str(folder)).stdout
    assert "3 rollouts, 1 failed, in 2 groups and 2 steps of 2 questions; 1 min 45 s" in told
    assert "1 failed: The server is down." in told
    assert "1 stages unscored: the judge failed" in told
    assert "step 1, answer 1.00 (best) against 0.25 (worst)" in told
    assert "0.38" in told and "$1.3125" in told and "+1 -1" in told
    assert "\x1b" not in told and "\u202e" not in told


def test_reasons_that_differ_by_a_place_in_the_text_are_one(folder: Path):
    run = run_numbers(RunDirectory(folder))
    broken = run.steps[1].rollouts[0]
    run.steps[1].rollouts[:] = [
        replace(broken, reason=f"A tag at character {place} is {what}.")
        for place, what in [(3, "open"), (14, "open"), *((5, f"wrong {n}") for n in range(MOST))]
    ]
    assert run.early["A tag is open."] == 2
    told = StringIO()
    print_run(run, "run", Console(file=told))
    assert "2 ended early: A tag is open." in told.getvalue()
    assert "1 ended early for another reason" in told.getvalue()


def test_json_and_page_at_once_leave_json_alone_on_stdout(folder: Path):
    done = CliRunner().invoke(main, ["runs", "show", str(folder), "--json", "--html"])
    assert done.stdout.startswith("{") and '"groups": 2' in done.stdout
    assert "run.html" in done.stderr


def test_a_thread_has_no_such_page_and_a_folder_needs_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    done = show("thread", "--html")
    assert done.exit_code == 2 and "no folder of a collected run" in done.stderr
    done = show(str(tmp_path))
    assert done.exit_code == 2 and "is no collecting run" in done.stderr
