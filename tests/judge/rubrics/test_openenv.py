"""Our rubrics in OpenEnv's containers and environments, its rubrics in ours."""

import importlib.util
import sys
from typing import Any

import pytest

from rubricem.judge.rubrics import Gate, Rubric, Sequential, WeightedSum
from rubricem.judge.rubrics.openenv import _outward_classes, from_openenv, to_openenv
from rubricem.memory.errors import SettingsError
from tests.support.values import Fixed, Slow

needs_openenv = pytest.mark.skipif(
    importlib.util.find_spec("openenv") is None, reason="the extra openenv is not installed"
)


def theirs() -> Any:
    return importlib.import_module("openenv.core.rubrics")


def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "openenv.core.rubrics", None)
    monkeypatch.setitem(sys.modules, "openenv", None)
    _outward_classes.cache_clear()
    with pytest.raises(SettingsError, match="not installed") as refused:
        to_openenv(Fixed(0.5))
    assert "pip install openenv" in refused.value.remedy


@needs_openenv
def test_ours_is_scored_inside_theirs_and_shows_its_parts():
    outer = theirs().WeightedSum(
        [to_openenv(Gate(Fixed(0.8), 0.5)), to_openenv(Fixed(0.4))], [0.5] * 2
    )
    assert isinstance(outer.rubric_0, theirs().Rubric)
    assert outer("a", "o") == pytest.approx(0.6)
    assert {name: part.last_score for name, part in outer.named_rubrics()} == {
        "rubric_0": 0.8,
        "rubric_0.rubric": 0.8,
        "rubric_1": 0.4,
    }
    outer.rubric_0.reset()
    assert outer.rubric_0.rubric.last_score is None


@needs_openenv
async def test_ours_that_waits_is_waited_for_inside_theirs():
    outer = theirs().Sequential(to_openenv(Fixed(1.0)), to_openenv(Sequential(Slow(0.5))))
    assert await outer("a", "o") == 0.5


@needs_openenv
@pytest.mark.parametrize("waits", [False, True])
async def test_theirs_is_scored_inside_ours_and_shows_its_parts(waits: bool):
    class Plain(theirs().Rubric):  # type: ignore[misc]
        def forward(self, action: Any, observation: Any) -> float:
            return 0.5

    class Waiting(theirs().Rubric):  # type: ignore[misc]
        async def forward(self, action: Any, observation: Any) -> float:
            return 0.5

    gate = theirs().Gate(Waiting() if waits else Plain(), threshold=0.5)
    ours = WeightedSum([from_openenv(gate), Fixed(1.0)], [0.5, 0.5])
    assert await ours("a", "o") == pytest.approx(0.75)
    names = {name: part.last_score for name, part in ours.named_rubrics()}
    assert names == {"rubric_0": 0.5, "rubric_0.rubric": 0.5, "rubric_1": 1.0}
    ours.reset()
    assert ours.get_rubric("rubric_0.rubric").last_score is None


@needs_openenv
def test_there_and_back_is_the_same_rubric():
    ours, its = Fixed(0.5), theirs().Gate(to_openenv(Fixed(0.5)))
    assert from_openenv(to_openenv(ours)) is ours
    assert to_openenv(from_openenv(its)) is its


@needs_openenv
def test_state_goes_through():
    outward = to_openenv(Gate(Fixed(0.8), threshold=0.5))
    assert outward.state_dict() == {"threshold": 0.5}
    outward.load_state_dict({"threshold": 0.9})
    assert outward("a", "o") == 0.0
    judge = from_openenv(theirs().LLMJudge("{action}", None, default_score=0.25))
    assert judge.state_dict()["default_score"] == 0.25
    judge.load_state_dict({"default_score": 0.75})
    assert judge.theirs.default_score == 0.75  # type: ignore[attr-defined]


@needs_openenv
def test_an_environment_takes_ours_as_it_is_and_bridged():
    interfaces = importlib.import_module("openenv.core.env_server.interfaces")

    class World(interfaces.Environment):  # type: ignore[misc]
        def reset(self, *args: Any, **kwargs: Any) -> None:
            self._reset_rubric()

        def step(self, action: Any, *args: Any, **kwargs: Any) -> Any:
            return self._apply_rubric(action, "seen")

        @property
        def state(self) -> None:
            return None

    rubric: Rubric = Gate(Fixed(0.8), 0.5)
    for given in (rubric, to_openenv(rubric)):
        world = World(rubric=given)
        assert world.step("act") == 0.8
        world.reset()
        assert rubric.last_score is None
