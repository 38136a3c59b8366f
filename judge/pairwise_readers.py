"""The forms in which a pairwise judge can be asked to reason before its verdict.

`full` is the chain of rubrics: the kind of request, then a rubric or a solution of its own, then
the comparison. The other two are the ablations of RM-R1 (arXiv:2505.02387): `no-types` leaves
out the kind and always writes a rubric, `no-rubric` compares at once. A judge is trained to
write one of them, and is asked in that one.

The pairwise judge over a chat server: it writes a chain of rubrics that ends in a verdict.

The pairwise judge on a local model: the probability that it goes on with A, or with B.

A small model may prefer a place to any reply, so that one order says little: over both
orders the mean of the two probabilities, `Comparison.first_share`, is what ranks replies.

The pairwise judge on a local model that was trained to write its reasoning and a verdict.

Where an untrained small model is only read for its probabilities (`judge.pairwise_readers`), one
that `rubricem train judge` trained is asked as it was in training: the same prompt, the same
form, in token ids, and its text ends with its verdict.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from rubricem.judge.base import CHARACTERS, QUESTION_CHARACTERS, fitted, prompt
from rubricem.judge.pairwise import (
    Chain,
    Preference,
    Side,
    parse_chain,
    real_quotes,
    verdict_of,
    without_tags,
)
from rubricem.memory.asking import MOST_TOKENS, TRIES, Forgetting, counted, spent
from rubricem.memory.errors import RubricemError
from rubricem.memory.interfaces import (
    ChatModel,
    ChoiceReader,
    Completion,
    Message,
    Sampling,
    TokenPolicy,
)
from rubricem.memory.schema import NO_USAGE, Usage
from rubricem.memory.text import cut, fenced, without_markers

SHOWN_CHARACTERS = 4_000
"""of a text without a verdict that is shown to the model again"""
REASON_CHARACTERS = 600


class ChatComparer:
    """A `Comparer` over a chat server."""

    def __init__(self, model: ChatModel, tries: int = TRIES, characters: int = CHARACTERS) -> None:
        self._model = model
        self._tries = tries
        self._characters = characters

    @property
    def name(self) -> str:
        return self._model.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        """The model's verdict; asked for again, with what was wrong, while there is none."""
        asked = shown_pair(question, first, second, self._characters)
        messages = [Message("system", prompt("pairwise")), Message("user", asked)]
        talk, used, fault, text = list(messages), NO_USAGE, "", ""
        for attempt in range(self._tries):
            sampling = Sampling(max_tokens=MOST_TOKENS, temperature=0.0, seed=attempt)
            try:
                reply, used = await counted(self._model, talk, sampling, used)
            except RubricemError as error:
                return Preference(None, error.told(), usage=spent(error))
            text, chain = reply.text, parse_chain(reply.text)
            if chain.verdict is not None:
                reason = reason_of(chain, first, second)
                return Preference(chain.verdict, reason, chain=chain, text=reply.text, usage=used)
            if isinstance(self._model, Forgetting):
                await self._model.forget(talk, sampling)
            fault = _fault(reply)
            talk = [*messages, *_correction(reply.text, fault)]
        said = f"{self.name} named no winner in {self._tries} tries: {fault}"
        return Preference(None, said, text=text, usage=used)


def shown_pair(question: str, first: str, second: str, characters: int) -> str:
    """Question and replies, fenced, with the judge's own tags disarmed; long replies are cut."""
    room = max(characters // 2, characters - min(len(first), len(second)))
    return fenced(
        {
            "request": cut(question, QUESTION_CHARACTERS),
            "reply A": cut(without_tags(first), room),
            "reply B": cut(without_tags(second), room),
        }
    )


def _fault(reply: Completion) -> str:
    if reply.stop_reason == "length":
        return "it was cut off before its verdict; write less"
    return "it does not end in <answer>[[A]]</answer> or <answer>[[B]]</answer>"


def _correction(reply: str, fault: str) -> Sequence[Message]:
    """The text without a verdict, and what it lacks; servers refuse an empty message."""
    again = f"That reply cannot be used: {fault}. Write the whole comparison again."
    said = [Message("assistant", cut(reply, SHOWN_CHARACTERS))] if reply.strip() else []
    return [*said, Message("user", again)]


def reason_of(chain: Chain, first: str, second: str) -> str:
    """Its rubric and evaluation, or what comes closest; and whether its quotes are real."""
    why = " ".join((chain.evaluation or chain.solution).split())
    shown = (without_markers(without_tags(reply)) for reply in (first, second))
    invented = len(chain.quotes) - len(real_quotes(chain, *shown))
    told = f"({invented} of its {len(chain.quotes)} quotes do not stand there.)"
    parts = (_rubric(chain), cut(why, REASON_CHARACTERS), told if invented else "")
    return " ".join(filter(None, parts))


def _rubric(chain: Chain) -> str:
    """The standard that the judge set itself, in one line."""
    items = [
        item.text if item.percent is None else f"{item.text} ({item.percent:g}%)"
        for item in chain.rubric
    ]
    return f"By {cut('; '.join(items), REASON_CHARACTERS)}:" if items else ""


ChainForm = Literal["full", "no-types", "no-rubric"]

_PROMPTS: Mapping[ChainForm, str] = {
    "full": "pairwise",
    "no-types": "pairwise_no_types",
    "no-rubric": "pairwise_no_rubric",
}
_END = r"\s*<eval>.+</eval>\s*<answer>\[\[[AB]\]\]</answer>\s*"
_RUBRIC = r"\s*<rubric>.+</rubric>"
_WHOLE: Mapping[ChainForm, re.Pattern[str]] = {
    "full": re.compile(
        rf"\s*<type>(?:Chat</type>{_RUBRIC}|Reasoning</type>\s*<solution>.+</solution>){_END}", re.S
    ),
    "no-types": re.compile(_RUBRIC + _END, re.S),
    "no-rubric": re.compile(_END, re.S),
}


def chain_messages(
    form: ChainForm, question: str, first: str, second: str, characters: int
) -> list[Message]:
    """What a judge of that form is asked; replies are cut to so many characters together."""
    shown = shown_pair(question, first, second, characters)
    return [Message("system", prompt(_PROMPTS[form])), Message("user", shown)]


def well_formed(text: str, form: ChainForm) -> bool:
    """Whether the text is the form's parts in their order, and nothing beside them."""
    return _WHOLE[form].fullmatch(text) is not None


def verdict_end(text: str) -> int | None:
    """Where a judge's text ends, once it names a winner; None while it does not."""
    end = text.lower().rfind("</answer>")
    if end < 0 or verdict_of(text) is None:
        return None
    return end + len("</answer>")


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
            return Preference(None, error.told(), usage=error.usage or Usage())
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


CHAIN_TOKENS = 2048
"""that a judge may write of one pair"""


class ChainComparer:
    """A `Comparer` over a model that continues token ids."""

    def __init__(
        self, model: TokenPolicy, form: ChainForm = "full", max_tokens: int = CHAIN_TOKENS
    ) -> None:
        self._model = model
        self._form = form
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        return self._model.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        """What the model writes at temperature 0; the same pair is always read alike."""
        try:
            _, prefix = await fitted(
                self._model,
                partial(chain_messages, self._form, question, first, second),
                self._max_tokens,
            )
            sampling = Sampling(max_tokens=self._max_tokens, temperature=0.0, seed=0)
            reply = await self._model.complete(prefix, sampling, verdict_end)
        except RubricemError as error:
            told = error.told()
            return Preference(None, told, usage=error.usage or NO_USAGE)
        chain = parse_chain(reply.text)
        if chain.verdict is None:
            ended = "it was cut off" if reply.stop_reason == "length" else "it ended"
            reason = f"{self.name} named no winner: {ended} without a verdict."
            return Preference(None, reason, text=reply.text, usage=reply.usage)
        return Preference(
            chain.verdict,
            reason_of(chain, first, second),
            chain=chain,
            text=reply.text,
            usage=reply.usage,
        )
