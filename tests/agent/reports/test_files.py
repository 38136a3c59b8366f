"""Reports as files, written whole or not at all."""

import os
from pathlib import Path

import pytest

from rubricem.agent.reports.page import (
    check_report_path,
    render,
    write_report,
)
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import Trajectory
from tests.agent.reports.runs import CITED, DOUBTED, RECALLING
from tests.support.values import BOUND, source, trajectory


@pytest.mark.parametrize(
    ("suffix", "begins"),
    [(".md", b"# How"), (".html", b"<!doctype html>"), (".json", b"{"), (".HTML", b"<!doctype"),
     (".bib", b"@misc{")],
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


@pytest.mark.parametrize("name", ["report", "report.doc", "report.txt"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path: Path, name: str):
    with pytest.raises(SettingsError, match=name) as refused:
        write_report(trajectory(CITED), tmp_path / name)
    assert ".md, .html, .json or .bib" in refused.value.remedy
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


PAPER = source(1, BOUND, "A {B} & 50%\nof_it", "https://doi.org/10.1000/ab_c?x=1")


HELD = (
    "@misc{rubricem-run-1-1,\n  title = {{A \\{B\\} \\& 50\\% of\\_it}},\n"
    "  url = {https://doi.org/10.1000/ab_c?x=1},\n  doi = {10.1000/ab_c},\n"
    "  urldate = {2026-08-05},\n  note = {line 3}\n}\n"
)


def test_cited_sources_are_given_to_reference_managers():
    uncited = source(2, BOUND, "U", "u.md")
    assert render(trajectory(CITED, sources=(PAPER, uncited)), ".bib") == HELD
