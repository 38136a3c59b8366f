"""Rubrics whose score comes at the end of an episode, and how it is shared among its steps.

An episode ends with an observation whose `done` is true. The step after that begins the next
one. The trajectory is kept in memory as it was given: what lies on a GPU stays there.
"""

import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Mapping
from typing import Any

from judge.rubrics.base import Rubric

Step = tuple[Any, Any]
"""action, observation"""


class TrajectoryRubric(Rubric):
    """`intermediate_reward` until the episode is done, then `score_trajectory`."""

    def __init__(self, intermediate_reward: float = 0.0) -> None:
        super().__init__()
        self.intermediate_reward = intermediate_reward
        self._trajectory: list[Step] = []

    @abstractmethod
    def score_trajectory(self, trajectory: list[Step]) -> float | Awaitable[float]: ...

    @abstractmethod
    def compute_step_rewards(self) -> list[float]:
        """One reward for each step of the trajectory."""

    @property
    def trajectory(self) -> list[Step]:
        """A copy."""
        return list(self._trajectory)

    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        if self._trajectory and _done(self._trajectory[-1][1]):
            self._trajectory = []
        self._trajectory.append((action, observation))
        if _done(observation):
            return self.score_trajectory(self._trajectory)
        return self.intermediate_reward

    def reset(self) -> None:
        super().reset()
        self._trajectory = []

    def state_dict(self) -> dict[str, Any]:
        return {"intermediate_reward": self.intermediate_reward, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.intermediate_reward = state.get("intermediate_reward", self.intermediate_reward)


class ExponentialDiscountingTrajectoryRubric(TrajectoryRubric):
    """Step t of T gets gamma**(T - 1 - t) times the final score."""

    def __init__(self, gamma: float = 0.99, intermediate_reward: float = 0.0) -> None:
        super().__init__(intermediate_reward)
        self.gamma = _checked(gamma)

    def compute_step_rewards(self) -> list[float]:
        """Needs a `score_trajectory` that does not have to be waited for."""
        if not self._trajectory:
            return []
        final = self.score_trajectory(self._trajectory)
        if not isinstance(final, int | float):
            if inspect.iscoroutine(final):
                final.close()
            raise TypeError("step rewards need a score_trajectory that returns a number at once")
        last = len(self._trajectory) - 1
        return [self.gamma ** (last - step) * final for step in range(last + 1)]

    def state_dict(self) -> dict[str, Any]:
        return {"gamma": self.gamma, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.gamma = _checked(state.get("gamma", self.gamma))


def _done(observation: object) -> bool:
    return bool(getattr(observation, "done", False))


def _checked(gamma: float) -> float:
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must be in [0, 1], not {gamma}")
    return gamma
