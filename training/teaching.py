"""What a teacher wrote, as rows for imitation.

A teacher is any model that answers better than the one to be trained: its rollouts are collected
like others, marked as its own, and good for imitation alone. They get the ids of the student's
tokeniser, and never an advantage, a ratio or a part in a baseline.
"""

from collections.abc import Iterable

from agent.rejection import rejected
from memory.schema import Trajectory
from training.compiling import Compiled, compiled
from training.recasting import unaccepted
from training.rejecting import Broken
from training.rows import TrainRow
from training.sequences import Tokeniser, retokenised, token_sequence

NOTHING_WRITTEN = "nothing of it has ids"


async def imitation_rows(
    traces: Iterable[Trajectory], tokeniser: Tokeniser, broken: Broken = rejected
) -> Compiled:
    """The rows of traces, as `imitation_row` makes each."""
    return compiled([await imitation_row(trace, tokeniser, broken) for trace in traces])


async def imitation_row(
    trace: Trajectory, tokeniser: Tokeniser, broken: Broken = rejected
) -> TrainRow | str:
    """The row of a finished free trace that breaks no rejection rule, or why there is none.

    Loss stands on what the teacher wrote, on no tool output and no attempt that was refused.
    """
    if reason := unaccepted(trace, broken):
        return reason
    tokens = token_sequence((await retokenised(trace, tokeniser)).segments)
    if tokens is None or not any(tokens.written):
        return NOTHING_WRITTEN
    mask = tuple(map(int, tokens.written))
    return TrainRow(
        id=f"{trace.id}:sft",
        group=trace.id,
        trajectory=trace.id,
        objective="sft",
        policy_version=trace.policy_version,
        ids=tokens.ids,
        prompt_tokens=tokens.prompt,
        loss_mask=mask,
        advantages=tuple(map(float, mask)),
        behaviour_logprobs=(0.0,) * len(tokens.ids),
        stages=tokens.stages,
        ratio_allowed=False,
    )
