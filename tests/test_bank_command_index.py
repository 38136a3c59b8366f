"""`rubricem bank search` and `rebuild`: whose vectors a bank holds, and how it gets others."""

import re
from pathlib import Path

import pytest

from tests.bank_commands import bank, bank_json, put, reflection
from tests.small_embedder import write_small_embedder


@pytest.fixture(scope="module")
def embedders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models that read kept texts differently."""
    folder = tmp_path_factory.mktemp("models")
    one = write_small_embedder(folder / "one")
    return one, write_small_embedder(folder / "two", {"document": "rome rome rome "})


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedders: tuple[Path, Path]) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("RUBRICEM_EMBEDDER", str(embedders[0]))
    put(tmp_path, reflection("a", "cache heap"), reflection("b", "rome"))
    return tmp_path


def similarities(*words: str) -> dict[str, float]:
    matches = bank_json("search", *words)["matches"]
    return {m["reflection"]["id"]: round(m["similarity"], 2) for m in matches}


def test_the_embedder_that_is_set_finds_what_is_nearest(data: Path):
    assert similarities("cache") == {"a": 0.71, "b": 0.0}
    assert similarities("-k", "1", "rome") == {"b": 1.0}
    first, *_ = bank("search", "cache").stdout.splitlines()
    assert first == " 0.71  a  cache heap"
    assert re.fullmatch(r"one-[0-9a-f]{12}", bank_json("stats")["embedder"])


def test_another_embedder_is_refused_until_the_bank_is_rebuilt(
    data: Path, embedders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    similarities("cache")
    monkeypatch.setenv("RUBRICEM_EMBEDDER", str(embedders[1]))
    told = bank("search", "cache", exit_code=2).stderr
    assert re.search(r"one-[0-9a-f]{12}.*two-[0-9a-f]{12}", told)
    assert "rubricem bank rebuild" in told
    assert len(bank("list").stdout.splitlines()) == 4, "what needs no embedder goes on"
    said = bank("rebuild").stdout
    assert re.fullmatch(r"rebuilt: 2 live reflections, embedded by two-[0-9a-f]{12}\n", said)
    # "rome rome rome cache heap" against "cache": 1 / sqrt(11)
    assert similarities("cache") == {"a": 0.3, "b": 0.0}
    monkeypatch.setenv("RUBRICEM_EMBEDDER", str(embedders[0]))
    assert "rubricem bank rebuild" in bank("search", "cache", exit_code=2).stderr


def test_a_rebuild_shows_on_a_terminal_how_far_it_has_come(
    data: Path, monkeypatch: pytest.MonkeyPatch
):
    assert bank("rebuild").stderr == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = bank("rebuild").stderr
    assert "rebuilding" in shown and "2 embedded" in shown


def test_an_empty_bank_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Path):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "empty"))
    assert "rebuilt: 0 live reflections" in bank("rebuild").stdout


def test_an_embedder_that_cannot_be_had_is_one_sentence_and_a_remedy(
    data: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("RUBRICEM_EMBEDDER", "qwen3-0.6b")
    for command in (("search", "cache"), ("rebuild",)):
        told = bank(*command, exit_code=1).stderr
        assert "embedding model qwen3-0.6b cannot be fetched" in told
        assert len(told.splitlines()) == 2
    assert len(bank_json("list")["reflections"]) == 2


@pytest.mark.model
def test_minilm_finds_a_question_in_other_words(
    tmp_path: Path, minilm: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    put(
        tmp_path,
        reflection("a", "How does Python's lru_cache decide what to evict?"),
        reflection("b", "Which river flows through Rome?"),
    )
    found = similarities("what is thrown out of a least-recently-used cache")
    assert list(found) == ["a", "b"] and found["a"] > 0.4 > found["b"]
    assert bank_json("stats")["embedder"].startswith("all-minilm-l6-v2-")
