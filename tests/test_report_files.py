"""Reports as files: by suffix, whole, and refused in a sentence where none can be written."""

import os
from pathlib import Path

import pytest

from agent.reports.report import check_report_path, markdown, write_report
from memory.errors import SettingsError, StoreError
from memory.schema import Trajectory
from tests.trajectories import trajectory

CITED = '<cite id="S1">With maxsize None the cache grows.</cite>'


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
