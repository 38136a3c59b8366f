"""Words in a note that would order its reader about, as injected text does.

A reflection is full of advice in the imperative, so what counts is not the mood but the matter:
dropping one's instructions, another role, hiding, leaving out citations, an answer or a name
settled beforehand, an action beside research, being carried on. The rules know many ways to say
so in English, and the commonest in other languages; a text is also read as it would be if its
letters stood for others. A paraphrase that the rules have no words for gets by.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache

from memory.order_words import any_of
from memory.orders_abroad import orders_abroad
from memory.orders_on_answers import ON_ANSWERS
from memory.orders_to_agents import BOND, TO_AGENTS
from memory.readings import folded, hidden_readings

QUOTED = 80
"""characters of the offending words in a flag"""

ORDERS = {
    **TO_AGENTS,
    **ON_ANSWERS,
    "hides words by setting their letters apart": any_of(r"(?:\b[^\W\d_][ .\-]){7,}"),
}
"""what a note does -> words that do it"""


def orders(text: str, *, asked: bool = False) -> Iterator[str]:
    """A sentence for each thing that the text does to its reader, with the words that do it.

    `asked`: it is a question, which may speak of itself and to its reader.
    """
    told = dict(_found(folded(text)))
    if asked:
        told.pop(BOND, None)
    yield from (f'It {what}: "{words}".' for what, words in told.items())
    for what, words in dict(orders_abroad(text)).items():
        yield f'It {what}: "{words[:QUOTED]}".'
    for reading in hidden_readings(text):
        for what, words in _found(reading):
            if what not in told and not (asked and what == BOND):
                yield f'Read otherwise, it {what}: "{words}".'


def _found(plain: str) -> Iterator[tuple[str, str]]:
    """What a folded text does, and the first words that do it."""
    for what, pattern in _patterns().items():
        if match := pattern.search(plain):
            yield what, match.group().strip(" .,:;!?-")[:QUOTED]


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    """Compiled when something is first screened: it takes a tenth of a second."""
    return {what: re.compile(words, re.I) for what, words in ORDERS.items()}
