"""What came of learning from a run, as a value and in a sentence for a person."""

from collections.abc import Sequence
from typing import Literal

from memory.asking import told
from memory.errors import RubricemError
from memory.schema import Reflection, ReflectionCandidate, Trajectory, Value

Outcome = Literal["kept", "quarantined", "set aside", "nothing", "skipped", "queued"]
"""`kept`: in the bank. `quarantined`: there, but not recalled until a person releases it. `set
aside`: in the history alone. `nothing`: none was good enough. `queued`: learning failed."""


class Lesson(Value):
    """What came of learning from a run."""

    thread: str
    outcome: Outcome
    said: str
    """in a sentence"""
    reflection: str = ""
    """id of the one that was put into the bank"""
    score: float | None = None


def skipped(thread: str, why: str) -> Lesson:
    return Lesson(thread=thread, outcome="skipped", said=why)


def failed(thread: str, error: RubricemError) -> Lesson:
    """Of a run that could not be learnt from, and waits."""
    said = f"nothing was learnt from this run: {told(error)}"
    return Lesson(thread=thread, outcome="queued", said=said)


def lesson_of(
    trajectory: Trajectory,
    best: Reflection | None,
    candidates: Sequence[ReflectionCandidate],
    standing: Reflection | None,
) -> Lesson:
    """`best` was put into the bank, whose word on the question is now `standing`."""
    outcome, said = _put(best, standing) if best else _none(trajectory, candidates, standing)
    return Lesson(
        thread=trajectory.thread,
        outcome=outcome,
        said=said,
        reflection=best.id if best else "",
        score=best.score if best else None,
    )


def _put(best: Reflection, standing: Reflection | None) -> tuple[Outcome, str]:
    if best.flags:
        held = f"reflection {best.id} is held in quarantine: {best.flags[0].rstrip('.')}"
        return "quarantined", f"{held}. Release it by: rubricem bank release {best.id}"
    if standing is None or standing.id != best.id:
        why = f"{standing.id} stands, pinned" if standing else "a person disabled or removed it"
        return "set aside", f"reflection {best.id} is not recalled: {why}"
    return "kept", f"kept reflection {best.id}, which scored {best.score:.2f}"


def _none(
    trajectory: Trajectory,
    candidates: Sequence[ReflectionCandidate],
    standing: Reflection | None,
) -> tuple[Outcome, str]:
    scores = [c.score.total for c in candidates if c.score and not c.fault]
    below = ", below least_reflection_score"
    why = f"the best scored {max(scores):.2f}{below}" if scores else _why_unscored(candidates)
    mine = standing is not None and standing.trajectory_id == trajectory.id
    stays = f"; {standing.id}, which it taught before, stands" if standing and mine else ""
    return "nothing", f"no reflection on this run was good enough to be kept: {why}{stays}"


def _why_unscored(candidates: Sequence[ReflectionCandidate]) -> str:
    reasons = [c.unscored_reason or c.fault for c in candidates]
    return reasons[0] if reasons else "none was written"
