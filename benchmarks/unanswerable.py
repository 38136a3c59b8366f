"""Questions whose answer is not in the sources: does the agent say so, or make one up?

    python -m benchmarks.unanswerable [--quick | --full] [--split dev] [--model 1.5b] [--out FOLDER]

Forty cannot be answered. 20 are our own over the installed Python libraries: a false premise, a
parameter or a function that is not there, or what only the outside world knows. 20 are questions of
2WikiMultihopQA (arXiv:2011.01060) that need two passages, of which the second was taken out of
the corpus, and nothing else in it says the answer. 20 more can be answered (10 and 10) and count
what is refused without need. Each is asked as `rubricem ask` asks it.

Right is to find no evidence, to say what is missing, or to correct the false premise. A wrong claim
shown as fact is a cited claim that asserts what was asked (by the question's `asserts`, or the
answer that the corpus no longer holds), is no denial, and is not marked as unsupported. Patterns
are crude: a reader's verdict in `results/unanswerable_read.jsonl` (`id`, `digest` of the answer
read, `handled`, `wrong`, `why`) stands above them.
"""

import argparse
import json
import random
import re
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from benchmarks.hops import rows_of
from benchmarks.report import RESULTS, Value, emit, kept_in, sized_parser, with_interval
from rubricem.agent.sources.index import PassageCorpus
from rubricem.memory.schema import Passage, SearchTool, Status

QUESTIONS = Path(__file__).parent / "unanswerable_questions.jsonl"
READ = RESULTS / "unanswerable_read.jsonl"
ANSWERABLE = "answerable"
QUICK_EACH = 2
"""questions of each source, of those that can be answered and of those that cannot"""
LEAST, MOST = {"handled_share": 0.8}, {"wrong_claims_share": 0.10, "answerable_refused_share": 0.05}
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_PLACE = rf"\b(?:in|at|near|from) (?!(?:the year |early |late |about )?\d|(?:{_MONTHS})\b)"
ASSERTS: Mapping[str, str] = {
    "place of birth": rf"\bborn\b[^.;]*{_PLACE}|\bbirthplace\b|\bplace of birth\b|\bnative of\b",
    "place of death": rf"\b(?:died|death)\b[^.;]*{_PLACE}|\bplace of death\b",
    "date of birth": r"\b(?:born|birth)\b[^;]*\d",
    "date of death": r"\b(?:died|death)\b[^;]*\d",
}
"""what tells a value of a relation, of whomever; other relations have no such words"""
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


@dataclass(frozen=True, slots=True)
class Hops:
    """Multi-hop questions and the closed corpus that they are asked over."""

    questions: tuple[Row, ...]
    passages: Mapping[str, str]
    """text by title"""


def load_hops() -> Hops:
    passages = {row["title"]: row["text"] for row in rows_of("passages")}
    return Hops(tuple(rows_of("questions")), passages)


def hop_questions(
    hops: Hops, seed: int = 0, count: int = 20, answerable: int = 10
) -> tuple[list[Row], Mapping[str, str]]:
    """Questions of two hops, half of each split, and the corpus without the second passages.

    Of the first `count` the second passage is gone, and no other passage has both the name that
    it was about and the answer; every first passage is still there. The `answerable` ones have
    both passages. The same seed gives the same questions.
    """
    drawn = random.Random(seed)
    two = [q for q in hops.questions if _two_hops(q, hops.passages)]
    drawn.shuffle(two)
    cut: list[Row] = []
    for split in ("train", "dev"):
        cut += _cut(two, hops.passages, split, count // 2, cut)
    gone = {q["gold"][1] for q in cut}
    whole: list[Row] = []
    for split in ("train", "dev"):
        free = [q for q in two if q["split"] == split and q not in cut]
        whole += [q for q in free if not gone & set(q["gold"])][: answerable // 2]
    rows = [_hop_row(q, "hop") for q in cut] + [_hop_row(q, ANSWERABLE) for q in whole]
    return rows, {title: text for title, text in hops.passages.items() if title not in gone}


def _two_hops(question: Row, passages: Mapping[str, str]) -> bool:
    gold = question.get("gold") or ()
    return (
        question["type"] == "compositional"
        and len(set(gold)) == len(gold) == 2
        and all(title in passages for title in gold)
        and question["evidence"][1][1] in ASSERTS
    )


def _cut(
    questions: Sequence[Row],
    passages: Mapping[str, str],
    split: str,
    count: int,
    chosen: Sequence[Row],
) -> Iterator[Row]:
    """So many whose second passage can go without taking another chosen one's passages."""
    first = {q["gold"][0] for q in chosen}
    second = {q["gold"][1] for q in chosen}
    for question in questions:
        start, end = question["gold"]
        clash = end in first | second or start in second
        if not count or question["split"] != split or clash or _told_twice(question, passages):
            continue
        first.add(start)
        second.add(end)
        count -= 1
        yield question


def _told_twice(question: Row, passages: Mapping[str, str]) -> bool:
    """Whether another passage names the second one's subject and the answer, or the first does."""
    start, end = question["gold"]
    name, answer = re.sub(r" \(.*\)", "", end).casefold(), question["answer"].casefold()
    return answer in passages[start].casefold() or any(
        answer in text.casefold() and name in text.casefold()
        for title, text in passages.items()
        if title != end
    )


def _hop_row(question: Row, kind: str) -> Row:
    """A question in the form of our own ones.

    What can be answered is told by the place without its state, or by the year of the date.
    """
    relation, answer = question["evidence"][1][1], question["answer"]
    row = {key: question[key] for key in ("id", "question", "split", "gold")}
    row |= {"source": "hops", "kind": kind}
    if kind == ANSWERABLE:
        years = re.findall(r"\d{3,4}", answer) if relation.startswith("date") else []
        fact = years[-1] if years else answer.partition(",")[0]
        return row | {"pattern": rf"\b{re.escape(fact)}\b"}
    return row | {"asserts": rf"\b{re.escape(answer)}\b|{ASSERTS[relation]}"}


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
    made, corpus = hop_questions(load_hops())
    questions += made
    passages = [Passage(title, title, "", text) for title, text in corpus.items()]
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
        f"{len(asked)} of 60 questions; hops drawn with seed 0; patterns written before "
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
