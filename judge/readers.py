"""How judges ask a model: for a list of entries from a server, for probabilities from a local one.

A server is asked for one JSON entry for each thing that is judged, by its name; a reply that leaves
one out is asked for again. A local model is asked short questions after one text, which stays in
its cache as a prefix; its answer is the probability of each option, which ranks well where what
such a model writes is worth little (0.5B: 8 to 9 of 10 hand-made pairs in order by "Yes").
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydantic import BaseModel

from rubricem.judge.base import fit_messages, instruct
from rubricem.memory.asking import Bill, ask_json, weigh_options
from rubricem.memory.schema import ChatModel, ChoiceReader, Message, Usage

YES_NO = ("Yes", "yes", "No", "no")
SPARE_TOKENS = 16
"""left free of a context for the option that is read"""


async def ask_entries(
    model: ChatModel,
    messages: Sequence[Message],
    form: type[BaseModel],
    names: Sequence[str],
    *,
    seed: int = 0,
) -> tuple[list[Any], Usage]:
    """The entries of a reply in the order of the names, exactly one for each; and the cost.

    `form` has one field, a list of entries with an `id`. Raises JudgeError or PolicyError as
    `ask_json` does.
    """
    (listed,) = form.model_fields

    def whole(reply: BaseModel) -> None:
        given = [str(entry.id) for entry in getattr(reply, listed)]
        if sorted(given) != sorted(names):
            raise ValueError(_entries_fault(given, names))

    reply, usage = await ask_json(model, messages, form, check=whole, seed=seed)
    by_name = {str(entry.id): entry for entry in getattr(reply, listed)}
    return [by_name[name] for name in names], usage


def _entries_fault(given: Sequence[str], names: Sequence[str]) -> str:
    parts = {
        "missing": [name for name in names if name not in given],
        "more than once": sorted({name for name in given if given.count(name) > 1}),
        "unknown": sorted(set(given) - set(names)),
    }
    told = "; ".join(f"{what}: {', '.join(found)}" for what, found in parts.items() if found)
    return f"it needs exactly {len(names)} entries, one for each id, and has {len(given)} ({told})"


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
