"""The bank's benchmark of scale: its vectors, its arithmetic, and the whole of it, small."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bank_texts
from benchmarks.bank_opening import VectorTable
from benchmarks.bank_scale import Figures, holds, measure, median, percentile, reflection_of
from benchmarks.bank_texts import embedded, exact_nearest, library_texts, multiplied, recall_at


class Counted:
    """An embedder whose vectors are unit rows drawn by the text's length."""

    name = "counted"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: list[str], *, query: bool = False) -> bank_texts.Vectors:
        self.texts += texts
        rows = np.array([[len(text), 1.0] for text in texts], dtype=np.float32)
        unit: bank_texts.Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit


def unit_rows(count: int, dimensions: int = 16) -> bank_texts.Vectors:
    rows = np.random.default_rng(1).standard_normal((count, dimensions), dtype=np.float32)
    unit: bank_texts.Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def test_recall_is_the_share_of_exact_neighbours_that_were_found():
    exact = [["a", "b"], ["c", "d"]]
    assert recall_at([["b", "a"], ["c", "x"]], exact) == 0.75
    assert recall_at([[], ["y", "x"]], exact) == 0.0


def test_the_exact_neighbours_stand_with_the_nearest_first():
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8], [-1, 0]], dtype=np.float32)
    assert exact_nearest(vectors, np.array([0, 1], dtype=np.float32), 2) == [1, 2]
    assert exact_nearest(vectors[:2], np.array([1, 0], dtype=np.float32), 2) == [0, 1]


def test_further_items_are_cases_of_the_texts_at_a_known_distance():
    texts, vectors = ["a", "b"], unit_rows(2, 300)
    named, rows = multiplied(texts, vectors, 5)
    assert named == ["a", "b", "a (case 1)", "b (case 1)", "a (case 2)"]
    np.testing.assert_array_equal(rows[:2], vectors)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
    # 1 / sqrt(1 + 0.5^2) of the text itself, 1 / (1 + 0.5^2) among its cases, roughly.
    assert rows[2] @ vectors[0] == pytest.approx(0.894, abs=0.03)
    assert rows[2] @ rows[4] == pytest.approx(0.8, abs=0.05)


def test_texts_are_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, again = Counted(), Counted()
    vectors = embedded(["one", "three"], first)
    np.testing.assert_array_equal(embedded(["one", "three"], again), vectors)
    assert (first.texts, again.texts) == (["one", "three"], [])
    embedded(["one", "seven"], again)
    assert again.texts == ["one", "seven"]


def test_the_library_gives_distinct_texts_that_name_what_they_document():
    texts = library_texts(300)
    assert len(set(texts)) == 300
    assert all(": " in text for text in texts)


def test_figures_that_nobody_told_are_none():
    assert median([{"s": 3.0}, {"s": 1.0}, {"s": 2.0}], "s") == 2.0
    assert median([{"s": None}], "s") is None
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], 50) == 3.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("recall_p95_ms", 31.0), ("recall_at_2", 0.98), ("open_query_s", 0.31),
     ("loaded_without_need", "torch")],
)  # fmt: skip
def test_each_target_can_be_missed(name: str, value: float | str):
    good: Figures = {
        "recall_p95_ms": 30.0, "recall_at_2": 0.99, "open_query_s": 0.3,
        "loaded_without_need": "none",
    }  # fmt: skip
    assert holds(good)
    assert not holds(good | {name: value})


def test_a_text_without_a_vector_is_a_mistake_of_the_benchmark():
    with pytest.raises(KeyError):
        VectorTable({"known": 0}, unit_rows(1)).embed(["unknown"])


async def test_a_small_bank_is_measured_from_end_to_end(tmp_path: Path):
    rows = unit_rows(210)
    items = [reflection_of(n, f"question {n}", ["a lesson", "another"]) for n in range(200)]
    asked = {f"asked {n}": row for n, row in enumerate(rows[200:])}
    figures = await measure(tmp_path, items, rows[:200], asked, starts=1)
    assert figures["recall_at_2"] == 1.0
    assert figures["loaded_without_need"] == "none"
    for name in ("recall_p95_ms", "hash_hit_p50_ms", "puts_per_s", "open_query_s"):
        assert float(figures[name] or 0) > 0
    assert float(figures["journal_bytes_per_item"] or 0) > len(items[0].model_dump_json())
    assert float(figures["derived_bytes_per_item"] or 0) > 4 * rows.shape[1]
