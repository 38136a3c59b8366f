"""Rubrics of ours in environments of the `openenv` package, and its rubrics in ours.

Requires the extra `openenv`. A bridged rubric lists its children under their names, with their
latest scores, and passes on resets and state. Hooks stay on the side on which they were registered.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

from rubricem.judge.rubrics.core import Rubric
from rubricem.memory.errors import import_extra


def to_openenv(rubric: Rubric) -> Any:
    """The rubric as one of `openenv`'s.

    There a rubric is either always awaitable or never. Raises SettingsError if the package is not
    installed.
    """
    if isinstance(rubric, FromOpenEnv):
        return rubric.theirs
    plain, waiting = _outward_classes()
    return (waiting if rubric.waits else plain)(rubric)


def from_openenv(theirs: Any) -> Rubric:
    """A rubric of `openenv`'s as one of ours."""
    ours = getattr(theirs, "ours", None)
    return ours if isinstance(ours, Rubric) else FromOpenEnv(theirs)


class FromOpenEnv(Rubric):
    """A rubric of `openenv`'s; `theirs` is the rubric itself."""

    def __init__(self, theirs: Any) -> None:
        super().__init__()
        self.theirs = theirs
        for name, child in theirs.named_children():
            self._register(name, from_openenv(child))

    @property
    def last_score(self) -> float | None:
        score = self.theirs.last_score
        # Theirs keeps the coroutine where a forward that is not async returns one.
        return score if isinstance(score, int | float) else self.__dict__["last_score"]

    @last_score.setter
    def last_score(self, score: float | None) -> None:
        self.__dict__["last_score"] = score

    @property
    def _own_work(self) -> Callable[..., Any] | None:
        # Containers of theirs find out in the call; what they hold is among the children.
        return None if self._children else self.theirs.forward

    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        given: float | Awaitable[float] = self.theirs(action, observation)
        return given

    def reset(self) -> None:
        super().reset()
        self.theirs.reset()
        self.theirs.last_score = None

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **self.theirs.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.theirs.load_state_dict(dict(state))


@cache
def _outward_classes() -> tuple[type[Any], type[Any]]:
    """Two subclasses of their rubric: one that is never awaitable, and one that always is.

    They are made here because their base exists only if the package is installed.
    """
    base = import_extra("openenv.core.rubrics", None).Rubric

    def begin(self: Any, ours: Rubric) -> None:
        base.__init__(self)
        self.ours = ours
        for name, child in ours.named_children():
            if not hasattr(self, name):
                setattr(self, name, to_openenv(child))

    async def waiting(self: Any, action: Any, observation: Any) -> float:
        return float(await self.ours(action, observation))

    shared = {
        "__init__": begin,
        "last_score": property(lambda self: self.ours.last_score, lambda self, score: None),
        "reset": lambda self: self.ours.reset(),
        "state_dict": lambda self: self.ours.state_dict(),
        "load_state_dict": lambda self, state: self.ours.load_state_dict(state),
    }
    plain = {"forward": lambda self, action, observation: float(self.ours(action, observation))}
    return (
        type("ToOpenEnv", (base,), {**shared, **plain}),
        type("WaitingToOpenEnv", (base,), {**shared, "forward": waiting}),
    )
