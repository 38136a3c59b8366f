"""Rubric buffers: what joins, returns and is pruned, and what stands on disk."""

import multiprocessing
from pathlib import Path

import pytest

from rubricem.judge.buffers import add, prune
from rubricem.judge.evaluation.run import read_verdicts
from rubricem.memory.errors import StoreError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import Judgement, RubricBuffer, Stage
from tests.conftest import ROOT
from tests.support.values import QUESTION, item, pair
from tests.support.waiting import PATIENCE

EARLIER = ROOT / "tests" / "data" / "ec15fe0e" / "judge"
ASKED = "Which entry does lru_cache evict?"
EMPTY = RubricBuffer(question=QUESTION)
A, B, C, D, E = (item(f"Names point {letter}.") for letter in "ABCDE")


def titles(buffer: RubricBuffer, stage: Stage = Stage.ANSWER) -> list[str]:
    return [criterion.title[-2] for criterion in buffer.criteria(stage)]


def test_the_same_words_are_one_criterion_whatever_their_case_sign_weight_or_shelf():
    buffer = add(EMPTY, {Stage.ANSWER: [A]}, 0, "")
    louder = item("NAMES point A", 3)
    mirror = item("Names point A.", positive=False)
    assert add(buffer, {Stage.ANSWER: [A, louder, mirror]}, 1, "") is buffer
    assert titles(add(EMPTY, {Stage.ANSWER: [A, louder, B]}, 0, "")) == ["A", "B"]
    assert titles(add(buffer, {Stage.PLAN: [A]}, 1, ""), Stage.PLAN) == ["A"]
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


def test_pruning_takes_what_all_agree_on_then_the_lowest_variance_and_of_equals_the_newest():
    # Population variances of two points: 0.01, 1, 0.25, 0.04; the cap of plan is 3.
    points = {A.key: [1, 1.2], B.key: [0, 2], C.key: [1, 2], D.key: [1, 1.4]}
    buffer = add(EMPTY, {Stage.PLAN: [A, B, C, D]}, 0, "")
    pruned = prune(buffer, {Stage.PLAN: points}, 1)
    assert titles(pruned, Stage.PLAN) == ["B", "C", "D"]
    assert pruned.history[-1].reason == "over the cap of 3 (variance 0.0100)"
    points = {A.key: [2, 2], B.key: [0, 2], C.key: [1, 2]}
    buffer = add(EMPTY, {Stage.REVIEW: [A, B, C]}, 0, "")
    assert titles(prune(buffer, {Stage.REVIEW: points}, 1), Stage.REVIEW) == ["B", "C"]
    points = {c.key: [0, 2] for c in (A, B, C)}
    buffer = add(EMPTY, {Stage.RESEARCH: [A, B, C]}, 0, "")
    assert titles(prune(buffer, {Stage.RESEARCH: points}, 1), Stage.RESEARCH) == ["A", "B"]
    kept = item("Names point K.", kept=True)
    buffer = add(EMPTY, {Stage.ANSWER: [kept]}, 0, "")
    assert prune(buffer, {Stage.ANSWER: {kept.key: [2, 2]}}, 1) is buffer
    buffer = add(EMPTY, {Stage.REVIEW: [A, B, C]}, 0, "")


@pytest.mark.parametrize("points", [{}, {A.key: [2]}, {c.key: [2] for c in (A, B, C)}])
def test_where_nothing_was_compared_the_newest_over_the_cap_go(points: dict[str, list[float]]):
    buffer = add(EMPTY, {Stage.REVIEW: [A, B, C]}, 0, "")
    pruned = prune(buffer, {Stage.REVIEW: points}, 1)
    assert titles(pruned, Stage.REVIEW) == ["A", "B"]
    assert pruned.history[-1].reason == "over the cap of 2 (nothing was compared)"
    assert prune(pruned, {}, 2) is pruned


def test_a_buffer_is_kept_whole_and_not_overwritten_where_it_was_changed_meanwhile(tmp_path: Path):
    store = BufferStore(tmp_path / "buffers")
    assert store.load(QUESTION) == EMPTY
    buffer = add(EMPTY, {Stage.ANSWER: [A]}, 0, "contrast")
    store.save(buffer)
    store.save(buffer)
    assert store.load(QUESTION) == buffer
    assert store.load("Another question?").history == ()
    assert [path.suffix for path in store.folder.iterdir()] == [".json"]
    store = BufferStore(tmp_path)
    store.save(add(EMPTY, {Stage.ANSWER: [A]}, 0, ""))
    with pytest.raises(StoreError, match="version 1 already"):
        store.save(add(EMPTY, {Stage.ANSWER: [B]}, 0, ""))
    assert titles(store.load(QUESTION)) == ["A"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\x00", b"[]", b'{"question": 3}', b"null"]
)
def test_a_corrupted_buffer_file_is_told_and_never_overwritten(tmp_path: Path, content: bytes):
    store = BufferStore(tmp_path)
    path = store.path(QUESTION)
    path.write_bytes(content)
    for use in (
        lambda: store.load(QUESTION),
        lambda: store.save(add(EMPTY, {Stage.PLAN: [item("x")]}, 0, "")),
        lambda: list(store.all()),
    ):
        with pytest.raises(StoreError, match="cannot be read") as caught:
            use()
        assert "Move that file away" in caught.value.remedy
    assert path.read_bytes() == content


def evolve(folder: str, name: str, rounds: int) -> None:
    """Add a criterion again and again, from the newest buffer when another one was faster."""
    store, done = BufferStore(Path(folder)), 0
    while done < rounds:
        buffer = store.load(QUESTION)
        criterion = item(f"{name} point {'abcdefghij'[done]}.")
        try:
            store.save(add(buffer, {Stage.ANSWER: [criterion]}, done, name))
        except StoreError:
            continue
        done += 1


def test_two_processes_that_evolve_one_buffer_lose_nothing(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=evolve, args=(str(tmp_path), name, 8)) for name in ("one", "two")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
    assert [worker.exitcode for worker in workers] == [0, 0]
    buffer = BufferStore(tmp_path).load(QUESTION)
    assert (buffer.version, len(buffer.criteria(Stage.ANSWER)), len(buffer.history)) == (16, 16, 16)


def test_rubrics_and_judgements_of_ec15fe0e_open(tmp_path: Path):
    store = BufferStore(tmp_path)
    store.path(ASKED).write_bytes((EARLIER / "buffer.json").read_bytes())
    buffer = store.load(ASKED)
    assert [change.kind for change in buffer.history][-2:] == ["pinned", "retired"]
    assert [c.title for c in buffer.criteria(Stage.ANSWER)] == ["Names the rule."]
    grown = add(buffer, {Stage.ANSWER: [B]}, 2, "contrast")
    store.save(grown)
    assert store.load(ASKED) == grown
    judgement = Judgement.model_validate_json((EARLIER / "judgement.json").read_bytes())
    assert (judgement.score(Stage.ANSWER), judgement.rubric_version) == (0.75, buffer.label)
    [verdict] = read_verdicts(EARLIER / "verdicts.jsonl", [pair("1")]).held.values()
    assert (verdict.winner, verdict.share) == ("first", 0.75)
