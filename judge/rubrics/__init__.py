"""Rubrics that compose like the layers of a network: small scores, nested, each one readable.

The contract is that of OpenEnv's rubrics (RFC 004): subclass `Rubric`, write
`forward(action, observation) -> float`, and put children in attributes or containers. Scores
that have to be waited for and those that are there at once mix freely: calling a rubric gives
a number that may also be awaited, or, where something had to be waited for, a coroutine.
"""

from judge.rubrics.base import Rubric, Score
from judge.rubrics.containers import Gate, RubricDict, RubricList, Sequential, WeightedSum
from judge.rubrics.llm_client import ChatClient, LLMClient, OpenAIClient, create_llm_client
from judge.rubrics.llm_judge import LLMJudge
from judge.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric, TrajectoryRubric

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
