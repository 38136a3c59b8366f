"""What code is sure to be wrong in an answer's claims: this alone is told and lowers a score.

A true claim may have other words, names and small numbers than its source: it paraphrases, counts,
rounds, converts and calculates. So a doubt of the lexical rules is no finding here, and leaves a
claim unchecked. Sure are three things: a year or a long number that stands in nothing the run was
shown, and does not follow from numbers of the cited sources (of three digits only where they have
none to calculate with); a quotation of several words that stands nowhere, and that
nobody had to translate; and a cited source without a word of the claim, beside another that has
most of it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, permutations

from rubricem.agent.reports.rules import (
    ClaimFinding,
    Pair,
    likely_finding,
    missing_numbers,
    missing_quotations,
    numbers,
    shares,
    statements_in,
)
from rubricem.agent.transcript.words import content_words
from rubricem.memory.language import language_of
from rubricem.memory.schema import Author, Source, Trajectory

LEAST_DIGITS = 3
"""significant digits of a number that is told: shorter ones are counts, or rounded. So few, and no
more, is what conversions, averages and percentages give, in however many steps they were made"""
LEAST_WORDS, MOST_OF_IT = 4, 0.6
"""content words of a claim that may be about another source, and the share that one must have"""
MOST_OPERANDS = 40
"""numbers of the cited sources beyond which a claim's number may be made of any of them"""
CONVERSIONS = (
    *(7, 8, 12, 16, 24, 52, 60, 365, 3600, 1024),  # parts of times, weights and data
    *(2.54, 3.28084, 1.609344, 1.852, 10.7639, 2.589988, 2.471054, 28.34952, 2.204623, 4.54609),
    *(3.785412, 1.759754, 2.113376, 4.184, 1.341022, 6.894757, 149.5979, 9.460730, 3.261564),
)
"""factors between units, of which a writer uses either way"""

_YEAR = re.compile(r"1\d{3}|20\d\d")
_SPACED = re.compile(r"(?<!\d)\d{1,3}(?:[ \u00a0\u202f'\u2019]\d{3})+(?!\d)")
_NUMBER = re.compile(r"\d{1,3}(?:[ \u00a0\u202f'\u2019]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*")
_CLOCK = re.compile(r"\d+:\d+")


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
    for number in _absent(pair.claim, seen, "\n".join(f"{s.title}\n{s.text}" for s in cited)):
        yield f'the number "{number}" stands in no passage that was found'
    own, *others = (language_of(text) or "en" for text in (pair.claim, *(s.text for s in cited)))
    for quoted in missing_quotations(pair.claim, seen) if {own} == set(others) else ():
        yield f'the quotation "{quoted}" stands in no passage that was found'
    words = content_words(pair.claim)
    if len(words) >= LEAST_WORDS and not any(shares(pair.claim, _all_of(s)) for s in cited):
        for other in found:
            if shares(pair.claim, _all_of(other)) >= MOST_OF_IT:
                yield f"it has none of the words of the claim; {other.id} has most of them"


def shown_to(run: Trajectory) -> str:
    """Everything that the policy could read, without orders to the reader to say something."""
    told = [s.text for s in run.segments if s.author is not Author.POLICY]
    read = map(statements_in, (*told, *map(_all_of, run.sources)))
    return "\n".join((run.system, run.question, *read))


def _all_of(source: Source) -> str:
    return "\n".join((source.title, source.location, source.place, source.text))


def _absent(claim: str, seen: str, cited: str) -> list[str]:
    """Numbers of the claim, as written, that are neither seen nor made of the cited ones."""
    given = _numbers(cited)
    least = LEAST_DIGITS + (not all(map(_YEAR.fullmatch, given)))
    missing = missing_numbers(_CLOCK.sub(" ", claim), seen)
    long = [n for n in missing if len(_digits(n)) >= least or _YEAR.fullmatch(n)]
    held = {_digits(number) for number in _numbers(seen)} if long else set()
    whole = (one[0] for one in _SPACED.finditer(claim) if _digits(one[0]) in held)
    held |= {_digits(part) for number in whole for part in re.findall(r"\d+", number)}
    left = [number for number in long if not _is_one_of(_digits(number), held)]
    operands = [value for number in given for value in _readings(number)] if left else []
    if len(operands) > MOST_OPERANDS:
        return []
    made = {_digits(f"{value:.9f}") for value in _results(operands)}
    return [number for number in left if not _is_one_of(_digits(number), made)]


def _numbers(text: str) -> list[str]:
    """The distinct numbers of a text as written, English ones also where they are words."""
    return list(dict.fromkeys([*_NUMBER.findall(text), *sorted(numbers(text))]))


def _digits(number: str) -> str:
    """Its significant digits: the same in any unit of ten, and however thousands are parted."""
    return "".join(str(int(c)) for c in number if c.isdecimal()).strip("0")


def _is_one_of(digits: str, others: Iterable[str]) -> bool:
    """Whether one of the others is the number, or is it when rounded or cut to as many digits."""

    def rounded(other: str) -> set[str]:
        down = int(other[: len(digits)])
        return {str(n).strip("0") for n in (down, down + (other[len(digits)] >= "5"))}

    return digits in others or any(digits in rounded(o) for o in others if len(o) > len(digits))


def _readings(number: str) -> set[float]:
    """The values that it may have: a point or comma before three digits may part thousands."""
    plain = re.sub(r"[^\d.,]", "", number)
    whole, _, rest = plain.replace(",", ".").rpartition(".")
    grouped = float(re.sub(r"\D", "", plain))
    if not whole:
        return {grouped}
    decimal = float(f"{whole.replace('.', '')}.{rest}")
    return {grouped, decimal} if len(rest) == 3 else {decimal}


def _results(numbers: Sequence[float]) -> Iterator[float]:
    """What a writer may make of numbers: sums, products, changes by a share, other units, ..."""
    for start in range(len(numbers)):
        yield from accumulate(numbers[start:])
    for a, b in permutations((*numbers, 1.0, 100.0), 2):
        yield from (a * b, a + b, a - b, *((a / b, (a - b) / b) if b else ()))
        yield from (a * (1 + b / 100), a / (1 + b / 100), a * (1 - b / 100), a * 60 + b)
    for a in numbers:
        yield from (1.8 * a + 32, (a - 32) / 1.8, a + 273.15)
        yield from chain.from_iterable((a * unit, a / unit) for unit in CONVERSIONS)
