"""A finished trajectory as verl takes one: a prompt, a response, a mask and log-probabilities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from judge.scoring import without_criteria
from memory.schema import Decoding, Judgement, Stage, Trajectory
from training.sequences import NO_STAGE, TokenSequence, token_sequence

UNKNOWN, ABSENT = -1.0, -2.0
"""in the place of a score, for a stage that has none: not known; its rubric had no item"""


@dataclass(frozen=True, slots=True)
class Response:
    """Of one rollout; the last four have one entry for each token of the response."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    mask: tuple[int, ...]
    """1 where the policy wrote it"""
    logprobs: tuple[float, ...]
    """natural log, of the sampler; 0 where the mask is"""
    stages: tuple[int, ...]
    """0 to 3, -1 where the policy did not write"""


def response_of(trajectory: Trajectory, most: int) -> Response:
    """The first `most` tokens of what followed the prompt.

    Raises ValueError for a rollout whose tokens are not those that were sampled: a ratio to them
    would mean nothing.
    """
    tokens = token_sequence(trajectory.segments)
    if tokens is None or not tokens.sampled or trajectory.decoding is not Decoding.FREE:
        raise ValueError(f"the tokens of {trajectory.id} are not those that were sampled")
    return _cut(tokens, slice(tokens.prompt, tokens.prompt + most))


def _cut(tokens: TokenSequence, response: slice) -> Response:
    written = tokens.written[response]
    pairs = zip(tokens.stages[response], written, strict=True)
    return Response(
        prompt=tokens.ids[: tokens.prompt],
        ids=tokens.ids[response],
        mask=tuple(map(int, written)),
        logprobs=tokens.logprobs[response],
        stages=tuple(stage if on else NO_STAGE for stage, on in pairs),
    )


def told(judgement: Judgement) -> dict[str, float]:
    """The score of each stage by its name, as numbers alone: verl makes metrics of them."""
    stages = {score.stage: score for score in judgement.stages}
    found = {}
    for stage in Stage:
        score = stages.get(stage)
        known = score.score if score is not None else None
        found[stage.value] = (
            known if known is not None else (ABSENT if without_criteria(score) else UNKNOWN)
        )
    return found


def read_back(told: Mapping[str, float]) -> tuple[Sequence[float | None], Sequence[bool]]:
    """The scores of all stages, None where not known, and which had no rubric item."""
    values = [float(told.get(stage.value, UNKNOWN)) for stage in Stage]
    return [v if v >= 0 else None for v in values], [v == ABSENT for v in values]
