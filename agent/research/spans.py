"""The spans of passages that can be an answer of a kind, as a grammar to choose one by.

A reader that writes freely answers in sentences, or from memory. Held to a grammar of what the
passages contain it can only point: a span begins and ends at words that fit the kind of answer, and
is at most so many words long. Scripts without capitals offer every span.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rubricem.agent.research.tuned import TUNED
from rubricem.memory.language import PAIRED, language_of, stop_words
from rubricem.memory.schema import AnswerKind

NAMED = frozenset((AnswerKind.PERSON, AnswerKind.PLACE, AnswerKind.ORGANISATION, AnswerKind.WORK))
_BRACKETS = frozenset("()[]{};")
_WORD = re.compile(rf"[{PAIRED}]|[$\u00a3\u20ac]?[^\W_{PAIRED}](?:[^\s{PAIRED}]*[^\W_{PAIRED}])?%?")
_NUMBER_WORDS = frozenset(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
    hundred thousand million billion once twice dozen both""".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    gap: str
    """what stands between it and the next word, on one line"""
    ends: bool
    """no span goes on behind it: the text, a sentence or what is in brackets ends"""

    @property
    def digit(self) -> bool:
        return any(letter.isdigit() for letter in self.text)

    @property
    def caseless(self) -> bool:
        """Of a script that has no capitals."""
        return self.text[0].isalpha() and self.text[0].lower() == self.text[0].upper()

    @property
    def anchor(self) -> bool:
        """Where a name may begin or end."""
        return self.text[0].isupper() or self.digit or self.caseless


def _words_of(text: str) -> list[_Word]:
    found = list(_WORD.finditer(text))
    words = []
    for at, match in enumerate(found):
        gap = text[match.end() : found[at + 1].start()] if at + 1 < len(found) else "\n"
        stops = len(match[0]) > TUNED.abbreviation and gap.strip()[:1] in (*".!?\u3002",)
        ends = stops or "\n" in gap or not _BRACKETS.isdisjoint(gap)
        words.append(_Word(match[0], re.sub(r"\s+", " ", gap), ends))
    return words


def _fits(words: Sequence[_Word], kind: AnswerKind, binding: frozenset[str]) -> bool:
    """Whether so many words can be an answer of this kind."""
    first, last = words[0], words[-1]
    if kind in NAMED:
        return first.anchor and last.anchor
    if kind is AnswerKind.DATE:
        dated = last.digit or (last.caseless and any(word.digit for word in words))
        return first.anchor and dated
    if kind is AnswerKind.NUMBER:
        counts = [w.digit or w.text.casefold() in _NUMBER_WORDS for w in words]
        return counts[0] and any(counts)
    return not {first.text.casefold(), last.text.casefold()} & binding


def _from(words: Sequence[_Word], kind: AnswerKind, binding: frozenset[str]) -> Iterator[str]:
    """The grammar of the spans that begin at each word of a text."""
    named = kind in {*NAMED, AnswerKind.DATE}
    for start in range(len(words)):
        pieces, text, bare = list[str](), "", 0
        for end in range(start, min(start + TUNED.span, len(words))):
            text += words[end].text
            bare = 0 if words[end].anchor else bare + 1
            if _fits(words[start : end + 1], kind, binding):
                pieces.append(json.dumps(text, ensure_ascii=False))
                text = ""
            text += words[end].gap
            if words[end].ends or (named and bare > TUNED.binding):
                break
        if pieces:
            yield " (".join(pieces) + ")?" * (len(pieces) - 1)


def span_grammar(texts: Iterable[str], kind: AnswerKind) -> str:
    """A grammar (GBNF) of the spans of some texts that can answer; "" where there are none."""
    starts: dict[str, None] = {}
    for text in texts:
        binding = stop_words(language_of(text))
        starts.update(dict.fromkeys(_from(_words_of(text), kind, binding)))
    return f"root ::= {' | '.join(starts)}\n" if starts else ""
