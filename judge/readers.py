"""How judges ask a model: for a list of entries from a server, for probabilities from a local one.

A server is asked for one JSON entry for each thing that is judged, by its name; those that a reply
leaves out, or writes unusably, are asked for again, and they alone. A local model is asked short
questions after one text, which stays in its cache as a prefix; its answer is the probability of
each option, which ranks well where what such a model writes is worth little (0.5B: 8 to 9 of 10
hand-made pairs in order by "Yes").
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from rubricem.judge.base import fit_messages, instruct
from rubricem.judge.rubrics.llm import score_in
from rubricem.memory.asking import (
    SHOWN_CHARACTERS,
    TRIES,
    Bill,
    ask_until,
    correction,
    parse_reply,
    unbounded_schema,
    weigh_options,
)
from rubricem.memory.errors import JudgeError
from rubricem.memory.schema import (
    NO_USAGE,
    ChatModel,
    ChoiceReader,
    Completion,
    Message,
    Sampling,
    Usage,
)

YES_NO = ("Yes", "yes", "No", "no")
SPARE_TOKENS = 16
"""left free of a context for the option that is read"""


WHOLE = WithJsonSchema({"type": "integer"})
"""what a server is asked for; other numbers and texts are read as well"""


def _number(given: Any) -> Any:
    """A number as people write it: "8/10", "40 %"; anything else is left for pydantic to refuse."""
    if isinstance(given, bool):
        raise ValueError("true and false are no numbers")
    return given if not isinstance(given, str) or (read := score_in(given)) is None else read


Score = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
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


SLIGHTLY_ABOVE = 1.5
"""up to which a score beyond 1 is clipped, not taken to be on another scale"""


def on_scale(score: float, scale: float) -> float:
    """The score from 0 to 1."""
    return min(max(score / scale, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Entries:
    """An entry for each name, in order; None for one of which no usable entry came."""

    found: tuple[Any, ...]
    fault: str
    """why some are None"""
    usage: Usage = NO_USAGE


async def ask_entries(
    model: ChatModel,
    messages: Sequence[Message],
    form: type[BaseModel],
    names: Sequence[str],
    *,
    seed: int = 0,
    check: Callable[[Sequence[Any]], object] = lambda entries: None,
) -> Entries:
    """The entries of a reply by their names; what is missing is asked for again, by name.

    `form` has one field, a list of entries with an `id`. `check` examines those that came together:
    the model is told the ValueError that it raises. Raises JudgeError where no usable entry came in
    `TRIES` replies, PolicyError as `ask_until` does.
    """
    (listed,) = form.model_fields
    known = dict[str, Any]()

    def take(reply: Completion) -> bool:
        dropped: list[str] = []
        known.update(_agreed(getattr(parse_reply(reply, form, dropped=dropped), listed), names))
        try:
            check([known[name] for name in names if name in known])
        except ValueError:
            known.clear()
            raise
        if missing := [name for name in names if name not in known]:
            told = "".join(f"; {fault}" for fault in dict.fromkeys(dropped))
            raise ValueError(f"it needs an entry for each id; missing: {', '.join(missing)}{told}")
        return True

    def again(reply: str, fault: str) -> list[Message]:
        missing = ", ".join(name for name in names if name not in known)
        told = f"That reply cannot be used whole ({fault}). Write a JSON object of the same form"
        told += f" with an entry for each of these: {missing}."
        return [*messages, *correction(reply, told, SHOWN_CHARACTERS)]

    sampling = Sampling(temperature=0.0, seed=seed, json_schema=unbounded_schema(form))
    _, fault, used = await ask_until(model, messages, take, again, sampling)
    if not known:
        said = f"{model.name} gave no usable JSON in {TRIES} tries: {fault}"
        raise JudgeError(said, "Use a stronger model for it.", used)
    return Entries(tuple(known.get(name) for name in names), fault, used)


def _agreed(entries: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The entries by name, without those of no name asked for, and those that contradict."""
    found: dict[str, list[Any]] = {}
    for entry in entries:
        if name := name_in(str(entry.id), names):
            found.setdefault(name, []).append(entry)
    alike = {name for name, given in found.items() if _verdict(given[0]) == _verdict(given[-1])}
    return {name: found[name][-1] for name in alike}


def _verdict(entry: BaseModel) -> list[Any]:
    return [value for value in entry.model_dump(exclude={"id"}).values() if type(value) is not str]


def name_in(said: str, names: Sequence[str]) -> str | None:
    """The name that an id means: itself, or its last word or number, as in "Attempt 1"."""
    words = re.findall(r"[A-Z]?\d+|[A-Z]+", said.upper())
    return next((name for name in names if words and name in (said.strip(), words[-1])), None)


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
