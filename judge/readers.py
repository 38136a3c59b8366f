"""How judges ask a local model, and how numbers in replies are read.

It is asked short questions after one text, which stays in its cache as a prefix; its answer is the
probability of each option, which ranks well where what such a model writes is worth little (0.5B:
8 to 9 of 10 hand-made pairs in order by "Yes").
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rubricem.judge.base import fit_messages, instruct
from rubricem.judge.rubrics.llm import SLIGHTLY_ABOVE, score_in
from rubricem.memory.asking import Bill, weigh_options
from rubricem.memory.schema import ChoiceReader, Message, Usage

YES_NO = ("Yes", "yes", "No", "no")
SPARE_TOKENS = 16
"""left free of a context for the option that is read"""


def number_of(most: float) -> BeforeValidator:
    """Reads numbers up to `most` as people write them: "8/10", "40 %", "2 (fully there)"."""

    def read(given: Any) -> Any:
        if isinstance(given, bool):
            raise ValueError("true and false are no numbers")
        share = score_in(given, most) if isinstance(given, str) else None
        return given if share is None else most * share  # what is none is pydantic's to refuse

    return BeforeValidator(read)


Score = Annotated[float, number_of(1), Field(allow_inf_nan=False)]
"""a score from 0 to 1, or on the scale that `scale_of` finds"""


def scale_of(scores: Sequence[float]) -> float:
    """The best score of the scale that a reply's numbers are on: 1, 10 or 100.

    Raises ValueError where they are on none, or on two.
    """
    most = max(scores, default=0.0)
    if most <= SLIGHTLY_ABOVE:
        return 1.0
    if most > 100 or any(0 < score < 1 for score in scores):
        raise ValueError(f"the scores go from 0 to 1, and one of them is {most:g}")
    return 10.0 if most <= 10 else 100.0


def on_scale(score: float, scale: float) -> float:
    """The score from 0 to 1."""
    return min(max(score / scale, 0.0), 1.0)


class ChoiceSeries:
    """Short questions after one text, asked of a local model."""

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader
        self.name = reader.name
        # Questions of two texts in turns would have each text read again for every question.
        self._turn = asyncio.Lock()

    async def weigh(
        self,
        name: str,
        text_of: Callable[[int], str],
        questions: Sequence[str],
        options: Sequence[str] = YES_NO,
        what: str = "the question alone fills",
    ) -> tuple[list[tuple[float, ...]], Usage]:
        """For each question the probabilities of the options, which sum to 1 or less.

        `text_of` makes the text with at most so many characters of what may be cut. Raises
        JudgeError, beginning with `what`, if it does not fit into the context even so.
        """

        def messages(question: str, characters: int) -> list[Message]:
            return instruct(name, f"{text_of(characters)}\n\n{question}")

        async with self._turn:
            longest = partial(messages, max(questions, key=len))
            characters, _ = await fit_messages(self._reader, longest, SPARE_TOKENS, what)
            found = []
            with Bill() as bill:
                for question in questions:
                    asked = messages(question, characters)
                    chances, used = await weigh_options(self._reader, asked, options)
                    found.append(chances)
                    bill.usage += used
        return found, bill.usage

    async def yes(
        self,
        name: str,
        text_of: Callable[[int], str],
        questions: Sequence[str],
        what: str = "the question alone fills",
    ) -> tuple[list[float], Usage]:
        """For each question the probability of Yes, not No."""
        found, usage = await self.weigh(name, text_of, questions, what=what)
        return [min(upper + lower, 1.0) for upper, lower, *_ in found], usage
