"""Conversations keep their runs in order, whoever else writes, and whatever is damaged."""

import json
import os
import sys
from pathlib import Path

import pytest

from agent.conversations.store import ConversationStore, Parent
from memory.errors import SettingsError, StoreError
from tests.conftest import ROOT
from tests.waiting import Process

ADDING = (
    "import sys, pathlib\n"
    "from agent.conversations.store import ConversationStore\n"
    "store = ConversationStore(pathlib.Path(sys.argv[1]))\n"
    "for i in range(20):\n"
    "    store.add_run(sys.argv[2], sys.argv[3] + str(i))\n"
)


@pytest.fixture
def store(tmp_path: Path) -> ConversationStore:
    return ConversationStore(tmp_path)


def test_runs_stay_in_the_order_in_which_they_were_asked(store: ConversationStore):
    begun = store.create()
    for run in ("b", "a", "b"):
        store.add_run(begun.id, run)
    assert store.get(begun.id).runs == ("b", "a")


def test_the_one_changed_last_is_listed_first(store: ConversationStore):
    first, second = store.create("first"), store.create("second")
    assert [each.id for each in store.listed().conversations] == [second.id, first.id]
    store.add_run(first.id, "r")
    assert [each.id for each in store.listed().conversations] == [first.id, second.id]


def test_a_branch_goes_on_by_itself(store: ConversationStore):
    begun = store.create("caches")
    for run in ("one", "two", "three"):
        store.add_run(begun.id, run)
    branch = store.branch(begun.id, "two")
    store.add_run(branch.id, "other")
    assert store.get(begun.id).runs == ("one", "two", "three")
    kept = store.get(branch.id)
    assert kept.runs == ("one", "two", "other") and kept.own_runs == ("other",)
    assert kept.parent == Parent(conversation=begun.id, run="two")


def test_a_run_belongs_to_where_it_was_asked(store: ConversationStore):
    begun = store.create()
    store.add_run(begun.id, "one")
    branch = store.branch(begun.id, "one")
    store.add_run(branch.id, "two")
    found = {run: store.of_run(run) for run in ("one", "two", "alone")}
    assert found["one"] and found["one"].id == begun.id
    assert found["two"] and found["two"].id == branch.id
    assert found["alone"] is None


def test_the_runs_of_a_branch_outlive_its_parent(store: ConversationStore):
    begun = store.create()
    store.add_run(begun.id, "one")
    branch = store.branch(begun.id, "one")
    store.delete(begun.id)
    assert store.get(branch.id).runs == ("one",)
    assert store.of_run("one") == store.get(branch.id)
    with pytest.raises(SettingsError, match="no conversation"):
        store.get(begun.id)


def test_a_title_is_one_printable_line_of_bounded_length(store: ConversationStore):
    begun = store.create()
    renamed = store.rename(begun.id, "two\nlines \x1b[31mred " + "x" * 500)
    assert renamed.title.startswith("two lines red xxx") and len(renamed.title) <= 120
    assert store.get(begun.id) == renamed


def test_a_damaged_file_is_told_and_no_other_is_lost(store: ConversationStore):
    whole, broken = store.create("whole"), store.create("broken")
    path = store.folder / f"{broken.id}.json"
    path.write_text('{"id": "x", ')
    listing = store.listed()
    assert [each.title for each in listing.conversations] == ["whole"]
    (problem,) = listing.problems
    assert broken.id in problem and "Its runs are still there" in problem
    with pytest.raises(StoreError, match="cannot be read"):
        store.add_run(broken.id, "r")
    assert path.read_text() == '{"id": "x", ', "what cannot be read is not overwritten"
    store.delete(broken.id)
    assert store.listed().problems == () and store.get(whole.id)


@pytest.mark.parametrize("name", ["../x", "", "a/b", "x" * 65, "."])
def test_a_name_that_could_leave_the_folder_is_refused(store: ConversationStore, name: str):
    for use in (store.get, store.delete, lambda each: store.add_run(each, "r")):
        with pytest.raises(SettingsError, match="names no conversation"):
            use(name)


def test_a_run_of_another_conversation_cannot_be_branched_at(store: ConversationStore):
    with pytest.raises(SettingsError, match="not in the conversation"):
        store.branch(store.create().id, "r")


def test_two_processes_that_add_at_once_lose_nothing(store: ConversationStore, tmp_path: Path):
    begun = store.create()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    adding = [
        Process([sys.executable, "-c", ADDING, str(tmp_path), begun.id, name], env=environment)
        for name in "ab"
    ]
    assert [process.wait() for process in adding] == [0, 0]
    runs = store.get(begun.id).runs
    assert len(runs) == 40
    assert [run for run in runs if run[0] == "a"] == [f"a{i}" for i in range(20)]


def test_what_is_kept_is_json_that_a_later_version_may_add_to(store: ConversationStore):
    begun = store.create("x")
    path = store.folder / f"{begun.id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "red"}))
    assert store.get(begun.id) == begun
