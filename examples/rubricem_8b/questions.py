"""Questions of a published set, by its name, as JSON lines that every command here reads.

    python questions.py NAME FILE OUT.jsonl [--limit N] [--held-out 100] [--step 32]

FILE is downloaded from the set's maker before: `.jsonl`, `.json` or `.parquet`. OUT.held_out.jsonl
is never trained on. A set's own rubric stays with its question, as criteria of its answer that are
never pruned; rubrics in files of their own come in by `rubricem judge rubrics import`.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from rubricem.judge.buffers import conversation_text, json_rows
from rubricem.memory.errors import RubricemError
from rubricem.training.collect.questions import Question, normal

Row = dict[str, Any]
SETS = {
    "plain": ("question", "criteria", "criterion", "points"),
    "dr-tulu": ("query", "rubrics", "description", "weight"),
    "healthbench": ("prompt", "rubrics", "criterion", "points"),
    "researchrubrics": ("prompt", "rubrics", "criterion", "weight"),
    "researchqa": ("query", "rubric", "rubric_item", "points"),
}
"""what a row of each calls the question, its criteria, and the text and the points of one; the
forms of DR Tulu and HealthBench are those that rubricem reads elsewhere, the last two were not
tried on their makers' files"""


def question_of(name: str, number: int, row: Row) -> Question:
    """A conversation is asked as a whole. Raises KeyError, TypeError or ValueError."""
    asked, listed, text, points = SETS[name]
    question = conversation_text(row[asked])
    criteria = criteria_of(row.get(listed) or [], text, points)
    return Question(id=f"{name}-{number}", question=question, criteria=tuple(criteria))


def criteria_of(listed: Any, text: str, points: str) -> list[Row]:
    """Criteria with points from -10 to 10; a text alone is worth 1."""
    listed = json.loads(listed) if isinstance(listed, str) else listed
    found = [one if isinstance(one, dict) else {text: one} for one in listed]
    return [
        {"criterion": one[text], "points": max(-10, min(10, float(one.get(points, 1))))}
        for one in found
        if str(one.get(text, "")).strip()
    ]


def rows_of(path: Path) -> dict[int, Any]:
    """By their numbers. Raises StoreError for what is no JSON."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return dict(enumerate(pyarrow.parquet.read_table(path).to_pylist(), start=1))
    return json_rows(path.read_text(encoding="utf-8"), str(path))


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
    try:
        rows = rows_of(told.file)
    except RubricemError as error:
        raise SystemExit(error.told()) from error
    for number, row in rows.items():
        try:
            one = question_of(told.name, number, row)
        except (KeyError, TypeError, ValueError) as error:
            raise SystemExit(
                f"row {number} of {told.file} is none of {told.name}: {error}"
            ) from error
        found.setdefault(normal(one.question), one.model_dump_json())
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
