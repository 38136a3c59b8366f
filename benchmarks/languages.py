"""Questions in seven languages, each over a small folder in its own.

    python -m benchmarks.languages [--quick] [--model 1.5b] [--out FILE]

Texts and questions are our own, of invented places, so that no model knows them. Of each answer is
told by code: found, what it cites holds the fact; cited, a claim holds it that cites and that the
verifier does not call unsupported; in the language, what it says besides the program's own English
leads ("Not found:") is in the language of the question.
"""

import argparse
import asyncio
import json
import re
import tempfile
from pathlib import Path

from benchmarks.asked import KeptRows, Row, ask_all, asking_options
from benchmarks.report import Value, emit
from rubricem.memory.language import NAMES, language_of

TEXTS = Path(__file__).parent / "language_texts.json"
LEAST = 0.75
"""share of the answers that each figure should reach"""


def questions(quick: bool) -> list[Row]:
    """All questions, or the first of each language, with the pattern of the fact."""
    told = json.loads(TEXTS.read_text(encoding="utf-8"))
    return [
        {"id": f"{code}-{n}", "source": code, "split": NAMES[code], "question": q, "pattern": fact}
        for code, of_it in told.items()
        for n, (q, fact) in enumerate(of_it["asked"][: 1 if quick else None], start=1)
    ]


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
    said = re.sub(r"(?m)^(?:Not found|Nearest to it|Answer):", "", row["plain"])
    return {
        "found": any(re.search(question["pattern"], k["quote"]) for c in held for k in c["cites"]),
        "cited": any(re.search(question["pattern"], claim["text"]) for claim in held),
        "in_language": bool(held) and language_of(said) in (question["source"], ""),
    }


async def main(arguments: argparse.Namespace) -> None:
    asked = questions(arguments.quick)
    kept = KeptRows(arguments.out, arguments.model)
    rows = await ask_all(asked, folders(arguments.work / "texts"), kept, arguments)
    grades = [grade(question, row) for question, row in zip(asked, rows, strict=True)]
    shares = {k: sum(g[k] for g in grades) / len(grades) for k in grades[0]}
    values: dict[str, Value] = {"model": arguments.model, "n": len(rows)}
    values |= {f"{key}_share": round(share, 3) for key, share in shares.items()}
    for code in dict.fromkeys(question["source"] for question in asked):
        of_it = [g for g, q in zip(grades, asked, strict=True) if q["source"] == code]
        values[code] = ", ".join(f"{k} {sum(g[k] for g in of_it)}/{len(of_it)}" for k in shares)
    emit(
        "languages",
        values,
        {f"{key}_share": f">= {LEAST}" for key in shares},
        min(shares.values()) >= LEAST,
        f"{len(asked)} of 28 questions of our own in 7 languages over folders of two texts each",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one question a language")
    asking_options(parser, Path(tempfile.gettempdir()) / "rubricem-languages")
    asyncio.run(main(parser.parse_args()))
