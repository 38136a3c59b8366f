"""Stage-wise GRPO as an advantage estimator: the project's own returns and advantages on tensors.

Per question: stage scores -> returns by the dependence matrix -> normalised stage by stage over
the question's responses -> each policy token gets its stage's (RubricEM, arXiv:2605.10899, 3.3).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from training.advantages import stage_advantages
from training.returns import Dependence, Floats, stage_returns
from training.verl_engine.stage_codes import StageCodes, decoded


def ss_grpo_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[object],
    dependence: Dependence,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of every token, (B, T) float32, 0 where the policy did not write.

    `token_level_rewards` (B, T) are stage codes, `index` names the question of each response. A
    token whose stage's return is not known, or differs in no response, gets 0. Raises ValueError
    for rewards that are no stage codes.
    """
    codes = decoded(token_level_rewards, response_mask, len(dependence.weights))
    advantages = np.zeros(codes.scores.shape)
    returns = np.zeros(codes.scores.shape)
    questions = np.array([str(name) for name in index])
    for question in np.unique(questions):
        members = questions == question
        known = stage_returns(codes.scores[members], dependence, codes.absent[members])
        returns[members] = np.nan_to_num(known)
        advantages[members] = stage_advantages(known).values
    device = token_level_rewards.device
    return _spread(advantages, codes).to(device), _spread(returns, codes).to(device)


def _spread(values: Floats, codes: StageCodes) -> Tensor:
    """(B, T) of values of stages, (B, K)."""
    there = codes.stages >= 0
    tokens = np.take_along_axis(values, np.maximum(codes.stages, 0), axis=1)
    return torch.from_numpy(np.where(there, tokens, 0.0)).float()
