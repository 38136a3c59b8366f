"""The plugin that verl loads at its start, in every process: stage-wise GRPO as its estimators.

Found by the entry point `verl.plugins`, or named in VERL_USE_EXTERNAL_MODULES. Its functions can
also be used without verl.

verl's estimators are given the rewards of all tokens and the mask, and neither stages nor their
scores. So the actor of the groups (`training.verl.groups`) computes the advantages, by stage over
the whole judged group (RubricEM, arXiv:2605.10899, 3.3), a response's rewards are those of its
tokens, and the estimator leaves them as they are. verl's own reward metrics then mean nothing, and
its penalty on the divergence must not be put into the rewards (`algorithm.use_kl_in_reward`). Rows
that verl adds to fill a batch have no token of the policy, and get 0.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from rubricem.memory.schema import Decoding, Trajectory
from rubricem.training.rows.credit import CREDITS
from rubricem.training.rows.sequences import NO_STAGE, TokenSequence, token_sequence

ADVANTAGES, REFLECTIONS = "advantages", "reflections"
"""name, as a text, the advantages of a rollout's stages and of its reflections: verl makes no
metric of a text"""
Told = dict[str, float | str | None]
"""the score of each stage by its name, None if it has none; and both of these"""


def response_of(trajectory: Trajectory, most: int) -> dict[str, list[Any]]:
    """The prompt's ids, and of the first `most` tokens after it ids, mask, logprobs and stages.

    By verl's names, and `response_stages`: 0 to 3, -1 where the policy did not write. The mask is 1
    where it did, logprobs (natural, the sampler's) are 0 elsewhere. Raises ValueError for a rollout
    whose tokens are not those that were sampled: a ratio to them would be meaningless.
    """
    tokens = token_sequence(trajectory.segments)
    if tokens is None or not tokens.sampled or trajectory.decoding is not Decoding.FREE:
        raise ValueError(f"the tokens of {trajectory.id} are not those that were sampled")
    pairs = zip(tokens.stages, tokens.written, strict=True)
    return fields_of(tokens, most, [stage if on else NO_STAGE for stage, on in pairs])


def fields_of(tokens: TokenSequence, most: int, stages: Sequence[int]) -> dict[str, list[Any]]:
    """What `response_of` gives of a sequence; `stages` are of all its tokens."""
    response = slice(tokens.prompt, tokens.prompt + most)
    return {
        "prompt_ids": list(tokens.ids[: tokens.prompt]),
        "response_ids": list(tokens.ids[response]),
        "response_mask": list(map(int, tokens.written[response])),
        "response_logprobs": list(tokens.logprobs[response]),
        "response_stages": list(stages[response]),
    }


def token_rewards(
    stages: Sequence[int], told: Mapping[str, float | str | None], candidate: int = -1
) -> Tensor:
    """(T,) float32 for a response's tokens, by their stages; 0 for what nobody has judged.

    `candidate`: the number of a reflection among those of its rollout, whose tokens are all alike;
    -1: it is the rollout.
    """
    values = str(told.get(ADVANTAGES if candidate < 0 else REFLECTIONS) or "").split(",")

    def of(stage: int) -> float:
        place = stage if candidate < 0 else candidate
        known = stage != NO_STAGE and place < len(values) and values[place]
        return float(known) if known else 0.0

    return torch.tensor([of(stage) for stage in stages], dtype=torch.float32)


ESTIMATORS = {"ss_grpo": "ss-grpo", "ss_grpo_answer_only": "answer-only"}
"""the credit of each possible value of algorithm.adv_estimator"""
assert set(ESTIMATORS.values()) <= CREDITS.keys()


def given_advantages(
    token_level_rewards: Tensor, response_mask: Tensor, **more: Any
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of every token, (B, T): the rewards, 0 where the policy did not write.

    The signature is that of verl's estimators.
    """
    advantages = token_level_rewards * response_mask
    return advantages, advantages


if find_spec("verl") is not None:
    from verl.trainer.ppo.core_algos import register_adv_est

    for name in ESTIMATORS:
        register_adv_est(name)(given_advantages)
