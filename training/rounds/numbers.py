"""One round in numbers: rewards, spread, advantages, lengths, form, staleness and time.

All are floats under flat names: `reward/answer/mean`, `seconds/judge`. A mean is over what has a
value; a name without any value is left out, so a missing score is never a 0. Scores and shares
are in [0, 1], lengths in tokens, times in seconds.
"""

from collections import Counter
from collections.abc import Sequence

from memory.schema import Stage, Trajectory
from training.best_of import mean_best_of
from training.compiling import group_advantages
from training.groups import member_of
from training.rounds.form_numbers import form_numbers
from training.rounds.judge_numbers import judge_numbers
from training.rounds.rows import JudgedGroup, RoundRows
from training.rounds.spread import Numbers, share, spread
from training.rounds.updating import Metrics
from training.row_rule import RowRule
from training.watching.window_numbers import advantage_numbers

REFLECT = "reflect_"
"""before the name of a number that is of the reflections' update alone"""


def numbers_of(groups: Sequence[JudgedGroup], rule: RowRule) -> Numbers:
    """What was sampled and how it was judged."""
    runs = [trajectory for one in groups for trajectory in one.group.trajectories]
    failed = sum(len(one.group.failures) for one in groups)
    numbers = {"groups": float(len(groups)), "rollouts": float(len(runs) + failed),
               "failed_share": failed / max(len(runs) + failed, 1)}  # fmt: skip
    numbers |= judge_numbers(groups) | _best_of(groups) | _positions(groups) | _flat(groups, rule)
    return numbers | form_numbers(runs)


def rows_numbers(rollouts: RoundRows, reflections: RoundRows) -> Numbers:
    """What is trained of it, how old that is, and what was dropped."""
    dropped = Counter(rollouts.dropped) + Counter(reflections.dropped)
    lags = [part.staleness for part in (rollouts, reflections) for _ in part.rows]
    return {
        "rows/policy": float(len(rollouts.rows)),
        "rows/reflect": float(len(reflections.rows)),
        "groups/trained": float(len({row.group for row in rollouts.rows})),
        **spread("staleness", lags, ("mean", "max")),
        **advantage_numbers(rollouts.rows),
        "dropped": float(dropped.total()),
        **{f"dropped/{reason}": float(count) for reason, count in sorted(dropped.items())},
    }


def both_updates(reflected: Metrics, trained: Metrics) -> Metrics:
    """What the update of the rollouts measured, and beside it that of the reflections before it.

    The one of the two that there is where the other had no row.
    """
    if not reflected or not trained:
        return reflected or trained
    beside = reflected.keys() & {"grad_norm", "tokens", "seconds"}
    told = {f"{REFLECT}{name}": reflected[name] for name in beside}
    own = {name: value for name, value in reflected.items() if name.startswith(REFLECT)}
    return {**trained, **told, **own}


def _best_of(groups: Sequence[JudgedGroup]) -> Numbers:
    """The answer score that the best of n rollouts is expected to have, where there are two."""
    scores = [[s for _, s in _answers(one) if s is not None] for one in groups]
    found = mean_best_of(scores)
    if len(found.scores) < 2:
        return {}
    curve = {f"best_of/{n}": value for n, value in enumerate(found.scores, 1)}
    return curve | {"best_of/groups": float(found.groups)}


def _positions(groups: Sequence[JudgedGroup]) -> Numbers:
    """By a member's place in its group, 0 being shown most of the rubric; {} without scaffolds."""
    scores: dict[int, list[float]] = {}
    shown: dict[int, list[float]] = {}
    for run, score in (pair for one in groups for pair in _answers(one)):
        place = member_of(run.thread)
        shown.setdefault(place, []).append(float(run.scaffold.shown if run.scaffold else 0))
        scores.setdefault(place, []).extend([] if score is None else [score])
    if not any(map(any, shown.values())):
        return {}
    numbers: Numbers = {}
    for place in sorted(shown):
        numbers |= spread(f"scaffold/{place}/shown", shown[place], ("mean",))
        numbers |= spread(f"scaffold/{place}/reward", scores[place], ("mean",))
    return numbers


def _answers(one: JudgedGroup) -> list[tuple[Trajectory, float | None]]:
    """Each run of a group with the score of its answer."""
    judged = {judgement.trajectory_id: judgement for judgement in one.judgements}
    return [
        (run, judged[run.id].score(Stage.ANSWER) if run.id in judged else None)
        for run in one.group.trajectories
    ]


def _flat(groups: Sequence[JudgedGroup], rule: RowRule) -> Numbers:
    """The share of groups whose members' returns are too alike, or too few, to teach a stage."""
    flat: dict[Stage, list[bool]] = {stage: [] for stage in Stage}
    for one in groups:
        found = {judgement.trajectory_id: judgement for judgement in one.judgements}
        judged = [found.get(run.id) for run in one.group.trajectories]
        if judged:
            values, _ = group_advantages(judged, rule)
            for number, stage in enumerate(Stage):
                flat[stage].append(not values[:, number].any())
    numbers: Numbers = {}
    for stage, told in flat.items():
        numbers |= share(f"groups_without_spread/{stage}", told)
    return numbers


def reflection_numbers(groups: Sequence[JudgedGroup]) -> Numbers:
    """How the policy's reflections of a round were judged; they are all there once it is kept."""
    found = [c for one in groups if one.reflected for c in one.reflected.candidates]
    candidates = [candidate for candidate in found if not candidate.held]
    scores = [c.score.total for c in candidates if c.score is not None]
    return {
        **spread("reflection/score", scores, ("mean", "max")),
        **share("reflection/malformed_share", (bool(c.fault) for c in candidates)),
    }
