"""The pairwise judge on a local model: the probability that it goes on with A, or with B.

A small model may prefer a place to any reply, so that one order says little: over both
orders the mean of the two probabilities, `Comparison.first_share`, is what ranks replies.
"""

from functools import partial

from judge.fitting import fitted
from judge.pairwise import Preference
from judge.pairwise_chat import shown_pair
from judge.pairwise_parsing import Side
from judge.prompting import prompt
from memory.errors import RubricemError
from memory.interfaces import ChoiceReader, Message
from memory.schema import Usage

OPTIONS = ("A", "B")
SPARE_TOKENS = 16
ASK = "Which reply is better, A or B?"


class ChoiceComparer:
    """A `Comparer` over a `ChoiceReader`."""

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader

    @property
    def name(self) -> str:
        return self._reader.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        try:
            _, prefix = await fitted(
                self._reader, partial(_messages, question, first, second), SPARE_TOKENS
            )
            share, _ = await self._reader.weigh(prefix, OPTIONS)
        except RubricemError as error:
            return Preference(None, f"{error} {error.remedy}".strip(), usage=error.usage or Usage())
        usage = Usage(prompt_tokens=len(prefix), cost=0.0, calls=1)
        reason = f"The model gives what it was shown first a probability of {share:.2f}."
        return Preference(_winner(share), reason, first_share=share, usage=usage)


def _messages(question: str, first: str, second: str, characters: int) -> list[Message]:
    """The pair in so many characters, and what is asked of it."""
    asked = f"{shown_pair(question, first, second, characters)}\n\n{ASK}"
    return [Message("system", prompt("pairwise_choice")), Message("user", asked)]


def _winner(share: float) -> Side | None:
    if share == 0.5:
        return None
    return "A" if share > 0.5 else "B"
