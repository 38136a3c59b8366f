"""Rubrics that compose like the layers of a network: small scores, nested, each one readable.

The contract is that of OpenEnv's rubrics (RFC 004): subclass `Rubric`, write
`forward(action, observation) -> float`, and put children in attributes or containers. Scores
that have to be waited for and those that are there at once mix freely: calling a rubric gives
a number that may also be awaited, or, where something had to be waited for, a coroutine.
"""

from rubricem.judge.rubrics.core import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Rubric,
    RubricDict,
    RubricList,
    Score,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)
from rubricem.judge.rubrics.llm import (
    ChatClient,
    LLMClient,
    LLMJudge,
    OpenAIClient,
    create_llm_client,
)

__all__ = [
    "ChatClient",
    "ExponentialDiscountingTrajectoryRubric",
    "Gate",
    "LLMClient",
    "LLMJudge",
    "OpenAIClient",
    "Rubric",
    "RubricDict",
    "RubricList",
    "Score",
    "Sequential",
    "TrajectoryRubric",
    "WeightedSum",
    "create_llm_client",
]
