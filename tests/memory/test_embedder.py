from pathlib import Path

import numpy as np
import pytest

from rubricem.memory.embedder import MiniLM, SentenceEmbedder
from rubricem.memory.errors import WeightsError
from tests.support.tiny import WORDS, write_small_embedder


def test_folder_without_a_model_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="could not be loaded") as caught:
        SentenceEmbedder(tmp_path).embed(["x"])
    assert "memory off" in caught.value.remedy
    assert "\n" not in str(caught.value)


def test_queries_and_kept_texts_get_the_prompts_that_the_model_names(tmp_path: Path) -> None:
    prompts = {"query": "find ", "document": "rome "}
    embedder = SentenceEmbedder(write_small_embedder(tmp_path / "small", prompts))
    axis = dict(zip(WORDS, np.eye(len(WORDS)), strict=True))
    kept = (axis["rome"] + axis["cache"]) / np.sqrt(2)
    query = (axis["find"] + axis["cache"]) / np.sqrt(2)
    np.testing.assert_allclose(embedder.embed(["cache"]), [kept], atol=1e-6)
    np.testing.assert_allclose(embedder.embed(["cache"], query=True), [query], atol=1e-6)


TEXTS = ("cache", "", "heap rome find " * 9, "heap rome", "a word that is not known", "rome\nheap")


@pytest.mark.model
@pytest.mark.slow
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


def test_texts_that_were_embedded_just_now_are_not_read_again(
    minilm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder, read = SentenceEmbedder(minilm), list[str]()
    encode = MiniLM.encode
    monkeypatch.setattr(
        MiniLM, "encode", lambda model, texts: (read.extend(texts), encode(model, texts))[1]
    )
    first = embedder.embed(["a whale", "a mouse", "a whale"])
    again = embedder.embed(["a mouse", "a ship", "a whale"])
    assert read == ["a whale", "a mouse", "a ship"]
    assert (first[1] == again[0]).all() and (first[0] == first[2]).all()
    assert (first[0] == again[2]).all()
