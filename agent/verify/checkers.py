"""The checker over a chat server: a batch of claims in one call, verdicts as checked JSON.

The rule that numbers, names and quotations must occur in the cited text stands above the reply:
no passage can talk the model out of it.

The checker on the embedded model: how likely it holds "Yes" that the passage says the claim.

The rules come first, since a small model overlooks a changed number: what they find at fault is
unsupported, and the model is not asked. A short passage is shown whole, so that the claims on it
share a prefix in the model's cache; of a long one, what stands around the sentence that is
closest to the claim.

One try at a claim that its source does not hold: said again from what the source says.
"""

from collections.abc import Sequence
from functools import cache
from typing import Literal, Self

from pydantic import BaseModel, model_validator

from rubricem.agent.models.policy import Policy
from rubricem.agent.models.reading import split_thinking
from rubricem.agent.research.scaffold import neutralise, template
from rubricem.agent.research.words import closest_sentence
from rubricem.agent.verify.rules import Finding, Findings, Pair, fault, must_occur
from rubricem.memory.asking import ask_json
from rubricem.memory.errors import PolicyError
from rubricem.memory.interfaces import ChatModel, ChoiceReader, Message, Sampling
from rubricem.memory.schema import NO_USAGE, Author, Segment, Usage
from rubricem.memory.text import fenced, one_line, without_markers

OPTIONS = ("Yes", "yes", "No", "no")
CHARACTERS = 1200
"""of a passage shown"""
CLAIM_CHARACTERS = 800
SUPPORTED = 0.6
"""probability of "Yes" from which a claim counts as supported"""
UNSUPPORTED = 0.4
"""probability below which it counts as unsupported"""


class ChoiceChecker:
    """A `Checker` over a `ChoiceReader`."""

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader

    @property
    def name(self) -> str:
        return f"{self._reader.name} and lexical rules"

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        found, usage = [], NO_USAGE
        for pair in pairs:
            if wrong := fault(pair):
                found.append(Finding("unsupported", wrong))
                continue
            probability, used = await self.probability(pair)
            found.append(finding_at(probability))
            usage += used
        return Findings(tuple(found), usage)

    async def probability(self, pair: Pair) -> tuple[float, Usage]:
        """How likely the model holds it that the passage says the claim, 0 to 1."""
        messages = [
            Message("system", template("verify_choice")),
            Message("user", asked(pair)),
        ]
        prefix = await self._reader.render(messages)
        upper, lower, *_ = await self._reader.weigh(prefix, OPTIONS)
        return upper + lower, Usage(prompt_tokens=len(prefix), cost=0.0, calls=1)


def finding_at(probability: float) -> Finding:
    """The finding that a probability of "Yes" stands for."""
    if probability >= SUPPORTED:
        return Finding("supported")
    said = f"the model holds it {probability:.0%} likely that the source says this"
    return Finding("unsupported" if probability < UNSUPPORTED else "partial", said)


def asked(pair: Pair) -> str:
    """Passage, closest sentence and claim, in this order."""
    passage = around(pair.claim, pair.source.text, CHARACTERS)
    text = f"{pair.source.title}\n{passage}"
    closest = closest_sentence(pair.claim, passage) or "(none speaks of it)"
    return (
        f"{fenced({'passage': text})}\n"
        f"The closest sentence in it: {without_markers(closest[:CLAIM_CHARACTERS])}\n"
        f"{fenced({'claim': pair.claim[:CLAIM_CHARACTERS]})}\n"
        "Does the passage say what the claim says? Yes or No?"
    )


def around(claim: str, text: str, characters: int) -> str:
    """The text, or so many characters of it around the sentence closest to the claim."""
    if len(text) <= characters:
        return text
    closest = closest_sentence(claim, text)
    middle = text.find(closest) + len(closest) // 2 if closest else 0
    start = min(max(middle - characters // 2, 0), len(text) - characters)
    return text[start : start + characters]


TRIES = 3
"""replies asked for before a model that writes no usable JSON has failed"""
BATCH_CHARACTERS = 4000
"""of a passage shown"""
REASON_CHARACTERS = 200


class GivenClaimVerdict(BaseModel):
    """The verdict on one claim, as the model writes it."""

    number: int
    reason: str = ""
    verdict: Literal["supported", "partial", "unsupported"]


class GivenClaimVerdicts(BaseModel):
    """The reply to a batch."""

    verdicts: list[GivenClaimVerdict]


@cache
def _verdicts_of(count: int) -> type[GivenClaimVerdicts]:
    """The reply's form for a batch of so many claims."""

    class Whole(GivenClaimVerdicts):
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


def _finding(pair: Pair, given: GivenClaimVerdict) -> Finding:
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
        for text in (
            f"{pair.source.title}\n{around(pair.claim, pair.source.text, BATCH_CHARACTERS)}",
        )
    }
    passages = [fenced({name: text}) for (_, text), name in shown.items()]
    claims = [
        f"Claim {number}, citing passage {pair.source.id}:\n{fenced({'claim': pair.claim})}"
        for number, pair in enumerate(pairs, start=1)
    ]
    return "\n\n".join([*passages, *claims])


REWRITE_CHARACTERS = 1500
"""of the passage shown"""
LONGEST = 400
"""characters of a claim written anew"""
SAMPLING = Sampling(max_tokens=400, temperature=0.0, seed=0)


async def rewritten(policy: Policy, pair: Pair) -> tuple[str, Usage]:
    """The claim as the policy writes it from the passage; "" where it says that nothing is there.

    What comes back is a claim like any other and still to be checked.
    """
    system = template("rewrite")
    passage = f"{pair.source.title}\n{around(pair.claim, pair.source.text, REWRITE_CHARACTERS)}"
    message = fenced({"claim": pair.claim, "passage": passage})
    ids = await policy.open(system, message)
    asked = Segment(author=Author.PROMPT, text=message, token_ids=ids)
    said = await policy.write(system, [asked], SAMPLING, None, None)
    return sentence_of(said.text), said.usage


def sentence_of(reply: str) -> str:
    """The first line of a reply as plain text; "" for NONE and for what is too long to be one."""
    _, text = split_thinking(reply)
    line = one_line(next((line for line in text.splitlines() if line.strip()), ""))
    line = neutralise(line.strip("\"'` "))
    return "" if line.upper().rstrip(".") == "NONE" or len(line) > LONGEST else line
