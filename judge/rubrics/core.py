"""The rubric: a score for an action and its outcome, with children, hooks and state.

    class Short(Rubric):
        def forward(self, action, observation) -> float:
            return 1.0 if len(action) < 80 else 0.0

`forward` may be async. A call runs the pre-hooks, `forward` and the hooks, in that order for every
rubric, and stores the score in `last_score`. A rubric assigned to an attribute is a child under
that name until something else is assigned.

Rubrics are made of rubrics: in sequence, behind a threshold, in a weighted sum, or merely held. A
`Gate` inside a `WeightedSum` takes away its own share alone; to stop everything it must come first:
`Sequential(Gate(a), WeightedSum([b, c], [0.7, 0.3]))`. NaN, an unknown score, makes unknown what
depends on it.

The score of a `TrajectoryRubric` comes at the end of an episode, and is shared among its steps. An
episode ends with an observation whose `done` is true. The step after that begins the next one.

Scoring is one coroutine. OpenEnv's contract also has a synchronous use: calling a rubric
gives the number at once where nothing in it is async (`waits`), else the coroutine.
"""

import asyncio
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from typing import Any, ClassVar, Self, SupportsFloat, TypeVar

T = TypeVar("T")


class Score(float):
    """A finished score; it can be awaited as well, so callers need not know."""

    def __await__(self) -> Generator[None, None, float]:
        return float(self)
        yield  # what makes this a generator, as awaiting asks for one


async def together(waiting: Iterable[Awaitable[T]]) -> list[T]:
    """All results, in order; at the first failure the others are cancelled and it is raised."""
    tasks = [asyncio.ensure_future(one) for one in waiting]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


PreHook = Callable[["Rubric", Any, Any], Any]
"""(rubric, action, observation); awaited if it is async, and its result ignored"""
Hook = Callable[["Rubric", Any, Any, float], Any]
"""(rubric, action, observation, score)"""


class Rubric(ABC):
    """One score. NaN means unknown, which is not the same as 0."""

    _state_names: ClassVar[tuple[str, ...]] = ()
    """attributes that are saved and restored"""
    last_score: float | None
    """of the latest successful call; None before the first and after `reset`"""
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

    def __call__(self, action: Any, observation: Any) -> Score | Coroutine[Any, Any, Score]:
        """The score; a coroutine for it if the rubric `waits`.

        What forward or a hook raises is raised, and `last_score` stays as it was.
        """
        scoring = self._call(action, observation)
        if self.waits:
            return scoring
        try:
            scoring.send(None)
        except StopIteration as end:
            return Score(end.value)
        scoring.close()
        raise TypeError(f"{type(self).__name__} awaits: make its forward async")

    async def _call(self, action: Any, observation: Any) -> Score:
        """The score. Raises what forward or a hook raises; `last_score` then stays as it was."""
        for before in tuple(self._pre_hooks):
            await _resolve(before(self, action, observation))
        given = await _resolve(self.forward(action, observation))
        if not isinstance(given, SupportsFloat):
            kind = type(given).__name__
            raise TypeError(f"{type(self).__name__}.forward must return a number, not {kind}")
        score = self.last_score = float(given)
        for after in tuple(self._hooks):
            await _resolve(after(self, action, observation, score))
        return Score(score)

    @property
    def waits(self) -> bool:
        """Whether it, a hook or a rubric below it is async."""
        own = (self._own_work, *self._pre_hooks, *self._hooks)
        return any(map(inspect.iscoroutinefunction, own)) or any(c.waits for c in self.children())

    @property
    def _own_work(self) -> Callable[..., Any] | None:
        """What a rubric does itself, beside calling its children."""
        return self.forward

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
        """All below this one, depth first; one with two parents comes twice."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, "Rubric"]]:
        """All below this one with their dotted names, as for `get_rubric`."""
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
        """Begin a new episode, here and in every child. Overriding methods call it as well."""
        self.last_score = None
        for child in self._children.values():
            child.reset()

    def state_dict(self) -> dict[str, Any]:
        """Settings to save, children's under their dotted names; {} if there are none."""
        return {name: getattr(self, name) for name in self._state_names} | {
            f"{name}.{key}": value
            for name, child in self._children.items()
            for key, value in child.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the settings in the state; others stay, and unknown ones are ignored.

        A name that could be two children's (those called `a` and `a.b`) is the longer one's.
        """
        longest_first = sorted(self._children.items(), key=lambda item: -len(item[0]))
        left = dict(state)
        for name in self._state_names:
            if name in left:
                setattr(self, name, left[name])
        for name, child in longest_first:
            own = {key: left.pop(key) for key in tuple(left) if key.startswith(f"{name}.")}
            if own:
                child.load_state_dict({key[len(name) + 1 :]: own[key] for key in own})


SUM_TOLERANCE = 1e-6
"""how far from 1 the sum of the weights may be"""


async def _resolve(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class _Container(Rubric):
    """A rubric that awaits its children alone."""

    @property
    def _own_work(self) -> None:
        return None


class _Row(_Container):
    """Children in order, called rubric_0, rubric_1, ..."""

    def __init__(self, rubrics: Iterable[Rubric] = ()) -> None:
        super().__init__()
        self._names: list[str] = []
        for rubric in rubrics:
            self._add(rubric)

    def _add(self, rubric: Rubric) -> None:
        name = f"rubric_{len(self._names)}"
        setattr(self, name, rubric)
        self._names.append(name)

    @property
    def _row(self) -> list[Rubric]:
        return [self._children[name] for name in self._names if name in self._children]

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, index: int) -> Rubric:
        return self._row[index]

    def __iter__(self) -> Iterator[Rubric]:
        return iter(self._row)


class Sequential(_Row):
    """Children in order: 0.0 at the first that gives 0, else the last score; 1.0 without any.

    Those after a 0, or after a NaN, which is then the result, are not called. A trajectory rubric
    therefore comes last: the 0.0 that it gives before the end would stop the others.
    """

    def __init__(self, *rubrics: Rubric) -> None:
        super().__init__(rubrics)

    async def forward(self, action: Any, observation: Any) -> float:
        score = 1.0
        for rubric in self._row:
            score = float(await rubric(action, observation))
            if score == 0.0:
                return 0.0
            if math.isnan(score):
                break
        return score


class Gate(_Container):
    """Its child's score if that reaches the threshold, else 0.0; NaN stays NaN."""

    _state_names = ("threshold",)
    rubric: Rubric

    def __init__(self, rubric: Rubric, threshold: float = 1.0) -> None:
        super().__init__()
        self.rubric = rubric
        self.threshold = threshold

    async def forward(self, action: Any, observation: Any) -> float:
        score = float(await self.rubric(action, observation))
        return 0.0 if score < self.threshold else score


class WeightedSum(_Row):
    """The sum of weight times score; awaitable scores are awaited together.

    If a child fails, those still running are cancelled and its error is raised. Weights may be
    negative, but must sum to 1.0.
    """

    _state_names = ("weights",)

    def __init__(self, rubrics: Sequence[Rubric], weights: Sequence[float]) -> None:
        self._weights = _check_weights(weights, len(rubrics))
        super().__init__(rubrics)

    @property
    def weights(self) -> list[float]:
        """A copy."""
        return list(self._weights)

    @weights.setter
    def weights(self, weights: Sequence[float]) -> None:
        self._weights = _check_weights(weights, len(self))

    async def forward(self, action: Any, observation: Any) -> float:
        weights = _check_weights(self._weights, len(self))
        scoring = (rubric._call(action, observation) for rubric in self._row)
        scores = await together(scoring) if self.waits else [await one for one in scoring]
        return math.fsum(w * s for w, s in zip(weights, scores, strict=True))


class RubricList(_Row):
    """Rubrics to choose from by index; the rubric that holds it calls the one it wants."""

    def append(self, rubric: Rubric) -> None:
        self._add(rubric)

    def extend(self, rubrics: Iterable[Rubric]) -> None:
        for rubric in rubrics:
            self._add(rubric)

    async def forward(self, action: Any, observation: Any) -> float:
        raise NotImplementedError("a RubricList gives no score; call one of its rubrics")


class RubricDict(_Container, MutableMapping[str, Rubric]):
    """Rubrics to choose from by name. Any text is a name, also that of a method, or with dots."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__  # a rubric is itself, whatever it holds

    def __init__(self, rubrics: Mapping[str, Rubric] | None = None) -> None:
        super().__init__()
        self.update(rubrics or {})

    def __setitem__(self, name: str, rubric: Rubric) -> None:
        self._register(name, rubric)

    def __getitem__(self, name: str) -> Rubric:
        return self._children[name]

    def __delitem__(self, name: str) -> None:
        del self._children[name]

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)

    async def forward(self, action: Any, observation: Any) -> float:
        raise NotImplementedError("a RubricDict gives no score; call one of its rubrics")


def _check_weights(weights: Sequence[float], rubrics: int) -> list[float]:
    if len(weights) != rubrics:
        raise ValueError(f"{len(weights)} weights must match {rubrics} rubrics in number")
    if not abs(math.fsum(weights) - 1.0) <= SUM_TOLERANCE:
        raise ValueError(f"weights must sum to 1.0, not {math.fsum(weights)}")
    return list(weights)


Step = tuple[Any, Any]
"""action, observation"""


class TrajectoryRubric(Rubric):
    """`intermediate_reward` until the episode is done, then `score_trajectory`."""

    _state_names: ClassVar[tuple[str, ...]] = ("intermediate_reward",)

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
    def _own_work(self) -> Callable[..., Any]:
        return self.score_trajectory

    @property
    def trajectory(self) -> list[Step]:
        """A copy."""
        return list(self._trajectory)

    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        if self._trajectory and _is_done(self._trajectory[-1][1]):
            self._trajectory = []
        self._trajectory.append((action, observation))
        if _is_done(observation):
            return self.score_trajectory(self._trajectory)
        return self.intermediate_reward

    def reset(self) -> None:
        super().reset()
        self._trajectory = []


class ExponentialDiscountingTrajectoryRubric(TrajectoryRubric):
    """Step t of T gets gamma**(T - 1 - t) times the final score."""

    _state_names = ("gamma", "intermediate_reward")

    def __init__(self, gamma: float = 0.99, intermediate_reward: float = 0.0) -> None:
        super().__init__(intermediate_reward)
        self.gamma = gamma

    @property
    def gamma(self) -> float:
        """In [0, 1]."""
        return self._gamma

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must be in [0, 1], not {gamma}")
        self._gamma = gamma

    def compute_step_rewards(self) -> list[float]:
        """Requires a `score_trajectory` that is not awaitable."""
        if not self._trajectory:
            return []
        final = self.score_trajectory(self._trajectory)
        if not isinstance(final, int | float):
            if inspect.iscoroutine(final):
                final.close()
            raise TypeError("step rewards need a score_trajectory that returns a number at once")
        last = len(self._trajectory) - 1
        return [self.gamma ** (last - step) * final for step in range(last + 1)]


def _is_done(observation: object) -> bool:
    return bool(getattr(observation, "done", False))
