"""What verl loads at its start, in every process: the estimators, by the dependence matrix.

Found by the entry point `verl.plugins`, or named in VERL_USE_EXTERNAL_MODULES.
"""

from functools import partial
from typing import Any

from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est

from rubricem.training.rows.credit import CREDITS, Dependence
from rubricem.training.verl.codes import ss_grpo_advantages

ESTIMATORS = {
    "ss_grpo": CREDITS["ss-grpo"].dependence,
    "ss_grpo_answer_only": CREDITS["answer-only"].dependence,
    "ss_grpo_identity": CREDITS["identity"].dependence,
}
"""by what algorithm.adv_estimator may be set to"""


def _estimated(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Any,
    config: Any = None,
    *,
    dependence: Dependence,
    **more: Any,
) -> tuple[Tensor, Tensor]:
    """As verl calls an estimator; its configuration has nothing for this one."""
    return ss_grpo_advantages(token_level_rewards, response_mask, index, dependence)


for name, matrix in ESTIMATORS.items():
    register_adv_est(name)(partial(_estimated, dependence=matrix))
