"""The rubric: a score for an action and what came of it, with children, hooks and state.

    class Short(Rubric):
        def forward(self, action, observation) -> float:
            return 1.0 if len(action) < 80 else 0.0

`forward` may be async, or return anything awaitable. A call runs the pre-hooks, `forward` and
the hooks, in that order for every rubric, and keeps the score in `last_score`. A rubric that
is put in an attribute is a child under that name until something else takes its place.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Self, SupportsFloat

from judge.rubrics.waiting import Result, Score, Steps, run, settled

__all__ = ["Hook", "PreHook", "Rubric", "Score"]

PreHook = Callable[["Rubric", Any, Any], Any]
"""(rubric, action, observation); what it returns is waited for if need be, and not used"""
Hook = Callable[["Rubric", Any, Any, float], Any]
"""(rubric, action, observation, score)"""


class Rubric(ABC):
    """One score. NaN means unknown, which is not the same as 0."""

    last_score: float | None
    """of the latest call that ended well; None before the first and after `reset`"""
    _children: dict[str, "Rubric"]
    _pre_hooks: list[PreHook]
    _hooks: list[Hook]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Not in __init__: a subclass may set children before, or without, calling it.
        rubric = super().__new__(cls)
        rubric.__dict__.update(last_score=None, _children={}, _pre_hooks=[], _hooks=[])
        return rubric

    def __init__(self) -> None:
        # Takes no arguments, so that those a subclass has no use for are refused.
        super().__init__()

    @abstractmethod
    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        """The score of an action, given what was observed after it."""

    def __call__(self, action: Any, observation: Any) -> Result:
        """The score; a coroutine for it if forward, a child or a hook has to be waited for.

        What forward or a hook raises is raised, and `last_score` stays as it was.
        """
        return run(self._steps(action, observation))

    def _steps(self, action: Any, observation: Any) -> Steps:
        for before in tuple(self._pre_hooks):
            yield from settled(before(self, action, observation))
        score = self._number((yield from settled(self.forward(action, observation))))
        self.last_score = score
        for after in tuple(self._hooks):
            yield from settled(after(self, action, observation, score))
        return score

    def _number(self, score: object) -> float:
        if not isinstance(score, SupportsFloat):
            kind = type(score).__name__
            raise TypeError(f"{type(self).__name__}.forward must return a number, not {kind}")
        return float(score)

    def register_forward_pre_hook(self, hook: PreHook) -> None:
        """Call it before each forward, after those registered earlier."""
        self._pre_hooks.append(hook)

    def register_forward_hook(self, hook: Hook) -> None:
        """Call it with each score, after those registered earlier."""
        self._hooks.append(hook)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Rubric):
            self._register(name, value)
        else:
            self._children.pop(name, None)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._children.pop(name, None)

    def _register(self, name: str, child: "Rubric") -> None:
        if child is self or any(inner is self for inner in child.rubrics()):
            raise ValueError(f"{type(self).__name__} cannot be its own child {name!r}")
        self._children[name] = child

    def children(self) -> Iterator["Rubric"]:
        yield from self._children.values()

    def named_children(self) -> Iterator[tuple[str, "Rubric"]]:
        yield from self._children.items()

    def rubrics(self) -> Iterator["Rubric"]:
        """All below this one, depth first; one that stands in two places comes twice."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, "Rubric"]]:
        """All below this one with their dotted names, as `get_rubric` takes them."""
        for name, child in self._children.items():
            path = f"{prefix}.{name}" if prefix else name
            yield path, child
            yield from child.named_rubrics(path)

    def get_rubric(self, path: str) -> "Rubric":
        """The rubric of that dotted name. Raises KeyError if there is none."""
        found = next(self._at(path), None)
        if found is None:
            raise KeyError(f"no rubric is called {path!r}")
        return found

    def _at(self, path: str) -> Iterator["Rubric"]:
        if path in self._children:
            yield self._children[path]
        for name, child in self._children.items():
            if path.startswith(f"{name}."):
                yield from child._at(path[len(name) + 1 :])

    def reset(self) -> None:
        """Begin a new episode, here and in every child. Overriders call it as well."""
        self.last_score = None
        for child in self._children.values():
            child.reset()

    def state_dict(self) -> dict[str, Any]:
        """Settings to save, children's under their dotted names; {} where there are none."""
        return {
            f"{name}.{key}": value
            for name, child in self._children.items()
            for key, value in child.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the settings that the state names; the others stay, unknown ones are not read.

        A name that could be two children's (those called `a` and `a.b`) is the longer one's.
        """
        longest_first = sorted(self._children.items(), key=lambda item: -len(item[0]))
        left = dict(state)
        for name, child in longest_first:
            own = {key: left.pop(key) for key in tuple(left) if key.startswith(f"{name}.")}
            if own:
                child.load_state_dict({key[len(name) + 1 :]: own[key] for key in own})
