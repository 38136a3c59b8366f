"""From a collecting run to training rows.

Free rollouts that were judged give policy rows and, where there are reflections, those; forced
traces and those of a teacher give rows for imitation. What was sampled keeps its ids; traces,
and transcripts of a chat-only server, need a tokeniser and are never good for a policy-gradient
ratio.
"""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from memory.runs import write_atomically
from memory.schema import Decoding, Judgement, ReflectionCandidate, Trajectory
from training.compiling import NO_IDS, Compiled, policy_rows, reflection_rows
from training.recasting import sft_rows
from training.row_rule import SS_GRPO, RowRule
from training.rows import TrainRow
from training.run_directory import RunDirectory, group_of
from training.sequences import Tokeniser, retokenised, token_sequence
from training.teaching import imitation_rows


async def run_rows(
    run: RunDirectory, tokeniser: Tokeniser | None = None, rule: RowRule = SS_GRPO
) -> Compiled:
    """All rows of the finished steps; without a tokeniser what has no ids is dropped."""
    manifest = run.manifest()
    if manifest.imitated:
        traces = list(run.trajectories())
        if tokeniser is None:
            return Compiled(dropped={NO_IDS: len(traces)})
        if manifest.decoding is Decoding.FREE:
            return await imitation_rows(traces, tokeniser)
        return await sft_rows(traces, tokeniser, tool_calls=manifest.tool_calls)
    judged = {judgement.trajectory_id: judgement for judgement in run.judgements()}
    rows = await _policy_rows(run, judged, tokeniser, rule)
    return rows + _reflection_rows(run.reflections(), manifest.policy_version)


def needs_tokeniser(run: RunDirectory) -> bool:
    """Whether some of the run's text has no ids that it could be trained on."""
    return run.manifest().imitated or any(
        token_sequence(t.segments) is None for t in run.trajectories()
    )


def write_rows(path: Path, rows: Iterable[TrainRow]) -> None:
    """One JSON object a line, the file replaced whole."""
    write_atomically(path, (row.model_dump_json() + "\n" for row in rows))


async def _policy_rows(
    run: RunDirectory,
    judged: dict[str, Judgement],
    tokeniser: Tokeniser | None,
    rule: RowRule,
) -> Compiled:
    trajectories = {trajectory.id: trajectory for trajectory in run.trajectories()}
    rows = Compiled()
    for record in run.groups():
        group = group_of(record, trajectories)
        if tokeniser is not None:
            members = [await _with_ids(t, tokeniser) for t in group.trajectories]
            group = group.model_copy(update={"trajectories": tuple(members)})
        judgements = [judged[name] for name in record.trajectories if name in judged]
        rows += policy_rows(group, judgements, rule, name=record.id)
    return rows


async def _with_ids(trajectory: Trajectory, tokeniser: Tokeniser) -> Trajectory:
    if token_sequence(trajectory.segments) is not None:
        return trajectory
    return await retokenised(trajectory, tokeniser)


def _reflection_rows(candidates: Iterable[ReflectionCandidate], policy_version: str) -> Compiled:
    rows = Compiled()
    for _, members in groupby(candidates, key=lambda candidate: candidate.trajectory_id):
        rows += reflection_rows(list(members), policy_version=policy_version)
    return rows
