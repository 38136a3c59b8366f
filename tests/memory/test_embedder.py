from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rubricem.agent.weights.store import weights_dir
from rubricem.memory import bert
from rubricem.memory.embedder import SentenceEmbedder
from rubricem.memory.errors import WeightsError
from tests.support.tiny import WORDS, write_small_embedder, write_tiny_bert

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


def test_without_prompts_a_query_is_read_as_it_stands(tmp_path: Path) -> None:
    embedder = SentenceEmbedder(write_small_embedder(tmp_path / "small"))
    np.testing.assert_array_equal(embedder.embed(["heap"], query=True), embedder.embed(["heap"]))


TEXTS = ("cache", "", "heap rome find " * 9, "heap rome", "a word that is not known", "rome\nheap")


def test_a_bert_gives_the_vectors_that_sentence_transformers_gives(tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path)
    assert bert.BertEncoder.can_read(folder)
    _hold_against_torch(folder, TEXTS)


@pytest.mark.parametrize("other", [{"pooling": "cls"}, {"hidden_act": "relu"}])
def test_what_is_not_of_minilms_kind_is_left_to_torch(other: dict[str, str], tmp_path: Path):
    assert not bert.BertEncoder.can_read(write_tiny_bert(tmp_path, **other))


def _hold_against_torch(folder: Path, texts: Sequence[str]) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    expected = theirs.encode(list(texts), normalize_embeddings=True)
    found = SentenceEmbedder(folder).embed(texts)
    assert np.min(np.sum(found * expected, axis=1)) >= 0.9999
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.model
def test_minilm_has_the_same_vectors_without_torch(minilm: Path) -> None:
    words = Path(__file__).read_text(encoding="utf-8").split()
    spans = [" ".join(words[n : 2 * n]) for n in range(1, 200, 9)]
    _hold_against_torch(
        minilm, [*TEXTS, *spans, "\u6f22\u5b57 \xdcn\xefc\xf6d\xe9 \U0001f600", "x" * 400]
    )


@pytest.mark.model
def test_like_meanings_are_near_and_vectors_are_units(minilm: Path) -> None:
    embedder = SentenceEmbedder(minilm)
    car, auto, fish = embedder.embed(["a fast car", "a quick automobile", "a fish in the sea"])
    assert car @ auto > 0.6 > 0.3 > car @ fish
    assert np.linalg.norm(fish) == pytest.approx(1.0, abs=1e-5)
    assert embedder.embed([]).shape == (0, 384)
    again = embedder.embed(["a fish in the sea"], query=True)[0]
    np.testing.assert_allclose(again, fish, atol=1e-5)
