"""What code is sure to be wrong in an answer's claims: this alone is told and lowers a score.

A true claim may have other words, names and small numbers than its source: it paraphrases, counts,
rounds, converts and calculates. So a doubt of the lexical rules is no finding here, and leaves a
claim unchecked. Sure are two things: a quotation of several words that stands nowhere, and that
nobody had to translate; and a cited source without a word of the claim, beside another that has
most of it, or where a long number or year and a name of the claim stand in nothing that was shown.
"""

import re
from collections.abc import Iterator, Sequence

from rubricem.agent.reports.rules import (
    ClaimFinding,
    Pair,
    likely_finding,
    missing_names,
    missing_numbers,
    missing_quotations,
    shares,
    statements_in,
)
from rubricem.agent.transcript.words import content_words
from rubricem.memory.language import language_of
from rubricem.memory.schema import Author, Source, Trajectory

LEAST_DIGITS = 3
"""of a number that is told: shorter ones are counts, or rounded"""
LEAST_WORDS, MOST_OF_IT = 4, 0.6
"""content words of a claim that may be about another source, and the share that one must have"""

_WITH_UNIT = re.compile(r"\d[^\w.]{0,2}[^\W\d_]+")


def sure_finding(pair: Pair, seen: str, found: Sequence[Source]) -> ClaimFinding:
    """Unsupported where it is sure to be; supported where words make that likely; else unchecked.

    `seen`: everything that the run was shown. `found`: all its sources.
    """
    if wrong := next(_sure(pair, seen, found), ""):
        return ClaimFinding("unsupported", wrong)
    finding = likely_finding(pair)
    return finding if finding.verdict == "supported" else ClaimFinding("unchecked", finding.reason)


def _sure(pair: Pair, seen: str, found: Sequence[Source]) -> Iterator[str]:
    """A sentence for each thing that is sure to be wrong with a claim."""
    cited = [pair.source, *pair.beside]
    written = {language_of(text) or "en" for text in (pair.claim, *(s.text for s in cited))}
    alike = len(written) == 1
    for quoted in missing_quotations(pair.claim, seen) if alike else ():
        yield f'the quotation "{quoted}" stands in no passage that was found'
    words = content_words(pair.claim)
    if len(words) >= LEAST_WORDS and not any(shares(pair.claim, _all_of(s)) for s in cited):
        for other in found:
            if shares(pair.claim, _all_of(other)) >= MOST_OF_IT:
                yield f"it has none of the words of the claim; {other.id} has most of them"
        if alike and (invented := _invented(pair.claim, seen)):
            yield f"it has none of the words of the claim, and no passage has {invented}"


def shown_to(run: Trajectory) -> str:
    """Everything that the policy could read, without orders to the reader to say something."""
    told = [s.text for s in run.segments if s.author is not Author.POLICY]
    read = map(statements_in, (*told, *map(_all_of, run.sources)))
    return "\n".join((run.system, run.question, *read))


def _all_of(source: Source) -> str:
    return "\n".join((source.title, source.location, source.place, source.text))


def _invented(claim: str, seen: str) -> str:
    """A number and a name of the claim that are both not seen; "" if it has no such two."""
    numbers = (n for n in missing_numbers(claim, seen) if sum(map(str.isdigit, n)) >= LEAST_DIGITS)
    names = missing_names(_WITH_UNIT.sub(" ", claim), seen)
    number = next(numbers, "")
    return f'the number "{number}" and the name "{names[0]}"' if number and names else ""
