"""`rubricem bank snapshot` and `restore`."""

from pathlib import Path

import pytest

from tests.bank_commands import bank, put, reflection, states


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    put(tmp_path / "data", reflection("a"), reflection("b", "What is a cache?"))
    return tmp_path / "data"


def test_a_bank_goes_back_to_its_copy_and_what_was_removed_stays_away(data: Path, tmp_path: Path):
    assert bank("snapshot", str(tmp_path / "copy")).stdout.startswith("2 events copied to")
    put(data, reflection("c", "What is a set?"))
    bank("rm", "a", "--yes")
    assert "3 events" in bank("restore", str(tmp_path / "copy"), "--yes").stdout
    assert states() == {"b": "live"}


def test_without_a_terminal_the_bank_is_not_given_up_unasked(data: Path, tmp_path: Path):
    bank("snapshot", str(tmp_path / "copy"))
    put(data, reflection("c", "What is a set?"))
    assert "--yes" in bank("restore", str(tmp_path / "copy"), exit_code=2).stderr
    assert set(states()) == {"a", "b", "c"}


def test_a_folder_without_a_whole_copy_and_another_banks_copy_are_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert "no whole snapshot" in bank("restore", str(tmp_path), "--yes", exit_code=2).stderr
    bank("snapshot", str(tmp_path / "copy"))
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "other"))
    put(tmp_path / "other", reflection("z"))
    assert "another bank" in bank("restore", str(tmp_path / "copy"), "--yes", exit_code=2).stderr
    bank("restore", str(tmp_path / "copy"), "--yes", "--foreign")
    assert set(states()) == {"a", "b"}


def test_a_folder_with_another_journal_is_not_written_over(data: Path, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("precious\n")
    assert "not a snapshot's" in bank("snapshot", str(tmp_path / "run"), exit_code=2).stderr
    assert (tmp_path / "run" / "journal.jsonl").read_text() == "precious\n"
    bank("snapshot", str(tmp_path / "copy"))
    (tmp_path / "copy" / "snapshot.json").rename(tmp_path / "copy" / "snapshot.begun")
    bank("snapshot", str(tmp_path / "copy"))
    assert "2 events" in bank("snapshot", str(tmp_path / "copy")).stdout, "a later copy replaces it"
