"""The spans of texts that can be a bare answer, as a grammar to choose one by.

A model that writes freely answers in sentences, or from memory. Held to a grammar of what the texts
contain it can only point: a span is at most so many words long, stays within a sentence, and
neither begins nor ends with a function word.
"""

import json
import re
from collections.abc import Iterable, Iterator

from rubricem.agent.research.tuned import TUNED
from rubricem.memory.language import PAIRED, language_of, stop_words

_BRACKETS = frozenset("()[]{};")
_WORD = re.compile(rf"[{PAIRED}]|[$\u00a3\u20ac]?[^\W_{PAIRED}](?:[^\s{PAIRED}]*[^\W_{PAIRED}])?%?")


def _words_of(text: str) -> list[tuple[str, str, bool]]:
    """Each word, what stands behind it on one line, and whether no span goes on there."""
    found = list(_WORD.finditer(text))
    words = []
    for at, match in enumerate(found):
        gap = text[match.end() : found[at + 1].start()] if at + 1 < len(found) else "\n"
        stops = len(match[0]) > TUNED.abbreviation and gap.strip()[:1] in (*".!?\u3002",)
        ends = stops or "\n" in gap or not _BRACKETS.isdisjoint(gap)
        words.append((match[0], re.sub(r"\s+", " ", gap), ends))
    return words


def _spans_of(text: str) -> Iterator[str]:
    """The grammar of the spans that begin at each word of a text."""
    words, binding = _words_of(text), stop_words(language_of(text))
    for start, (first, _, _) in enumerate(words):
        if first.casefold() in binding:
            continue
        pieces, said = list[str](), ""
        for word, gap, ends in words[start : start + TUNED.span]:
            said += word
            if word.casefold() not in binding:
                pieces.append(json.dumps(said, ensure_ascii=False))
                said = ""
            said += gap
            if ends:
                break
        if pieces:
            yield " (".join(pieces) + ")?" * (len(pieces) - 1)


def span_grammar(texts: Iterable[str]) -> str:
    """A grammar (GBNF) of the spans of some texts; "" where there are none."""
    starts = dict.fromkeys(span for text in texts for span in _spans_of(text))
    return f"root ::= {' | '.join(starts)}\n" if starts else ""
