"""What judging a group by stages costs on a server, against one call for each item of each run.

    python -m benchmarks.judge_cost [--quick | --full]

Eight runs, twelve criteria. The stage judge proposes once for the group and scores each run on
all criteria in one call; DR Tulu's way is a call for every pair of run and criterion. Both are
really asked of a loopback server, and the prompts' tokens are what it reports: four characters
each. Runs of three lengths, since the share of what every call repeats hangs on it.
"""

import argparse
import asyncio
from collections.abc import Sequence

from benchmarks.judged import buffer_of, question_of, run_of
from benchmarks.loopback import MODEL, serving
from benchmarks.report import Value, emit
from rubricem.agent.models.chat_server import OpenAIChat
from rubricem.agent.models.limits import Limiter
from rubricem.judge.build import stage_judge
from rubricem.judge.stage_readers import ChatScorer
from rubricem.memory.schema import (
    NO_USAGE,
    ChatModel,
    RubricBuffer,
    Stage,
    Trajectory,
    TrajectoryGroup,
    Usage,
)

RUNS = 8
LENGTHS = (4_000, 20_000, 60_000)
"""characters of a run; that of a question answered in one search, in four, and in a dozen"""
MOST_CALLS, LEAST_SCORING, LEAST_ALL = 9, 8.0, 5.0


async def by_stages(
    model: ChatModel, runs: Sequence[Trajectory], buffer: RubricBuffer
) -> tuple[Usage, Usage]:
    """What proposing cost, and what scoring cost."""
    group = TrajectoryGroup(question=buffer.question, trajectories=tuple(runs))
    judged = await stage_judge(model).judge(group, buffer)
    assert not judged.notes, judged.notes
    return judged.usage, sum((j.usage for j in judged.judgements), NO_USAGE)


async def by_items(model: ChatModel, runs: Sequence[Trajectory], buffer: RubricBuffer) -> Usage:
    """One call for each run and criterion."""
    scorer = ChatScorer(model)
    scored = await asyncio.gather(
        *(
            scorer.score(run, {stage: (criterion,)})
            for run in runs
            for stage in Stage
            for criterion in buffer.criteria(stage)
        )
    )
    return sum((one.usage for one in scored), NO_USAGE)


async def measure(address: str, characters: int) -> dict[str, Value]:
    model = OpenAIChat(MODEL, address, None, limiter=Limiter(16))
    runs = [run_of(number, characters) for number in range(RUNS)]
    buffer = buffer_of(question_of(0))
    proposing, scoring = await by_stages(model, runs, buffer)
    items = await by_items(model, runs, buffer)
    both = scoring.prompt_tokens + proposing.prompt_tokens
    named: dict[str, Value] = {
        "calls": scoring.calls + proposing.calls,
        "calls_by_item": items.calls,
        "proposing_prompt_tokens": proposing.prompt_tokens,
        "scoring_prompt_tokens": scoring.prompt_tokens,
        "by_item_prompt_tokens": items.prompt_tokens,
        "scoring_times_fewer": round(items.prompt_tokens / scoring.prompt_tokens, 2),
        "with_proposing_times_fewer": round(items.prompt_tokens / both, 2),
    }
    return {f"{name}_{characters}_characters": value for name, value in named.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the same as --full: it takes seconds")
    size.add_argument("--full", action="store_true")
    parser.parse_args()
    values: dict[str, Value] = {}
    with serving(0.0, 1) as address:
        for characters in LENGTHS:
            values |= asyncio.run(measure(address, characters))
    limits = {"scoring_times_fewer": LEAST_SCORING, "with_proposing_times_fewer": LEAST_ALL}
    met = [_of(values, name) >= least for name, least in limits.items()]
    emit(
        "judge_cost",
        values,
        {"calls": f"<= {MOST_CALLS}"} | {name: f">= {least:g}" for name, least in limits.items()},
        all(met) and max(_every(values, "calls")) <= MOST_CALLS,
        f"{RUNS} runs, 12 criteria, runs of {LENGTHS} characters; 4 characters a token; each "
        "target at every length",
    )


def _of(values: dict[str, Value], name: str) -> float:
    """The smallest over the lengths."""
    return min(_every(values, name))


def _every(values: dict[str, Value], name: str) -> list[float]:
    found = [values[f"{name}_{characters}_characters"] for characters in LENGTHS]
    return [float(value) for value in found if value is not None]


if __name__ == "__main__":
    main()
