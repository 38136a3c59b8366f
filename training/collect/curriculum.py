"""Which questions each step asks: batches in order, or windows that ask each batch twice.

A window is K batches of questions that are new, then the same K batches again: the first time a
question is met with what similar ones taught, the second time with what it taught itself
(RubricEM, arXiv:2605.10899, section 3.4 and appendix D, with K = 3). So a fresh batch of a window
recalls nothing of its own questions, even where the bank holds it from an earlier pass or run.

A step's batch follows from its number alone: whoever goes on at a step, collecting or training,
needs no other state than that number.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rubricem.training.collect.directory import Question


@dataclass(frozen=True, slots=True)
class QuestionBatch:
    """The questions of one step, no two alike."""

    questions: tuple[Question, ...]
    replay_of: int | None = None
    """the step that asked them before in its window; None: they are new there"""
    fresh: bool = False
    """they are to be met with what others taught alone, since the window asks them again"""


class Curriculum:
    """The steps over some questions, pass after pass without an end."""

    def __init__(
        self, questions: Sequence[Question], size: int, window: int = 0, seed: int | None = None
    ) -> None:
        """`size`: questions in a batch; `window`: K, or 0 for no replay.

        With a seed the questions come in another order in each pass, else always as given.
        Raises ValueError where there is nothing to ask.
        """
        if not questions or size < 1 or window < 0:
            raise ValueError(f"{len(questions)} questions make no batches of {size}")
        self._questions = tuple(questions)
        self._size = size
        self._window = window
        self._seed = seed
        self._steps: list[QuestionBatch] = []
        self._passes = 0
        self._extend()
        self.steps = len(self._steps)
        """of the first pass"""

    def batch(self, step: int) -> QuestionBatch:
        """What a step asks, from 0; the steps of further passes follow those of the first."""
        while step >= len(self._steps):
            self._extend()
        return self._steps[step]

    def _extend(self) -> None:
        order = list(self._questions)
        if self._seed is not None:
            random.Random(f"{self._seed}:{self._passes}").shuffle(order)
        batches = [QuestionBatch(questions) for questions in _batches(order, self._size)]
        width = self._window or len(batches)
        for start in range(0, len(batches), width):
            fresh, first = batches[start : start + width], len(self._steps)
            self._steps += fresh
            if self._window:
                replays = [replace(b, replay_of=first + n) for n, b in enumerate(fresh)]
                self._steps[first:] = [*(replace(b, fresh=True) for b in fresh), *replays]
        self._passes += 1


def _batches(questions: Sequence[Question], size: int) -> Iterator[tuple[Question, ...]]:
    """Batches of at most `size`; a question that comes again waits for the next one."""
    batch: dict[str, Question] = {}
    for question in questions:
        if len(batch) == size or question.question in batch:
            yield tuple(batch.values())
            batch = {}
        batch[question.question] = question
    if batch:
        yield tuple(batch.values())
