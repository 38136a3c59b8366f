"""Rubric buffers: adding, returning, pruning by variance, and what their history says."""

from pathlib import Path

import pytest

from rubricem.judge.buffers import add, prune
from rubricem.memory.errors import StoreError
from rubricem.memory.rubrics import BufferStore, RubricBuffer
from rubricem.memory.schema import Stage
from tests.support.values import QUESTION, item

EMPTY = RubricBuffer(question=QUESTION)
A, B, C, D, E = (item(f"Names point {letter}.") for letter in "ABCDE")


def titles(buffer: RubricBuffer, stage: Stage = Stage.ANSWER) -> list[str]:
    return [criterion.title[-2] for criterion in buffer.criteria(stage)]


def test_new_criteria_join_their_stage_and_persistent_ones_come_first():
    kept = item("Names point K.", kept=True)
    buffer = add(EMPTY, {Stage.ANSWER: [A, kept], Stage.PLAN: [B]}, 3, "contrast")
    assert titles(buffer) == ["K", "A"]
    assert titles(buffer, Stage.PLAN) == ["B"]
    assert [(c.version, c.step, c.stage, c.kind) for c in buffer.history] == [
        (1, 3, Stage.ANSWER, "added"),
        (1, 3, Stage.ANSWER, "added"),
        (1, 3, Stage.PLAN, "added"),
    ]


def test_the_same_words_are_one_criterion_whatever_their_case_sign_or_weight():
    buffer = add(EMPTY, {Stage.ANSWER: [A]}, 0, "")
    louder = item("NAMES point A", 3)
    mirror = item("Names point A.", positive=False)
    assert add(buffer, {Stage.ANSWER: [A, louder, mirror]}, 1, "") is buffer
    assert titles(add(buffer, {Stage.PLAN: [A]}, 1, ""), Stage.PLAN) == ["A"]


def test_a_persistent_criterion_is_not_proposed_again_as_an_active_one():
    buffer = add(EMPTY, {Stage.ANSWER: [item("Names point A.", kept=True)]}, 0, "")
    assert add(buffer, {Stage.ANSWER: [A]}, 1, "") is buffer


def test_a_criterion_on_which_all_agree_retires_and_may_return():
    buffer = add(EMPTY, {Stage.ANSWER: [A, B]}, 0, "")
    pruned = prune(buffer, {Stage.ANSWER: {A.key: [2, 2], B.key: [0, 2]}}, 1)
    assert titles(pruned) == ["B"]
    assert pruned.retired[Stage.ANSWER] == (A,)
    assert pruned.history[-1].reason == "all runs agree on it (variance 0.0000)"
    back = add(pruned, {Stage.ANSWER: [A]}, 2, "")
    assert titles(back) == ["B", "A"]
    assert (back.retired[Stage.ANSWER], back.history[-1].kind, back.version) == ((), "returned", 3)


def test_over_the_cap_the_lowest_variance_goes():
    # Population variances of two points: 0.01, 1, 0.25, 0.04; the cap of plan is 3.
    points = {A.key: [1, 1.2], B.key: [0, 2], C.key: [1, 2], D.key: [1, 1.4]}
    buffer = add(EMPTY, {Stage.PLAN: [A, B, C, D]}, 0, "")
    pruned = prune(buffer, {Stage.PLAN: points}, 1)
    assert titles(pruned, Stage.PLAN) == ["B", "C", "D"]
    assert pruned.history[-1].reason == "over the cap of 3 (variance 0.0100)"


def test_what_all_agree_on_does_not_take_a_place_under_the_cap():
    points = {A.key: [2, 2], B.key: [0, 2], C.key: [1, 2]}
    buffer = add(EMPTY, {Stage.REVIEW: [A, B, C]}, 0, "")
    assert titles(prune(buffer, {Stage.REVIEW: points}, 1), Stage.REVIEW) == ["B", "C"]


def test_of_equal_variance_the_newest_goes():
    points = {c.key: [0, 2] for c in (A, B, C)}
    buffer = add(EMPTY, {Stage.RESEARCH: [A, B, C]}, 0, "")
    assert titles(prune(buffer, {Stage.RESEARCH: points}, 1), Stage.RESEARCH) == ["A", "B"]


def test_persistent_criteria_stay_even_if_all_agree():
    kept = item("Names point K.", kept=True)
    buffer = add(EMPTY, {Stage.ANSWER: [kept]}, 0, "")
    assert prune(buffer, {Stage.ANSWER: {kept.key: [2, 2]}}, 1) is buffer


def test_one_scored_run_prunes_nothing_even_over_the_cap():
    buffer = add(EMPTY, {Stage.REVIEW: [A, B, C]}, 0, "")
    assert prune(buffer, {Stage.REVIEW: {c.key: [2] for c in (A, B, C)}}, 1) is buffer
    assert prune(buffer, {}, 1) is buffer


def test_the_label_names_what_is_scored_now():
    buffer = add(EMPTY, {Stage.ANSWER: [A, B]}, 0, "")
    pruned = prune(buffer, {Stage.ANSWER: {A.key: [2, 2], B.key: [0, 2]}}, 1)
    again = add(pruned, {Stage.ANSWER: [A]}, 2, "")
    assert buffer.label.startswith("1-") and again.label.startswith("3-")
    assert len({buffer.label, pruned.label, EMPTY.label}) == 3


def test_a_buffer_is_kept_whole_with_its_history(tmp_path: Path):
    store = BufferStore(tmp_path / "buffers")
    assert store.load(QUESTION) == EMPTY
    buffer = add(EMPTY, {Stage.ANSWER: [A]}, 0, "contrast")
    store.save(buffer)
    store.save(buffer)
    assert store.load(QUESTION) == buffer
    assert store.load("Another question?").history == ()
    assert [path.suffix for path in store.folder.iterdir()] == [".json"]


def test_a_buffer_that_was_changed_meanwhile_is_not_overwritten(tmp_path: Path):
    store = BufferStore(tmp_path)
    store.save(add(EMPTY, {Stage.ANSWER: [A]}, 0, ""))
    with pytest.raises(StoreError, match="version 1 already"):
        store.save(add(EMPTY, {Stage.ANSWER: [B]}, 0, ""))
    assert titles(store.load(QUESTION)) == ["A"]


def test_a_damaged_buffer_is_said_to_be_one(tmp_path: Path):
    store = BufferStore(tmp_path)
    store.path(QUESTION).write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        store.load(QUESTION)
