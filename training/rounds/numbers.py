"""One round in numbers: rewards, spread, advantages, lengths, form, staleness and time.

All are floats under flat names: `reward/answer/mean`, `seconds/judge`. A mean is over what has a
value; a name without any value is left out, so a missing score is never a 0. Scores and shares
are in [0, 1], lengths in tokens, times in seconds.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from agent.rejection import rejected
from memory.schema import Author, Stage, Status, Trajectory
from training.best_of import mean_best_of
from training.compiling import group_advantages
from training.groups import member_of
from training.rounds.rows import JudgedGroup, RoundRows
from training.row_rule import RowRule
from training.rows import TrainRow

Numbers = dict[str, float]


def numbers_of(groups: Sequence[JudgedGroup], rule: RowRule) -> Numbers:
    """What was sampled and how it was judged."""
    runs = [trajectory for one in groups for trajectory in one.group.trajectories]
    failed = sum(len(one.group.failures) for one in groups)
    numbers = {"groups": float(len(groups)), "rollouts": float(len(runs) + failed),
               "failed_share": failed / max(len(runs) + failed, 1)}  # fmt: skip
    numbers |= _rewards(groups) | _best_of(groups) | _positions(groups) | _flat(groups, rule)
    return numbers | _form(runs) | _reflected(groups)


def rows_numbers(rollouts: RoundRows, reflections: RoundRows) -> Numbers:
    """What is trained of it, how old that is, and what was dropped."""
    dropped = Counter(rollouts.dropped) + Counter(reflections.dropped)
    lags = [part.staleness for part in (rollouts, reflections) for _ in part.rows]
    return {
        "rows/policy": float(len(rollouts.rows)),
        "rows/reflect": float(len(reflections.rows)),
        **_spread("staleness", lags, ("mean", "max")),
        **_advantages(rollouts.rows),
        "dropped": float(dropped.total()),
        **{f"dropped/{reason}": float(count) for reason, count in sorted(dropped.items())},
    }


def _rewards(groups: Sequence[JudgedGroup]) -> Numbers:
    scores: dict[Stage, list[float | None]] = {stage: [] for stage in Stage}
    for one in groups:
        judged = {judgement.trajectory_id: judgement for judgement in one.judgements}
        for run in one.group.trajectories:
            for stage in Stage:
                found = judged.get(run.id)
                scores[stage].append(found.score(stage) if found else None)
    numbers: Numbers = {}
    for stage, values in scores.items():
        numbers |= _spread(f"reward/{stage}", [v for v in values if v is not None])
    every = [value for values in scores.values() for value in values]
    return numbers | _share("unscored_share", (value is None for value in every))


def _best_of(groups: Sequence[JudgedGroup]) -> Numbers:
    """The answer score that the best of n rollouts is expected to have, where there are two."""
    scores = [[s for _, s in _answers(one) if s is not None] for one in groups]
    curve = mean_best_of(scores)
    return {f"best_of/{n}": value for n, value in enumerate(curve, 1)} if len(curve) > 1 else {}


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
        numbers |= _spread(f"scaffold/{place}/shown", shown[place], ("mean",))
        numbers |= _spread(f"scaffold/{place}/reward", scores[place], ("mean",))
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
        numbers |= _share(f"groups_without_spread/{stage}", told)
    return numbers


def _advantages(rows: Iterable[TrainRow]) -> Numbers:
    """Of each trained stage of each row, in the units of the rule."""
    stages: dict[Stage, list[float]] = {stage: [] for stage in Stage}
    for row in rows:
        trained = zip(row.stages, row.advantages, row.loss_mask, strict=True)
        of_stage = {stage: advantage for stage, advantage, on in trained if on}
        for number, stage in enumerate(Stage):
            if number in of_stage:
                stages[stage].append(of_stage[number])
    numbers: Numbers = {}
    for stage, values in stages.items():
        numbers |= _spread(f"advantage/{stage}", values, ("mean", "std"))
        numbers |= _spread(f"advantage/{stage}/size", list(map(abs, values)), ("max",))
        numbers |= _share(f"advantage/{stage}/positive_share", (value > 0 for value in values))
    return numbers


def _form(runs: Sequence[Trajectory]) -> Numbers:
    numbers: Numbers = {}
    for author in Author:
        lengths = [_tokens(run, author) for run in runs]
        known = [float(length) for length in lengths if length is not None]
        numbers |= _spread(f"tokens/{author}", known, ("mean", "max"))
    turns = [float(max((s.turn for s in run.segments if s.kept), default=0)) for run in runs]
    return {
        **numbers,
        **_spread("turns", turns, ("mean",)),
        **_spread("tool_calls", [float(run.tool_calls) for run in runs], ("mean",)),
        **_share("cut_off_share", (run.status is not Status.FINISHED for run in runs)),
        **_share("malformed_share", (rejected(run) is not None for run in runs)),
    }


def _tokens(run: Trajectory, author: Author) -> int | None:
    """None where the server gave no ids."""
    segments = [s for s in run.segments if s.kept and s.author is author]
    if any(s.token_ids is None for s in segments):
        return None
    return sum(len(s.token_ids or ()) for s in segments)


def _reflected(groups: Sequence[JudgedGroup]) -> Numbers:
    candidates = [c for one in groups if one.reflected for c in one.reflected.candidates]
    scores = [c.score.total for c in candidates if c.score is not None]
    return {
        **_spread("reflection/score", scores, ("mean", "max")),
        **_share("reflection/malformed_share", (bool(c.fault) for c in candidates)),
    }


def _spread(
    name: str, values: Sequence[float], kinds: Sequence[str] = ("mean", "std", "min", "max")
) -> Numbers:
    if not values:
        return {}
    found: Mapping[str, float] = {
        "mean": statistics.fmean(values),
        "std": statistics.pstdev(values),
        "min": float(min(values)),
        "max": float(max(values)),
    }
    return {f"{name}/{kind}": found[kind] for kind in kinds}


def _share(name: str, flags: Iterable[bool]) -> Numbers:
    counted = list(flags)
    return {name: sum(counted) / len(counted)} if counted else {}
