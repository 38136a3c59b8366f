"""The rows of a round, read from its finished parts: as soon as all of it is judged, and reflected.

A round's rollouts are trained in its own update, its reflections in the next one, because they
are written while that update goes on (RubricEM, arXiv:2605.10899, appendix D).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from judge.stage_judge import GroupJudgement
from memory.schema import NO_USAGE, Judgement, Status, TrajectoryGroup, Usage
from training.compiling import Compiled, policy_rows, reflection_rows
from training.groups import Reflected, group_name, judged_part, reflected_part, thread_of
from training.row_rule import RowRule
from training.rows import TrainRow
from training.run_directory import RunDirectory

STALE = "older than {} updates"
NO_RATIO = "retokenised or forced"
TOO_LONG = "longer than {} tokens"


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """A group of a round as its parts on disk have it."""

    name: str
    """unique among all rounds"""
    group: TrajectoryGroup
    judgements: tuple[Judgement, ...]
    reflected: Reflected | None
    judging: Usage = NO_USAGE
    """of scoring and of proposing criteria"""
    judging_seconds: float | None = None
    """None: it was not judged, or by a version that did not note it"""


@dataclass(frozen=True, slots=True)
class RoundRows:
    """What an update trains of a round, and what it does not, by reason."""

    rows: tuple[TrainRow, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    staleness: int = 0
    """updates between the policy that wrote the rows and the one that they train"""


def judged_groups(run: RunDirectory, number: int) -> list[JudgedGroup]:
    """The groups of a round in the order of its questions."""
    asked, size = run.questions(), run.manifest().group_size
    return [_group(run, number, place, size) for place in range(len(asked))]


def rollout_rows(groups: Sequence[JudgedGroup], rule: RowRule) -> Compiled:
    """Rows of all rollouts; each group is whole, since none is judged before it is."""
    found = Compiled()
    for one in groups:
        found += policy_rows(one.group, one.judgements, rule, name=one.name)
    return found


def reflected_rows(groups: Sequence[JudgedGroup], policy_version: str) -> Compiled:
    """Rows of all reflections, those on one trajectory against their own mean."""
    found = Compiled()
    for one in groups:
        candidates = one.reflected.candidates if one.reflected else ()
        found += reflection_rows(candidates, policy_version=policy_version)
    return found


def usable(found: Compiled, staleness: int, max_staleness: int, max_row_tokens: int) -> RoundRows:
    """The rows that may be trained, each of which lags by `staleness` updates."""
    kept: list[TrainRow] = []
    dropped = Counter(found.dropped)
    for row in found.rows:
        if staleness > max_staleness:
            dropped[STALE.format(max_staleness)] += 1
        elif not row.ratio_allowed:
            dropped[NO_RATIO] += 1
        elif len(row.ids) > max_row_tokens:
            dropped[TOO_LONG.format(max_row_tokens)] += 1
        else:
            kept.append(row)
    return RoundRows(tuple(kept), dict(dropped), staleness)


def lag(versions: Sequence[str], sampled: Sequence[int], number: int, updates: int) -> int:
    """By how many updates the policy of a round lags behind one with so many updates.

    `versions` are those that the rounds up to this one were sampled from, as their policies name
    themselves, and `sampled` the updates that each was to have. A policy that gives the name that
    an earlier round was given is that earlier one: a server that was not refreshed is found so.
    A round that trained nothing left the policy as it was, and is no update in any of the counts.
    """
    first = versions.index(versions[number])
    return updates - sampled[first]


def _group(run: RunDirectory, number: int, place: int, size: int) -> JudgedGroup:
    name = group_name(0, place)
    runs = [run.store.load(thread_of(name, member)) for member in range(size)]
    judged = run.part(0, judged_part(name), GroupJudgement)
    return JudgedGroup(
        name=f"r{number:03d}-{name}",
        group=TrajectoryGroup(
            question=run.questions()[place].question,
            trajectories=tuple(t for t in runs if t.status is not Status.FAILED),
            failures=tuple(t.reason for t in runs if t.status is Status.FAILED),
        ),
        judgements=judged.judgements if judged else (),
        reflected=run.part(0, reflected_part(name), Reflected),
        judging=_judging(judged) if judged else NO_USAGE,
        judging_seconds=judged.seconds if judged else None,
    )


def _judging(judged: GroupJudgement) -> Usage:
    return sum((one.usage for one in judged.judgements), judged.usage)
