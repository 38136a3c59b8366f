"""Rubrics that compose like the layers of a network: small nested scores, each of them readable.

The contract is that of OpenEnv's rubrics (RFC 004): subclass `Rubric`, write `forward(action,
observation) -> float`, async or not, and put children in attributes or containers. Calling a rubric
gives a number that may also be awaited, or a coroutine if a part of it is async.
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
