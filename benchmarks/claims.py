"""How well unsupported claims are found: by rules alone, by models, and by both in whole reports.

    python -m benchmarks.claims [--quick | --full | --lexical] [--model 1.5b] [--out FILE]

The (claim, passage) pairs are our own (`benchmarks/claims_pairs.jsonl`): true claims; false ones,
most of them in the passage's own words; true ones with one number changed; half-true ones, of
whose two parts the passage holds one. `unsupported` is right for the false and the changed;
`partial` for the half-true. Figures are of the set `test`, which was written before anything was
measured; thresholds are fitted on `tuning` alone, and docs/benchmarks.md says which rule was
changed after the test set had been looked at. Intervals are Wilson's, 95%.

Six written reports (`benchmarks/claims_reports.jsonl`, our own as well, of made-up things) hold 78
claims that their passages support, in prose, lists and tables, and 60 planted false ones: numbers,
names, negations, scope, claims of another product. They go the whole way of a run's answer, three
times: with the rules alone; with a scripted checker that knows the truth, which shows what is lost
on the way to a checker and back; and with one that believes everything, which shows what the rules
find over a model. No model is asked.
"""

import argparse
import asyncio
import json
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.report import Value, emit, with_interval
from rubricem.agent.models.opening import EmbeddedChoice
from rubricem.agent.models.policy import ChatWriter, JournaledCalls
from rubricem.agent.reports.cited import DOUBTS, cited_answer
from rubricem.agent.reports.rules import Pair, likely_finding
from rubricem.agent.reports.verifier import AnswerVerifier, ChoiceChecker, finding_at
from rubricem.agent.settings import load_settings
from rubricem.memory.runs import Journal
from rubricem.memory.schema import (
    CitationSupport,
    Completion,
    Message,
    OnText,
    Sampling,
    Source,
    StopPredicate,
    Trajectory,
)
from tests.support.values import trajectory

PAIRS = Path(__file__).parent / "claims_pairs.jsonl"
REPORTS = Path(__file__).parent / "claims_reports.jsonl"
QUICK = 12
"""pairs asked of a model by `--quick`"""
RIGHT: dict[str, CitationSupport] = {
    "true": "supported",
    "false": "unsupported",
    "number": "unsupported",
    "half": "partial",
}
TARGETS = {
    "lexical_number_recall": 1.0,
    "lexical_precision": 0.8,
    "honest_found": 57,
}
MOST_FALSE_ALARMS = 2
"""of 78 claims that hold, over a checker that knows it: 3%"""


@dataclass(frozen=True, slots=True)
class Case:
    """One pair and what is right for it."""

    set: str
    kind: str
    pair: Pair

    @property
    def right(self) -> CitationSupport:
        return RIGHT[self.kind]


@dataclass(frozen=True, slots=True)
class Judged:
    """A case and what a checker said of it."""

    case: Case
    verdict: CitationSupport
    reason: str = ""
    probability: float | None = None
    """how likely the model and the rules held it; 0 at a fault"""


def load_cases(path: Path = PAIRS) -> list[Case]:
    return [_case(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _case(row: dict[str, str]) -> Case:
    source = Source(
        id="S1", title=row["title"], location="", text=row["passage"], tool="", query=""
    )
    return Case(row["set"], row["kind"], Pair(row["claim"], source))


def by_rules(cases: Sequence[Case]) -> list[Judged]:
    found = ((case, likely_finding(case.pair)) for case in cases)
    return [Judged(case, finding.verdict, finding.reason) for case, finding in found]


async def by_model(model: str, cases: Sequence[Case]) -> list[Judged]:
    """As the verify stage asks an embedded model."""
    settings = load_settings({"model": model})
    judged = []
    async with EmbeddedChoice(model, settings.weights_dir).open_tokens() as opened:
        checker = ChoiceChecker(opened)
        for case in cases:
            if case.pair.fault() or case.pair.verbatim():
                [found] = (await checker.check([case.pair])).each
                probability = float(found.verdict == "supported")
            else:
                probability, _ = await checker.probability(case.pair)
                found = finding_at(case.pair, probability)
            judged.append(Judged(case, found.verdict, found.reason, probability))
            print(f"{model} {probability:.2f} {case.kind:6} {case.pair.claim}", flush=True)
    return judged


def figures(judged: Sequence[Judged]) -> dict[str, Value]:
    """Precision and recall of `unsupported`, of any doubt, and what was right of each kind.

    A doubt is `unsupported` or `partial`, and it is right for all but the true claims.
    """
    values: dict[str, Value] = {"n": len(judged)}
    values |= _measure(judged, "", lambda verdict: verdict == "unsupported")
    doubted = ("unsupported", "partial")
    values |= _measure(judged, "doubt_", lambda verdict: verdict in doubted)
    for kind, right in RIGHT.items():
        those = [j for j in judged if j.case.kind == kind]
        values |= with_interval(
            f"{kind}_recall", sum(j.verdict == right for j in those), len(those)
        )
    return values


def _measure(
    judged: Sequence[Judged], prefix: str, positive: Callable[[CitationSupport], bool]
) -> dict[str, Value]:
    said = [j for j in judged if positive(j.verdict)]
    right = [j for j in judged if positive(j.case.right)]
    hits = sum(positive(j.case.right) for j in said)
    precision = with_interval(f"{prefix}precision", hits, len(said))
    return precision | with_interval(f"{prefix}recall", hits, len(right))


_CITE = re.compile(r'(<cite id="S\d+")(?: planted="(\w+)")?>')
_ASKED = re.compile(
    r"Claim (\d+), citing passage (S\d+):\n\[(text \w+) claim\]\n(.*?)\n\[end of \3 claim\]"
    r"(?:\n\[(text \w+) it stands in\]\n(.*?)\n\[end of \5 it stands in\])?",
    re.S,
)
HOLDS = "true"


def load_reports() -> list[tuple[Trajectory, list[str]]]:
    """Each report, and what each of its citations is: `HOLDS`, or the kind of a planted claim."""
    found = []
    for row in map(json.loads, REPORTS.read_text(encoding="utf-8").splitlines()):
        sources = tuple(Source(**p, location="", tool="", query="") for p in row["passages"])
        kinds = [planted or HOLDS for _, planted in _CITE.findall(row["answer"])]
        answer = _CITE.sub(r"\1>", row["answer"])
        found.append((trajectory(answer, question=row["question"], sources=sources), kinds))
    return found


class Scripted:
    """A checker that knows of each claim in its context whether it holds; None: all hold."""

    name = "scripted"

    def __init__(self, held: Mapping[tuple[str, str, str], bool] | None) -> None:
        self._held = held

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        verdicts = []
        for number, source, _, claim, _, context in _ASKED.findall(messages[-1].content):
            holds = self._held is None or self._held[source, claim, context]
            verdict = "supported" if holds else "unsupported"
            verdicts.append({"number": int(number), "verdict": verdict})
        return Completion(json.dumps({"verdicts": verdicts}), "eos")


async def in_reports() -> dict[str, Value]:
    """Planted claims that are doubted, of each kind, and claims that hold which are doubted."""
    values: dict[str, Value] = {}
    for by in ("rules", "honest", "believing"):
        told = list[tuple[str, CitationSupport]]()
        for run, kinds in load_reports():
            written = cited_answer(run).citations
            held = {
                (c.id, c.claim, c.context): kind == HOLDS
                for c, kind in zip(written, kinds, strict=True)
            }
            model = ChatWriter(Scripted(held if by == "honest" else None))
            with tempfile.TemporaryDirectory() as folder:
                calls = JournaledCalls(Journal(Path(folder, "calls.jsonl")))
                verifier = AnswerVerifier("mark", None if by == "rules" else model)
                checked, _ = await verifier.verify(run, calls)
            shown = cited_answer(run.model_copy(update={"verification": checked})).citations
            told += [(k, c.verdict) for k, c in zip(kinds, shown, strict=True)]
        planted = [kind for kind, verdict in told if verdict in DOUBTS and kind != HOLDS]
        alarms = sum(verdict in DOUBTS for kind, verdict in told if kind == HOLDS)
        kept = [kind == HOLDS for kind, verdict in told if verdict == "supported"]
        values |= {f"{by}_found": len(planted), f"{by}_false_alarms": alarms}
        values |= {f"{by}_supported": len(kept), f"{by}_supported_are": round(fmean(kept), 3)}
        for kind in ("number", "name", "negation", "scope", "product"):
            values[f"{by}_{kind}"] = planted.count(kind)
    return values


async def main(arguments: argparse.Namespace) -> None:
    cases = load_cases()
    rows = {"lexical": by_rules(cases)}
    began = time.monotonic()
    if not arguments.lexical:
        asked = cases if arguments.full else cases[:: len(cases) // QUICK][:QUICK]
        for model in arguments.model or (["1.5b", "0.5b"] if arguments.full else ["0.5b"]):
            rows[model] = await by_model(model, asked)
    values: dict[str, Value] = {}
    for name, judged in rows.items():
        test = figures([j for j in judged if j.case.set == "test"])
        values |= {f"{name}_{key}": value for key, value in test.items()}
    values |= await in_reports()
    values["seconds"] = round(time.monotonic() - began, 1)
    right = [case.right for case in cases if case.set == "test"]
    emit(
        "claims",
        values,
        f"{len(cases)} pairs of our own; figures of the test set, written before measuring; "
        f"unsupported is right for {right.count('unsupported')} of {len(right)}",
        arguments.out,
        [{"by": name, **row} for name, judged in rows.items() for row in _rows(judged)],
        least=TARGETS,
        most={"honest_false_alarms": MOST_FALSE_ALARMS},
    )


def _rows(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    return [
        {
            "set": j.case.set,
            "kind": j.case.kind,
            "claim": j.case.pair.claim,
            "right": j.case.right,
            "verdict": j.verdict,
            "reason": j.reason,
            "probability": j.probability,
        }
        for j in judged
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK} pairs of the 0.5B (default)")
    size.add_argument("--full", action="store_true", help="all pairs of both embedded models")
    size.add_argument("--lexical", action="store_true", help="the rules alone, no model")
    parser.add_argument("--model", action="append", help="1.5b or 0.5b")
    parser.add_argument("--out", type=Path, help="keep every verdict here")
    asyncio.run(main(parser.parse_args()))
