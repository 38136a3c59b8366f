"""Questions in seven languages, each over a small folder in its own.

    python -m benchmarks.languages [--quick] [--split told|missing] [--model 1.5b] [--out FOLDER]

Texts and questions are our own, of invented places, so that no model knows them. Of each answer is
told by code: found, what it cites holds the fact; cited, a claim holds it that cites and that the
verifier does not call unsupported; in the language, what it says besides the program's own English
leads ("Not found:") is in the language of the question. 12 questions in four of the languages ask
what no text says (`missing`): there every sentence that is told as an answer is wrong.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.asked import Row, ask_all, asking_options
from benchmarks.report import Value, emit, kept_in
from rubricem.memory.language import language_of

TEXTS = Path(__file__).parent / "language_texts.json"
LEAST, MOST_WRONG = 0.75, 0.1
"""share of the answers that each figure should reach; share of what nothing answers that may get an
answer all the same"""
SHARES = ("found_share", "cited_share", "in_language_share")
TOLD, MISSING = "told", "missing"
_LEAD = "Not found:"
"""what the program writes before a question that is left open"""


def questions(quick: bool, split: str | None = None) -> list[Row]:
    """All questions of a split or of both, or the first of each language; `told` have a pattern."""
    texts, most = json.loads(TEXTS.read_text(encoding="utf-8")), 1 if quick else None
    asked: list[Row] = [
        {"id": f"{code}-{n}", "source": code, "split": TOLD, "question": q, "pattern": fact}
        for code, of_it in texts.items()
        for n, (q, fact) in enumerate(of_it["asked"][:most], start=1)
    ]
    asked += [
        {"id": f"{code}-{MISSING}-{n}", "source": code, "split": MISSING, "question": q}
        for code, of_it in texts.items()
        for n, q in enumerate(of_it.get(MISSING, ())[:most], start=1)
    ]
    return [question for question in asked if split in (None, question["split"])]


def folders(work: Path) -> dict[str, str]:
    """The folder of each language, with its texts written into it."""
    for code, of_it in json.loads(TEXTS.read_text(encoding="utf-8")).items():
        (work / code).mkdir(parents=True, exist_ok=True)
        for name, text in of_it["pages"].items():
            (work / code / f"{name}.txt").write_text(text, encoding="utf-8")
    return {path.name: str(path) for path in work.iterdir() if path.is_dir()}


def grade(question: Row, row: Row) -> dict[str, bool]:
    """What code tells of an answer."""
    held = [c for c in row["claims"] if any(k["verdict"] != "unsupported" for k in c["cites"])]
    said = re.sub(rf"(?m)^{_LEAD}", "", row["plain"])
    return {
        "found": any(re.search(question["pattern"], k["quote"]) for c in held for k in c["cites"]),
        "cited": any(re.search(question["pattern"], claim["text"]) for claim in held),
        "in_language": bool(held) and language_of(said) in (question["source"], ""),
    }


def is_told(row: Row) -> bool:
    """Whether a reader takes something for the answer: it is marked by no doubt."""
    cites = [cite for claim in row["claims"] for cite in claim["cites"]]
    return any(not cite["doubt"] for cite in cites) or (not cites and row["status"] == "finished")


async def main(arguments: argparse.Namespace, out: Path) -> None:
    asked = questions(arguments.quick, arguments.split)
    rows = await ask_all(asked, folders(arguments.work / "texts"), arguments, out)
    values = figures(asked, rows)
    emit(
        "languages",
        {"model": arguments.model, "n": len(rows), **values},
        f"{len(asked)} of 40 questions of our own in 7 languages over folders of two texts each, "
        "12 of them answered by none",
        least={name: LEAST for name in values if name in SHARES},
        most={name: MOST_WRONG for name in values if name == "wrong_share"},
    )


def figures(asked: Sequence[Row], rows: Sequence[Row]) -> dict[str, Value]:
    """The shares, and what each language comes to."""
    both = [*zip(asked, rows, strict=True)]
    grades = [(q, grade(q, row)) for q, row in both if q["split"] == TOLD]
    wrong = [is_told(row) for q, row in both if q["split"] == MISSING]
    shares = {
        key: sum(g[key] for _, g in grades) / len(grades)
        for key in (grades[0][1] if grades else ())
    }
    values: dict[str, Value] = {f"{key}_share": round(share, 3) for key, share in shares.items()}
    for code in dict.fromkeys(question["source"] for question, _ in grades):
        of_it = [g for q, g in grades if q["source"] == code]
        values[code] = ", ".join(f"{k} {sum(g[k] for g in of_it)}/{len(of_it)}" for k in shares)
    if wrong:
        values |= {"missing": len(wrong), "wrong_share": round(sum(wrong) / len(wrong), 3)}
    return values


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one question a language")
    asking_options(parser, Path(tempfile.gettempdir()) / "rubricem-languages", (TOLD, MISSING))
    kept_in(parser, main)
