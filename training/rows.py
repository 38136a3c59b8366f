"""What a trainer needs of one sequence: the one value between collecting and every engine.

Position t of every list carries the value for predicting `ids[t]` from what stands before it;
so position 0 is never trained. Token ids are those that were sampled (token in, token out).
"""

from typing import Literal, Self

from pydantic import model_validator

from memory.schema import Value

Objective = Literal["policy", "reflect", "sft"]
"""`policy`: SS-GRPO on a stage's tokens; `reflect`: GRPO on a reflection; `sft`: imitation"""


class TrainRow(Value):
    """One token sequence with what is to be learnt from each of its tokens."""

    id: str
    """unique for each attempt, so that no two rows are ever taken for one"""
    group: str
    """rows whose advantages were normalised together"""
    trajectory: str
    objective: Objective
    policy_version: str
    """of the model that sampled the tokens"""
    ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    """1 where the token is trained; prompts, tool output and forced tags are 0"""
    advantages: tuple[float, ...]
    """0 where masked; 1 on every trained token of an `sft` row"""
    behaviour_logprobs: tuple[float, ...]
    """of the sampler, natural log at temperature 1; 0 where masked or unknown"""
    stages: tuple[int, ...]
    """0 to 3 as in `Stage`, -1 for none"""
    weight: float = 1.0
    ratio_allowed: bool = True
    """False: retokenised or forced, so no policy-gradient ratio may be formed of it"""

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        lengths = {
            len(values)
            for values in (
                self.ids,
                self.loss_mask,
                self.advantages,
                self.behaviour_logprobs,
                self.stages,
            )
        }
        if len(lengths) != 1:
            raise ValueError(f"the lists of row {self.id} differ in length: {sorted(lengths)}")
        if self.ids and self.loss_mask[0]:
            raise ValueError(f"row {self.id} trains its first token, which nothing predicts")
        return self
