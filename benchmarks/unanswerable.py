"""Questions whose answer is not in the sources: does the agent say so, or make one up?

    python -m benchmarks.unanswerable [--quick | --full] [--split dev] [--model 1.5b] [--out FOLDER]

Forty cannot be answered. 20 are our own over the installed Python libraries: a false premise, a
parameter or a function that is not there, or what only the outside world knows. 20 are questions of
2WikiMultihopQA (arXiv:2011.01060) that need two passages, of which the second is taken out of the
corpus, and nothing else in it says the answer; they were drawn by chance. 20 more can be answered
(10 and 10) and count what is refused without need.

Right is to find no evidence, to say what is missing, or to correct the false premise. A wrong claim
shown as fact is a cited claim that asserts what was asked (by the question's `asserts`, or the
answer that the corpus no longer holds), is no denial, and is not marked as unsupported. Patterns
are crude: a reader's verdict in `results/unanswerable_read.jsonl` (`id`, `digest` of the answer
read, `handled`, `wrong`, `why`) stands above them.
"""

import argparse
import json
import re
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.asked import (
    Row,
    ask_all,
    asking_options,
    json_lines,
    read_verdicts,
    spread_over,
)
from benchmarks.embedded import found
from benchmarks.hops import corpus
from benchmarks.report import RESULTS, Value, emit, kept_in, sized_parser, with_interval
from rubricem.agent.sources.index import PassageCorpus
from rubricem.memory.schema import SearchTool, Status

QUESTIONS = Path(__file__).parent / "unanswerable_questions.jsonl"
READ = RESULTS / "unanswerable_read.jsonl"
ANSWERABLE = "answerable"
QUICK_EACH = 2
"""questions of each source, of those that can be answered and of those that cannot"""
LEAST, MOST = {"handled_share": 0.8}, {"wrong_claims_share": 0.10, "answerable_refused_share": 0.05}
_SAYS_MISSING = re.compile(
    # the sources do not say it
    r"\b(?:sources?|passages?|documentation|documents?|docs|manuals?|texts?|evidence|search(?:es)?|"
    r"results?|pages?|signatures?|i|we)\b[^.;]{0,80}(?:\b(?:no|not|nothing|none|never)\b|n't\b)"
    r"[^.;]{0,50}\b(?:f[io]und|sa(?:y|id)|stat|mention|document|describ|specif|list|hold|contain|"
    r"answer|settl|know|tell|told|give|gave|provid|speak|cover|support|show)"
    r"|\b(?:holds?|sa(?:y|ys|id)|f[io]u?nd|contains?|tells?) nothing\b"
    # it was not found
    r"|(?:\b(?:no|not|nothing|none|never|neither)\b|n't\b)[^.;]{0,40}\b(?:found|documented|mentioned|"
    r"stated|described|specified|listed|known|answered|available|told|given|supported)\b"
    # there is no such thing
    r"|\b(?:has|have|there is|there are) no\b|\bno such\b|\bnot an? (?:\w+ )?(?:parameter|argument|"
    r"option|function|method|class|keyword|attribute)\b|\b(?:does|do|did)(?: not|n't) exist\b"
    r"|\b(?:does|do)(?: not|n't) (?:have|take|accept|offer|provide)\b[^.;]{0,30}\b(?:parameter|"
    r"argument|option|function|method|class|keyword|attribute)\b"
    r"|\b(?:cannot|can't|could(?: not|n't)) (?:be )?(?:answer|sa[iy]|t[eo]l[dl]|determin|f[io]u?nd)"
    r"|\bno (?:information|evidence|answer|mention|record)\b|\b(?:unanswered|unknown|missing)\b",
    re.I,
)
_CONDITION = re.compile(r"\b(?:if|when|unless|whether|where|in case)\b[^,.;\n]*", re.I)
"""what a documentation says of other cases: `raises ValueError if it is not found`"""


def says_missing(text: str) -> bool:
    """Whether a text says that something was not found, is not said or is not there."""
    return _SAYS_MISSING.search(_CONDITION.sub("", text)) is not None


def refused(row: Row) -> bool:
    """Whether the run found no evidence, or said nothing at all."""
    return row["status"] == Status.NO_EVIDENCE or not row["plain"].strip()


def wrong_claims(question: Row, row: Row) -> list[str]:
    """The cited claims that assert what was asked of what is not there, shown as fact."""
    corrects = question.get("corrects")
    return [
        claim["text"]
        for claim in row["claims"]
        if any(cite["verdict"] != "unsupported" for cite in claim["cites"])
        and found(question["asserts"], claim["text"])
        and not (corrects and found(corrects, claim["text"]))
        and not says_missing(claim["text"])
    ]


def grade(question: Row, row: Row, read: Mapping[tuple[str, str], Row]) -> Row:
    """What became of one question; a failed run is neither handled nor wrong.

    Of one that can be answered: `fact`, and `refused` where the fact is not told and the run says
    that it is missing.
    """
    missing = refused(row) or says_missing(row["plain"])
    if row["status"] == Status.FAILED:
        return {"handled": False, "wrong": False, "refused": False, "fact": False, "failed": True}
    if question["kind"] == ANSWERABLE:
        fact = found(question["pattern"], row["plain"])
        return {"fact": fact, "refused": missing and not fact, "failed": False}
    corrected = question["kind"] == "premise" and found(question["corrects"], row["plain"])
    verdict = read.get((row["id"], row["digest"]), {})
    return {
        "handled": verdict.get("handled", missing or corrected),
        "wrong": verdict.get("wrong", bool(wrong_claims(question, row))),
        "failed": False,
    }


def figures(
    questions: Sequence[Row], rows: Sequence[Row], read: Mapping[tuple[str, str], Row]
) -> dict[str, Value]:
    """Shares of each kind, and Wilson's intervals of those that have a target."""
    graded = [(q, grade(q, row, read)) for q, row in zip(questions, rows, strict=True)]
    without = [(q, g) for q, g in graded if q["kind"] != ANSWERABLE]
    answerable = [g for q, g in graded if q["kind"] == ANSWERABLE]
    values: dict[str, Value] = {"n": len(without), "answerable": len(answerable)}
    values |= _share("handled", [g["handled"] for _, g in without])
    values |= _share("wrong_claims", [g["wrong"] for _, g in without])
    values |= _share("answerable_refused", [g["refused"] for g in answerable])
    values |= _share("answerable_fact", [g["fact"] for g in answerable])
    for kind in dict.fromkeys(q["kind"] for q, _ in without):
        of_it = [g for q, g in without if q["kind"] == kind]
        values[f"handled_{kind}"] = f"{sum(g['handled'] for g in of_it)} of {len(of_it)}"
        values[f"wrong_{kind}"] = f"{sum(g['wrong'] for g in of_it)} of {len(of_it)}"
    values["read"] = sum((row["id"], row["digest"]) in read for row in rows)
    values["failed"] = sum(g["failed"] for _, g in graded)
    values["seconds_median"] = statistics.median(row["seconds"] for row in rows)
    return values


def _share(name: str, hits: Sequence[bool]) -> dict[str, Value]:
    return with_interval(f"{name}_share", sum(hits), len(hits))


async def main(arguments: argparse.Namespace, out: Path) -> None:
    questions = json_lines(QUESTIONS.read_text(encoding="utf-8"), QUESTIONS, "id", "kind")
    gone = {q["gold"][1] for q in questions if q["kind"] == "hop"}
    passages = [passage for passage in corpus() if passage.title not in gone]
    indexes = arguments.work / "data" / "indexes"
    sources: dict[str, str | SearchTool] = {
        "python": "python",
        "hops": PassageCorpus(passages, indexes),
    }
    for field in ("split", "source"):
        wanted = getattr(arguments, field)
        questions = [q for q in questions if wanted in (None, q[field])]
    asked = questions if arguments.full else few(questions)
    rows = await ask_all(asked, sources, arguments, out)
    read = read_verdicts(READ)
    for question, row in zip(asked, rows, strict=True):
        print(json.dumps({"id": row["id"], "kind": question["kind"], **grade(question, row, read)}))
    values = figures(asked, rows, read)
    emit(
        "unanswerable",
        {"model": arguments.model, **values},
        f"{len(asked)} of 60 questions; patterns written before "
        f"measuring, under a reader's verdicts; --split {arguments.split or 'all'}",
        least=LEAST,
        most=MOST,
    )


def few(questions: Sequence[Row]) -> list[Row]:
    """Two of each source that can be answered, and two that cannot."""
    chosen: list[Row] = []
    for source in dict.fromkeys(q["source"] for q in questions):
        for answerable in (False, True):
            of_it = [q for q in questions if q["source"] == source]
            these = [q for q in of_it if (q["kind"] == ANSWERABLE) is answerable]
            chosen += spread_over(these, QUICK_EACH)
    return chosen


if __name__ == "__main__":
    parser = sized_parser(__doc__, "8 questions (the default)", "all 60 questions")
    parser.add_argument("--source", choices=("python", "hops"), help="the questions of one")
    asking_options(parser, Path(tempfile.gettempdir()) / "rubricem-unanswerable")
    kept_in(parser, main)
