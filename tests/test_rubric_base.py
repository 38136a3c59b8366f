"""The rubric's contract: calls, hooks, children, reset and state, at once or awaited."""

import asyncio
import copy
import gc
import inspect
import warnings
from typing import Any

import pytest

from judge.rubrics import Rubric, RubricDict, Sequential
from tests.scored import Called, Fixed, Slow


class Pair(Rubric):
    """Two children as attributes; the second one's score."""

    def __init__(self, first: Rubric, second: Rubric) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def forward(self, action: Any, observation: Any) -> Any:
        return self.second(action, observation)


def test_a_rubric_without_forward_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        Rubric()  # type: ignore[abstract]


def test_a_call_gives_forwards_number_and_keeps_it():
    rubric = Called(lambda action, observation: action + observation)
    assert rubric.last_score is None
    assert rubric(0.25, 0.5) == 0.75
    assert rubric.last_score == 0.75
    assert type(rubric.last_score) is float


async def test_a_number_that_is_there_can_be_awaited_all_the_same():
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


def test_outside_a_loop_the_coroutine_is_what_asyncio_run_takes():
    assert asyncio.run(Slow(0.5)("a", "o")) == 0.5  # type: ignore[arg-type]


async def test_a_forward_that_hands_on_something_awaitable_is_waited_for():
    rubric = Called(lambda action, observation: Slow(0.5)(action, observation))
    seen: list[float] = []
    rubric.register_forward_hook(lambda r, a, o, score: seen.append(score))
    assert await rubric("a", "o") == 0.5
    assert (rubric.last_score, seen) == (0.5, [0.5])


async def test_futures_and_tasks_are_waited_for_like_coroutines():
    future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    future.set_result(0.25)
    assert await Called(lambda *_: future)("a", "o") == 0.25
    task = asyncio.ensure_future(asyncio.sleep(0, 0.75))
    assert await Sequential(Called(lambda *_: task))("a", "o") == 0.75


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


def test_what_a_hook_raises_is_raised():
    def refuse(*_: Any) -> None:
        raise LookupError("no such action")

    rubric = Fixed(0.5)
    rubric.register_forward_pre_hook(refuse)
    with pytest.raises(LookupError):
        rubric("a", "o")
    assert (rubric.log, rubric.last_score) == ([], None)


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


def test_a_name_that_is_given_away_is_no_child_any_more():
    pair = Pair(Fixed(0.1), Fixed(0.2))
    pair.first = None  # type: ignore[assignment]
    assert [name for name, _ in pair.named_children()] == ["second"]
    del pair.second
    assert list(pair.children()) == []


def test_children_may_be_set_before_or_without_the_bases_init():
    class Early(Rubric):
        def __init__(self) -> None:
            self.child = Fixed(0.5)

        def forward(self, action: Any, observation: Any) -> Any:
            return self.child(action, observation)

    rubric = Early()
    assert rubric("a", "o") == 0.5
    assert rubric.get_rubric("child").last_score == 0.5


def test_the_same_rubric_in_two_places_is_listed_twice():
    shared = Fixed(0.5)
    assert [name for name, _ in Pair(shared, shared).named_rubrics()] == ["first", "second"]


def test_a_rubric_cannot_be_below_itself():
    pair = Pair(Fixed(0.1), Fixed(0.2))
    with pytest.raises(ValueError, match="own child"):
        pair.first = pair
    with pytest.raises(ValueError, match="own child"):
        pair.first = Sequential(pair)


def test_reset_clears_last_scores_all_the_way_down():
    pair = Pair(Fixed(0.1), Fixed(0.2))
    pair("a", "o")
    pair.reset()
    assert (pair.last_score, pair.second.last_score) == (None, None)


def test_a_plain_rubric_has_no_state_and_takes_none():
    rubric = Fixed(0.5)
    assert rubric.state_dict() == {}
    rubric.load_state_dict({})
    rubric.load_state_dict({"unknown": 1})
    assert rubric.state_dict() == {}


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


def test_names_with_dots_are_found_and_keep_their_own_state():
    games = RubricDict({"a": RubricDict({"c": Tuned(0.1)}), "a.b": Tuned(0.2)})
    for name, rubric in games.named_rubrics():
        assert games.get_rubric(name) is rubric
    games.load_state_dict({"a.b.score": 0.8, "a.c.score": 0.7})
    assert games.state_dict() == {"a.c.score": 0.7, "a.b.score": 0.8}


def test_a_deep_copy_is_a_rubric_of_its_own():
    pair = Pair(Fixed(0.1), Fixed(0.2))
    twin = copy.deepcopy(pair)
    assert twin("a", "o") == 0.2
    assert (pair.last_score, pair.second.last_score) == (None, None)
    assert twin.get_rubric("second") is twin.second is not pair.second


async def test_a_cancelled_call_leaves_no_score():
    rubric = Sequential(Slow(0.5, seconds=60))
    task = asyncio.ensure_future(rubric("a", "o"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rubric.last_score is None


def test_a_coroutine_that_is_closed_leaves_nothing_unawaited():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Pair(Fixed(0.1), Sequential(Fixed(1.0), Slow(0.5)))("a", "o").close()  # type: ignore[union-attr]
        gc.collect()
    assert [str(warning.message) for warning in told if warning.category is RuntimeWarning] == []
