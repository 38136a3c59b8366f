"""How often judges are right on LLMBar Natural, against a coin and the longest answer.

    python -m benchmarks.judge_accuracy [--quick | --full | --pairs N] [--judge pairwise]
        [--judge stage] [--model 1.5b] [--base-url URL] [--keep FOLDER] [--out FILE]

Each pair is shown in both orders. `--keep` keeps every verdict in a file a judge, from which a
run that was ended goes on. The embedded 1.5B compares pairs by the probability of A against B,
and scores by stage rubrics that it writes for each pair itself. A coin is right in half of the
comparisons, and in a quarter of the pairs in both orders.
"""

import argparse
import asyncio
from pathlib import Path
from typing import get_args

from benchmarks.report import RESULTS, Value, emit
from rubricem.agent.settings import Settings, load_settings
from rubricem.agent.settings.door import model_of
from rubricem.judge.build import Kind
from rubricem.judge.evaluation.report import PairReport, pair_shares
from rubricem.judge.evaluation.run import comparer_of, evaluate

DATA = Path(__file__).parent / "data" / "llmbar_natural" / "pairs.jsonl"
QUICK = 20
JUDGES: tuple[Kind, ...] = ("pairwise", "stage")
SHOWN = (
    "accuracy",
    "right_in_both_orders",
    "right_by_the_mean_share",
    "consistent",
    "picks_the_first_shown",
    "no_verdict",
)


async def measure(
    settings: Settings, kind: Kind, limit: int | None, keep: Path | None
) -> PairReport:
    out = keep / f"{kind}.jsonl" if keep else None
    choice, seed = model_of(settings), settings.seed
    async with choice.open_judge() as model:
        comparer = comparer_of(kind, model, choice.chain)
        return await evaluate(
            comparer, DATA, judge=f"{kind}, {comparer.name}", verdicts=out, limit=limit, seed=seed,
            at_once=choice.at_once, tell=_tell,
        )  # fmt: skip


def values_of(kind: Kind, report: PairReport) -> dict[str, Value]:
    """The figures of one judge, each key ending in its kind."""
    shares = {name.replace(" ", "_"): share for name, share in pair_shares(report.measures)}
    values: dict[str, Value] = {
        f"{name}_{kind}": round(shares[name].value or 0.0, 3) for name in SHOWN if name in shares
    }
    accuracy = report.measures.accuracy
    values[f"interval_{kind}"] = f"{accuracy.low:.3f} - {accuracy.high:.3f}"
    values[f"calls_{kind}"] = report.usage.calls
    values[f"prompt_tokens_{kind}"] = report.usage.prompt_tokens
    return values


def _tell(done: int, total: int) -> None:
    if done % 10 == 0 or done == total:
        print(f"{done} of {total} verdicts", flush=True)


async def main(arguments: argparse.Namespace) -> None:
    flags = {"model": arguments.model, "base_url": arguments.base_url}
    settings = load_settings(flags)
    limit = None if arguments.full else arguments.pairs
    kinds: list[Kind] = arguments.judge or list(JUDGES)
    values: dict[str, Value] = {}
    reports: list[object] = []
    for kind in kinds:
        report = await measure(settings, kind, limit, arguments.keep)
        values |= {f"pairs_{kind}": report.measures.pairs, "coin": 0.5} | values_of(kind, report)
        values["longest_answer_wins"] = report.longest.value
        reports.append(report.model_dump(mode="json"))
    emit(
        "judge_accuracy",
        values,
        f"LLMBar Natural, both orders, {arguments.model}, seed {settings.seed}; no target: the "
        "figures are stated as they are",
        arguments.out or (RESULTS / "judge_accuracy.json" if arguments.full else None),
        reports,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK} pairs (the default)")
    size.add_argument("--full", action="store_true", help="all 100 pairs, kept in results")
    size.add_argument("--pairs", type=int, default=QUICK, metavar="N", help="N pairs, by the seed")
    parser.add_argument("--judge", action="append", choices=get_args(Kind), help="both if unnamed")
    parser.add_argument("--model", default="1.5b", help="the judge's model")
    parser.add_argument("--base-url", help="a server to ask instead of the embedded model")
    parser.add_argument("--keep", type=Path, help="a folder for every verdict")
    parser.add_argument("--out", type=Path, help="where to write all results (JSON)")
    asyncio.run(main(parser.parse_args()))
