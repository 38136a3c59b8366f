from pathlib import Path

import numpy as np
import pytest

from agent.sources.lexical import best, build_index, open_index
from memory.errors import StoreError
from memory.interfaces import Passage

PASSAGES = [
    Passage("Apples", "fruit.md", "Apples", "Apples keep for months in a cool cellar."),
    Passage("Pears", "fruit.md", "Pears", "Pears ripen after they were picked. ünïcode"),
    Passage("toy.lru_cache", "toy.py", "toy.lru_cache", "A toy like functools.lru_cache."),
    Passage("functools.lru_cache", "f.py", "functools.lru_cache", "Keeps the last results."),
]


def test_best_match_comes_first(tmp_path: Path) -> None:
    index = build_index(PASSAGES, tmp_path, "fruit", "a")
    assert index.search("When are pears ripe, and when picked?", 2)[0] == PASSAGES[1]


def test_name_written_in_full_is_preferred_to_a_mention(tmp_path: Path) -> None:
    index = build_index(PASSAGES, tmp_path, "fruit", "a")
    assert index.search("functools.lru_cache", 1) == [PASSAGES[3]]


def test_no_shared_word_means_no_passages(tmp_path: Path) -> None:
    index = build_index(PASSAGES, tmp_path, "fruit", "a")
    assert index.search("zeppelin", 3) == []
    assert index.search("what is the", 3) == []
    assert index.search("", 3) == []


def test_written_index_opens_again_with_the_same_passages(tmp_path: Path) -> None:
    build_index(PASSAGES, tmp_path, "fruit", "a")
    index = open_index(tmp_path, "fruit", "a")
    assert index is not None
    assert [index.passages[row] for row in range(len(index.passages))] == PASSAGES
    assert index.search("cellar", 1) == [PASSAGES[0]]


def test_other_key_is_another_index_and_the_older_one_goes(tmp_path: Path) -> None:
    build_index(PASSAGES, tmp_path, "fruit", "a")
    assert open_index(tmp_path, "fruit", "b") is None
    build_index(PASSAGES[:1], tmp_path, "fruit", "b")
    assert open_index(tmp_path, "fruit", "a") is None
    assert len(list(tmp_path.iterdir())) == 1


def test_index_cut_short_is_not_opened(tmp_path: Path) -> None:
    index = build_index(PASSAGES, tmp_path, "fruit", "a")
    file = index.folder / "passages.jsonl"
    file.write_bytes(file.read_bytes()[:-5])
    assert open_index(tmp_path, "fruit", "a") is None


def test_index_without_passages_finds_nothing(tmp_path: Path) -> None:
    assert build_index([], tmp_path, "none", "a").search("anything", 3) == []


def test_weight_decides_between_equal_matches(tmp_path: Path) -> None:
    twins = [Passage(t, t, "", f"lemon {t}") for t in ("left", "right")]
    index = build_index(twins, tmp_path, "t", "a", lambda p: 2.0 if p.title == "right" else 1.0)
    assert [p.title for p in index.search("lemon", 2)] == ["right", "left"]


def test_best_keeps_positive_scores_in_order() -> None:
    scores = np.array([0.0, 2.0, 3.0, 2.0, -1.0], dtype=np.float32)
    assert best(scores, 2) == [(2, 3.0), (1, 2.0)]
    assert best(scores, 9) == [(2, 3.0), (1, 2.0), (3, 2.0)]


def test_place_that_cannot_be_written_names_the_remedy(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(StoreError) as caught:
        build_index(PASSAGES, blocked / "cache", "fruit", "a")
    assert "data directory" in caught.value.remedy
