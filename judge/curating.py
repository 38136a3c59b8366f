"""Rubrics changed by hand: kept for good, retired, or brought in from elsewhere.

Every change stands in the buffer's history, as those of the judge do.
"""

from collections.abc import Mapping, Sequence

from judge.buffer import Changes, add, changed
from memory.errors import SettingsError
from memory.rubrics import RubricBuffer, same
from memory.schema import Criterion, Stage

BY_HAND = "by hand"


def pin(buffer: RubricBuffer, key: str) -> RubricBuffer:
    """With the criterion of this key, or of a key that begins so, kept for good.

    One that was retired comes back. Raises SettingsError unless there is exactly one.
    """
    stage, criterion = _one(buffer, key, "active", "retired", wanted="could be pinned")
    kept = criterion.model_copy(update={"persistent": True})
    persistent = dict(buffer.persistent)
    persistent[stage] = (*persistent.get(stage, ()), kept)
    active, retired = _without(buffer.active, kept), _without(buffer.retired, kept)
    changes: Changes = [(stage, "pinned", kept, BY_HAND)]
    return changed(buffer, persistent, active, retired, _step(buffer), changes)


def retire(buffer: RubricBuffer, key: str, reason: str = "") -> RubricBuffer:
    """Without the criterion of this key in force, even if it was kept for good."""
    stage, criterion = _one(buffer, key, "persistent", "active", wanted="is in force")
    retired = dict(buffer.retired)
    retired[stage] = (*retired.get(stage, ()), criterion)
    persistent, active = _without(buffer.persistent, criterion), _without(buffer.active, criterion)
    why = f"{BY_HAND}: {reason}" if reason else BY_HAND
    changes: Changes = [(stage, "retired", criterion, why)]
    return changed(buffer, persistent, active, retired, _step(buffer), changes)


def bring_in(
    buffer: RubricBuffer, criteria: Mapping[Stage, Sequence[Criterion]], reason: str
) -> RubricBuffer:
    """With criteria from elsewhere; those that say the same as one in force are left out."""
    return add(buffer, criteria, _step(buffer), reason)


def _one(buffer: RubricBuffer, key: str, *shelves: str, wanted: str) -> tuple[Stage, Criterion]:
    found = [
        (stage, criterion)
        for shelf in shelves
        for stage, criteria in getattr(buffer, shelf).items()
        for criterion in criteria
        if criterion.key.startswith(key)
    ]
    if len(found) != 1 or not key:
        many = f"{len(found)} criteria of this question" if found else "No criterion that"
        told = f"{many} {'begin' if found else wanted + ' begins'} with {key!r}."
        raise SettingsError(told, "Give a key from: rubricem judge rubrics show")
    return found[0]


def _without(
    criteria: Mapping[Stage, tuple[Criterion, ...]], gone: Criterion
) -> dict[Stage, tuple[Criterion, ...]]:
    return {
        stage: tuple(c for c in listed if not same(c, gone)) for stage, listed in criteria.items()
    }


def _step(buffer: RubricBuffer) -> int:
    """Changes by hand belong to the step that came before them."""
    return max((change.step for change in buffer.history), default=0)
