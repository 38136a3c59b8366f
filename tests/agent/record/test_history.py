"""The index of past runs: what is found by which words, how it follows the folders, what goes."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.record.conversations import ConversationStore
from rubricem.agent.record.history import FILE_NAME, History, remove, usual_cost
from rubricem.agent.transcript.question import Ask, Effort, UsualCost
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import Labels, RunStore, labels_of, set_labels
from rubricem.memory.schema import AnswerFormat, Status, Usage
from tests.support.values import trajectory

ASKED = {
    "de": ("Wie läuft die Müllabfuhr in Zürich?", "Montags, sagt das <cite id=\"S1\">Amt</cite>."),
    "zh": ("为什么缓存会失效?", "因为最大大小是有限的。"),
    "en": ("How does lru_cache evict?", "The least recently used entry goes; caches differ."),
    "new": ("What is a heap?", ""),
}  # fmt: skip
"""by their names, the oldest first; the last has not ended"""


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore(tmp_path)
    for age, (thread, (question, answer)) in enumerate(reversed(ASKED.items())):
        store.create(thread, {"ask": {"question": question}, "choices": {}})
        path = store.folder / thread / "request.json"
        os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
        if answer:
            ended = trajectory(answer, question=question).model_copy(update={"thread": thread})
            store.save(ended)
    return store


def found(store: RunStore, words: str = "", tag: str = "") -> list[str]:
    history = History(store)
    history.follow()
    runs = [run.thread for run in history.page(words, tag)]
    assert history.count(words, tag) == len(runs)
    return runs


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("", ["new", "en", "zh", "de"]),
        ("evict", ["en"]),
        ("EVICT lru", ["en"]),
        ("evict heap", []),
        ("cach", ["en"]),
        ("mullabfuhr", ["de"]),
        ("zürich? montags", ["de"]),
        ("缓存", ["zh"]),
        ("存缓", []),
        ("大小", ["zh"]),
        ('"evict" OR heap*', []),
        ("S1", []),
    ],
)
def test_runs_are_found_by_all_words_of_question_and_report_in_any_script(
    store: RunStore, words: str, runs: list[str]
):
    assert found(store, words) == runs


def test_pages_go_on_behind_a_run(store: RunStore):
    history = History(store)
    history.follow()
    first = history.page(limit=3)
    second = history.page(before=first[-1].thread, limit=3)
    assert [run.thread for run in (*first, *second)] == [*reversed(ASKED)]
    assert [run.status for run in first] == ["", "finished", "finished"]


def test_names_and_tags_stand_in_the_runs_folder_and_are_found(store: RunStore):
    assert found(store, "bins") == []
    set_labels(store, "de", title="Bins and \x00days", tags=["Home", "home", "waste"])
    set_labels(store, "en", tags=["home"])
    assert found(store, "bins") == found(store, "waste") == ["de"]
    assert found(store, tag="HOME") == ["en", "de"]
    assert History(store).tags() == {"home": 2, "waste": 1}
    assert labels_of(store, "de").title == "Bins and days"
    set_labels(store, "de", title="")
    assert labels_of(store, "de").tags == ("home", "waste")
    for wrong in (["a,b"], [" "], ["x" * 41], [f"t{n}" for n in range(21)]):
        with pytest.raises(SettingsError, match="tag"):
            set_labels(store, "de", tags=wrong)
    with pytest.raises(SettingsError, match="no run is called"):
        set_labels(store, "nobody", title="x")


def test_a_name_and_tags_that_are_given_at_once_are_both_kept(tmp_path: Path):
    store = RunStore(tmp_path)
    store.create("t", {"ask": {"question": "Which?"}})
    with ThreadPoolExecutor() as threads:
        for n in range(40):
            titled = threads.submit(set_labels, store, "t", title=f"{n}")
            tagged = threads.submit(set_labels, store, "t", tags=[f"{n}"])
            titled.result(), tagged.result()
            assert labels_of(store, "t") == Labels(title=f"{n}", tags=(f"{n}",))


def test_the_index_is_made_again_where_it_is_damaged_and_counts_nothing_twice(store: RunStore):
    assert found(store, "evict") == ["en"]
    for path in store.folder.parent.glob(f"{FILE_NAME}*"):
        path.write_bytes(b"damaged, and not a database at all" * 40)
    assert found(store, "evict") == ["en"]
    (store.folder / "en" / "trajectory.json").write_text("{")
    (store.folder / "en" / "touched").touch()
    assert found(store, "lru") == ["en"]
    assert found(store, "recently") == []
    assert [run.status for run in History(store).page("lru")] == ["unreadable"]
    folder = store.folder.parent / "file"
    folder.write_text("")
    with pytest.raises(StoreError):
        History(RunStore(folder)).page()


def test_a_deleted_run_is_nowhere_afterwards(store: RunStore):
    conversations = ConversationStore(store.folder.parent)
    thread = conversations.create("Caches")
    for run in ("zh", "en"):
        conversations.add_run(thread.id, run)
    branch = conversations.branch(thread.id, "en")
    alone = conversations.after("new")
    remove(store, "en")
    remove(store, "new")
    assert found(store, "evict") == [] and not store.holds("en")
    kept = conversations.get(thread.id)
    assert kept.runs == conversations.get(branch.id).runs == ("zh",)
    assert conversations.get(branch.id).own_runs == ()
    assert alone.id not in [each.id for each in conversations.list_all().conversations]
    held = b"".join(path.read_bytes() for path in store.folder.parent.glob(f"{FILE_NAME}*"))
    assert b"evict" not in held and b"recently" not in held and b"llabfuhr" in held
    with pytest.raises(SettingsError, match="no run is called"):
        remove(store, "en")


def test_a_run_deleted_on_a_full_disk_is_told_to_be_so_and_leaves_the_index_later(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
):
    history = History(store)
    history.follow()
    known = history.count()

    def full(*given: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("rubricem.agent.record.history._put", full)
        with pytest.raises(StoreError, match="en is deleted, but its words are still in the index"):
            remove(store, "en")
    assert not store.holds("en") and history.count() == known
    history.follow()
    assert history.count() == known - 1


def test_a_run_that_goes_on_is_not_deleted(store: RunStore):
    journal = store.journal("new")
    with pytest.raises(SettingsError, match="goes on"):
        remove(store, "new")
    journal.close()
    assert store.holds("new")


def ended_run(store: RunStore, name: str, choices: dict[str, str], **figures: Any) -> None:
    """`figures`: of the trajectory; the usage by its tokens and cost."""
    ask = {"question": "Why?", "answer_format": "long"}
    store.create(name, {"ask": ask, "choices": choices})
    ended = trajectory("So.", question="Why?").model_copy(update={"thread": name, **figures})
    store.save(ended)


def test_what_a_question_usually_costs_is_told_by_effort_and_form_of_finished_runs(
    store: RunStore,
):
    quick = {"model": "m", "effort": "quick"}
    for number in range(1, 12):
        usage = Usage(prompt_tokens=number * 1000, cached_tokens=number * 500, cost=number / 100)
        more = {"usage": usage, "seconds": number * 60.0, "tool_calls": number}
        ended_run(store, f"q{number}", quick, **more)
    for number in range(3):  # of an earlier version, which had one effort; no price was known
        ended_run(store, f"s{number}", {"model": "m"}, usage=Usage(prompt_tokens=10), seconds=9.4)
    for number in range(3):
        usage = Usage(prompt_tokens=10, cost=0.721 + number / 1e5)
        ended_run(store, f"p{number}", {"model": "m"}, usage=usage, seconds=9.4)
    ended_run(store, "failed", quick, status=Status.FAILED, seconds=9_999.0)
    ended_run(store, "other", {"model": "n"})
    ask = Ask("Why?", effort=Effort.QUICK)
    found = usual_cost(store, quick, ask)
    assert found == UsualCost(
        11, (2, 10), (1000, 5000), (120, 600), (pytest.approx(0.02), pytest.approx(0.1)), 360
    )
    assert found.phrases() == (
        "2 to 10 searches", "1,000 to 5,000 new tokens", "2 to 10 minutes",
        "0.02 to 0.1 US dollars",
    )  # fmt: skip
    usual = History(store).usual("m")
    assert set(usual) == {("quick", "long"), ("standard", "long")}
    told = ("1 search", "10 new tokens", "9 seconds", "0.72 US dollars")
    assert usual["standard", "long"].phrases() == told, "of those whose price was known"
    assert usual_cost(store, {"model": "n"}, ask) is None, "one run tells nothing"
    assert usual_cost(store, quick, replace(ask, answer_format=AnswerFormat.SHORT)) is None
