"""The checker over a chat server: a batch of claims in one call, verdicts as checked JSON.

The rule that numbers, names and quotations must occur in the cited text stands above the reply:
no passage can talk the model out of it.
"""

from collections.abc import Sequence
from functools import cache
from typing import Literal, Self

from pydantic import BaseModel, model_validator

from agent.prompting import template
from agent.verifying.choice_checker import around
from agent.verifying.lexical import must_occur
from agent.verifying.pairs import Finding, Findings, Pair
from memory.asking import ask_json
from memory.errors import PolicyError
from memory.interfaces import ChatModel, Message
from memory.text import fenced

TRIES = 3
"""replies asked for before a model that writes no usable JSON has failed"""
CHARACTERS = 4000
"""of a passage shown"""
REASON_CHARACTERS = 200


class GivenVerdict(BaseModel):
    """The verdict on one claim, as the model writes it."""

    number: int
    reason: str = ""
    verdict: Literal["supported", "partial", "unsupported"]


class GivenVerdicts(BaseModel):
    """The reply to a batch."""

    verdicts: list[GivenVerdict]


@cache
def _verdicts_of(count: int) -> type[GivenVerdicts]:
    """The reply's form for a batch of so many claims."""

    class Whole(GivenVerdicts):
        @model_validator(mode="after")
        def _whole(self) -> Self:
            if sorted(v.number for v in self.verdicts) != list(range(1, count + 1)):
                raise ValueError(f"it needs one verdict for each number from 1 to {count}")
            return self

    return Whole


class ChatChecker:
    """A `Checker` over a `ChatModel`; each call of `check` is one batch."""

    def __init__(self, model: ChatModel, tries: int = TRIES) -> None:
        self._model = model
        self._tries = tries

    @property
    def name(self) -> str:
        return self._model.name

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        messages = [Message("system", template("verify")), Message("user", listed(pairs))]
        reply, usage = await ask_json(
            self._model, messages, _verdicts_of(len(pairs)), self._tries, failure=PolicyError
        )
        given = sorted(reply.verdicts, key=lambda v: v.number)
        each = (_finding(pair, verdict) for pair, verdict in zip(pairs, given, strict=True))
        return Findings(tuple(each), usage)


def _finding(pair: Pair, given: GivenVerdict) -> Finding:
    if wrong := must_occur(pair):
        return Finding("unsupported", wrong)
    if given.verdict == "supported":
        return Finding("supported")
    return Finding(given.verdict, " ".join(given.reason.split())[:REASON_CHARACTERS].rstrip("."))


def listed(pairs: Sequence[Pair]) -> str:
    """The passages, each once, then the claims with their numbers."""
    shown = {
        (pair.source.id, text): f"passage {pair.source.id}"
        for pair in pairs
        for text in (f"{pair.source.title}\n{around(pair.claim, pair.source.text, CHARACTERS)}",)
    }
    passages = [fenced({name: text}) for (_, text), name in shown.items()]
    claims = [
        f"Claim {number}, citing passage {pair.source.id}:\n{fenced({'claim': pair.claim})}"
        for number, pair in enumerate(pairs, start=1)
    ]
    return "\n\n".join([*passages, *claims])
