"""Judging runs that have ended: the groups in turn, what came of it, and who is told."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from agent.judged_runs import Judgeable
from agent.recalling import note_scores
from judge.composed_judge import GroupJudge
from judge.stage_judge import GroupJudgement
from memory.bank import RubricBank
from memory.buffers import BufferStore
from memory.errors import JudgeError


async def judged_groups(
    judge: GroupJudge, found: Judgeable, data_dir: Path
) -> list[GroupJudgement]:
    """Every group in turn; the rubrics of each are saved once it is judged."""
    store = BufferStore(data_dir / "buffers")
    judged = []
    for step, group in enumerate(found.groups):
        buffer = await asyncio.to_thread(store.load, group.question)
        judged.append(await judge.judge(group, buffer, step))
        await asyncio.to_thread(store.save, judged[-1].buffer)
    return judged


def check_scored(judged: Sequence[GroupJudgement]) -> None:
    """Raises JudgeError where a judge that did not work left everything unscored."""
    notes = [note for group in judged for note in group.notes]
    judgements = [judgement for group in judged for judgement in group.judgements]
    scored = any(stage.score is not None for j in judgements for stage in j.stages)
    if notes and not scored:
        raise JudgeError(f"Nothing could be scored. {notes[0]}")


async def tell_bank(bank: RubricBank, found: Judgeable, judged: Sequence[GroupJudgement]) -> None:
    """Let the bank know how well the runs that recalled something came out."""
    recalling = {t.id for group in found.groups for t in group.trajectories if t.recalled}
    judgements = [j for group in judged for j in group.judgements if j.trajectory_id in recalling]
    if judgements:
        await note_scores(bank, judgements)
