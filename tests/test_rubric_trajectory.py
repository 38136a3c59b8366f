"""Rubrics that score at the end of an episode, and the rewards of its steps."""

from dataclasses import dataclass
from typing import Any

import pytest

from judge.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)
from tests.scored import Fixed


@dataclass
class Seen:
    done: bool = False
    reward: float = 0.0


class Length(TrajectoryRubric):
    """The number of steps, given to each."""

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        return float(len(trajectory))

    def compute_step_rewards(self) -> list[float]:
        return [self.score_trajectory(self._trajectory)] * len(self._trajectory)


class Outcome(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        return float(trajectory[-1][1].reward)


def test_steps_give_the_intermediate_reward_and_the_end_the_score():
    rubric = Length(intermediate_reward=0.1)
    assert [rubric("a", Seen()), rubric("b", object()), rubric("c", Seen(done=True))] == [
        0.1,
        0.1,
        3.0,
    ]
    assert [action for action, _ in rubric.trajectory] == ["a", "b", "c"]
    assert rubric.compute_step_rewards() == [3.0, 3.0, 3.0]


def test_the_trajectory_is_given_out_as_a_copy_and_cleared_by_reset():
    rubric = Length()
    rubric("a", Seen())
    rubric.trajectory.clear()
    assert len(rubric.trajectory) == 1
    rubric.reset()
    assert (rubric.trajectory, rubric.last_score) == ([], None)


def test_the_step_after_the_end_begins_the_next_episode():
    rubric = Length()
    assert [rubric("a", Seen(done=True)), rubric("b", Seen(done=True))] == [1.0, 1.0]
    assert [action for action, _ in rubric.trajectory] == ["b"]


def test_reset_reaches_a_trajectory_inside_containers():
    inner = Length()
    rubric = Sequential(Fixed(1.0), WeightedSum([inner, Fixed(0.0)], [0.5, 0.5]))
    rubric("a", Seen())
    rubric.reset()
    assert rubric("b", Seen(done=True)) == 0.5, "one step, half of its score"


def test_both_abstract_methods_are_needed():
    with pytest.raises(TypeError, match="abstract"):
        TrajectoryRubric()  # type: ignore[abstract]
    with pytest.raises(TypeError, match="abstract"):
        ExponentialDiscountingTrajectoryRubric()  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("gamma", "rewards"),
    [(0.5, [0.25, 0.5, 1.0]), (1.0, [1.0, 1.0, 1.0]), (0.0, [0.0, 0.0, 1.0])],
)
def test_the_final_score_is_discounted_back_to_each_step(gamma: float, rewards: list[float]):
    rubric = Outcome(gamma=gamma)
    for observation in (Seen(), Seen(), Seen(done=True, reward=1.0)):
        rubric("move", observation)
    assert rubric.compute_step_rewards() == rewards


def test_no_step_has_no_reward():
    assert Outcome().compute_step_rewards() == []


@pytest.mark.parametrize("gamma", [-0.01, 1.01, float("nan")])
def test_a_gamma_outside_0_to_1_is_refused(gamma: float):
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\]"):
        Outcome(gamma=gamma)
    with pytest.raises(ValueError, match="gamma"):
        Outcome().load_state_dict({"gamma": gamma})


def test_settings_are_saved_and_partly_loaded():
    rubric = Outcome(gamma=0.9, intermediate_reward=0.1)
    assert rubric.state_dict() == {"gamma": 0.9, "intermediate_reward": 0.1}
    rubric.load_state_dict({"gamma": 0.5})
    assert rubric.state_dict() == {"gamma": 0.5, "intermediate_reward": 0.1}


class Awaited(Outcome):
    async def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:  # type: ignore[override]
        return 0.5


async def test_a_score_may_be_waited_for_but_not_shared_out_to_steps():
    rubric = Awaited()
    assert await rubric("a", Seen(done=True)) == 0.5
    with pytest.raises(TypeError, match="at once"):
        rubric.compute_step_rewards()
