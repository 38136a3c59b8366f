"""What a claim's words, numbers and negations tell about it, without any model.

A claim is read against the stretch of the source that shares most with it. A number, name or
quotation that the source does not have, or a word turned round, makes it unsupported; then its
clauses count: all found, some, or none. The rules are blind to meaning that keeps the words (who
did what to whom), and a free paraphrase can look unsupported to them.

A number counts with its scale and its percent sign ("5 million", "12%"), and words for numbers
are numbers ("three" is 3); so a changed number is seen however it is written. A name is an
identifier, an acronym or a capitalised word that does not merely begin a sentence. A quotation
is what stands in double quotation marks.

Three signs say that a claim turns a sentence round: a word that is denied in one and not in the
other ("blocks", "does not block"), a comparison the other way round, and a word that stands
against its opposite ("oldest", "newest"). They are read from words alone, so only where the two
share most of what they say.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product, zip_longest
from typing import Protocol

from rubricem.agent.transcript.words import STOP_WORDS, content_words, sentences, stem
from rubricem.memory.schema import NO_USAGE, CitationSupport, Source, Usage

_SMALL = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: str(value) for value, word in enumerate(_SMALL.split(), start=2)}
_WORDS |= {word: str(10 * value) for value, word in enumerate(_TENS.split(), start=3)}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_NUMBER = re.compile(
    rf"(?<![\w.])(?:v?(?P<digits>\d+(?:[.,]\d+)*)|(?P<word>{'|'.join(_WORDS)})(?!\w))"
    rf"(?:[ -]?(?P<scale>{'|'.join(_SCALES)})(?!\w))?(?P<percent>\s?(?:%|per ?cent\b))?",
    re.I,
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")

_QUOTED = re.compile(r'["\u201c]([^"\u201c\u201d\n]{2,400})["\u201d]')
_GAP = re.compile(r"\.{3}|\u2026|\[\.{3}\]")

_TOKEN = re.compile(r"[\w.]+")
_IDENTIFIER = re.compile(r"(?<!\w)\d*+[^\W\d]\w*[._]\w|[a-z][A-Z]|\w_\w")
_CAPITAL = re.compile(r"(?<![\w.`'\u2019-])[^\W\d_a-z][\w]*")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\u2026]\s|[(\"\u201c\n]|[-*]\s)\s*$")
LONGEST_GAP = 80
"""characters looked at before a capital"""
_MOSTLY = 0.5
"""share of capitalised words from which a claim is a title, or German: they name nothing"""


def numbers(text: str) -> frozenset[str]:
    """The numbers of a text in one form; a percentage is there with and without its sign."""
    return frozenset(value for match in _NUMBER.finditer(text) for value in _values(match))


def missing_numbers(claim: str, text: str) -> list[str]:
    """Numbers of the claim, as written there, that the text does not have."""
    held = numbers(text)
    return [m[0].strip() for m in _NUMBER.finditer(claim) if _values(m)[0] not in held]


def missing_quotations(claim: str, text: str) -> list[str]:
    """Quotations of the claim that do not stand in the text word for word."""
    held = _plain(text)
    return [
        quoted
        for quoted in _QUOTED.findall(claim)
        if not all(_plain(part) in held for part in _GAP.split(quoted))
    ]


def missing_names(claim: str, text: str) -> list[str]:
    """Names of the claim that do not stand in the text whole."""
    return [name for name in dict.fromkeys(_names(claim)) if not _stands(name, text)]


def _values(match: re.Match[str]) -> tuple[str, ...]:
    """What must be found first: with scale and sign; then the same without the sign."""
    digits = match["digits"]
    if digits is None:
        value = _WORDS[match["word"].lower()]
    else:
        value = digits.replace(",", "") if _GROUPED.fullmatch(digits) else digits
    if match["scale"]:
        value = f"{float(value.replace(',', '')) * _SCALES[match['scale'].lower()]:.0f}"
    return (f"{value}%", value) if match["percent"] else (value,)


def _names(claim: str) -> Iterator[str]:
    for token in _TOKEN.findall(claim):
        name = token.strip("._")
        if _IDENTIFIER.search(name) and any(len(part) > 1 for part in name.split(".")):
            yield name
    capitals = [m for m in _CAPITAL.finditer(claim) if m[0].lower() not in STOP_WORDS]
    if len(capitals) > _MOSTLY * len(_TOKEN.findall(claim)) and len(capitals) > 3:
        return
    for match in capitals:
        # A capital may stand there only because a sentence begins, which its white space ends.
        acronym = sum(letter.isupper() for letter in match[0]) > 1
        followed = _CAPITAL.match(claim, match.end() + 1)
        before = claim[max(0, match.start() - LONGEST_GAP) : match.start()]
        if acronym or followed or not _SENTENCE_START.search(before):
            yield match[0]


def _stands(name: str, text: str) -> bool:
    last = name.rpartition(".")[2]
    if re.search(rf"(?<!\w){re.escape(last)}(?:['\u2019]?s)?(?!\w)", text, re.I):
        return True
    if last.isupper() and len(last) > 1:
        initials = "".join(word[0] for word in re.findall(r"[^\W\d_]+", text))
        return last.lower() in initials.lower()
    return content_words(last) <= content_words(text)


def _plain(text: str) -> str:
    """Lower case, one space between words, straight quotation marks, no closing stops."""
    straight = text.replace("\u2019", "'").replace("\u2018", "'")
    return " ".join(straight.lower().split()).strip(" .,;:!?")


SCOPE = 2
"""content words after a negation that it denies"""

_PAIRS = """
    after before, all none, allow forbid, always never, append prepend, ascending descending,
    asynchronous synchronous, above below, add remove, begin end, best worst, client server,
    cold hot, decrease increase, disable enable, disabled enabled, earlier later, earliest latest,
    east west, even odd, external internal, failure success, fall rise, false true, faster slower,
    fell rose, fewer more, first last, forward backward, gain loss, greater less, greater smaller,
    growing shrinking, heavier lighter, higher lower, highest lowest, inner outer, input output,
    inside outside, largest smallest, larger smaller, largest least, left right, less more,
    longer shorter, longest shortest, maximum minimum, mutable immutable, most least, negative
    positive, newest oldest, newer older, north south, optional required, private public,
    oldest youngest, start end, strong weak, upper lower, wider narrower
"""
_OPPOSITES: dict[str, set[str]] = {}
for _pair in _PAIRS.split(","):
    for _one, _other in (_pair.split(), _pair.split()[::-1]):
        _OPPOSITES.setdefault(_one, set()).add(_other)

_POLARITY_TOKEN = re.compile(r"[^\W\d_]+(?:['\u2019]t\b)?|[,;:.()]")
_THAN = re.compile(r"\bthan\b", re.I)
NEGATIONS = frozenset({"not", "no", "nor"})
"""those that count as content words"""
_NEGATIONS = {*NEGATIONS, "never", "without", "cannot", "neither"}
_COMPARING = {"more", "less", "fewer", "later", "earlier", "longer", "only", "just", "matter"}
"""after a negation they make something other than a denial"""
_PREFIXES = ("un", "non", "im", "in", "dis")


def contradiction(claim: str, sentence: str) -> str:
    """How the claim turns the sentence round, in a phrase; "" where it does not."""
    denied_there, said_there = _denied(sentence)
    denied_here, said_here = _denied(claim)
    if turned := denied_here & said_there:
        return f"it is denied of what the source asserts ({', '.join(sorted(turned))})"
    if turned := denied_there & said_here:
        return f"the source denies it ({', '.join(sorted(turned))})"
    # "A more than B", where the source says "B more than A".
    parts = [_THAN.split(text) for text in (claim, sentence)]
    if all(len(part) == 2 for part in parts):
        (more, less), (more_there, less_there) = (map(content_words, part) for part in parts)
        if (more - more_there) & less_there and (less - less_there) & more_there:
            return "it compares them the other way round"
    here, there = _words(claim), _words(sentence)
    for word, other in product(here, there):
        if word not in there and other not in here:
            short, long = sorted((word, other), key=len)
            prefixed = len(short) > 4 and any(long == prefix + short for prefix in _PREFIXES)
            if prefixed or other in _OPPOSITES.get(word, ()):
                return f'it says "{word}" where the source says "{other}"'
    return ""


def _denied(text: str) -> tuple[set[str], set[str]]:
    """Stems of the content words that negations alone reach, and of those that none reaches."""
    denied: set[str] = set()
    said: set[str] = set()
    left = 0
    words = [match[0].lower().replace("\u2019", "'") for match in _POLARITY_TOKEN.finditer(text)]
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        if word in _NEGATIONS or word.endswith("n't"):
            left = 0 if after in _COMPARING else SCOPE
        elif not word[0].isalpha():
            left = 0
        elif word not in STOP_WORDS:
            (denied if left else said).add(stem(word))
            left = max(left - 1, 0)
    return denied - said, said - denied


def _words(text: str) -> list[str]:
    return [match[0].lower() for match in _POLARITY_TOKEN.finditer(text) if match[0][0].isalpha()]


def shares(claim: str, sentence: str) -> float:
    """Share of the claim's content words that the sentence has; negations do not count.

    "Unbounded" is there where "bound" is denied.
    """
    words = content_words(claim) - NEGATIONS
    denied = {prefix + word for word in _denied(sentence)[0] for prefix in _PREFIXES}
    return len(words & (content_words(sentence) | denied)) / len(words) if words else 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim and one of the sources it cites; `beside` are the others that it cites."""

    claim: str
    source: Source
    beside: tuple[Source, ...] = ()

    def fault(self) -> str:
        """Why it cannot be right, whatever a model thinks of it; "" if nothing says so."""
        if wrong := self.must_occur():
            return wrong
        # The sentence that comes closest may be turned round by the claim.
        near = best_stretches(self.claim, self.source.text)
        there = {s: shares(self.claim, s) for stretch in near for s in sentences(stretch)}
        close = max(there, key=there.__getitem__, default="")
        return contradiction(self.claim, close) if there.get(close, 0.0) >= SAME else ""

    def must_occur(self) -> str:
        """The first number, name or quotation that no source of the claim has; "" if none.

        What another source of the same claim has is that source's part.
        """
        own = _missing(self.claim, self.source, best_stretches(self.claim, self.source.text))
        for kind, term in own:
            beside = (_missing(self.claim, s, [s.text]) for s in self.beside)
            if all((kind, term) in missing for missing in beside):
                return f'the {kind} "{term}" does not stand in the source'
        return ""


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """How far the source holds the claim, and why not wholly."""

    verdict: CitationSupport
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """One finding for each pair, in order, and what they cost."""

    each: tuple[ClaimFinding, ...]
    usage: Usage = NO_USAGE


class Checker(Protocol):
    """Says of each pair whether the source's text as fetched holds the claim.

    Raises PolicyError where its model cannot be asked.
    """

    @property
    def name(self) -> str: ...

    async def check(self, pairs: Sequence[Pair]) -> Findings: ...


NAME = "lexical rules"
STRETCH = 3
"""sentences of a source that are read together"""
ENOUGH = 0.6
"""share of a clause's content words that the stretch must have"""
SAME = 0.6
"""share of a claim's words from which a sentence speaks of the same thing"""
READ = 20
"""stretches read at most"""
NEAR = 0.75
"""of the best stretch's share, from which another stretch is read as well"""

_CLAUSE = re.compile(
    r";|(?:,|(?<!\s))\s++(?:and|but|while|whereas)\s+|,\s+(?:which|who|so|or)\s+", re.I
)


class LexicalChecker:
    """A `Checker` by rules alone."""

    name = NAME

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        # A page of many thousand words takes a while.
        return Findings(tuple(await asyncio.to_thread(lambda: list(map(lexical_finding, pairs)))))


def lexical_finding(pair: Pair) -> ClaimFinding:
    """What the rules say of a pair."""
    text = pair.source.text
    if not content_words(pair.claim) or (text and _latin(pair.claim) != _latin(text)):
        return ClaimFinding("unchecked", "its words cannot be compared with the source's")
    if wrong := pair.fault():
        return ClaimFinding("unsupported", wrong)
    stretches = best_stretches(pair.claim, text)
    if _missing(pair.claim, pair.source, stretches):
        return ClaimFinding("partial", "a part of it stands in another source it cites")
    read = "\n".join([pair.source.title, *stretches[:1]])
    found = [shares(clause, read) >= ENOUGH for clause in clauses(pair.claim)]
    if all(found):
        return ClaimFinding("supported")
    if any(found):
        return ClaimFinding("partial", "the source has the words of only a part of it")
    return ClaimFinding("unsupported", "the source has few of its words")


@lru_cache(maxsize=64)
def best_stretches(claim: str, text: str) -> tuple[str, ...]:
    """The stretches that share most with the claim, the best first; ("",) for an empty text."""
    parts = list(sentences(text)) or [""]
    wanted = content_words(claim) - NEGATIONS
    held = [wanted & content_words(part) for part in parts]
    starts = range(max(len(parts) - STRETCH, 0) + 1)
    shared = {i: len(frozenset().union(*held[i : i + STRETCH])) for i in starts}
    ranked = sorted(starts, key=lambda i: -shared[i])[:READ]
    near = (i for i in ranked if shared[i] >= NEAR * shared[ranked[0]])
    return tuple("\n".join(parts[i : i + STRETCH]) for i in near)


def _missing(claim: str, source: Source, stretches: Sequence[str]) -> list[tuple[str, str]]:
    """What the source lacks, by kind. Numbers must stand near the claim's other words."""
    everywhere = "\n".join((source.title, source.place, source.location, source.text))
    numbers = min(
        (missing_numbers(claim, f"{source.title}\n{stretch}") for stretch in stretches), key=len
    )
    return [
        *(("number", number) for number in numbers),
        *(("quotation", quoted) for quoted in missing_quotations(claim, source.text)),
        *(("name", name) for name in missing_names(claim, everywhere)),
    ]


def clauses(claim: str) -> list[str]:
    """The parts of a claim that say something by themselves: each of two content words or more."""
    found, held = [], ""
    for part in _CLAUSE.split(claim):
        held = f"{held} {part}".strip()
        if len(content_words(held)) > 1:
            found.append(held)
            held = ""
    return found or [claim]


def _latin(text: str) -> bool:
    """Whether most letters are Latin ones."""
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(letter < "\u0250" for letter in letters) >= len(letters)
