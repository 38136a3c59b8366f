"""How the memory bank does with 1,000, 10,000 and 100,000 items.

    python -m benchmarks.bank_scale [--quick | --full] [--out FILE]

The bank is the real one (journal, catalogue, Chroma) over vectors that are looked up, so that no
figure has embedding in it. Items are those of `benchmarks.bank_texts`; what is asked are 200
further texts that the bank does not hold. `recall` is what a run calls; recall@2 compares
`across`, without a floor, with an exact search. `open_query_s` is a bank opened and asked once by
meaning in a fresh process that made its imports on another bank, `imports_open_query_s` the same
with the imports, and memory is what the first of them grew by; `open_query_cpu_s` is what the
opening takes of the processor, which other programs disturb less. Lookups by the question's own
words and an empty bank must load neither Chroma nor an embedding model.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bank_opening import VectorTable, bank_over, opened
from benchmarks.bank_texts import (
    SEED,
    Vectors,
    embedded,
    exact_nearest,
    library_texts,
    multiplied,
    recall_at,
)
from benchmarks.report import Value, emit
from rubricem.agent.models.opening import embedder_in
from rubricem.agent.settings import load_settings
from rubricem.memory.bank import NEAREST, RubricBank
from rubricem.memory.schema import Reflection

RESULTS = Path(__file__).parent / "results" / "bank_scale.json"
QUICK, FULL = (1_000, 10_000), (1_000, 10_000, 100_000)
TEXTS, ASKED = 4_000, 200
PUT = 100
"""items of each bank that are put one by one; the others are brought in at once"""
STARTS = 5
MOST_RECALL_MS, LEAST_RECALL, MOST_OPEN_S = 30.0, 0.99, 0.3
_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)

Figures = dict[str, Value]
Asked = Mapping[str, Vectors]
"""questions that the bank does not hold -> their vectors (d,)"""


def reflection_of(number: int, question: str, texts: Sequence[str]) -> Reflection:
    """An item of a usual length: some 1,200 characters of rubrics and takeaways."""
    drawn = random.Random(number).choices(texts, k=12)
    return Reflection(
        id=f"{number:012x}",
        question=question,
        rubrics="\n".join(drawn[:8]),
        takeaways="\n".join(f"- {text}" for text in drawn[8:]),
        score=0.5,
        trajectory_id=f"run-{number}",
        written_at=_WRITTEN,
    )


async def measure(
    folder: Path,
    items: Sequence[Reflection],
    vectors: Vectors,
    asked: Asked,
    starts: int = STARTS,
) -> Figures:
    """All figures of one size; `vectors` (n, d) are those of the items' questions."""
    questions = [*(item.question for item in items), *asked]
    rows = {question: row for row, question in enumerate(questions)}
    bank = bank_over(folder, VectorTable(rows, np.vstack([vectors, *asked.values()])))
    return {
        **await filled(bank, items, next(iter(asked))),
        **await timed_recalls(bank, items, asked),
        "recall_at_2": await nearest_found(bank, items, vectors, asked),
        **sizes(folder / "bank", len(items)),
        **await in_fresh_processes(folder, items, asked, starts),
    }


async def filled(bank: RubricBank, items: Sequence[Reflection], question: str) -> Figures:
    """Most items are brought in at once, the last ones put one by one."""
    most, rest = items[:-PUT], items[-PUT:]
    bringing = await seconds(lambda: bank.bring_in(most))
    indexing = await seconds(lambda: bank.recall(question))
    putting = [await seconds(lambda item=item: bank.put(item)) for item in rest]  # type: ignore[misc]
    following = await seconds(lambda: bank.recall(question))
    return {
        "brought_in_per_s": round(len(most) / bringing, 1),
        "brought_in_and_indexed_per_s": round(len(most) / (bringing + indexing), 1),
        "puts_per_s": round(len(rest) / sum(putting), 1),
        f"recall_after_{len(rest)}_puts_ms": round(1000 * following, 1),
    }


async def timed_recalls(bank: RubricBank, items: Sequence[Reflection], asked: Asked) -> Figures:
    """Milliseconds of a recall by meaning, and of one that the question's own words fill."""
    owned = [item.question for item in random.Random(SEED).choices(items, k=len(asked))]
    near = [1000 * await seconds(lambda q=q: bank.recall(q)) for q in asked]  # type: ignore[misc]
    hits = [1000 * await seconds(lambda q=q: bank.recall(q, 1)) for q in owned]  # type: ignore[misc]
    return {
        "recall_p50_ms": percentile(near, 50),
        "recall_p95_ms": percentile(near, 95),
        "hash_hit_p50_ms": percentile(hits, 50),
        "hash_hit_p95_ms": percentile(hits, 95),
    }


async def nearest_found(
    bank: RubricBank, items: Sequence[Reflection], vectors: Vectors, asked: Asked
) -> float:
    """Recall@2: the share of the exact nearest items that `across` finds."""
    found, exact = [], []
    for question, vector in asked.items():
        matches = await bank.across(question, NEAREST, -1.0)
        found.append([match.reflection.id for match in matches])
        exact.append([items[row].id for row in exact_nearest(vectors, vector, NEAREST)])
    return round(recall_at(found, exact), 4)


def sizes(folder: Path, count: int) -> Figures:
    """Bytes on disk for each item: the journal's, and those of what is derived from it."""
    journal = (folder / "journal.jsonl").stat().st_size
    whole = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "journal_bytes_per_item": round(journal / count),
        "derived_bytes_per_item": round((whole - journal) / count),
    }


async def in_fresh_processes(
    folder: Path, items: Sequence[Reflection], asked: Asked, starts: int
) -> Figures:
    """Opening and asking once by meaning, by the question's own words, and of an empty bank."""
    question, vector = next(iter(asked.items()))
    own = items[len(items) // 2].question
    with tempfile.TemporaryDirectory() as name:
        other, file = Path(name, "other"), Path(name, "vector.npy")
        np.save(file, vector)
        bank = bank_over(other, VectorTable({items[0].question: 0, question: 0}, vector[None]))
        await bank.put(items[0])
        await bank.recall(question)
        warm = [opened(folder, question, file, NEAREST, other) for _ in range(starts)]
        cold = [opened(folder, question, file, NEAREST) for _ in range(starts)]
        hits = [opened(folder, own, file, 1) for _ in range(starts)]
        empty = opened(Path(name, "empty"), question, file, NEAREST)
    loaded = sorted({package for one in (*hits, empty) for package in one["loaded"]})
    grown = median(warm, "grown_bytes")
    return {
        "open_query_s": median(warm, "seconds"),
        "open_query_cpu_s": median(warm, "cpu_seconds"),
        "imports_open_query_s": median(cold, "seconds"),
        "open_hash_hit_s": median(hits, "seconds"),
        "memory_bytes_per_item": None if grown is None else round(grown / len(items)),
        "loaded_without_need": ", ".join(loaded) or "none",
    }


def median(said: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Of what several processes said; None where their system does not tell it."""
    told = [float(one[key]) for one in said if one[key] is not None]
    return round(statistics.median(told), 4) if told else None


def percentile(values: Sequence[float], percent: int) -> float:
    return round(float(np.percentile(values, percent)), 2)


async def seconds(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


def holds(figures: Figures) -> bool:
    """Whether the figures of one size meet the targets."""
    return (
        float(figures["recall_p95_ms"] or 0) <= MOST_RECALL_MS
        and float(figures["recall_at_2"] or 0) >= LEAST_RECALL
        and float(figures["open_query_s"] or 0) <= MOST_OPEN_S
        and figures["loaded_without_need"] == "none"
    )


async def main(arguments: argparse.Namespace) -> None:
    counts = FULL if arguments.full else QUICK
    embedder = await embedder_in(load_settings().weights_dir)
    texts = library_texts(TEXTS + ASKED)
    vectors = embedded(texts, embedder)
    asked = dict(zip(texts[:ASKED], vectors[:ASKED], strict=True))
    every: dict[int, Figures] = {}
    for count in counts:
        questions, of_items = multiplied(texts[ASKED:], vectors[ASKED:], count)
        items = [reflection_of(n, question, texts) for n, question in enumerate(questions)]
        with tempfile.TemporaryDirectory() as folder:
            every[count] = await measure(Path(folder), items, of_items, asked)
        print(json.dumps({"items": count, **every[count]}), flush=True)
    values = {f"{key}_{count}": value for count in counts for key, value in every[count].items()}
    out = arguments.out or (RESULTS if arguments.full else None)
    if out:
        out.write_text(json.dumps({"values": values}, indent=1) + "\n")
    emit(
        "bank_scale",
        values,
        {
            "recall_p95_ms": f"<= {MOST_RECALL_MS:g}",
            "recall_at_2": f">= {LEAST_RECALL}",
            "open_query_s": f"<= {MOST_OPEN_S}",
            "loaded_without_need": "none",
        },
        all(map(holds, every.values())),
        f"{len(texts) - ASKED} texts embedded by {embedder.name}, each again with noise where more "
        f"are needed; {ASKED} questions, medians of {STARTS} processes, seed {SEED}, "
        f"{os.cpu_count()} cores; each target at every size",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="1,000 and 10,000 items (the default)")
    size.add_argument("--full", action="store_true", help="100,000 too; kept in results")
    parser.add_argument("--out", type=Path, help="where to write the figures (JSON)")
    asyncio.run(main(parser.parse_args()))
