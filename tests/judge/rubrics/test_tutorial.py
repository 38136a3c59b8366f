"""Rubrics used as OpenEnv's tutorial uses them: an environment for code, games, offline scoring."""

from dataclasses import dataclass
from typing import Any

import pytest

from rubricem.judge.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    LLMJudge,
    Rubric,
    RubricDict,
    Sequential,
    WeightedSum,
)


@dataclass
class Edit:
    code: str


@dataclass
class Outcome:
    compiles: bool = True
    passed: int = 0
    tests: int = 4
    game: str = ""
    done: bool = False
    reward: float | None = None


class Compiles(Rubric):
    def forward(self, action: Edit, observation: Outcome) -> float:
        return float(observation.compiles)


class Passes(Rubric):
    def forward(self, action: Edit, observation: Outcome) -> float:
        return observation.passed / observation.tests


class Tidy(Rubric):
    def forward(self, action: Edit, observation: Outcome) -> float:
        return 0.5 if "\n\n\n" in action.code else 1.0


def code_rubric() -> Sequential:
    return Sequential(
        Gate(Compiles()),
        Gate(Passes(), threshold=0.5),
        WeightedSum([Passes(), Tidy()], [0.7, 0.3]),
    )


@pytest.mark.parametrize(
    ("outcome", "score"),
    [
        (Outcome(compiles=False, passed=4), 0.0),
        (Outcome(passed=1), 0.0),
        (Outcome(passed=2), 0.65),
        (Outcome(passed=4), 1.0),
    ],
)
def test_code_is_gated_by_compiling_and_by_half_of_its_tests(outcome: Outcome, score: float):
    assert code_rubric()(Edit("x = 1"), outcome) == pytest.approx(score)


def test_every_component_tells_its_score_by_name():
    rubric = code_rubric()
    rubric(Edit("x\n\n\n\ny"), Outcome(passed=2))
    assert {name: part.last_score for name, part in rubric.named_rubrics()} == {
        "rubric_0": 1.0,
        "rubric_0.rubric": 1.0,
        "rubric_1": 0.5,
        "rubric_1.rubric": 0.5,
        "rubric_2": pytest.approx(0.5),
        "rubric_2.rubric_0": 0.5,
        "rubric_2.rubric_1": 0.5,
    }


class Won(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        return 1.0 if trajectory[-1][1].passed else -1.0


class Judge:
    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)

    async def complete(self, prompt: str, **kwargs: Any) -> str:
        return self.replies.pop(0)


class Games(Rubric):
    """Hands over to the rubric of the game that is played."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.games = RubricDict({"chess": Won(), "essay": LLMJudge("Rate {action.code}", judge)})

    def forward(self, action: Any, observation: Outcome) -> Any:
        return self.games[observation.game](action, observation)


async def test_the_rubric_of_the_game_is_called_whether_it_waits_or_not():
    rubric = Games(Judge("0.4"))
    seen: list[float] = []
    rubric.register_forward_hook(lambda r, a, o, score: seen.append(score))
    await rubric(Edit("e4"), Outcome(game="chess", done=True))
    await rubric(Edit("text"), Outcome(game="essay"))
    assert (seen, rubric.last_score) == ([-1.0, 0.4], 0.4)
    names = [name for name, _ in rubric.named_rubrics()]
    assert names == ["games", "games.chess", "games.essay"]
