"""From a collecting run to training rows.

Free rollouts that were judged give policy rows and, where there are reflections, those; forced
traces and those of a teacher give rows for imitation. What was sampled keeps its ids; traces,
and transcripts of a chat-only server, need a tokeniser and are never good for a policy-gradient
ratio.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator
from itertools import groupby
from pathlib import Path

from agent.rejection import Rule
from memory.runs import write_atomically
from memory.schema import Decoding, Trajectory
from training.compiling import NO_IDS, Compiled, compiled, policy_rows, reflection_rows
from training.export_judged import JudgedGroup, judged_groups
from training.recasting import sft_row
from training.rejecting import breaking
from training.row_rule import SS_GRPO, RowRule
from training.rows import TrainRow
from training.run_directory import RunDirectory
from training.sequences import Tokeniser, retokenised, token_sequence
from training.teaching import imitation_row


async def run_rows(
    run: RunDirectory, tokeniser: Tokeniser | None = None, rule: RowRule = SS_GRPO
) -> Compiled:
    """All rows of the finished steps at once, as `each_row` gives them."""
    return compiled([found async for found in each_row(run, tokeniser, rule)])


async def each_row(
    run: RunDirectory,
    tokeniser: Tokeniser | None = None,
    rule: RowRule = SS_GRPO,
    rules: Collection[Rule] = (),
) -> AsyncGenerator[TrainRow | str, None]:
    """The rows of the finished steps, one group in memory at a time.

    In the place of a sequence that gives no row stands the reason. Without a tokeniser what has
    no ids is such. `rules`: of what is imitated, the rejection rules beyond the first four.
    """
    if run.manifest().imitated:
        async for found in _imitation_rows(run, tokeniser, rules):
            yield found
        return
    for group in judged_groups(run):
        for found in (await _policy_rows(group, tokeniser, rule)).each():
            yield found
    for found in _reflection_rows(run):
        yield found


def needs_tokeniser(run: RunDirectory) -> bool:
    """Whether some of the run's text has no ids that it could be trained on."""
    return run.manifest().imitated or any(
        token_sequence(t.segments) is None for t in run.trajectories()
    )


def write_rows(path: Path, rows: Iterable[TrainRow]) -> None:
    """One JSON object a line, the file replaced whole."""
    write_atomically(path, (row.model_dump_json() + "\n" for row in rows))


async def _imitation_rows(
    run: RunDirectory, tokeniser: Tokeniser | None, rules: Collection[Rule]
) -> AsyncGenerator[TrainRow | str, None]:
    manifest, broken = run.manifest(), breaking(rules)
    for trace in run.trajectories():
        if tokeniser is None:
            yield NO_IDS
        elif manifest.decoding is Decoding.FREE:
            yield await imitation_row(trace, tokeniser, broken)
        else:
            yield await sft_row(trace, tokeniser, manifest.tool_calls, broken)


async def _policy_rows(judged: JudgedGroup, tokeniser: Tokeniser | None, rule: RowRule) -> Compiled:
    group = judged.rollouts
    if tokeniser is not None:
        members = [await _with_ids(t, tokeniser) for t in group.trajectories]
        group = group.model_copy(update={"trajectories": tuple(members)})
    judgements = [judgement for judgement in judged.judgements if judgement]
    return policy_rows(group, judgements, rule, name=judged.record.id)


async def _with_ids(trajectory: Trajectory, tokeniser: Tokeniser) -> Trajectory:
    if token_sequence(trajectory.segments) is not None:
        return trajectory
    return await retokenised(trajectory, tokeniser)


def _reflection_rows(run: RunDirectory) -> Iterator[TrainRow | str]:
    version = run.manifest().policy_version
    for _, members in groupby(run.reflections(), key=lambda candidate: candidate.trajectory_id):
        yield from reflection_rows(list(members), policy_version=version).each()
