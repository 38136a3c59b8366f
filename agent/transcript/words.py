"""The words by which texts are compared: a claim and a passage, a question and a page.

`memory.language` defines what a word is. Among content words identifiers count by their parts
(`lru_cache` is "lru" and "cache"), and negations count, since they reverse a claim. Two texts that
are compared are read in one language, that of the claim or question, so that a fragment without a
telling word (a name, a title) matches the words of the whole. The overlap of a claim and a passage
is cheap and blind to meaning: it says where to look, never that a claim holds.

Filters of a query (`year:2019-2021`, `field:"Computer Science"`) are part of its text, so that the
journal, a resume and the report show it as asked; sources that cannot filter leave them out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise

from rubricem.memory.language import (
    LETTER,
    beginning,
    language_of,
    language_with,
    length,
    plain_letters,
    sentences,
    stands,
    words_in,
)

ADDRESS = re.compile(r"https?://\S+")
_DOTTED = rf"(?:{LETTER}|\.)+"
SIGNATURE = re.compile(rf"{_DOTTED}\([^\n]*\)(?:[ ]->[^\n]*)?|{_DOTTED}")

MOST_KEPT = 8000
"""characters of a text whose words are kept to be met again: each claim meets each passage"""


def content_words(text: str, language: str = "") -> frozenset[str]:
    """The distinct words that carry the text's content, reduced to a common form.

    `language`: of the whole that the text is a part of, or is held against; "": the text's own.
    """
    return _met_again(text, language) if len(text) <= MOST_KEPT else words_in(text, language)


_met_again = lru_cache(8192)(words_in)  # the sentences of the sources of 64 runs at once


@lru_cache(512)
def _parts(passage: str, language: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """The sentences of a passage, each with its content words but for those of addresses."""
    language = language or language_of(passage)
    return tuple(
        (part, content_words(ADDRESS.sub(" ", part), language)) for part in sentences(passage)
    )


def overlap(claim: str, passage: str) -> float:
    """Share of the claim's content words found in the passage; 0 if the claim has none."""
    language = language_with(claim, passage)
    words = content_words(claim, language)
    return len(words & content_words(passage, language)) / len(words) if words else 0.0


def closest_sentence(claim: str, passage: str) -> str:
    """The sentence of the passage that shares most words with the claim, as it stands there.

    Addresses do not count, and a signature counts half: it shares names with any claim about
    what it names. Of equals the shortest in words, then the first. "" if none shares a word.
    """
    language = language_with(claim, passage)
    words = content_words(claim, language)
    best, best_rank = "", (0.0, 0)
    for sentence, found in _parts(passage, language):
        weight = 0.5 if SIGNATURE.fullmatch(sentence) else 1.0
        rank = (weight * len(words & found), -len(found))
        if rank[0] and rank > best_rank:
            best, best_rank = sentence, rank
    return best


def stands_in(passage: str, text: str) -> bool:
    """Whether a text has all of a passage, the term with which it begins maybe further above."""
    term, _, rest = passage.partition("\n")
    return passage in text or (bool(rest) and term in text and rest in text)


_EXACT = re.compile(
    rf"(?<![\w-])--?[A-Za-z][\w-]*|\d+"
    rf"|(?<!{LETTER})(?:(?!\d){LETTER}++(?:\.{LETTER}+)+|{LETTER}*[a-z]_{LETTER}+)"
)
"""an option, a number, an identifier (`shutil.rmtree`, `max_depth`)"""


def exact_names(text: str, question: str) -> frozenset[str]:
    """What a text names exactly, and the question does not.

    That is options, numbers, identifiers, and the words of what stands between backticks.
    """
    text = plain_letters(text)
    typed = (word.strip(".,;:()\"'") for piece in text.split("`")[1::2] for word in piece.split())
    exact = {*_EXACT.findall(text), *filter(None, typed)}
    return frozenset(word for word in exact if not stands(word, question))


MOST_RESTED = 3
"""sentences that a claim is taken to rest on"""
ENOUGH_HELD = 0.6
"""of a claim's content words, below which its sentences are read with those beside them"""


def find_support(claim: str, passage: str, *, beside: bool = False) -> tuple[str, ...]:
    """What of the passage the claim rests on, verbatim and in its order; () if nothing.

    The closest sentence, and others that have a number of the claim, or two of its words, which
    those before lack. Where the claim's words are still mostly not there, `beside` adds the
    sentences on both sides of the closest. Sentences that stand side by side are one piece.
    """
    closest = closest_sentence(claim, passage)
    if not closest:
        return ()
    language = language_with(claim, passage)
    parts = [part for part, _ in _parts(passage, language)]
    words = content_words(claim, language)
    held = [words & found for _, found in _parts(passage, language)]
    kept = {parts.index(closest)}
    covered = set(held[parts.index(closest)])
    while len(kept) < MOST_RESTED:
        gains = [_gain(each - covered) for each in held]
        best = max(range(len(parts)), key=lambda i: (gains[i], -len(parts[i])))
        if gains[best] < 2:
            break
        kept.add(best)
        covered |= held[best]
    if beside and len(covered) < ENOUGH_HELD * len(words):
        middle = parts.index(closest)
        kept |= {i for i in (middle - 1, middle + 1) if 0 <= i < len(parts)}
    return tuple(_pieces(passage, parts, sorted(kept)))


def _gain(words: set[str] | frozenset[str]) -> int:
    """How much it says to have these words; a number is worth two."""
    return sum(2 if word[0].isdigit() else 1 for word in words)


def _pieces(passage: str, parts: Sequence[str], kept: Sequence[int]) -> Iterator[str]:
    spans, at = [], 0
    for part in parts:
        start = passage.index(part, at)
        at = start + len(part)
        spans.append((start, at))
    begun = kept[0]
    for here, after in pairwise([*kept, len(parts) + 1]):
        if after != here + 1:
            yield passage[spans[begun][0] : spans[here][1]]
            begun = after


def fold(query: str) -> str:
    """A query as it is compared with others."""
    return " ".join(plain_letters(query).casefold().split())


CUT = " ..."
CHARACTERS_A_WORD = 10


def part_about(text: str, words: int, query: str) -> str:
    """The run of whole sentences, of at most `words` words, that has most words of a query.

    Of equals the first; the sentence itself, cut, where it is longer than that.
    """
    if length(text) <= words:
        return text
    spans, at = list[tuple[int, int, frozenset[str]]](), 0
    language = language_of(query)
    wanted = content_words(query, language)
    for said in sentences(text):
        at = text.index(said, at)
        spans.append((at, at + len(said), wanted & content_words(said, language)))
        at += len(said)
    best, best_rank = (0, 0), (-1, 0)
    for first in range(len(spans)):
        held, total = set[str](), 0
        for last in range(first, len(spans)):
            if last > first and length(text[spans[first][0] : spans[last][1]]) > words:
                break
            held |= spans[last][2]
            total += len(spans[last][2])
            if (len(held), total) > best_rank:
                best, best_rank = (first, last), (len(held), total)
    start = spans[best[0]][0]
    # What there is room for behind it tells on.
    shown = cut_words(text[start:], words)
    return f"... {shown}" if start else shown


def cut_words(text: str, words: int) -> str:
    """The first `words` words of a text, with CUT where it goes on.

    White space is kept and counts nothing, as code and tables are indented; what has no
    spaces is cut by length.
    """
    shown = beginning(text, words)
    if len(shown) > (most := words * CHARACTERS_A_WORD):
        written = (at for at, letter in enumerate(shown) if not letter.isspace())
        shown = shown[: next(islice(written, most, None), None)]
    shown = shown.rstrip()
    return shown + CUT if len(shown) < len(text.rstrip()) else text


_NARROWING = re.compile(
    r"(?<!\S)(?:years?:(?P<years>\d{4}(?:-(?:\d{4})?)?|-\d{4})"
    r"|fields?:(?:\"(?P<quoted>[^\"]+)\"|(?P<bare>\S+)))(?!\S)",
    re.I,
)
_FIELD_NAMES = (
    "Agricultural and Food Sciences, Art, Biology, Business, Chemistry, Computer Science, "
    "Economics, Education, Engineering, Environmental Science, Geography, Geology, History, "
    "Law, Linguistics, Materials Science, Mathematics, Medicine, Philosophy, Physics, "
    "Political Science, Psychology, Sociology"
)
_FIELDS = {name.casefold(): name for name in _FIELD_NAMES.split(", ")}
"""fields of study as Semantic Scholar names them"""


@dataclass(frozen=True, slots=True)
class Query:
    """`years` is "2020", "2019-2021", "2019-", "-2021", or "" for any."""

    text: str
    years: str = ""
    fields: tuple[str, ...] = ()


def read_query(written: str) -> Query:
    """The words, the years and the fields of study of a query; the last named years count."""
    years, fields = "", dict[str, None]()

    def take(found: re.Match[str]) -> str:
        nonlocal years
        if found["years"]:
            years = found["years"]
            return ""
        named = known_fields(found["quoted"] or found["bare"])
        fields.update(dict.fromkeys(named))
        return "" if named else found[0]

    text = _NARROWING.sub(take, written)
    return Query(" ".join(text.split()), years, tuple(fields))


def known_fields(names: str) -> tuple[str, ...]:
    """The fields in a list with commas, spelt as they are known; () if any is unknown."""
    found = [_FIELDS.get(" ".join(name.split()).casefold()) for name in names.split(",")]
    return () if None in found else tuple(name for name in found if name)


def narrow_query(query: str, attributes: Mapping[str, str]) -> str:
    """The query of a tool call with what its attributes narrow written into it."""
    years = attributes.get("year") or attributes.get("years") or ""
    fields = known_fields(attributes.get("field") or attributes.get("fields") or "")
    if _NARROWING.fullmatch(f"year:{years}"):
        query += f" year:{years}"
    return f'{query} field:"{",".join(fields)}"' if fields else query
