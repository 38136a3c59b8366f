"""The checker on the embedded model: how likely it holds "Yes" that the passage says the claim.

The rules come first, since a small model overlooks a changed number: what they find at fault is
unsupported, and the model is not asked. A short passage is shown whole, so that the claims on it
share a prefix in the model's cache; of a long one, what stands around the sentence that is
closest to the claim.
"""

from collections.abc import Sequence

from agent.overlap import closest_sentence
from agent.prompting import template
from agent.verifying.lexical import fault
from agent.verifying.pairs import Finding, Findings, Pair
from memory.interfaces import ChoiceReader, Message
from memory.schema import NO_USAGE, Usage
from memory.text import fenced, without_markers

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
