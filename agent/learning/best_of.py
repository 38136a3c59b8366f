"""`ask --best-of N`: runs the question N times and has a relative judge pick one answer.

Each run has its own seed and thread. The judgement is stored
beside each run. If the judge gives no score, the first run that did not fail is taken, and a
sentence says so: an answer never depends on the judge.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rubricem.agent.learning.lessons import LearnMark, set_mark
from rubricem.agent.learning.scoring import Judgeable, open_group_judge
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.setup import Setup, open_researcher, reserve, settle
from rubricem.agent.transcript.events import Listener, Tell, ignore, tell_to
from rubricem.agent.transcript.question import Ask
from rubricem.judge.build import Wanted
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import (
    Judgement,
    LocalModel,
    RubricBuffer,
    Stage,
    Status,
    Trajectory,
    TrajectoryGroup,
)


async def ask_best(
    setup: Setup, question: str, thread: str, count: int, listener: Listener = ignore
) -> Trajectory:
    """The best of `count` runs, which are the threads THREAD-1, THREAD-2, ..."""
    tell = tell_to(listener)
    setup = await settle(setup, thread, tell)
    asks = _seed_runs(replace(setup.template, question=question), count)
    for ask, name in zip(asks, _names(thread, count), strict=True):
        reserve(replace(setup, template=ask), name, question)
    async with open_researcher(setup, tell) as researcher:
        ask = replace(asks[0], budgets=setup.budgets)
        return (await ask_among(setup, researcher, ask, thread, count, listener))[0]


async def ask_among(
    setup: Setup,
    researcher: Researcher,
    ask: Ask,
    thread: str,
    count: int,
    listener: Listener = ignore,
) -> tuple[Trajectory, list[Trajectory]]:
    """The same with an open researcher: the best run, and all of them.

    `setup` says where its runs are stored, and what judges them.
    """
    tell = tell_to(listener)
    passed_over = LearnMark(state="skipped", reason="another run of its question was chosen")
    runs = []
    for number, name in enumerate(_names(thread, count), start=1):
        tell(f"run {number} of {count}")
        runs.append(await researcher.ask(_seed_runs(ask, count)[number - 1], name, listener))
    best = await _best(setup, runs, researcher.policy.reader, tell)
    for run in runs:
        if run is not best:
            await asyncio.to_thread(set_mark, setup.stores.runs.folder / run.thread, passed_over)
    return best, runs


def _names(thread: str, count: int) -> list[str]:
    return [f"{thread}-{number}" for number in range(1, count + 1)]


def _seed_runs(ask: Ask, count: int) -> list[Ask]:
    """The same question with a separate seed for each run."""
    return [replace(ask, seed=(ask.seed + number) % 2**32) for number in range(count)]


def choose(runs: Sequence[Trajectory], judgements: Sequence[Judgement]) -> tuple[Trajectory, str]:
    """The run with the highest score (the first of equals), and a sentence on the choice."""
    scores = [judgement.score(Stage.ANSWER) for judgement in judgements]
    scored = [place for place, score in enumerate(scores) if score is not None]
    if scored:
        place = max(scored, key=lambda i: scores[i] or 0.0)
        shown = ", ".join("unscored" if score is None else f"{score:.2f}" for score in scores)
        return runs[place], f"run {place + 1} was chosen; the judge's scores are {shown}"
    unbroken = [i for i, run in enumerate(runs) if run.status is not Status.FAILED]
    place = unbroken[0] if unbroken else 0
    reasons = [judgement.stages[-1].unscored_reason for judgement in judgements]
    why = reasons[place] if reasons else "there was no judgement"
    return runs[place], f"run {place + 1} was taken unjudged: {why}"


async def _best(
    setup: Setup, runs: Sequence[Trajectory], own: LocalModel | None, tell: Tell
) -> Trajectory:
    tell("judging the runs against one another")
    try:
        best, said = choose(runs, await _judge(setup, runs, own))
    except RubricemError as error:
        best, said = choose(runs, ())
        said = f"{said}: {error}"
    tell(said)
    return best


async def _judge(
    setup: Setup, runs: Sequence[Trajectory], own: LocalModel | None
) -> tuple[Judgement, ...]:
    question = runs[0].question
    group = TrajectoryGroup(question=question, trajectories=tuple(runs))
    wanted = Wanted(kind="relative", seed=setup.template.seed)
    async with open_group_judge(setup.model, wanted, shared=own) as judge:
        result = await judge.judge(group, RubricBuffer(question=question))
    for run, judgement in zip(runs, result.judgements, strict=True):
        folder = setup.stores.runs.folder / run.thread
        await asyncio.to_thread(Judgeable((), folder, collected=False).save, [judgement])
    return result.judgements
