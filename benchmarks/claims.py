"""How well unsupported claims are found: by rules alone, and by the embedded models.

    python -m benchmarks.claims [--quick | --full | --lexical] [--model 1.5b] [--out FILE]

The (claim, passage) pairs are our own (`benchmarks/claims_pairs.jsonl`): true claims; false ones,
most of them in the passage's own words; true ones with one number changed; half-true ones, of
whose two parts the passage holds one. `unsupported` is right for the false and the changed;
`partial` for the half-true. Figures are of the set `test`, which was written before anything was
measured; thresholds are fitted on `tuning` alone, and docs/benchmarks.md says which rule was
changed after the test set had been looked at. Intervals are Wilson's, 95%.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Value, emit
from rubricem.agent.models.opening import EmbeddedChoice
from rubricem.agent.reports.rules import Pair, lexical_finding
from rubricem.agent.reports.verifier import ChoiceChecker
from rubricem.agent.settings import load_settings
from rubricem.judge.evaluation.report import share
from rubricem.memory.schema import CitationSupport, Source

PAIRS = Path(__file__).parent / "claims_pairs.jsonl"
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
}


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
    found = ((case, lexical_finding(case.pair)) for case in cases)
    return [Judged(case, finding.verdict, finding.reason) for case, finding in found]


async def by_model(model: str, cases: Sequence[Case]) -> list[Judged]:
    """As the verify stage asks an embedded model."""
    settings = load_settings({"model": model})
    judged = []
    async with EmbeddedChoice(model, settings.weights_dir).open_tokens() as opened:
        checker = ChoiceChecker(opened)
        for case in cases:
            said = await checker.check([case.pair])
            [found], [probability] = said.each, said.chances
            judged.append(Judged(case, found.verdict, found.reason, probability))
            print(f"{model} {probability:.2f} {case.kind:6} {case.pair.claim}", flush=True)
    return judged


def figures(judged: Sequence[Judged]) -> dict[str, float]:
    """Precision and recall of `unsupported`, of any doubt, and what was right of each kind.

    A doubt is `unsupported` or `partial`, and it is right for all but the true claims.
    """
    values: dict[str, float] = {"n": len(judged)}
    values |= _measure(judged, "", lambda verdict: verdict == "unsupported")
    doubted = ("unsupported", "partial")
    values |= _measure(judged, "doubt_", lambda verdict: verdict in doubted)
    for kind, right in RIGHT.items():
        those = [j for j in judged if j.case.kind == kind]
        values |= _share(f"{kind}_recall", sum(j.verdict == right for j in those), len(those))
    return values


def _measure(
    judged: Sequence[Judged], prefix: str, positive: Callable[[CitationSupport], bool]
) -> dict[str, float]:
    said = [j for j in judged if positive(j.verdict)]
    right = [j for j in judged if positive(j.case.right)]
    hits = sum(positive(j.case.right) for j in said)
    precision = _share(f"{prefix}precision", hits, len(said))
    return precision | _share(f"{prefix}recall", hits, len(right))


def _share(name: str, hits: int, count: int) -> dict[str, float]:
    found = share(hits, count)
    values = {name: found.value or 0.0, f"{name}_low": found.low, f"{name}_high": found.high}
    return {key: round(value, 3) for key, value in values.items()}


def sweep(judged: Sequence[Judged]) -> list[str]:
    """Precision and recall of the probability below each threshold, for fitting."""
    lines = []
    for threshold in (i / 10 for i in range(1, 10)):
        said = [j for j in judged if (j.probability or 0.0) < threshold]
        hits = sum(j.case.right == "unsupported" for j in said)
        wanted = sum(j.case.right == "unsupported" for j in judged)
        precision = hits / len(said) if said else 0.0
        lines.append(
            f"below {threshold}: precision {precision:.2f}, recall {hits / max(wanted, 1):.2f}"
        )
    return lines


async def main(arguments: argparse.Namespace) -> None:
    cases = load_cases()
    rows = {"lexical": by_rules(cases)}
    began = time.monotonic()
    if not arguments.lexical:
        asked = cases if arguments.full else cases[:: len(cases) // QUICK][:QUICK]
        for model in arguments.model or (["1.5b", "0.5b"] if arguments.full else ["0.5b"]):
            rows[model] = await by_model(model, asked)
            print(f"\n{model}, tuning set:", *sweep(_of(rows[model], "tuning")), sep="\n")
    values: dict[str, Value] = {}
    for name, judged in rows.items():
        test = figures(_of(judged, "test"))
        values |= {f"{name}_{key}": value for key, value in test.items()}
        values |= {f"{name}_tuning_{k}": figures(_of(judged, "tuning"))[k] for k in _MAIN}
    values["seconds"] = round(time.monotonic() - began, 1)
    if arguments.out:
        arguments.out.write_text(json.dumps({name: _rows(j) for name, j in rows.items()}, indent=1))
    emit(
        "claims",
        values,
        {name: f">= {least}" for name, least in TARGETS.items()},
        all(float(values[name] or 0) >= least for name, least in TARGETS.items()),
        f"{len(cases)} pairs of our own; figures of the test set, written before measuring; "
        f"unsupported is right for {_counts(cases)}",
    )


_MAIN = ("n", "precision", "recall")


def _of(judged: Sequence[Judged], chosen: str) -> list[Judged]:
    return [j for j in judged if j.case.set == chosen]


def _counts(cases: Sequence[Case]) -> str:
    test = [case for case in cases if case.set == "test"]
    wrong = sum(case.right == "unsupported" for case in test)
    return f"{wrong} of {len(test)}"


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
