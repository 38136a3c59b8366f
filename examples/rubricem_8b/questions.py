"""Questions of a published set, by its name, as JSON lines that every command here reads.

    python questions.py NAME FILE OUT.jsonl [--limit N] [--held-out 100] [--step 32]

FILE is downloaded from the set's maker before: `.jsonl`, `.json` or `.parquet`. OUT.held_out.jsonl
is never trained on. A set's own rubric stays with its question, as criteria of its answer that are
never pruned; rubrics in files of their own come in by `rubricem judge rubrics import`.
"""

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rubricem.training.collect.questions import Question

Row = dict[str, Any]


def of_criteria(row: Row, named: str, text: str, points: str) -> list[Row]:
    """A list of criteria under a name, with points from -10 to 10; a text alone is worth 1."""
    listed = row.get(named) or []
    listed = json.loads(listed) if isinstance(listed, str) else listed
    found = [one if isinstance(one, dict) else {text: one} for one in listed]
    return [
        {"criterion": one[text], "points": max(-10, min(10, float(one.get(points, 1))))}
        for one in found
        if str(one.get(text, "")).strip()
    ]


def plain(row: Row) -> Row:
    """Our own form, and any set with the columns question and, maybe, criteria."""
    return {"question": row["question"], "criteria": row.get("criteria") or []}


def dr_tulu(row: Row) -> Row:
    return {
        "question": row["query"],
        "criteria": of_criteria(row, "rubrics", "description", "weight"),
    }


def health_bench(row: Row) -> Row:
    asked = [message["content"] for message in row["prompt"] if message["role"] == "user"]
    return {"question": asked[-1], "criteria": of_criteria(row, "rubrics", "criterion", "points")}


def research_rubrics(row: Row) -> Row:
    return {
        "question": row["prompt"],
        "criteria": of_criteria(row, "rubrics", "criterion", "weight"),
    }


def research_qa(row: Row) -> Row:
    return {
        "question": row["query"],
        "criteria": of_criteria(row, "rubric", "rubric_item", "points"),
    }


SETS: dict[str, Callable[[Row], Row]] = {
    "plain": plain,
    "dr-tulu": dr_tulu,
    "healthbench": health_bench,
    "researchrubrics": research_rubrics,
    "researchqa": research_qa,
}
"""how a row of each set becomes a question; the forms of DR Tulu and HealthBench are those that
rubricem reads elsewhere, the last two were not tried on their makers' files"""


def rows_of(path: Path) -> Iterator[Row]:
    if path.suffix == ".parquet":
        import pyarrow.parquet

        yield from pyarrow.parquet.read_table(path).to_pylist()
    elif path.suffix == ".json":
        yield from json.loads(path.read_text(encoding="utf-8"))
    else:
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.strip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SETS)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=int, help="questions at most, held-out ones included")
    parser.add_argument("--held-out", type=int, default=100, help="questions that are held out")
    parser.add_argument("--step", type=int, default=32, help="questions of a step: whole steps")
    told = parser.parse_args()
    found: dict[str, str] = {}
    for number, row in enumerate(rows_of(told.file), start=1):
        try:
            one = Question.model_validate({"id": f"{told.name}-{number}", **SETS[told.name](row)})
        except (KeyError, TypeError, ValueError) as error:
            raise SystemExit(
                f"row {number} of {told.file} is none of {told.name}: {error}"
            ) from error
        found.setdefault(" ".join(one.question.casefold().split()), one.model_dump_json())
    # By their hash: a larger file holds out no question that a smaller one trained.
    order = sorted(found, key=lambda text: hashlib.sha256(text.encode()).hexdigest())[: told.limit]
    held, asked = order[: told.held_out], order[told.held_out :]
    asked = asked[: len(asked) // told.step * told.step]
    if not asked:
        raise SystemExit(
            f"{told.file} has {len(order)} questions; {told.held_out} are held out, and a step "
            f"asks {told.step}: give more, or set --held-out and --step lower"
        )
    for path, texts in ((told.out, asked), (told.out.with_suffix(".held_out.jsonl"), held)):
        path.write_text("".join(found[text] + "\n" for text in texts), encoding="utf-8")
        print(f"{len(texts)} questions: {path}")


if __name__ == "__main__":
    main()
