"""The rubric's contract, its containers, and rubrics that score at the end of an episode."""

import asyncio
import inspect
import math
from dataclasses import dataclass
from typing import Any

import pytest

from rubricem.judge.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Rubric,
    RubricDict,
    RubricList,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)
from tests.support.values import Called, Fixed, Slow
from tests.support.waiting import PATIENCE


class Pair(Rubric):
    """Two children as attributes; the second one's score."""

    def __init__(self, first: Rubric, second: Rubric) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def forward(self, action: Any, observation: Any) -> Any:
        return self.second(action, observation)


async def test_a_number_is_given_and_kept_and_can_be_awaited_all_the_same():
    rubric = Called(lambda action, observation: action + observation)
    assert rubric.last_score is None
    assert rubric(0.25, 0.5) == 0.75
    assert rubric.last_score == 0.75
    assert type(rubric.last_score) is float
    score = Fixed(0.5)("a", "o")
    assert score == 0.5
    assert await score == 0.5


async def test_an_async_forward_gives_a_coroutine_for_the_score():
    rubric = Slow(0.5)
    waiting = rubric("a", "o")
    assert inspect.iscoroutine(waiting)
    assert rubric.last_score is None
    assert await waiting == 0.5
    assert rubric.last_score == 0.5


def test_what_awaits_without_being_async_is_refused():
    with pytest.raises(TypeError, match="make its forward async"):
        Called(lambda *_: asyncio.sleep(0, 0.5))("a", "o")


@pytest.mark.parametrize("nothing", [None, "0.5", [1.0]])
def test_a_forward_without_a_number_is_named(nothing: object):
    with pytest.raises(TypeError, match=r"Called\.forward must return a number"):
        Called(lambda *_: nothing)("a", "o")


def test_pre_hooks_forward_and_hooks_run_in_order_of_registration():
    log: list[str] = []
    rubric = Fixed(0.5, "forward", log)
    for name in ("b1", "b2"):
        rubric.register_forward_pre_hook(lambda r, a, o, name=name: log.append(f"{name} {a}{o}"))
    for name in ("h1", "h2"):
        rubric.register_forward_hook(lambda r, a, o, s, name=name: log.append(f"{name} {s}"))
    rubric("A", "O")
    assert log == ["b1 AO", "b2 AO", "forward", "h1 0.5", "h2 0.5"]


async def test_async_hooks_are_awaited_also_around_a_forward_that_is_not_async():
    log: list[str] = []

    async def before(rubric: Rubric, action: Any, observation: Any) -> None:
        await asyncio.sleep(0)
        log.append("before")

    async def after(rubric: Rubric, action: Any, observation: Any, score: float) -> None:
        await asyncio.sleep(0)
        log.append(f"after {score} {rubric.last_score}")

    rubric = Fixed(0.5, "forward", log)
    rubric.register_forward_pre_hook(before)
    rubric.register_forward_hook(after)
    assert await rubric("a", "o") == 0.5
    assert log == ["before", "forward", "after 0.5 0.5"]


@pytest.mark.parametrize("make", [Fixed, Slow])
async def test_what_forward_raises_is_raised_and_the_last_score_stays(make: type[Fixed]):
    rubric = make(0.5)
    await rubric("a", "o")
    rubric.score = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        await rubric("a", "o")
    assert rubric.last_score == 0.5


def test_children_have_names_and_dotted_paths_depth_first():
    inner = Pair(Fixed(0.1), Fixed(0.2))
    outer = Pair(inner, Fixed(0.3))
    assert list(outer.children()) == [inner, outer.second]
    assert list(outer.named_children()) == [("first", inner), ("second", outer.second)]
    names = [name for name, _ in outer.named_rubrics()]
    assert names == ["first", "first.first", "first.second", "second"]
    assert list(outer.rubrics()) == [inner, inner.first, inner.second, outer.second]
    assert next(outer.named_rubrics("env"))[0] == "env.first"
    assert outer.get_rubric("first.second") is inner.second
    for absent in ("third", "first.third", "first.", ""):
        with pytest.raises(KeyError):
            outer.get_rubric(absent)


def test_children_are_what_attributes_hold_now_whenever_and_however_often_they_were_set():
    pair = Pair(Fixed(0.1), Fixed(0.2))
    pair.first = None  # type: ignore[assignment]
    assert [name for name, _ in pair.named_children()] == ["second"]
    del pair.second
    assert list(pair.children()) == []

    class Early(Rubric):
        def __init__(self) -> None:
            self.child = Fixed(0.5)

        def forward(self, action: Any, observation: Any) -> Any:
            return self.child(action, observation)

    rubric = Early()
    assert rubric("a", "o") == 0.5
    assert rubric.get_rubric("child").last_score == 0.5
    shared = Fixed(0.5)
    assert [name for name, _ in Pair(shared, shared).named_rubrics()] == ["first", "second"]


def test_a_rubric_cannot_be_below_itself():
    pair = Pair(Fixed(0.1), Fixed(0.2))
    with pytest.raises(ValueError, match="own child"):
        pair.first = pair
    with pytest.raises(ValueError, match="own child"):
        pair.first = Sequential(pair)


class Tuned(Fixed):
    def state_dict(self) -> dict[str, Any]:
        return {"score": self.score}

    def load_state_dict(self, state: Any) -> None:
        self.score = state["score"]


def test_state_holds_the_childrens_under_their_paths_and_goes_back_to_them():
    saved = Pair(Pair(Tuned(0.1), Tuned(0.2)), Tuned(0.3)).state_dict()
    assert saved == {"first.first.score": 0.1, "first.second.score": 0.2, "second.score": 0.3}
    other = Pair(Pair(Tuned(0.9), Tuned(0.9)), Tuned(0.9))
    other.load_state_dict({"first.second.score": 0.2})
    assert other.state_dict() == {**saved, "first.first.score": 0.9, "second.score": 0.9}


NAN = math.nan
BOTH = pytest.mark.parametrize("make", [Fixed, Slow])


@pytest.mark.parametrize(
    ("scores", "total", "called"),
    [
        ((), 1.0, 0),
        ((0.5,), 0.5, 1),
        ((1.0, 0.25), 0.25, 2),
        ((0.25, 1.0), 1.0, 2),
        ((1.0, 0.0, 1.0), 0.0, 2),
        ((-0.0, 1.0), 0.0, 1),
        ((-1.0, 0.5), 0.5, 2),
    ],
)
@BOTH
async def test_in_turn_until_the_first_zero(
    make: type[Fixed], scores: tuple[float, ...], total: float, called: int
):
    log: list[str] = []
    rubric = Sequential(*(make(score, str(i), log) for i, score in enumerate(scores)))
    assert await rubric("a", "o") == total
    assert log == [str(i) for i in range(called)]
    assert rubric.last_score == total


@BOTH
async def test_in_turn_an_unknown_score_is_the_result_and_the_rest_is_not_called(
    make: type[Fixed],
):
    log: list[str] = []
    rubric = Sequential(make(1.0), make(NAN), make(0.0, "last", log))
    assert math.isnan(await rubric("a", "o"))
    assert log == []


@pytest.mark.parametrize(
    ("score", "threshold", "passed"),
    [(0.5, 0.5, 0.5), (0.49, 0.5, 0.0), (0.9, 0.5, 0.9), (-0.5, -1.0, -0.5)],
)
@BOTH
async def test_a_gate_lets_through_what_reaches_its_threshold(
    make: type[Fixed], score: float, threshold: float, passed: float
):
    gate = Gate(make(score), threshold=threshold)
    assert await gate("a", "o") == passed
    assert gate.get_rubric("rubric").last_score == score


def test_a_gate_wants_a_whole_score_by_default_and_keeps_the_unknown_unknown():
    assert (Gate(Fixed(1.0))("a", "o"), Gate(Fixed(0.999))("a", "o")) == (1.0, 0.0)
    assert math.isnan(Gate(Fixed(NAN))("a", "o"))  # type: ignore[arg-type]


@BOTH
async def test_a_weighted_sum_by_hand(make: type[Fixed]):
    # 0.7 * 1.0 + 0.2 * 0.5 + 0.1 * 0.0
    rubric = WeightedSum([make(1.0), Fixed(0.5), make(0.0)], [0.7, 0.2, 0.1])
    assert await rubric("a", "o") == pytest.approx(0.8)
    assert [child.last_score for child in rubric.children()] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("weights", "said"),
    [([1.0], "must match"), ([0.5, 0.4], "must sum to 1.0"), ([0.5, NAN], "must sum to 1.0")],
)
def test_weights_that_cannot_be_are_refused(weights: list[float], said: str):
    with pytest.raises(ValueError, match=said):
        WeightedSum([Fixed(1.0), Fixed(0.5)], weights)


async def test_what_is_async_in_a_sum_is_waited_for_together():
    met = asyncio.Barrier(10)

    class Meeting(Rubric):
        async def forward(self, action: Any, observation: Any) -> float:
            await met.wait()
            return 1.0

    rubric = WeightedSum([Meeting() for _ in range(10)], [0.1] * 10)
    async with asyncio.timeout(PATIENCE):
        assert await rubric("a", "o") == pytest.approx(1.0)


async def test_a_failing_child_of_a_sum_stops_the_others_and_is_raised():
    log: list[str] = []
    late = Slow(1.0, "late", log, seconds=3600)
    rubric = WeightedSum([late, Slow(OSError("gone"))], [0.5, 0.5])
    with pytest.raises(OSError, match="gone"):
        await rubric("a", "o")
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (log, rubric.last_score) == ([], None)


async def test_a_gate_in_a_sum_takes_its_share_and_one_before_it_takes_all():
    both = [Gate(Slow(0.4), 0.5), Fixed(1.0)]
    assert await WeightedSum(both, [0.5, 0.5])("a", "o") == 0.5
    assert await Sequential(*both)("a", "o") == 0.0


def test_thresholds_and_weights_are_saved_and_come_back():
    def made(threshold: float, weights: list[float]) -> Rubric:
        return Sequential(Gate(Fixed(1.0), threshold), WeightedSum([Fixed(1), Fixed(0)], weights))

    saved = made(0.25, [0.7, 0.3]).state_dict()
    assert saved == {"rubric_0.threshold": 0.25, "rubric_1.weights": [0.7, 0.3]}
    rubric = made(1.0, [0.5, 0.5])
    rubric.load_state_dict(saved)
    assert (rubric.state_dict(), rubric("a", "o")) == (saved, pytest.approx(0.7))
    with pytest.raises(ValueError, match="must sum"):
        rubric.load_state_dict({"rubric_1.weights": [0.7, 0.7]})


def test_a_list_keeps_rubrics_in_order_and_gives_no_score_itself():
    first, second, third = Fixed(0.1), Fixed(0.2), Fixed(0.3)
    rubrics = RubricList([first])
    rubrics.append(second)
    rubrics.extend([third])
    assert (len(rubrics), rubrics[1], list(rubrics)) == (3, second, [first, second, third])
    assert [name for name, _ in rubrics.named_children()] == ["rubric_0", "rubric_1", "rubric_2"]
    with pytest.raises(NotImplementedError):
        rubrics("a", "o")


def test_a_dict_keeps_rubrics_by_any_name_and_gives_no_score_itself():
    pong, other = Fixed(0.1), Fixed(0.2)
    games = RubricDict({"pong": pong})
    games["forward"] = other
    games.update({"reset": Fixed(0.3)})
    assert (games["pong"], "forward" in games, "chess" in games) == (pong, True, False)
    assert (len(games), list(games)) == (3, ["pong", "forward", "reset"])
    assert list(games.keys()) == list(games)
    assert [rubric for _, rubric in games.items()] == list(games.values())
    assert games != RubricDict(games) and games in {games}, "it is itself, whatever it holds"
    games.reset()
    with pytest.raises(NotImplementedError):
        games("a", "o")
    del games["forward"]
    with pytest.raises(KeyError):
        games["forward"]
    assert [name for name, _ in games.named_rubrics()] == ["pong", "reset"]


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


def test_a_trajectory_begins_anew_after_its_end_or_a_reset_and_is_given_out_as_a_copy():
    rubric = Length()
    rubric("a", Seen())
    rubric.trajectory.clear()
    assert len(rubric.trajectory) == 1
    rubric.reset()
    assert (rubric.trajectory, rubric.last_score) == ([], None)
    rubric = Length()
    assert [rubric("a", Seen(done=True)), rubric("b", Seen(done=True))] == [1.0, 1.0]
    assert [action for action, _ in rubric.trajectory] == ["b"]
    inner = Length()
    rubric = Sequential(Fixed(1.0), WeightedSum([inner, Fixed(0.0)], [0.5, 0.5]))
    rubric("a", Seen())
    rubric.reset()
    assert rubric("b", Seen(done=True)) == 0.5, "one step, half of its score"


@pytest.mark.parametrize(
    ("gamma", "rewards"),
    [(0.5, [0.25, 0.5, 1.0]), (1.0, [1.0, 1.0, 1.0]), (0.0, [0.0, 0.0, 1.0])],
)
def test_the_final_score_is_discounted_back_to_each_step(gamma: float, rewards: list[float]):
    rubric = Outcome(gamma=gamma)
    for observation in (Seen(), Seen(), Seen(done=True, reward=1.0)):
        rubric("move", observation)
    assert rubric.compute_step_rewards() == rewards


@pytest.mark.parametrize("gamma", [-0.01, 1.01, float("nan")])
def test_a_gamma_outside_0_to_1_is_refused(gamma: float):
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\]"):
        Outcome(gamma=gamma)
    with pytest.raises(ValueError, match="gamma"):
        Outcome().load_state_dict({"gamma": gamma})
