"""The pairwise judge on a local model: the probability that it goes on with A, or with B.

A small model prefers places far more than replies, so that one order says little: over both
orders the mean of the two probabilities, `Comparison.first_share`, is what ranks replies.
"""

from judge.pairwise import Preference
from judge.pairwise_chat import shown_pair
from judge.pairwise_parsing import Side
from judge.prompting import prompt
from memory.errors import JudgeError, RubricemError
from memory.interfaces import ChoiceReader, Message
from memory.schema import Usage

OPTIONS = ("A", "B")
SPARE_TOKENS = 16
CHARACTERS_PER_TOKEN = 4
LEAST_CHARACTERS = 200
SHRINK = 0.85
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
            prefix = await self._fitted(question, first, second)
            share, _ = await self._reader.weigh(prefix, OPTIONS)
        except RubricemError as error:
            return Preference(None, f"{error} {error.remedy}".strip(), usage=error.usage or Usage())
        usage = Usage(prompt_tokens=len(prefix), cost=0.0, calls=1)
        reason = f"The model gives what it was shown first a probability of {share:.2f}."
        return Preference(_winner(share), reason, first_share=share, usage=usage)

    async def _fitted(self, question: str, first: str, second: str) -> tuple[int, ...]:
        """The pair as a prefix that fits the context, the replies cut where they must be."""
        most = self._reader.context_tokens - SPARE_TOKENS
        characters = most * CHARACTERS_PER_TOKEN
        while characters > LEAST_CHARACTERS:
            asked = f"{shown_pair(question, first, second, characters)}\n\n{ASK}"
            messages = [Message("system", prompt("pairwise_choice")), Message("user", asked)]
            prefix = await self._reader.render(messages)
            if len(prefix) <= most:
                return prefix
            characters = int(characters * min(SHRINK, most / len(prefix)))
        raise JudgeError(
            "the question alone fills the judge's context",
            "Raise context_tokens, or judge with a server's model.",
        )


def _winner(share: float) -> Side | None:
    if share == 0.5:
        return None
    return "A" if share > 0.5 else "B"
