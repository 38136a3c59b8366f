"""Rubrics made of rubrics: in turn, behind a threshold, weighed together, or merely kept.

A `Gate` inside a `WeightedSum` takes away its own share alone; what is to stop everything
stands before it: `Sequential(Gate(a), WeightedSum([b, c], [0.7, 0.3]))`. NaN, an unknown
score, makes unknown what depends on it.
"""

import math
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from judge.rubrics.base import Rubric
from judge.rubrics.waiting import Score, Steps, discard, run, settled, together

SUM_TOLERANCE = 1e-6
"""how far from 1 the weights may sum"""


class _Row(Rubric):
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
    """Children in turn: 0.0 at the first that gives 0, else the last score; 1.0 without any.

    Those after a 0, or after a NaN, which is the result then, are not called. A trajectory
    rubric therefore stands last: the 0.0 that it gives before the end would stop the others.
    """

    def __init__(self, *rubrics: Rubric) -> None:
        super().__init__(rubrics)

    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        return run(self._in_turn(action, observation))

    def _in_turn(self, action: Any, observation: Any) -> Steps:
        score = 1.0
        for rubric in self._row:
            score = float((yield from settled(rubric(action, observation))))
            if score == 0.0:
                return 0.0
            if math.isnan(score):
                break
        return score


class Gate(Rubric):
    """Its child's score if that reaches the threshold, else 0.0; NaN stays NaN."""

    rubric: Rubric

    def __init__(self, rubric: Rubric, threshold: float = 1.0) -> None:
        super().__init__()
        self.rubric = rubric
        self.threshold = threshold

    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        return run(self._let_through(action, observation))

    def _let_through(self, action: Any, observation: Any) -> Steps:
        score = float((yield from settled(self.rubric(action, observation))))
        return 0.0 if score < self.threshold else score

    def state_dict(self) -> dict[str, Any]:
        return {"threshold": self.threshold, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.threshold = state.get("threshold", self.threshold)


class WeightedSum(_Row):
    """The sum of weight times score; what has to be waited for is waited for together.

    If a child fails, those still at work are cancelled and its error is raised. Weights may be
    negative, but must sum to 1.0.
    """

    def __init__(self, rubrics: Sequence[Rubric], weights: Sequence[float]) -> None:
        self._weights = _checked(weights, len(rubrics))
        super().__init__(rubrics)

    @property
    def weights(self) -> list[float]:
        """A copy."""
        return list(self._weights)

    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        return run(self._weigh(action, observation))

    def _weigh(self, action: Any, observation: Any) -> Steps:
        weights, given = _checked(self._weights, len(self)), []
        try:
            for rubric in self._row:
                given.append(rubric(action, observation))
            waiting = [one for one in given if not isinstance(one, Score)]
            scores = iter((yield from settled(together(waiting))) if waiting else ())
        except BaseException:
            for one in given:
                discard(one)
            raise
        total = (one if isinstance(one, Score) else next(scores) for one in given)
        return math.fsum(w * s for w, s in zip(weights, total, strict=True))

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._weights = _checked(state.get("weights", self._weights), len(self))


class RubricList(_Row):
    """Rubrics to choose from by place; the rubric that holds it calls the one it wants."""

    def append(self, rubric: Rubric) -> None:
        self._add(rubric)

    def extend(self, rubrics: Iterable[Rubric]) -> None:
        for rubric in rubrics:
            self._add(rubric)

    def forward(self, action: Any, observation: Any) -> float:
        raise NotImplementedError("a RubricList gives no score; call one of its rubrics")


class RubricDict(Rubric):
    """Rubrics to choose from by name. Any text is a name, also that of a method, or with dots."""

    def __init__(self, rubrics: Mapping[str, Rubric] | None = None) -> None:
        super().__init__()
        self.update(rubrics or {})

    def __setitem__(self, name: str, rubric: Rubric) -> None:
        self._register(name, rubric)

    def __getitem__(self, name: str) -> Rubric:
        return self._children[name]

    def __delitem__(self, name: str) -> None:
        del self._children[name]

    def __contains__(self, name: object) -> bool:
        return name in self._children

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)

    def keys(self) -> Iterable[str]:
        return self._children.keys()

    def values(self) -> Iterable[Rubric]:
        return self._children.values()

    def items(self) -> Iterable[tuple[str, Rubric]]:
        return self._children.items()

    def update(self, rubrics: Mapping[str, Rubric]) -> None:
        for name, rubric in rubrics.items():
            self[name] = rubric

    def forward(self, action: Any, observation: Any) -> float:
        raise NotImplementedError("a RubricDict gives no score; call one of its rubrics")


def _checked(weights: Sequence[float], rubrics: int) -> list[float]:
    if len(weights) != rubrics:
        raise ValueError(f"{len(weights)} weights must match {rubrics} rubrics in number")
    if not abs(math.fsum(weights) - 1.0) <= SUM_TOLERANCE:
        raise ValueError(f"weights must sum to 1.0, not {math.fsum(weights)}")
    return list(weights)
