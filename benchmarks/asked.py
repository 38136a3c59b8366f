"""Questions asked by `rubricem eval`, each with a row of what its reader was shown.

A row holds the answer, every cited claim with what it stands on and what the verifier said of it,
and the titles of what was retrieved. Graders and readers look at rows alone, so they need no model.
`digest` is of the answer: a reader's verdict counts for the answer that was read and for no other.
"""

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.hops import tell
from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import Experiment
from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.agent.reports.cited import Cited, CitedAnswer, cited_answer, claim_of, doubt
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import SearchTool, Trajectory

Row = dict[str, Any]


def json_lines(text: str, path: Path, *fields: str) -> list[Row]:
    """The rows of a file, each with these fields; raises SystemExit that names the line."""
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            row = json.loads(line)
            missing = [field for field in fields if field not in row]
        except (ValueError, TypeError):
            missing = ["JSON"]
        if missing:
            raise SystemExit(
                f"Line {number} of {path} has no {missing[0]}. Mend the line or leave it out."
            )
        rows.append(row)
    return rows


def row_of(question: Mapping[str, str], run: Trajectory) -> Row:
    """What the reader of this run's report is shown."""
    answer = cited_answer(run)
    text = answer.text()
    return {
        "id": question["id"],
        "question": question["question"],
        "status": str(run.status),
        "reason": run.reason,
        "answer": text,
        "plain": answer.text(lambda _: ""),
        "digest": hashlib.sha256(text.encode()).hexdigest()[:12],
        "claims": _claims(answer),
        "doubted": bool(answer.doubted),
        "retrieved": [source.title for source in run.sources],
        "searches": run.tool_calls,
        "tokens": run.usage.completion_tokens,
        "seconds": round(run.seconds, 1),
    }


def _claims(answer: CitedAnswer) -> list[Row]:
    return [
        {
            "text": claim_of(piece.text),
            "cites": [
                {
                    "number": c.number,
                    "title": c.source.title,
                    "location": c.source.location,
                    "quote": c.quote,
                    "verdict": c.verdict,
                    "doubt": doubt(c),
                }
                for c in piece.citations
            ],
        }
        for piece in answer.pieces
        if isinstance(piece, Cited)
    ]


def render_row(row: Row, split: str = "") -> str:
    """The row for somebody who reads it: question, answer, and what each citation quotes."""
    cites = {
        (cite["number"], cite["quote"]): f"  [{cite['number']}] {cite['title']} "
        f"({cite['location']}; {cite['verdict']}): {cite['quote']}"
        for claim in row["claims"]
        for cite in claim["cites"]
    }
    head = f"== {row['id']} {split} {row['seconds']} s {row['status']} {row['digest']}"
    answer = row["answer"] or f"(no answer) {row['reason']}"
    return "\n".join([head, row["question"], answer, *cites.values(), ""])


async def ask_all(
    questions: Sequence[Mapping[str, str]],
    sources: Mapping[str, str | SearchTool],
    arguments: argparse.Namespace,
    folder: Path,
) -> list[Row]:
    """A row for each question, in their order; what the folder has is not asked again.

    `sources` says which `--source` each question's `source` stands for, or what is searched.
    """
    rows = dict[str, Row]()
    for name in dict.fromkeys(question["source"] for question in questions):
        own = [question for question in questions if question["source"] == name]
        source = sources[name]
        named, tool = ((source,), None) if isinstance(source, str) else ((), source)
        settings = load_settings({
            "model": arguments.model, "base_url": arguments.base_url, "memory": "off",
            "source": named, "data_dir": arguments.work / "data",
        })  # fmt: skip
        asked = tuple(EvalQuestion(id=q["id"], question=q["question"]) for q in own)
        experiment = Experiment(
            setup_of(settings), QuestionSet("rubricem", asked), Arm.parse("stages"), folder / name,
            search_tool=tool,
        )  # fmt: skip
        answered, store = await experiment.run(print, tell), RunStore(folder / name)
        for question, each in zip(own, answered, strict=True):
            rows[question["id"]] = row_of(question, store.load(each.thread))
            print(render_row(rows[question["id"]], question["split"]), flush=True)
    return [rows[question["id"]] for question in questions]


def asking_options(
    parser: argparse.ArgumentParser, work: Path, splits: Sequence[str] = ("train", "dev")
) -> None:
    """The options of `ask_all`, and where rows and sources are kept."""
    parser.add_argument("--model", default="1.5b", help="1.5b, 0.5b, or a server's model")
    parser.add_argument("--base-url", help="a server to ask instead")
    parser.add_argument("--split", choices=splits, help="one part of the questions")
    parser.add_argument("--out", type=Path, help="keep runs in this folder, and go on")
    parser.add_argument("--work", type=Path, default=work, help="sources and indexes are kept here")


def read_verdicts(path: Path, *fields: str) -> dict[tuple[str, str], Row]:
    """A reader's verdicts by id and digest of the answer; none where there is no such file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {
        (row["id"], row["digest"]): row for row in json_lines(text, path, "id", "digest", *fields)
    }


def spread_over(questions: Sequence[Row], count: int) -> list[Row]:
    """So many of the questions, at equal distances; all of them where they are not more."""
    count = min(count, len(questions))
    return [questions[i * len(questions) // count] for i in range(count)]
