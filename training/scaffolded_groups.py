"""The scaffolds of a step: each question's criteria as it began, and who is shown which.

Criteria come from the question's rubric, persistent and active; where it has none yet, from the
questions file. They are written down before the first rollout, so that a step that goes on shows
what it showed at first.
"""

import asyncio
from collections.abc import Sequence

from memory.buffers import BufferStore
from memory.rubrics import RubricBuffer
from memory.schema import Criterion, Stage, Value
from training.run_directory import Question, RunDirectory
from training.scaffolding import Scaffold, group_scaffolds


class InForce(Value):
    """The criteria that the rollouts of one question are shown a part of."""

    criteria: tuple[Criterion, ...]


async def scaffolds(
    run: RunDirectory, buffers: BufferStore, step: int, name: str, question: Question
) -> list[Scaffold]:
    """The scaffold of each member of the group `name`; empty ones in a run without scaffolding."""
    manifest = run.manifest()
    if manifest.scaffold is None:
        return [Scaffold()] * manifest.group_size
    part = f"{name}-criteria"
    found = run.part(step, part, InForce)
    if found is None:
        buffer = await asyncio.to_thread(buffers.load, question.question)
        found = InForce(criteria=criteria_of(buffer, question.criteria))
        await asyncio.to_thread(run.save_part, step, part, found)
    seed = f"{manifest.seed}:{name}"
    return group_scaffolds(manifest.scaffold, found.criteria, manifest.group_size, seed)


def criteria_of(buffer: RubricBuffer, written: Sequence[str] = ()) -> tuple[Criterion, ...]:
    """What a question is scored on, stage by stage; without any, what was written beside it."""
    in_force = tuple(criterion for stage in Stage for criterion in buffer.criteria(stage))
    return in_force or tuple(Criterion(title="", description=text) for text in written)
