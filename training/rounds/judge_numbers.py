"""What the judge gave a round: rewards by stage and criterion, what it left unscored, its cost."""

from collections.abc import Iterable, Sequence

from judge.scoring import without_criteria
from memory.schema import NO_USAGE, Stage, StageScore
from training.rounds.rows import JudgedGroup
from training.rounds.spread import Numbers, share, spread
from training.watching.intervals import mean_interval

FULL = 2.0
"""points of a criterion that holds wholly"""


def judge_numbers(groups: Sequence[JudgedGroup]) -> Numbers:
    """Rewards and points are in [0, 1]; a flaw that is not there has 1 point, as it is scored."""
    by_stage = {stage: stage_scores(groups, stage) for stage in Stage}
    numbers: Numbers = {}
    for stage, scores in by_stage.items():
        numbers |= spread(f"reward/{stage}", _known(scores))
        numbers |= spread(f"criterion/{stage}", _criteria(scores), ("mean", "min", "max"))
        judged = [score for score in scores if score is not None]
        numbers |= share(f"missing_share/{stage}", (score.missing for score in judged))
    every = [score for scores in by_stage.values() for score in scores]
    numbers |= spread("reward", _known(every))
    asked = [score for score in every if not without_criteria(score)]
    return {
        **numbers,
        **share("unscored_share", (score is None or score.score is None for score in asked)),
        **share("no_criteria_share", map(without_criteria, every)),
        **share("judge/failed_share", (s.score is None for s in asked if s is not None)),
        **_spent(groups),
        **spread("seconds/judge_group", _seconds(groups), ("mean", "max")),
    }


def reward_intervals(groups: Sequence[JudgedGroup]) -> Numbers:
    """The ends of the 95% interval of each stage's mean reward, where two are known."""
    numbers: Numbers = {}
    for stage in Stage:
        ends = mean_interval(_known(stage_scores(groups, stage)))
        if ends is not None:
            numbers |= dict(zip((f"reward/{stage}/low", f"reward/{stage}/high"), ends, strict=True))
    return numbers


def stage_scores(groups: Sequence[JudgedGroup], stage: Stage) -> list[StageScore | None]:
    """Of each run; None: it was not judged."""
    found: list[StageScore | None] = []
    for one in groups:
        judged = {judgement.trajectory_id: judgement for judgement in one.judgements}
        for run in one.group.trajectories:
            stages = judged[run.id].stages if run.id in judged else ()
            found.append(next((score for score in stages if score.stage is stage), None))
    return found


def _known(scores: Iterable[StageScore | None]) -> list[float]:
    return [s.score for s in scores if s is not None and s.score is not None]


def _criteria(scores: Iterable[StageScore | None]) -> list[float]:
    """The mean of each criterion over all runs that it was asked of."""
    points: dict[str, list[float]] = {}
    for verdict in (v for score in scores if score is not None for v in score.verdicts):
        part = verdict.points / FULL
        held = part if verdict.criterion.positive else 1 - part
        points.setdefault(verdict.criterion.key, []).append(held)
    return [sum(held) / len(held) for held in points.values()]


def _seconds(groups: Sequence[JudgedGroup]) -> list[float]:
    return [one.judging_seconds for one in groups if one.judging_seconds is not None]


def _spent(groups: Sequence[JudgedGroup]) -> Numbers:
    """What scoring and proposing took; a cost only where every price is known."""
    usage = sum((one.judging for one in groups), NO_USAGE)
    if not usage.calls:
        return {}
    cost = {} if usage.cost is None else {"judge/cost": usage.cost}
    return {
        "judge/calls": float(usage.calls),
        "judge/tokens_read": float(usage.prompt_tokens),
        "judge/tokens_written": float(usage.completion_tokens),
        **cost,
    }
