"""The folders of runs: whole files, names that hold one question, damage told in a sentence."""

import os
from pathlib import Path

import pytest

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import RunStore, writable, write_atomically
from tests.support.values import trajectory

ASKED = {"ask": {"question": "What?"}, "choices": {"model": None}}


OTHER = {"ask": {"question": "Why?"}, "choices": {"model": None}}


def test_a_request_and_a_trajectory_are_read_back(tmp_path: Path):
    store = RunStore(tmp_path)
    store.create("t", ASKED)
    store.create("t", ASKED)
    assert store.request("t") == ASKED
    store = RunStore(tmp_path)
    ended = trajectory("It <cite id='S1'>grows</cite>.")
    store.save(ended)
    assert store.load(ended.thread) == ended


def test_a_name_is_taken_once_a_call_has_finished_under_it(tmp_path: Path):
    store = RunStore(tmp_path)
    store.create("t", ASKED)
    store.journal("t").close()
    store.create("t", OTHER)
    (tmp_path / "runs" / "t" / "journal.jsonl").write_text('{"key": ["t", 1, 0, "d"]}\n')
    with pytest.raises(SettingsError, match="holds another question") as caught:
        store.create("t", ASKED)
    assert "--resume t" in caught.value.remedy
    store.create("t", OTHER)


@pytest.mark.parametrize("error", [OSError(28, "No space left"), OSError("No space left")])
def test_what_the_system_refuses_is_said_in_its_words(error: OSError, tmp_path: Path):
    with pytest.raises(StoreError, match="cannot be used: No space left"), writable(tmp_path):
        raise error


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "x" * 65, "a b", "é/"])
def test_a_name_cannot_leave_its_folder(name: str, tmp_path: Path):
    with pytest.raises(SettingsError, match="cannot name a thread"):
        RunStore(tmp_path).create(name, ASKED)
    assert not (tmp_path / "runs").exists()


def test_an_unknown_name_is_told_with_the_known_ones(tmp_path: Path):
    store = RunStore(tmp_path)
    with pytest.raises(SettingsError, match="no run is called 'x'") as caught:
        store.request("x")
    assert caught.value.remedy == "The latest are: none yet."
    store.create("t", ASKED)
    with pytest.raises(SettingsError, match="no run that has ended is called 't'") as caught:
        store.load("t")
    assert caught.value.remedy == "The latest are: t."


def test_threads_are_listed_the_latest_last(tmp_path: Path):
    store = RunStore(tmp_path)
    assert store.threads() == []
    for at, name in enumerate(("first", "second", "third")):
        store.create(name, ASKED)
        os.utime(tmp_path / "runs" / name / "request.json", (at, at))
    os.utime(tmp_path / "runs" / "first" / "request.json", (9, 9))
    copy = tmp_path / "runs" / "first (copy)"
    copy.mkdir()
    (copy / "request.json").write_text("{}")
    assert store.threads() == ["second", "third", "first"]


def test_a_damaged_request_or_trajectory_is_told_in_a_sentence(tmp_path: Path):
    store = RunStore(tmp_path)
    store.create("t", ASKED)
    (tmp_path / "runs" / "t" / "request.json").write_text('{"ask": ')
    with pytest.raises(StoreError, match="request of 't' cannot be read"):
        store.create("t", ASKED)
    store.create("u", ASKED)
    (tmp_path / "runs" / "u" / "trajectory.json").write_text('{"id": 1}')
    with pytest.raises(StoreError, match="trajectory of 'u' cannot be read") as caught:
        store.load("u")
    assert "--resume u" in caught.value.remedy


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "a" / "file.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["file.json"]


@pytest.mark.parametrize("act", ["create", "journal"])
def test_a_data_directory_that_is_a_file_is_told_in_a_sentence(act: str, tmp_path: Path):
    (tmp_path / "file").write_text("")
    store = RunStore(tmp_path / "file")
    with pytest.raises(StoreError, match="cannot be used") as caught:
        store.create("t", ASKED) if act == "create" else store.journal("t")
    assert "RUBRICEM_DATA_DIR" in caught.value.remedy
