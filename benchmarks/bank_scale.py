"""How the memory bank does with 1,000, 10,000 and 100,000 items.

    python -m benchmarks.bank_scale [--quick | --full] [--episodes] [--out FILE]

The bank is the real one (journal, catalogue, Chroma) over vectors that are looked up, so that no
figure has embedding in it. Items are those of `benchmarks.bank_texts`; what is asked are 200
further texts that the bank does not hold. `recall` is what a run calls; recall@2 compares
`across`, without a floor, with an exact search. `open_query_s` is a bank opened and asked once by
meaning in a fresh process that made its imports on another bank, `imports_open_query_s` the same
with the imports, and memory is what the first of them grew by; `open_query_cpu_s` is what the
opening takes of the processor, which other programs disturb less. Lookups by the question's own
words and an empty bank must load neither Chroma nor an embedding model.

`--episodes`: a bank of so many episodes instead. Each names three persons, whose first names many
share, and every twentieth one more, which is 5,000 of 100,000. What is asked names one of those
that few share (`rare`), or the one that 5,000 do (`shared`). A run calls `recall` before its
question, by names and by meaning, or `names` where no embedding model is loaded, `form`, by the
words that are no names, which 250 of 100,000 questions share, and `meet` at a search. CPU is the
process's, of all threads.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bank_opening import VectorTable, bank_over, open_in_process
from benchmarks.bank_texts import (
    SEED,
    Vectors,
    embed,
    exact_nearest,
    library_texts,
    multiply,
    recall_at,
)
from benchmarks.report import Value, emit
from rubricem.agent.models.opening import embedder_in
from rubricem.agent.settings import load_settings
from rubricem.memory.bank import NEAREST, RubricBank
from rubricem.memory.schema import Episode, PastLookup, PastSearch, Pointer, Reflection

RESULTS = Path(__file__).parent / "results" / "bank_scale.json"
QUICK, FULL = (1_000, 10_000), (1_000, 10_000, 100_000)
TEXTS, FEWER, ASKED = 4_000, 400, 200
PUT = 100
"""items of each bank that are put one by one; the others are brought in at once"""
STARTS = 5
MOST_RECALL_MS, LEAST_RECALL, MOST_OPEN_S = 30.0, 0.99, 0.3
TARGETS = {
    "recall_p95_ms": f"<= {MOST_RECALL_MS:g}",
    "recall_at_2": f">= {LEAST_RECALL}",
    "open_query_s": f"<= {MOST_OPEN_S}",
    "loaded_without_need": "none",
}
EPISODE_TARGETS = {
    "rare_recall_p95_ms, shared_recall_p95_ms, form_p95_ms": f"<= {MOST_RECALL_MS:g}",
    "rare_found": f">= {LEAST_RECALL}",
}
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


SHARED, EVERY = "Grand Duchy of Vell", 20
"""a name, and the episodes of which one has it"""
_FIRST, _LAST = "aeiou", "bdfgklmnprstvz"


def person(number: int) -> str:
    """A first name that one in 70 has, and a last name that hardly anybody else has."""
    first = _LAST[number % 14].upper() + _FIRST[number // 14 % 5] + "ra"
    left, last = number, ""
    for _ in range(4):
        left, letter = divmod(left, 14)
        last += _LAST[letter] + _FIRST[(letter + left) % 5]
    return f"{first} {last.capitalize()}"


def episode_of_number(number: int, question: str) -> Episode:
    """One of a usual size: three look-ups, four queries, two pointers with a claim each."""
    people = [person(3 * number + place) for place in range(3)]
    asked = [f"Where was {name} born?" for name in people]
    pointers = tuple(
        Pointer(
            source=f"S{place + 1}", title=name, location=f"{name}.md", digest=f"{number:064x}",
            tool="search", query=asked[place], claims=(f"{name} was born in Vell in 1902.",),
        )
        for place, name in enumerate(people[:2])
    )  # fmt: skip
    return Episode(
        id=f"{number:012x}",
        question=question,
        score=0.5,
        trajectory_id=f"run-{number}",
        written_at=_WRITTEN,
        names=(*people, *([SHARED] if number % EVERY == 0 else [])),
        lookups=tuple(PastLookup(asked=each, answer="Vell", queries=(each,)) for each in asked),
        searches=tuple(
            PastSearch(tool="search", query=query, passages=3, new=3, hit=True)
            for query in (*asked, question)
        ),
        pointers=pointers,
    )


async def measure_episodes(folder: Path, questions: Sequence[str], vectors: Vectors) -> Figures:
    """The same of a bank of episodes on these questions; the last `ASKED` are asked for others.

    A bank that an earlier run left in the folder is measured as it stands.
    """
    count = len(questions) - ASKED
    rows = {question: row for row, question in enumerate(questions)}
    every = range(0, count, max(1, count // ASKED))
    asked = {
        "rare": [f"Where was {person(3 * number)} born?" for number in every][:ASKED],
        "shared": [f"Who ruled the {SHARED} in {year}?" for year in range(1000, 1000 + ASKED)],
    }
    # What is asked has the vectors of questions that the bank does not hold.
    rows |= {text: count + at for texts in asked.values() for at, text in enumerate(texts)}
    bank = bank_over(folder, VectorTable(rows, vectors))
    figures: Figures = {}
    if not await bank.generation():
        items = [episode_of_number(n, question) for n, question in enumerate(questions[:count])]
        bringing = await seconds(lambda: bank.bring_in(items))
        figures["brought_in_per_s"] = round(count / bringing, 1)
    by_names = partial(bank.episodes, by_meaning=False)
    for call, found in (("names", by_names), ("meet", bank.sharing), ("recall", bank.episodes)):
        if call == "recall":
            print(json.dumps({"items": count, **figures}), flush=True)
            figures["indexing_s"] = round(await seconds(lambda: bank.episodes(questions[-1])), 1)
        for kind, texts in asked.items():
            calls = [partial(found, text, 3) for text in texts]
            figures |= await time_calls(f"{kind}_{call}", calls)
    of_its_form = [partial(bank.episodes_of_form, questions[number]) for number in every][:ASKED]
    figures |= await time_calls("form", of_its_form)
    led = [await bank.sharing(text, 3) for text in asked["rare"]]
    right = [f"{number:012x}" for number in every][:ASKED]
    met = [{m.episode.id for m in matches} for matches in led]
    figures["rare_found"] = round(
        statistics.fmean(r in m for r, m in zip(right, met, strict=True)), 4
    )
    return figures | sizes(folder / "bank", count)


async def time_calls(name: str, calls: Sequence[Callable[[], Awaitable[object]]]) -> Figures:
    """Milliseconds of calls, by the clock and of the processor."""
    wall, cpu = list[float](), list[float]()
    for call in calls:
        began = time.process_time()
        wall.append(1000 * await seconds(call))
        cpu.append(1000 * (time.process_time() - began))
    return {
        f"{name}_p{percent}_{unit}": percentile(taken, percent)
        for taken, unit in ((wall, "ms"), (cpu, "cpu_ms"))
        for percent in (50, 95)
    }


def episodes_hold(figures: Figures) -> bool:
    return (
        all(float(figures[f"{name}_p95_ms"] or 0) <= MOST_RECALL_MS
            for name in ("rare_recall", "shared_recall", "form"))
        and float(figures["rare_found"] or 0) >= LEAST_RECALL
    )  # fmt: skip


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
        **await fill(bank, items, next(iter(asked))),
        **await time_recalls(bank, items, asked),
        "recall_at_2": await nearest_found(bank, items, vectors, asked),
        **sizes(folder / "bank", len(items)),
        **await in_fresh_processes(folder, items, asked, starts),
    }


async def fill(bank: RubricBank, items: Sequence[Reflection], question: str) -> Figures:
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


async def time_recalls(bank: RubricBank, items: Sequence[Reflection], asked: Asked) -> Figures:
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
        warm = [open_in_process(folder, question, file, NEAREST, other) for _ in range(starts)]
        cold = [open_in_process(folder, question, file, NEAREST) for _ in range(starts)]
        hits = [open_in_process(folder, own, file, 1) for _ in range(starts)]
        empty = open_in_process(Path(name, "empty"), question, file, NEAREST)
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
    texts = library_texts((FEWER if arguments.episodes else TEXTS) + ASKED)
    vectors = embed(texts, embedder)
    asked = dict(zip(texts[:ASKED], vectors[:ASKED], strict=True))
    every: dict[int, Figures] = {}
    for count in counts:
        questions, of_items = multiply(texts[ASKED:], vectors[ASKED:], count)
        with tempfile.TemporaryDirectory() as temporary:
            if arguments.episodes:
                folder = arguments.banks / str(count) if arguments.banks else Path(temporary)
                every[count] = await measure_episodes(
                    folder, [*questions, *asked], np.vstack([of_items, *asked.values()])
                )
            else:
                items = [reflection_of(n, question, texts) for n, question in enumerate(questions)]
                every[count] = await measure(Path(temporary), items, of_items, asked)
        print(json.dumps({"items": count, **every[count]}), flush=True)
    values = {f"{key}_{count}": value for count in counts for key, value in every[count].items()}
    kept = RESULTS.with_name("bank_scale_episodes.json") if arguments.episodes else RESULTS
    out = arguments.out or (kept if arguments.full else None)
    if out:
        out.write_text(json.dumps({"values": values}, indent=1) + "\n")
    emit(
        "bank_scale",
        values,
        EPISODE_TARGETS if arguments.episodes else TARGETS,
        all(map(episodes_hold if arguments.episodes else holds, every.values())),
        f"{len(texts) - ASKED} texts embedded by {embedder.name}, each again with noise where more "
        f"are needed; {ASKED} questions, medians of {STARTS} processes, seed {SEED}, "
        f"{os.cpu_count()} cores; each target at every size",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="1,000 and 10,000 items (the default)")
    size.add_argument("--full", action="store_true", help="100,000 too; kept in results")
    parser.add_argument("--episodes", action="store_true", help="of episodes")
    parser.add_argument(
        "--banks", type=Path, help="keep the banks of episodes here; what is there is only measured"
    )
    parser.add_argument("--out", type=Path, help="where to write the figures (JSON)")
    asyncio.run(main(parser.parse_args()))
