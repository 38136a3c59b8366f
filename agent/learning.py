"""What `--memory on` adds to an answer: the run is judged, reflected on, and the best is kept.

It comes after the answer and can only fail by itself: whatever goes wrong, or is interrupted,
the answer stands and a sentence says what was not learnt. What was written is kept beside the
run in reflections.json; a run that has that file was learnt from and is not again.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from agent.banking import open_bank
from agent.events import Listener, SourceProgress, ignore
from agent.judged_runs import find_run
from agent.judging import open_judge_model
from agent.policy import Policy, TokenWriter
from agent.reflecting import CANDIDATES, accepted, reflect
from agent.settings import Settings
from judge.building import JudgeModel, LocalModel, reflection_judge, stage_judge
from memory.buffers import BufferStore
from memory.errors import RubricemError
from memory.runs import write_atomically
from memory.schema import Judgement, ReflectionCandidate, Status, Trajectory

EMBEDDED_CANDIDATES = 2
"""a model on a few cores writes each for a minute or more"""
_CANDIDATES = TypeAdapter(list[ReflectionCandidate])


async def learn(
    settings: Settings, policy: Policy, trajectory: Trajectory, listener: Listener = ignore
) -> str:
    """Judge, reflect and keep; returns what came of it in a sentence. Raises nothing."""
    try:
        said = await _learn(settings, policy, trajectory, listener)
    except RubricemError as error:
        said = f"nothing was learnt from this run: {error}"
    except asyncio.CancelledError:
        # An interruption ends the learning alone: the answer is there and is to be shown.
        said = "nothing was learnt from this run: it was interrupted"
    listener(SourceProgress(said))
    return said


async def _learn(
    settings: Settings, policy: Policy, trajectory: Trajectory, listener: Listener
) -> str:
    written = _folder(settings, trajectory) / "reflections.json"
    if trajectory.status is Status.FAILED:
        return "a failed run teaches nothing"
    if written.exists():
        return "this run was learnt from before"
    own = local_model(policy)
    async with open_judge_model(settings, own, listener) as model:
        listener(SourceProgress("judging this run"))
        judgement = await _judged(settings, trajectory, model)
        listener(SourceProgress("reflecting on this run"))
        count = CANDIDATES if own is None else EMBEDDED_CANDIDATES
        judge = reflection_judge(model)
        least = settings.least_reflection_score
        candidates = await reflect(
            policy, trajectory, judgement, judge, count, settings.seed, minimum=least
        )
    said = await _kept(settings, policy, candidates)
    await asyncio.to_thread(_save, written, candidates)
    return said


def _folder(settings: Settings, trajectory: Trajectory) -> Path:
    return settings.data_dir / "runs" / trajectory.thread


def local_model(policy: Policy) -> LocalModel | None:
    """The policy's own model where it runs in this process; it judges, too."""
    held = policy.model if isinstance(policy, TokenWriter) else None
    return held if isinstance(held, LocalModel) else None


async def _judged(settings: Settings, trajectory: Trajectory, model: JudgeModel) -> Judgement:
    """The run's judgement; it and the question's rubrics are saved."""
    found = await asyncio.to_thread(find_run, str(_folder(settings, trajectory)), settings.data_dir)
    store = BufferStore(settings.data_dir / "buffers")
    buffer = await asyncio.to_thread(store.load, trajectory.question)
    judged = await stage_judge(model).judge(found.groups[0], buffer)
    await asyncio.to_thread(store.save, judged.buffer)
    await asyncio.to_thread(found.save, list(judged.judgements))
    return judged.judgements[0]


async def _kept(
    settings: Settings, policy: Policy, candidates: Sequence[ReflectionCandidate]
) -> str:
    best = accepted(candidates, policy.name, policy.version)
    if best is None:
        scores = [c.score.total for c in candidates if c.score and not c.fault]
        why = f"the best scored {max(scores):.2f}" if scores else _why_none(candidates)
        return f"no reflection on this run was good enough to be kept: {why}"
    await open_bank(settings).put(best)
    return f"kept reflection {best.id}, which scored {best.score:.2f}"


def _why_none(candidates: Sequence[ReflectionCandidate]) -> str:
    reasons = [c.unscored_reason or c.fault for c in candidates]
    return reasons[0] if reasons else "none was written"


def _save(path: Path, candidates: Sequence[ReflectionCandidate]) -> None:
    write_atomically(path, _CANDIDATES.dump_json(list(candidates)).decode())
