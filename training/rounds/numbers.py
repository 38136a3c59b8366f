"""The metrics of a round: rewards, spread, advantages, lengths, form, staleness and time.

They cover the judge's scores by stage, what it left unscored and its cost, and the form of the
rollouts. All are floats under flat names: `reward/answer/mean`, `seconds/train`. A mean
is over existing values; a name without any value is left out, so a missing score is never 0. Scores
and shares are in [0, 1], lengths in tokens, times in seconds.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from rubricem.agent.evaluate.results import bootstrap_mean
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.transcript.scaffold import find_violation, tool_error
from rubricem.judge.base import answer_text, stage_text
from rubricem.judge.evidence import copied_share
from rubricem.memory.language import sentences
from rubricem.memory.schema import (
    NO_USAGE,
    SUPPORT,
    Author,
    Segment,
    Stage,
    StageScore,
    Status,
    Trajectory,
    is_left_out,
)
from rubricem.training.rounds.update import RoundGroup, RoundRows
from rubricem.training.rows.credit import RowRule
from rubricem.training.statistics import Numbers, advantage_numbers, share_if_any, spread


def form_numbers(runs: Sequence[Trajectory]) -> Numbers:
    """Lengths are in tokens, and left out where the server gave no ids."""
    numbers: Numbers = {}
    for author in Author:
        numbers |= spread(f"tokens/{author}", _lengths(runs, author, None), ("mean", "max"))
        for stage in Stage:
            lengths = _lengths(runs, author, stage)
            numbers |= spread(f"tokens/{author}/{stage}", lengths, ("mean",))
    turns = [float(max((s.turn for s in run.segments if s.kept), default=0)) for run in runs]
    written = (s for run in runs for s in _of(run, Author.POLICY))
    outputs = (s.text.strip() for run in runs for s in _of(run, Author.TOOL))
    return {
        **numbers,
        **spread("turns", turns, ("mean",)),
        **spread("tool_calls", [float(run.tool_calls) for run in runs], ("mean",)),
        **share_if_any("tool_error_share", (tool_error(text) is not None for text in outputs)),
        **share_if_any("cut_off_share", (run.status is not Status.FINISHED for run in runs)),
        **share_if_any("malformed_share", (find_violation(run) is not None for run in runs)),
        **share_if_any("retokenised_share", (segment.retokenised for segment in written)),
    }


def guard_numbers(runs: Iterable[Trajectory]) -> Numbers:
    """What rises where a reward is pleased by form: of answers that are whole."""
    told = [(r, answer_text(r)) for r in runs if r.status is Status.FINISHED]
    words = [float(len(text.split())) for _, text in told]
    many = [max(len(list(sentences(text))), 1) for _, text in told]
    cites = [len(cited_answer(run).citations) / n for (run, _), n in zip(told, many, strict=True)]
    copied = [copied_share(text, stage_text(run, Stage.PLAN)) for run, text in told]
    return {
        **spread("answer_words", words, ("mean", "max")),
        **spread("cites_per_sentence", cites, ("mean",)),
        **spread("copied_rubric_share", copied, ("mean",)),
    }


def _lengths(runs: Iterable[Trajectory], author: Author, stage: Stage | None) -> list[float]:
    """Of each run that has such segments, all with ids; `stage` None: of all stages."""
    found = []
    for run in runs:
        segments = [s for s in _of(run, author) if stage is None or s.stage is stage]
        if segments and all(s.token_ids is not None for s in segments):
            found.append(float(sum(len(s.token_ids or ()) for s in segments)))
    return found


def _of(run: Trajectory, author: Author) -> list[Segment]:
    return [s for s in run.segments if s.kept and s.author is author]


def judge_numbers(groups: Sequence[RoundGroup]) -> Numbers:
    by_stage = {stage: _scores_at(groups, stage) for stage in Stage}
    numbers: Numbers = {}
    for stage, scores in by_stage.items():
        numbers |= spread(f"reward/{stage}", _score_values(scores))
        judged = [score for score in scores if score is not None]
        numbers |= share_if_any(f"missing_share/{stage}", (score.missing for score in judged))
    every = [score for scores in by_stage.values() for score in scores]
    supports = (s.components.get(SUPPORT) for s in by_stage[Stage.ANSWER] if s is not None)
    numbers |= spread("support", [support for support in supports if support is not None])
    numbers |= spread("reward", _score_values(every))
    asked = [score for score in every if not is_left_out(score)]
    return {
        **numbers,
        **share_if_any("unscored_share", (s is None or s.score is None for s in asked)),
        **share_if_any("no_criteria_share", (is_left_out(s) for s in every)),
        **share_if_any("judge/failed_share", (s.score is None for s in asked if s is not None)),
        **_judging_costs(groups),
    }


def reward_intervals(groups: Sequence[RoundGroup]) -> Numbers:
    """The ends of the 95% interval of each stage's mean reward, where two are known."""
    numbers: Numbers = {}
    for stage in Stage:
        values = _score_values(_scores_at(groups, stage))
        if len(values) > 1:
            low, high = bootstrap_mean(values)
            numbers |= {f"reward/{stage}/low": low, f"reward/{stage}/high": high}
    return numbers


def _scores_at(groups: Sequence[RoundGroup], stage: Stage) -> list[StageScore | None]:
    """Of each run; None: it was not judged."""
    judged = (judgement for one in groups for judgement in one.judged)
    return [judgement.at(stage) if judgement else None for judgement in judged]


def _score_values(scores: Iterable[StageScore | None]) -> list[float]:
    return [s.score for s in scores if s is not None and s.score is not None]


def _judging_costs(groups: Sequence[RoundGroup]) -> Numbers:
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


def numbers_of(groups: Sequence[RoundGroup], rule: RowRule) -> Numbers:
    runs = [trajectory for one in groups for trajectory in one.group.trajectories]
    failed = sum(len(one.group.failures) for one in groups)
    numbers = {"groups": float(len(groups)), "rollouts": float(len(runs) + failed),
               "failed_share": failed / max(len(runs) + failed, 1)}  # fmt: skip
    return (
        numbers
        | judge_numbers(groups)
        | _flat(groups, rule)
        | form_numbers(runs)
        | guard_numbers(runs)
    )


def rows_numbers(rollouts: RoundRows, reflections: RoundRows) -> Numbers:
    """What is trained of it, how old that is, and what was dropped."""
    dropped = Counter(rollouts.dropped) + Counter(reflections.dropped)
    lags = [*rollouts.lags, *reflections.lags]
    return {
        "rows/policy": float(len(rollouts.rows)),
        "rows/reflect": float(len(reflections.rows)),
        "rows/cut": float(sum(bool(r.cut_tokens) for r in (*rollouts.rows, *reflections.rows))),
        "groups/trained": float(len({row.group for row in rollouts.rows})),
        **spread("staleness", lags, ("mean", "max")),
        **advantage_numbers(rollouts.rows),
        "dropped": float(dropped.total()),
        **{f"dropped/{reason}": float(count) for reason, count in sorted(dropped.items())},
    }


def _flat(groups: Sequence[RoundGroup], rule: RowRule) -> Numbers:
    """The share of groups whose members' returns are too alike, or too few, to teach a stage."""
    flat: dict[Stage, list[bool]] = {stage: [] for stage in Stage}
    dropped = 0
    for one in groups:
        if one.judged:
            values, _ = rule.advantages(one.judged)
            dropped += not values.any()
            for number, stage in enumerate(Stage):
                flat[stage].append(not values[:, number].any())
    numbers: Numbers = {"groups/dropped": float(dropped)}
    for stage, told in flat.items():
        numbers |= share_if_any(f"groups_without_spread/{stage}", told)
    return numbers


def reflection_numbers(groups: Sequence[RoundGroup]) -> Numbers:
    """How the policy's reflections of a round were judged; they are all there once it is kept."""
    found = [c for one in groups if one.reflected for c in one.reflected.candidates]
    candidates = [candidate for candidate in found if not candidate.held]
    scores = [c.score.total for c in candidates if c.score is not None]
    return {
        **spread("reflection/score", scores, ("mean", "max")),
        **share_if_any("reflection/malformed_share", (bool(c.fault) for c in candidates)),
    }
