"""The embedded models on questions with checkable facts, against themselves without a search.

    python -m benchmarks.embedded [--quick | --full] [--model 1.5b --model 0.5b] [--out FILE]

Each question is asked of the researcher as `rubricem ask` builds it (forced scaffold, source
`python`), and of the same model closed book. A fact counts as found where a pattern written
beforehand matches the cited answer; patterns are crude, so `--out` keeps the answers to read.
"""

import argparse
import asyncio
import json
import re
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report import emit, sized_parser
from rubricem.agent.models.policy import Policy
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.setup import open_researcher
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.schema import Author, Sampling, Segment, Status

QUESTIONS = Path(__file__).parent / "embedded_questions.jsonl"
QUICK = 4
MOST_SECONDS = 150
CLOSED_BOOK = "Answer the question about Python in two or three sentences."


async def measure(model: str, questions: list[dict[str, str]]) -> list[dict[str, Any]]:
    """One row for each question: seconds, facts with and without search, cites."""
    settings = load_settings({"model": model})
    rows = []
    setup = setup_of(settings)
    async with open_researcher(setup) as researcher:
        for question in questions:
            began = time.monotonic()
            ask = replace(researcher.template, question=question["question"])
            trajectory = await researcher.ask(ask)
            seconds = time.monotonic() - began
            answer = cited_answer(trajectory)
            closed = await closed_book(researcher.policy, question["question"])
            rows.append(
                {
                    "question": question["question"],
                    "seconds": round(seconds, 1),
                    "finished": trajectory.status is Status.FINISHED,
                    "fact": found(question["fact"], answer.text()),
                    "closed_fact": found(question["fact"], closed),
                    "cites": len(answer.citations),
                    "dropped": answer.dropped,
                    "overlap": [round(c.overlap, 2) for c in answer.citations],
                    "retrieved": any(found(question["fact"], s.text) for s in trajectory.sources),
                    "searches": trajectory.tool_calls,
                    "tokens": trajectory.usage.completion_tokens,
                    "answer": answer.text(),
                    "closed": closed,
                    "transcript": trajectory.transcript(),
                }
            )
            print(f"{model} {seconds:5.1f} s fact {rows[-1]['fact']!s:5} {question['question']}")
    return rows


async def closed_book(policy: Policy, question: str) -> str:
    """The same model's answer from what it remembers."""
    ids = await policy.render(CLOSED_BOOK, question)
    head = Segment(author=Author.PROMPT, text=question, token_ids=ids)
    sampling = Sampling(max_tokens=120, temperature=0.0)
    return (await policy.write(CLOSED_BOOK, [head], sampling, None, None)).text


def found(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.I | re.S) is not None


def summary(model: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """The figures of one model, each key ending in its name."""
    cites = sum(row["cites"] for row in rows)
    dropped = sum(row["dropped"] for row in rows)
    overlaps = [value for row in rows for value in row["overlap"]]
    values = {
        "seconds_median": statistics.median(row["seconds"] for row in rows),
        "seconds_max": max(row["seconds"] for row in rows),
        "fact_share": statistics.fmean(row["fact"] for row in rows),
        "closed_book_fact_share": statistics.fmean(row["closed_fact"] for row in rows),
        "fact_retrieved_share": statistics.fmean(row["retrieved"] for row in rows),
        "cites": cites,
        "cites_resolved_share": cites / (cites + dropped) if cites else 0.0,
        "claims_overlapping_60_share": sum(o >= 0.6 for o in overlaps) / max(len(overlaps), 1),
        "completion_tokens_mean": statistics.mean(row["tokens"] for row in rows),
    }
    return {f"{key}_{model}": round(value, 3) for key, value in values.items()}


async def main(arguments: argparse.Namespace) -> None:
    questions = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    asked = questions if arguments.full else questions[:: len(questions) // QUICK][:QUICK]
    if arguments.only:
        asked = questions[arguments.only[0] : arguments.only[1]]
    values: dict[str, Any] = {"n": len(asked)}
    rows = {}
    for model in arguments.model or ["1.5b", "0.5b"]:
        setup_of(load_settings({"model": model}))
        rows[model] = await measure(model, asked)
        values |= summary(model, rows[model])
        if arguments.out:
            arguments.out.write_text(json.dumps({"values": values, "rows": rows}, indent=1))
    resolved = [value for key, value in values.items() if key.startswith("cites_resolved")]
    slow = [value for key, value in values.items() if key == "seconds_median_1.5b"]
    emit(
        "embedded",
        values,
        {"cites_resolved_share": "1.0", "seconds_median_1.5b": f"<= {MOST_SECONDS}"},
        all(value == 1.0 for value in resolved) and all(s <= MOST_SECONDS for s in slow),
        f"{len(asked)} questions over --source python, forced scaffold, seed 0; facts by pattern; "
        "closed book: the same weights, 120 tokens, no search",
    )


if __name__ == "__main__":
    parser = sized_parser(__doc__, f"{QUICK} questions (the default)", "all 24 questions")
    parser.add_argument("--only", nargs=2, type=int, metavar=("FROM", "TO"), help="a slice")
    parser.add_argument("--model", action="append", help="1.5b or 0.5b; both if none is named")
    parser.add_argument("--out", type=Path, help="keep every answer and transcript here")
    asyncio.run(main(parser.parse_args()))
