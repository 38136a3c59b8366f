from pathlib import Path

import numpy as np
import pytest

from rubricem.agent.weights.store import weights_dir
from rubricem.memory.embedder import MiniLM, SentenceEmbedder
from rubricem.memory.errors import WeightsError
from tests.support.tiny import WORDS, write_small_embedder

WEIGHTS_DIR = weights_dir()
"""read before the tests are given a home of their own"""


def test_name_is_the_folder_and_nothing_is_loaded_for_it(tmp_path: Path) -> None:
    assert SentenceEmbedder(tmp_path / "minilm").name == "minilm"
    assert SentenceEmbedder(tmp_path / "1f2e", name="minilm").name == "minilm"


def test_folder_without_a_model_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="could not be loaded") as caught:
        SentenceEmbedder(tmp_path).embed(["x"])
    assert "lexical" in caught.value.remedy
    assert "\n" not in str(caught.value)


def test_queries_and_kept_texts_get_the_prompts_that_the_model_names(tmp_path: Path) -> None:
    prompts = {"query": "find ", "document": "rome "}
    embedder = SentenceEmbedder(write_small_embedder(tmp_path / "small", prompts))
    axis = dict(zip(WORDS, np.eye(len(WORDS)), strict=True))
    kept = (axis["rome"] + axis["cache"]) / np.sqrt(2)
    query = (axis["find"] + axis["cache"]) / np.sqrt(2)
    np.testing.assert_allclose(embedder.embed(["cache"]), [kept], atol=1e-6)
    np.testing.assert_allclose(embedder.embed(["cache"], query=True), [query], atol=1e-6)


def test_another_model_is_left_to_sentence_transformers(tmp_path: Path) -> None:
    assert not MiniLM.is_in(write_small_embedder(tmp_path / "small"))
    assert not MiniLM.is_in(tmp_path / "none")


def test_without_prompts_a_query_is_read_as_it_stands(tmp_path: Path) -> None:
    embedder = SentenceEmbedder(write_small_embedder(tmp_path / "small"))
    np.testing.assert_array_equal(embedder.embed(["heap"], query=True), embedder.embed(["heap"]))


TEXTS = ("cache", "", "heap rome find " * 9, "heap rome", "a word that is not known", "rome\nheap")


@pytest.mark.model
def test_minilm_has_the_vectors_of_sentence_transformers_without_torch(minilm: Path) -> None:
    from sentence_transformers import SentenceTransformer

    words = Path(__file__).read_text(encoding="utf-8").split()
    spans = [" ".join(words[n : 2 * n]) for n in range(1, 200, 9)]
    texts = [*TEXTS, *spans, "\u6f22\u5b57 \xdcn\xefc\xf6d\xe9 \U0001f600", "x" * 400]
    assert MiniLM.is_in(minilm)
    theirs = SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    expected = theirs.encode(texts, normalize_embeddings=True)
    found = SentenceEmbedder(minilm).embed(texts)
    assert np.min(np.sum(found * expected, axis=1)) >= 0.9999


@pytest.mark.model
def test_like_meanings_are_near_and_vectors_are_units(minilm: Path) -> None:
    embedder = SentenceEmbedder(minilm)
    car, auto, fish = embedder.embed(["a fast car", "a quick automobile", "a fish in the sea"])
    assert car @ auto > 0.6 > 0.3 > car @ fish
    assert np.linalg.norm(fish) == pytest.approx(1.0, abs=1e-5)
    assert embedder.embed([]).shape == (0, 384)
    again = embedder.embed(["a fish in the sea"], query=True)[0]
    np.testing.assert_allclose(again, fish, atol=1e-5)
