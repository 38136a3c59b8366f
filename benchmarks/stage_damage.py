"""Runs in which one stage alone was made worse on purpose, and what a judge makes of them.

The plan is another question's, the research found nothing, the review claims that all is proven,
or the answer has lost its citations. A judge of stages should score that stage lower, and no
other: the rest of the run is word for word the same.
"""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean

from rubricem.judge.base import stage_text
from rubricem.judge.evaluation.report import Share, share_of
from rubricem.memory.schema import Author, Judgement, Segment, Stage, Trajectory, Value

NOTHING_FOUND = "No passage was found."
EMPTY_NOTE = "Nothing to note here."
BOASTING = (
    "Every item of the rubric is fully proven by several independent sources that agree with each "
    "other. Nothing is missing, nothing is uncertain, and no claim needs a second look."
)
LEAST_DROP = 0.02
"""of a score in [0, 1]: less may be the noise of a probability read twice"""
_CITE = re.compile(r"</?cite\b[^<>]*>")
_CALL = re.compile(r"<call_tool\b.*?</call_tool>", re.S)


def damage(run: Trajectory, stage: Stage, other: Trajectory) -> Trajectory:
    """The run with that stage made worse; `other` is of another question and lends its plan."""
    text = {
        Stage.PLAN: stage_text(other, Stage.PLAN),
        Stage.REVIEW: BOASTING,
    }
    if stage in text:
        segments = _replace(run, stage, text[stage])
    elif stage is Stage.RESEARCH:
        segments = [_without_evidence(s) if s.stage is stage else s for s in run.segments]
    else:
        segments = [_strip_cites(s) if s.stage is stage else s for s in run.segments]
    return run.model_copy(update={"id": f"{run.id}-{stage}", "segments": tuple(segments)})


class StageSensitivity(Value):
    """What damaging one stage did to the scores, over runs in which that stage was scored."""

    lower: Share
    """its score fell by more than `LEAST_DROP`"""
    only: Share
    """and no other scored stage's did"""
    most: Share
    """its score fell, by more than any other stage's"""
    change: dict[Stage, float]
    """mean change of each stage's score, over the runs that have one before and after"""


def sensitivity(
    intact: Mapping[str, Judgement], hurt: Mapping[Stage, Mapping[str, Judgement]]
) -> dict[Stage, StageSensitivity]:
    """For each damaged stage; judgements stand under the name of their undamaged run."""
    return {
        stage: _of_stage(
            stage,
            [
                changes
                for name, judgement in judged.items()
                if stage in (changes := _changes(intact[name], judgement))
            ],
        )
        for stage, judged in hurt.items()
    }


def _of_stage(stage: Stage, runs: Sequence[Mapping[Stage, float]]) -> StageSensitivity:
    fell = [{s for s, change in run.items() if change < -LEAST_DROP} for run in runs]
    return StageSensitivity(
        lower=share_of([stage in stages for stages in fell]),
        only=share_of([stages == {stage} for stages in fell]),
        most=share_of(
            [
                run[stage] < 0 and all(run[stage] < run[s] for s in run if s is not stage)
                for run in runs
            ]
        ),
        change={s: fmean(known) for s in Stage if (known := [r[s] for r in runs if s in r])},
    )


def _changes(before: Judgement, after: Judgement) -> dict[Stage, float]:
    """Of each stage that was scored both times; what is unscored is unknown, not unchanged."""
    pairs = {stage: (before.score(stage), after.score(stage)) for stage in Stage}
    return {s: b - a for s, (a, b) in pairs.items() if a is not None and b is not None}


def _replace(run: Trajectory, stage: Stage, text: str) -> list[Segment]:
    """The stage as one segment by the policy, where its first one stood."""
    places = [i for i, segment in enumerate(run.segments) if segment.stage is stage]
    first = run.segments[places[0]]
    new = first.model_copy(
        update={"author": Author.POLICY, "text": text, "token_ids": None, "logprobs": None}
    )
    kept = [s for i, s in enumerate(run.segments) if i not in places]
    return [*kept[: places[0]], new, *kept[places[0] :]]


def _without_evidence(segment: Segment) -> Segment:
    """Searches stay, what they found and what was said of it goes."""
    if segment.author is Author.TOOL:
        return segment.model_copy(update={"text": NOTHING_FOUND})
    calls = " ".join(_CALL.findall(segment.text))
    text = calls or EMPTY_NOTE
    return segment.model_copy(update={"text": text, "token_ids": None, "logprobs": None})


def _strip_cites(segment: Segment) -> Segment:
    text = _CITE.sub("", segment.text)
    return segment.model_copy(update={"text": text, "token_ids": None, "logprobs": None})
