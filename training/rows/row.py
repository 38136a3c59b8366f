"""What a trainer needs of one sequence: the one data type between collecting and every engine.

Position t of every list belongs to the prediction of `ids[t]` from what precedes it, so position 0
is never trained. Token ids are those that were sampled (token in, token out).
"""

from collections.abc import Sequence
from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from rubricem.memory.schema import Versioned

Objective = Literal["policy", "reflect", "judge", "sft"]
"""`policy`: SS-GRPO on a stage's tokens; `reflect`: GRPO on a reflection; `judge`: GRPO on a
judge's reasoning and verdict (RM-R1, arXiv:2505.02387); `sft`: imitation"""
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


class TrainRow(Versioned):
    """One token sequence with what is to be learnt from each of its tokens."""

    schema_version: int = 4
    id: str
    """unique for each attempt, so that no two rows are ever taken for one"""
    group: str
    """rows whose advantages were normalised together"""
    trajectory: str
    objective: Objective
    policy_version: str
    ids: tuple[int, ...]
    prompt_tokens: int = Field(ge=0)
    """how many of the ids, at the beginning, are the prompt"""
    loss_mask: tuple[int, ...]
    """1 where the token is trained; prompts, tool output and forced tags are 0"""
    advantages: tuple[float, ...]
    """0 where masked; 1 on every trained token of an `sft` row"""
    behaviour_logprobs: tuple[float, ...]
    """of the sampler, natural log at temperature 1; 0 where masked or unknown"""
    stages: tuple[int, ...]
    """0 to 3 as in `Stage`, -1 for none"""
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """by what all its tokens' advantages, or their imitation, are multiplied"""
    ratio_allowed: bool = True
    """False: retokenised or forced, so no policy-gradient ratio may be formed of it"""
    recompute_logprobs: bool = False
    """True: the tokens, with their log-probabilities, were sampled under a prompt with a scaffold;
    those of `ids`, which the ratio is formed to, are the trainer's to compute first"""
    cut_tokens: int = Field(default=0, ge=0)
    """of its end, which was longer than is trained"""
    across_prompts: Literal[False] = False
    """True in rows of ec15fe0e whose ratio goes from one prompt to another; they are refused"""
    tokenizer: str = ""
    """hash of the vocabulary that the ids are of (`training.rows.sequences`), where whoever encoded
    them said it"""

    @classmethod
    def imitation(
        cls, of: str, policy_version: str, ids: Sequence[int], prompt_tokens: int,
        loss_mask: Sequence[int],
    ) -> Self:  # fmt: skip
        """What is imitated of the trajectory or pair `of`; no ratio may ever be formed of it."""
        return cls(
            id=f"{of}:sft", group=of, trajectory=of, objective="sft",
            policy_version=policy_version, ids=tuple(ids), prompt_tokens=prompt_tokens,
            loss_mask=tuple(loss_mask), advantages=tuple(map(float, loss_mask)),
            behaviour_logprobs=(0.0,) * len(ids), stages=(-1,) * len(ids), ratio_allowed=False,
        )  # fmt: skip

    @classmethod
    def written(
        cls, name: str, group: str, objective: Objective, policy_version: str,
        prompt: Sequence[int], ids: Sequence[int], advantage: float, logprobs: Sequence[float],
    ) -> Self:  # fmt: skip
        """A text of no stage after its prompt, all of whose tokens have one advantage."""
        before, count = len(prompt), len(ids)
        return cls(
            id=name, group=group, trajectory=name, objective=objective,
            policy_version=policy_version, ids=(*prompt, *ids), prompt_tokens=before,
            loss_mask=(0,) * before + (1,) * count,
            advantages=(0.0,) * before + (advantage,) * count,
            behaviour_logprobs=(*(0.0,) * before, *logprobs),
            stages=(-1,) * (before + count),
        )  # fmt: skip

    @property
    def moves(self) -> bool:
        return any(a for a, on in zip(self.advantages, self.loss_mask, strict=True) if on)

    def first(self, tokens: int) -> Self:
        """The row without what stands behind so many tokens, which none of them sees."""
        lists = ("ids", "loss_mask", "advantages", "behaviour_logprobs", "stages")
        kept = {name: getattr(self, name)[:tokens] for name in lists}
        prompt = min(self.prompt_tokens, tokens)
        return self.model_copy(
            update={**kept, "prompt_tokens": prompt, "cut_tokens": len(self.ids) - tokens}
        )

    def silent(self) -> Self:
        return self.model_copy(update={"loss_mask": (0,) * len(self.ids)})

    @model_validator(mode="after")
    def _check_aligned(self) -> Self:
        lists = (self.loss_mask, self.advantages, self.behaviour_logprobs, self.stages)
        lengths = {len(self.ids), *map(len, lists)}
        if len(lengths) != 1:
            raise ValueError(f"the lists of row {self.id} differ in length: {sorted(lengths)}")
        if self.ids and self.loss_mask[0]:
            raise ValueError(f"row {self.id} trains its first token, which nothing predicts")
        if any(self.loss_mask[: self.prompt_tokens]) or self.prompt_tokens > len(self.ids):
            raise ValueError(f"row {self.id} trains its prompt, or is shorter than that")
        return self


Window = tuple[TrainRow, ...]
