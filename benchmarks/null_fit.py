"""The null: does a passage say what was read from it? Fitted on labelled pairs.

    python -m benchmarks.null_fit [--most N] [--model 1.5b] --out FILE

Pairs of a look-up and a passage: the sub-questions of MuSiQue's annotators and the triples of
2WikiMultihopQA's train split, each with the gold passage and with the best other one that a search
by words finds and that does not have the answer. Of each the embedded model's three signals are
kept (`agent.research.reading`); a logistic is fitted with an L2 penalty, and judged leaving one
look-up out. Rows are kept in `--out`, and the same command goes on. The coefficients belong in
`agent/research/tuned.py`.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from benchmarks.hops import WHOLE, read_rows, rows_of
from benchmarks.natural import DATA, corpus_of
from rubricem.agent.research.reading import ANSWERS, SPAN, checking, heading, logit, mean_logprob
from rubricem.agent.research.spans import span_grammar
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.sources.index import PassageCorpus
from rubricem.agent.transcript.scaffold import neutralise, template
from rubricem.memory.asking import chance_of_yes
from rubricem.memory.schema import LocalModel, Message, Passage

EACH = 6
"""triples of each relation"""
PENALTY = 1.0
COPY = "Copy the few words that answer it from the passage, and nothing else."
ASKED = {
    "director": "Who directed the film {}?",
    "composer": "Who composed the music of {}?",
    "performer": "Who performed the song {}?",
    "father": "Who is the father of {}?",
    "mother": "Who is the mother of {}?",
    "spouse": "Who is the spouse of {}?",
    "date of birth": "When was {} born?",
    "date of death": "When did {} die?",
    "place of birth": "Where was {} born?",
    "place of death": "Where did {} die?",
    "country of citizenship": "What is the nationality of {}?",
    "country": "In which country is {}?",
    "publication date": "When was {} released?",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    question: str
    answer: str
    passage: Passage
    says: bool
    """the passage is the gold one"""


@dataclass(frozen=True, slots=True)
class Row:
    question: str
    title: str
    span: str
    says: bool
    answers: float
    right: float
    mean_logprob: float

    @property
    def signals(self) -> tuple[float, float, float]:
        return logit(self.answers), logit(self.right), self.mean_logprob


def gold_lookups() -> Iterator[tuple[str, str, str, Passage]]:
    """Set, question and answer of look-ups, and the passage that says it."""
    passages = corpus_of("musique")
    for row in read_rows(DATA / "musique.jsonl.xz"):
        answers = [step["answer"] for step in row["steps"]]
        gold = [p for p in passages if p.location in row["gold_starts"]]
        for step in row["steps"]:
            subject, _, relation = step["question"].partition(" >> ")
            asked = f"What is the {relation} of {subject}?" if relation else subject
            for at, answer in enumerate(answers, start=1):
                asked = asked.replace(f"#{at}", answer)
            has = [p for p in gold if step["answer"].casefold() in p.text.casefold()]
            if has:
                yield "musique", asked, step["answer"], has[0]
    pages = {row["title"]: row["text"] for row in rows_of("passages")}
    train = (row for row in rows_of("questions") if row["split"] == "train")
    triples = sorted({tuple(triple) for row in train for triple in row["evidence"]})
    random.Random(0).shuffle(triples)
    for relation, form in ASKED.items():
        own = [(s, o) for s, r, o in triples if r == relation and s in pages]
        for subject, answer in own[:EACH]:
            page = Passage(subject, subject, "", pages[subject])
            yield "hops", form.format(subject), answer, page


async def pairs(out: Path) -> list[Pair]:
    texts = [Passage(row["title"], row["title"], "", row["text"]) for row in rows_of("passages")]
    tools = {
        "musique": PassageCorpus(corpus_of("musique"), out / "index-musique"),
        "hops": PassageCorpus(texts, out / "index-hops"),
    }
    found = list[Pair]()
    for name, question, answer, gold in gold_lookups():
        others = await tools[name].search(question, 8)
        other = next((p for p in others if answer.casefold() not in p.text.casefold()), None)
        found.append(Pair(question, answer, gold, says=True))
        if other:
            found.append(Pair(question, answer, other, says=False))
    return found


async def read(model: LocalModel, pair: Pair) -> Row | None:
    """The three signals; None where the passage has no span."""
    passage = neutralise(f"{pair.passage.title}\n{pair.passage.text}")
    head, system = heading(passage, pair.question), Message("system", template("read"))
    grammar = span_grammar([passage])
    if not grammar:
        return None
    answers, _ = await chance_of_yes(model, [system, Message("user", head + ANSWERS)])
    prefix = await model.render([system, Message("user", head + COPY)])
    written = await model.complete(prefix, replace(SPAN, grammar=grammar))
    asked = head + checking(written.text)
    right, _ = await chance_of_yes(model, [system, Message("user", asked)])
    mean = mean_logprob(written)
    title, span = pair.passage.title, written.text
    return Row(pair.question, title, span, pair.says, answers, right, mean)


def calibration_error(chances: Sequence[float], says: Sequence[bool], bins: int = 5) -> float:
    """Mean distance of chance and share over equal bins (ECE)."""
    error = 0.0
    for at in range(bins):
        both = zip(chances, says, strict=True)
        held = [(p, s) for p, s in both if min(int(p * bins), bins - 1) == at]
        if held:
            error += abs(sum(p - s for p, s in held))
    return error / len(chances)


async def main(arguments: argparse.Namespace) -> None:
    kept: Path = arguments.out
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    rows = [Row(**row) for row in done]
    known = {(row.question, row.title) for row in rows}
    todo = [p for p in await pairs(kept.parent) if (p.question, p.passage.title) not in known]
    random.Random(0).shuffle(todo)
    setup = setup_of(load_settings({"model": arguments.model}))
    async with setup.model.open_policy() as policy:
        assert policy.reader is not None, "only an embedded model weighs"
        for pair in todo[: max(arguments.most - len(rows), 0)]:
            if row := await read(policy.reader, pair):
                rows.append(row)
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
    says, signals = [row.says for row in rows], [row.signals for row in rows]
    model = LogisticRegression(C=1 / PENALTY, solver="newton-cholesky", tol=1e-8)
    seen = {"groups": [row.question for row in rows], "cv": LeaveOneGroupOut()}
    chances = cross_val_predict(model, signals, says, method="predict_proba", **seen)[:, 1]
    model.fit(signals, says)
    weights = zip(("answers", "right", "mean_logprob"), model.coef_[0].tolist(), strict=True)
    fitted = {
        "n": len(rows),
        "auc": round(roc_auc_score(says, chances), 3),
        "ece": round(calibration_error(chances.tolist(), says), 3),
        "bias": round(float(model.intercept_[0]), 2),
        **{name: round(weight, 2) for name, weight in weights},
    }
    print(json.dumps(fitted))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=1000, help="pairs that are read")
    parser.add_argument("--model", default=WHOLE)
    parser.add_argument("--out", type=Path, required=True, help="the file of rows")
    asyncio.run(main(parser.parse_args()))
