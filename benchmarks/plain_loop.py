"""The four stages against a plain loop: the same model, the same search, no stages.

    python -m benchmarks.plain_loop [--quick | --full] [--model 1.5b] [--base-url URL] [--out FILE]

The plain loop is the arm `plain` of `rubricem eval`. Both run through the same graph, source,
limits and journal, at temperature 0 (plain) or as `ask` does (staged), on the questions of
`embedded`.

A fact counts where the pattern written beforehand matches the answer as a reader sees it. A cite
counts as supported where the lexical rules of the verifier find its claim in its passage, the
same rules for both; a citation of an id that was never retrieved is dropped in both.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.embedded import QUESTIONS, found
from benchmarks.report import Value, emit
from rubricem.agent.evaluate.arms import SEARCHES, PlainDecoder
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.rules import lexical_finding
from rubricem.agent.reports.verifier import pairs_of
from rubricem.agent.research.graph import Decoder
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.setup import open_researcher
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.schema import Status, Trajectory

QUICK = 4
Row = dict[str, Any]


async def measure(
    researcher: Researcher, ways: dict[str, Decoder], questions: Sequence[dict[str, str]]
) -> list[Row]:
    """One row for each question and way."""
    rows = []
    for question in questions:
        for way, decoder in ways.items():
            researcher.decoder = decoder
            ask = replace(researcher.template, question=question["question"])
            rows.append(row(way, question, await researcher.ask(ask)))
            print(f"{way:7} {rows[-1]['seconds']:6.1f} s fact {rows[-1]['fact']!s:5} "
                  f"{question['question']}", flush=True)  # fmt: skip
    return rows


def row(way: str, question: dict[str, str], run: Trajectory) -> Row:
    answer = cited_answer(run)
    verdicts = Counter(lexical_finding(pair).verdict for pair in pairs_of(answer))
    return {
        "way": way,
        "question": question["question"],
        "seconds": round(run.seconds, 1),
        "finished": run.status is Status.FINISHED,
        "fact": found(question["fact"], answer.text()),
        "cites": sum(verdicts.values()),
        "supported": verdicts["supported"],
        "dropped": answer.dropped,
        "searches": run.tool_calls,
        "tokens": run.usage.completion_tokens,
        "answer": answer.text(),
    }


def summary(way: str, rows: Sequence[Row]) -> dict[str, Value]:
    """The figures of one way, each key beginning with its name."""
    cites = sum(r["cites"] for r in rows)
    supported = sum(r["supported"] for r in rows)
    values = {
        "facts": sum(r["fact"] for r in rows),
        "cites": cites,
        "cites_supported": supported,
        "cites_supported_share": round(supported / cites, 3) if cites else None,
        "cites_dropped": sum(r["dropped"] for r in rows),
        "answers_without_cite": sum(not r["cites"] for r in rows),
        "finished": sum(r["finished"] for r in rows),
        "searches": sum(r["searches"] for r in rows),
        "tokens_mean": round(statistics.mean(r["tokens"] for r in rows), 1),
        "seconds_median": statistics.median(r["seconds"] for r in rows),
    }
    return {f"{way}_{key}": value for key, value in values.items()}


async def main(arguments: argparse.Namespace) -> None:
    questions = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    asked = questions if arguments.full else questions[:: len(questions) // QUICK][:QUICK]
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings({
            "model": arguments.model, "base_url": arguments.base_url, "source": ("python",),
            "memory": "off", "verify": "off", "data_dir": folder,
        })  # fmt: skip
        async with open_researcher(setup_of(settings)) as researcher:
            ways: dict[str, Decoder] = {"staged": researcher.decoder, "plain": PlainDecoder()}
            rows = await measure(researcher, ways, asked)
    values: dict[str, Value] = {"n": len(asked)}
    for way in ways:
        values |= summary(way, [r for r in rows if r["way"] == way])
    if arguments.out:
        arguments.out.write_text(json.dumps({"values": values, "rows": rows}, indent=1))
    emit(
        "plain_loop",
        values,
        {"none": "side by side, whatever it says"},
        True,
        f"{len(asked)} questions of `embedded` over --source python, {arguments.model}, seed 0; "
        f"facts by pattern, cites by the verifier's lexical rules; at most {SEARCHES} searches",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK} questions (the default)")
    size.add_argument("--full", action="store_true", help="all 24 questions")
    parser.add_argument("--model", default="1.5b", help="1.5b, 0.5b, or a server's model")
    parser.add_argument("--base-url", help="a server to ask instead")
    parser.add_argument("--out", type=Path, help="keep every answer here")
    asyncio.run(main(parser.parse_args()))
