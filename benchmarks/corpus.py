"""How fast documents are indexed and searched: `python -m benchmarks.corpus [--quick|--full]`.

Texts are drawn from a Zipf distribution over made-up words, 90 words a passage, as natural
text would make the same few words long lists. Vectors are unit rows around 200 centres, so
that rankings are as close as those of real embeddings. Questions are drawn like the texts
(lexical) and near the centres (hybrid). All of this comes from one seed. Embedding is timed on
passages of the standard library's documentation.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Value, emit
from rubricem.agent.sources.index import HybridIndex, LexicalIndex, build_index, matched_text
from rubricem.agent.sources.python import library_passages
from rubricem.agent.weights.catalogue import DEFAULT_EMBEDDER, lookup
from rubricem.agent.weights.store import WeightsStore, weights_dir
from rubricem.memory.embedder import SentenceEmbedder
from rubricem.memory.errors import RubricemError, WeightsError
from rubricem.memory.schema import Passage

SEED = 20260731
PASSAGES = 100_000
WORDS_EACH = 90
VOCABULARY = 60_000
DIMENSIONS = 384
CENTRES = 200
QUESTIONS = 200
TARGETS = {
    "indexing_mb_per_s": ">= 2",
    "lexical_p95_ms": "<= 20",
    "hybrid_p95_ms": "<= 20",
}


def main() -> None:
    """Measure, print what is measured as it goes, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="embed 200 passages (default)")
    size.add_argument("--full", action="store_true", help="embed 2,000 passages")
    parser.add_argument("--model", type=Path, help="folder of the embedding model (MiniLM)")
    args = parser.parse_args()
    rng = np.random.default_rng(SEED)
    values: dict[str, Value] = {}
    with tempfile.TemporaryDirectory() as folder:
        index, rate = _index(_passages(rng), Path(folder))
        values["indexing_mb_per_s"] = round(rate, 2)
        values |= _search_times(index, rng)
    values |= _embedding_rate(args.model, 2000 if args.full else 200)
    emit("corpus", values, TARGETS, _holds(values), _how())


def _how() -> str:
    return (
        f"{PASSAGES:,} passages of {WORDS_EACH} words, {QUESTIONS} questions, vectors of "
        f"{DIMENSIONS} around {CENTRES} centres, seed {SEED}, {os.cpu_count()} cores; "
        "search without embedding the question"
    )


def _holds(values: dict[str, Value]) -> bool:
    def number(name: str) -> float:
        return float(values[name] or 0)

    slowest = max(number("lexical_p95_ms"), number("hybrid_p95_ms"))
    return number("indexing_mb_per_s") >= 2 and slowest <= 20


def _draw(rng: np.random.Generator, count: int) -> list[str]:
    """`count` words by Zipf's law, the r-th most frequent with probability ~ 1 / r."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    made = np.random.default_rng(SEED)
    words = ["".join(made.choice(letters, made.integers(3, 11))) for _ in range(VOCABULARY)]
    weights = 1 / np.arange(1, VOCABULARY + 1)
    return [words[i] for i in rng.choice(VOCABULARY, count, p=weights / weights.sum())]


def _passages(rng: np.random.Generator, count: int = PASSAGES) -> list[Passage]:
    words = _draw(rng, count * WORDS_EACH)
    return [
        Passage(
            f"document {row // 50}",
            f"d{row // 50}.md",
            f"part {row % 50}",
            " ".join(words[row * WORDS_EACH : (row + 1) * WORDS_EACH]),
        )
        for row in range(count)
    ]


def _index(passages: list[Passage], folder: Path) -> tuple[LexicalIndex, float]:
    """The index, and the megabytes of text indexed in a second, written to disk included."""
    size = sum(len(passage.text) for passage in passages) / 1e6
    start = time.perf_counter()
    index = build_index(passages, folder, "benchmark", "0" * 24)
    return index, size / (time.perf_counter() - start)


def _scatter_rows(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """(count, d) unit rows scattered around CENTRES random directions."""
    centres = np.random.default_rng(SEED).standard_normal((CENTRES, DIMENSIONS))
    rows = centres[rng.integers(CENTRES, size=count)]
    rows += 0.5 * rng.standard_normal((count, DIMENSIONS))
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit.astype(np.float32)


def _search_times(index: LexicalIndex, rng: np.random.Generator) -> dict[str, Value]:
    words = _draw(rng, QUESTIONS * 12)
    questions = [" ".join(words[i * 12 : (i + 1) * 12]) for i in range(QUESTIONS)]
    vectors = _scatter_rows(rng, QUESTIONS)
    hybrid = HybridIndex(index, _scatter_rows(rng, len(index.passages)), _NoEmbedder())
    lexical_times = _times(lambda i: index.search(questions[i], 8))
    hybrid_times = _times(lambda i: hybrid.search_with(questions[i], vectors[i], 8))
    return {
        "lexical_p50_ms": _percentile(lexical_times, 50),
        "lexical_p95_ms": _percentile(lexical_times, 95),
        "hybrid_p50_ms": _percentile(hybrid_times, 50),
        "hybrid_p95_ms": _percentile(hybrid_times, 95),
    }


class _NoEmbedder:
    """Stands where the question's vector is already given."""

    name = "none"

    def embed(self, texts: object, *, query: bool = False) -> NDArray[np.float32]:
        raise NotImplementedError


def _times(search: Callable[[int], list[Passage]]) -> list[float]:
    """Milliseconds of each question, after ten that warm the caches."""
    for i in range(10):
        search(i)
    times = []
    for i in range(QUESTIONS):
        start = time.perf_counter()
        found = search(i)
        times.append(1000 * (time.perf_counter() - start))
        if not found:
            raise RuntimeError(f"question {i} found nothing")
    return times


def _percentile(times: list[float], percent: int) -> float:
    return round(float(np.percentile(times, percent)), 2)


def _embedding_rate(model: Path | None, count: int) -> dict[str, Value]:
    """Passages of the standard library's documentation embedded in a second, or None."""
    unknown: dict[str, Value] = {"embedding_passages_per_s": None, "embedded_passages": 0}
    try:
        embedder = SentenceEmbedder(model or _find_embedder())
        texts = [matched_text(passage) for passage in library_passages()[:count]]
        embedder.embed(texts[:2])
    except RubricemError as error:
        return unknown | {"embedding_not_measured": str(error)}
    start = time.perf_counter()
    embedder.embed(texts)
    rate = count / (time.perf_counter() - start)
    return {"embedding_passages_per_s": round(rate, 1), "embedded_passages": count}


def _find_embedder() -> Path:
    """The default embedder's folder, checked; nothing is fetched for a benchmark."""
    weights = lookup(DEFAULT_EMBEDDER)
    if weights is None or not (weights_dir() / weights.folder).exists():
        raise WeightsError("the embedding model is not on disk and no --model was given")
    return asyncio.run(WeightsStore().embedder_folder())


if __name__ == "__main__":
    main()
