"""Sequential, Gate, WeightedSum and the two collections, with scores at once and awaited."""

import asyncio
import gc
import math
import warnings
from typing import Any

import pytest

from judge.rubrics import Gate, Rubric, RubricDict, RubricList, Sequential, WeightedSum
from tests.scored import Called, Fixed, Slow
from tests.waiting import PATIENCE

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


async def test_in_turn_a_zero_and_a_pass_can_both_be_awaited_inside_a_loop():
    for score in (0.0, 0.5):
        assert await Sequential(Fixed(score), Fixed(score))("a", "o") == score
        assert Sequential(Fixed(score), Fixed(score))("a", "o") == score


async def test_in_turn_each_child_is_called_once_however_waits_and_numbers_mix():
    log: list[str] = []
    kinds = (Fixed, Slow, Fixed, Slow, Fixed)
    rubric = Sequential(*(kind(0.5 + i / 10, str(i), log) for i, kind in enumerate(kinds)))
    assert await rubric("a", "o") == pytest.approx(0.9)
    assert log == list("01234")


def test_in_turn_children_have_places_and_names():
    first, second = Fixed(0.1), Fixed(0.2)
    rubric = Sequential(first, second)
    assert (len(rubric), rubric[0], rubric[-1]) == (2, first, second)
    assert [name for name, _ in rubric.named_children()] == ["rubric_0", "rubric_1"]
    other = Fixed(0.9)
    rubric.rubric_1 = other
    assert (list(rubric), rubric("a", "o")) == ([first, other], 0.9)


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


def test_negative_weights_are_weights():
    assert WeightedSum([Fixed(1.0), Fixed(0.5)], [1.5, -0.5])("a", "o") == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("weights", "said"),
    [([1.0], "must match"), ([0.5, 0.4], "must sum to 1.0"), ([0.5, NAN], "must sum to 1.0")],
)
def test_weights_that_cannot_be_are_refused(weights: list[float], said: str):
    with pytest.raises(ValueError, match=said):
        WeightedSum([Fixed(1.0), Fixed(0.5)], weights)


def test_nothing_cannot_be_weighed_and_rounding_is_forgiven():
    with pytest.raises(ValueError, match="must sum to"):
        WeightedSum([], [])
    assert WeightedSum([Fixed(0.5)], [1.0 + 9e-7]).weights == [1.0 + 9e-7]


def test_weights_are_given_out_as_a_copy():
    rubric = WeightedSum([Fixed(1.0)], [1.0])
    rubric.weights.append(5.0)
    assert rubric.weights == [1.0]


async def test_what_is_waited_for_in_a_sum_is_waited_for_together():
    met = asyncio.Barrier(10)

    async def meet(*_: Any) -> float:
        await met.wait()
        return 1.0

    rubric = WeightedSum([Called(meet) for _ in range(10)], [0.1] * 10)
    async with asyncio.timeout(PATIENCE):
        assert await rubric("a", "o") == pytest.approx(1.0)


async def test_a_sum_waits_for_any_kind_of_awaitable():
    future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    future.set_result(0.5)
    rubric = WeightedSum([Called(lambda *_: future), Fixed(1.0)], [0.5, 0.5])
    assert await rubric("a", "o") == pytest.approx(0.75)


async def test_a_failing_child_of_a_sum_stops_the_others_and_is_raised():
    log: list[str] = []
    late = Slow(1.0, "late", log, seconds=3600)
    rubric = WeightedSum([late, Slow(OSError("gone"))], [0.5, 0.5])
    with pytest.raises(OSError, match="gone"):
        await rubric("a", "o")
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (log, rubric.last_score) == ([], None)


def test_a_child_that_fails_at_once_leaves_nothing_unawaited():
    inner = WeightedSum([Slow(1.0), Sequential(Fixed(1.0), Slow(1.0))], [0.5, 0.5])
    rubric = WeightedSum([Slow(1.0), inner, Fixed(OSError("gone"))], [0.5, 0.25, 0.25])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OSError, match="gone"):
            rubric("a", "o")
        gc.collect()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("container", ["sequential", "gate", "sum"])
async def test_containers_run_their_pre_hooks_before_their_children(container: str, waits: bool):
    log: list[str] = []
    child = (Slow if waits else Fixed)(1.0, "child", log)
    made: dict[str, Any] = {
        "sequential": lambda: Sequential(child),
        "gate": lambda: Gate(child),
        "sum": lambda: WeightedSum([child], [1.0]),
    }
    rubric = made[container]()
    rubric.register_forward_pre_hook(lambda *_: log.append("before"))
    rubric.register_forward_hook(lambda r, a, o, score: log.append(f"after {score}"))
    await rubric("a", "o")
    assert log == ["before", "child", "after 1.0"]


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
    games.reset()
    with pytest.raises(NotImplementedError):
        games("a", "o")
    del games["forward"]
    with pytest.raises(KeyError):
        games["forward"]
    assert [name for name, _ in games.named_rubrics()] == ["pong", "reset"]
