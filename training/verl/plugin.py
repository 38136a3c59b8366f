"""The plugin that verl loads at its start, in every process: stage-wise GRPO as its estimators.

Found by the entry point `verl.plugins`, or named in VERL_USE_EXTERNAL_MODULES. Its functions can
also be used without verl.

verl takes a prompt, a response, a mask and log-probabilities. verl 0.9 gives an estimator the
rewards of all tokens, the mask and the question's id, and nothing else of the batch, so stages and
their scores are encoded in the rewards: each token of a response has a number, 4 * (s + 1) + c:

- s: its stage, 0 to 3, or -1 for none; 4 throughout a reflection on a rollout;
- c: 0, except for the first K tokens, where it encodes the score of the stage of that number: 0.5
  for one without a rubric item (`absent`), 1 to 2 for a score of 0 to 1, 3 for an unknown one, and
  3.25 + x / (2 + 2x), which is less than 3.75, for a score of -x below 0. The first token of a
  reflection encodes its score in the same way.

A sum over tokens is then meaningless: so are verl's own reward metrics, and its penalty on the
divergence must not be put into the rewards (`algorithm.use_kl_in_reward`). Shapes: B = responses, T
= tokens of the longest, K = stages.

The estimator goes per question from stage scores to returns by the dependence matrix, to advantages
normalised stage by stage over the question's responses, which each policy token gets by its stage
(RubricEM, arXiv:2605.10899, 3.3). Reflections of the question are compared with one another, by
GRPO over the candidates. Rows that verl adds to fill a batch have no token of the policy, and are
in no baseline.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rubricem.memory.schema import Decoding, Stage, Trajectory
from rubricem.training.rows.credit import CREDITS, Dependence, Flags, Floats, stage_advantages
from rubricem.training.rows.sequences import NO_STAGE, token_sequence

ABSENT = "without_rubric"
"""names, as a text, the stages whose rubric had no item: verl makes no metric of a text"""
Told = dict[str, float | str | None]
"""the score of each stage by its name, None if it has none; and `ABSENT`"""


def response_of(trajectory: Trajectory, most: int) -> dict[str, list[Any]]:
    """The prompt's ids, and of the first `most` tokens after it ids, mask, logprobs and stages.

    By verl's names, and `response_stages`: 0 to 3, -1 where the policy did not write. The mask is 1
    where it did, logprobs (natural, the sampler's) are 0 elsewhere. Raises ValueError for a rollout
    whose tokens are not those that were sampled: a ratio to them would be meaningless.
    """
    tokens = token_sequence(trajectory.segments)
    if tokens is None or not tokens.sampled or trajectory.decoding is not Decoding.FREE:
        raise ValueError(f"the tokens of {trajectory.id} are not those that were sampled")
    response = slice(tokens.prompt, tokens.prompt + most)
    written = tokens.written[response]
    pairs = zip(tokens.stages[response], written, strict=True)
    return {
        "prompt_ids": list(tokens.ids[: tokens.prompt]),
        "response_ids": list(tokens.ids[response]),
        "response_mask": list(map(int, written)),
        "response_logprobs": list(tokens.logprobs[response]),
        "response_stages": [stage if on else NO_STAGE for stage, on in pairs],
    }


WIDTH = 4.0
ABSENT_CODE, SCORED, UNKNOWN_CODE, LOST = 0.5, 1.0, 3.0, 3.25
TOLERANCE = 1e-3
REFLECTION = len(Stage)
"""the stage of a reflection's tokens"""


@dataclass(frozen=True, slots=True)
class StageCodes:
    """The decoded contents of a batch."""

    stages: NDArray[np.int64]
    """(B, T); -1 for none, and in the padding; K in a reflection"""
    scores: Floats
    """(B, K); NaN if unknown"""
    absent: Flags
    """(B, K)"""


def encode(stages: Sequence[int], scores: Mapping[str, float | str | None]) -> Tensor:
    """(T,) float32 for one response's tokens; `scores` as by `metrics_of`, a missing one unknown.

    A response of fewer tokens than stages keeps what it has room for. Raises ValueError for a score
    above 1, or one that is not finite.
    """
    codes = WIDTH * (torch.tensor(stages, dtype=torch.float32) + 1)
    absent = str(scores.get(ABSENT, "")).split(",")
    for place, stage in enumerate(Stage):
        score = scores.get(stage.value)
        if score is not None and not (math.isfinite(float(score)) and float(score) <= 1):
            raise ValueError(f"{score} is no stage score: those are finite, and at most 1")
        none = ABSENT_CODE if stage.value in absent else UNKNOWN_CODE
        if place < len(codes):
            codes[place] += none if score is None else _code(float(score))
    return codes


def _code(score: float) -> float:
    return SCORED + score if score >= 0 else LOST + 0.5 * score / (score - 1)


def encode_reflection(tokens: int, score: float | None) -> Tensor:
    """(T,) float32 for a reflection of this many tokens; None: its score is unknown."""
    codes = torch.full((tokens,), WIDTH * (REFLECTION + 1))
    codes[0] += UNKNOWN_CODE if score is None else _code(score)
    return codes


def decode(codes: Tensor, mask: Tensor, stages: int) -> StageCodes:
    """The inverse of `encoded` for a padded batch; `mask` is (B, T), 1 where the policy wrote.

    Raises ValueError for a tensor not made that way, such as one with a penalty in it.
    """
    values = codes.detach().cpu().double().numpy()
    block = np.floor((values + TOLERANCE) / WIDTH)
    told = values - WIDTH * block
    first = told[:, :stages]  # of a token that is padding nothing is told
    scored = (first >= SCORED - TOLERANCE) & (first <= SCORED + 1 + TOLERANCE)
    share = np.clip(2 * (first - LOST), 0.0, 1.0 - TOLERANCE**2)
    lost = np.where(first > (UNKNOWN_CODE + LOST) / 2, -share / (1 - share), np.nan)
    scores = np.where(scored, np.clip(first - SCORED, 0.0, 1.0), lost)
    absent = np.abs(first - ABSENT_CODE) <= TOLERANCE
    plain = np.abs(told[:, stages:]) <= TOLERANCE
    written = mask.detach().cpu().numpy().astype(bool)
    found = block.astype(np.int64) - 1
    bare = written.any(axis=1) & (np.where(written, found, -1) < 0).all(axis=1)
    if bare.any() or not plain.all() or (found < -1).any() or (found > stages).any():
        raise ValueError(
            "the rewards are not stage codes; use the agent loop and reward manager of "
            "rubricem.training.verl, and leave algorithm.use_kl_in_reward off"
        )
    short = stages - scores.shape[1]
    return StageCodes(
        stages=np.where(written, found, -1),
        scores=np.pad(scores, ((0, 0), (0, short)), constant_values=np.nan),
        absent=np.pad(absent, ((0, 0), (0, short))),
    )


def ss_grpo_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[object],
    dependence: Dependence,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of every token, (B, T) float32, 0 where the policy did not write.

    `token_level_rewards` (B, T) are stage codes, `index` names the question of each response. A
    token whose stage's return is unknown, or is the same in all responses, gets 0. Raises
    ValueError for rewards that are no stage codes.
    """
    codes = decode(token_level_rewards, response_mask, len(dependence.weights))
    advantages = np.zeros(codes.scores.shape)
    returns = np.zeros(codes.scores.shape)
    questions = np.array([str(name) for name in index])
    written = (codes.stages >= 0).any(axis=1)
    reflects = (codes.stages == codes.scores.shape[1]).any(axis=1)
    for question in np.unique(questions):
        members = (questions == question) & written
        rollouts, reflections = members & ~reflects, members & reflects
        known = dependence.returns(codes.scores[rollouts], codes.absent[rollouts])
        returns[rollouts] = np.nan_to_num(known)
        advantages[rollouts] = stage_advantages(known)
        alone = codes.scores[reflections, :1]
        returns[reflections] = np.nan_to_num(alone)
        advantages[reflections] = stage_advantages(alone)
    device = token_level_rewards.device
    return _spread(advantages, codes).to(device), _spread(returns, codes).to(device)


def _spread(values: Floats, codes: StageCodes) -> Tensor:
    """(B, T) from values of stages, (B, K)."""
    there = codes.stages >= 0
    # Those of a reflection stand at every stage alike.
    places = np.where(codes.stages == values.shape[1], 0, np.maximum(codes.stages, 0))
    tokens = np.take_along_axis(values, places, axis=1)
    return torch.from_numpy(np.where(there, tokens, 0.0)).float()


ESTIMATORS = {
    "ss_grpo": CREDITS["ss-grpo"].dependence,
    "ss_grpo_answer_only": CREDITS["answer-only"].dependence,
    "ss_grpo_identity": CREDITS["identity"].dependence,
}
"""by the possible values of algorithm.adv_estimator"""


def _estimate_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Any,
    config: Any = None,
    *,
    dependence: Dependence,
    **more: Any,
) -> tuple[Tensor, Tensor]:
    """The signature of verl's estimators; its configuration has nothing for this one."""
    return ss_grpo_advantages(token_level_rewards, response_mask, index, dependence)


if find_spec("verl") is not None:
    from verl.trainer.ppo.core_algos import register_adv_est

    for name, matrix in ESTIMATORS.items():
        register_adv_est(name)(partial(_estimate_advantages, dependence=matrix))
