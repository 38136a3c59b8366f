"""How a question's rubrics evolve: criteria are added, scored, and pruned by their variance.

Pure functions from one `RubricBuffer` to the next; the number of items in it stays bounded,
because pruning follows every scoring of a group (RubricEM, arXiv:2605.10899, appendix C).
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import pvariance

from memory.rubrics import ChangeKind, Criteria, RubricBuffer, RubricChange, meaning
from memory.schema import Criterion, Stage

CAPS: Mapping[Stage, int] = {
    Stage.PLAN: 3,
    Stage.RESEARCH: 2,
    Stage.REVIEW: 2,
    Stage.ANSWER: 3,
}
"""active criteria that survive pruning"""
LEAST_VARIANCE = 1e-4
"""of points (0 to 2): a probability read twice differs in its last digits"""

Changes = Sequence[tuple[Stage, ChangeKind, Criterion, str]]
"""what happened to which criterion of which stage, and why"""
Points = Mapping[Stage, Mapping[str, Sequence[float]]]
"""stage -> criterion's key -> its points, one for each trajectory that was scored on it"""


def add(
    buffer: RubricBuffer, proposed: Mapping[Stage, Sequence[Criterion]], step: int, reason: str
) -> RubricBuffer:
    """The buffer with new criteria; what says the same as one in force is left out.

    The opposite of one in force counts as the same. A retired one that is proposed again
    returns. Persistent ones go where they are never pruned.
    """
    persistent, active, retired = dict(buffer.persistent), dict(buffer.active), dict(buffer.retired)
    changes: list[tuple[Stage, ChangeKind, Criterion, str]] = []
    for stage, criteria in proposed.items():
        known = {meaning(criterion) for criterion in buffer.criteria(stage)}
        for criterion in criteria:
            if meaning(criterion) in known:
                continue
            known.add(meaning(criterion))
            place = persistent if criterion.persistent else active
            place[stage] = (*place.get(stage, ()), criterion)
            before = retired.get(stage, ())
            retired[stage] = tuple(c for c in before if meaning(c) != meaning(criterion))
            kind: ChangeKind = "added" if retired[stage] == before else "returned"
            changes.append((stage, kind, criterion, reason))
    return changed(buffer, persistent, active, retired, step, changes)


def prune(
    buffer: RubricBuffer, points: Points, step: int, caps: Mapping[Stage, int] = CAPS
) -> RubricBuffer:
    """The buffer without active criteria that separate nothing, and within the caps.

    A stage is pruned only if two trajectories have points on each of its active criteria.
    First go those on which all trajectories agree, then over the cap those of the lowest
    variance, of equals the newest.
    """
    active, retired = dict(buffer.active), dict(buffer.retired)
    changes: list[tuple[Stage, ChangeKind, Criterion, str]] = []
    for stage, criteria in buffer.active.items():
        given = points.get(stage, {})
        if not criteria or any(len(given.get(c.key, ())) < 2 for c in criteria):
            continue
        variance = {c.key: pvariance(given[c.key]) for c in criteria}
        gone = {c.key: "all runs agree on it" for c in criteria if variance[c.key] < LEAST_VARIANCE}
        ranked = sorted((c for c in criteria if c.key not in gone), key=lambda c: -variance[c.key])
        gone |= {c.key: f"over the cap of {caps[stage]}" for c in ranked[caps[stage] :]}
        leaving = [c for c in criteria if c.key in gone]
        active[stage] = tuple(c for c in criteria if c.key not in gone)
        retired[stage] = (*retired.get(stage, ()), *leaving)
        changes += [
            (stage, "retired", c, f"{gone[c.key]} (variance {variance[c.key]:.4f})")
            for c in leaving
        ]
    return changed(buffer, buffer.persistent, active, retired, step, changes)


def changed(
    buffer: RubricBuffer,
    persistent: Criteria,
    active: Criteria,
    retired: Criteria,
    step: int,
    changes: Changes,
) -> RubricBuffer:
    """The next version; the same buffer if nothing changed."""
    if not changes:
        return buffer
    version = buffer.version + 1
    lines = (
        RubricChange(
            version=version, step=step, stage=stage, kind=kind, criterion=criterion, reason=reason
        )
        for stage, kind, criterion, reason in changes
    )
    return buffer.model_copy(
        update={
            "version": version,
            "persistent": persistent,
            "active": active,
            "retired": retired,
            "history": tuple(chain(buffer.history, lines)),
        }
    )
