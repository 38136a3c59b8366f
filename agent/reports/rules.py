"""What a claim's words, numbers and denials say about its support, without any model.

A number, name or quotation that the source lacks, or a denial turned round, makes a claim
unsupported, and a sentence of the source is supported; of all else the rules are not sure. The
share of its words in the sentences that together have most of them says where it is likely
supported; that is blind to who did what to whom, and to a free paraphrase.

Numbers count with their scale and unit, in digits or words; a name is an identifier, an acronym or
a capitalised word that does not begin a sentence.
"""

import asyncio
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Protocol, runtime_checkable

from rubricem.agent.transcript.words import content_words
from rubricem.memory.language import (
    LATIN,
    LETTER,
    STOP_WORDS,
    WORD,
    compared,
    is_foreign,
    language_of,
    language_with,
    plain_letters,
    sentences,
    stem,
    stop_words,
)
from rubricem.memory.schema import BELOW, BY_RULES, NO_USAGE, CitationSupport, Source, Usage

_TABLE = tomllib.loads((files("rubricem.agent.reports") / "numbers.toml").read_text("utf-8"))
_WORDS: dict[str, str] = {
    word: str(int(first) + step * place)
    for first, step, words in _TABLE["words"]
    for place, word in enumerate(words.split())
}
_FEW: dict[str, int] = _TABLE["few"]
_SCALES: dict[str, float] = _TABLE["scales"]
_UNITS: dict[str, tuple[str, float]] = {
    word: (measure, float(factor))
    for measure, named in _TABLE["units"].items()
    for factor, words in named.items()
    for word in words.split()
}
"""words for units -> what is measured, and how many of its base unit they are"""
_SLACK = {"data": 0.13}
"""relative difference of amounts in unlike units: a kilobyte has 1,000 bytes or 1,024"""
USUAL_SLACK = 0.02
LEAST_ROUNDED = 10_000
"""from which a number without a unit may be rounded: below it may be a year or a version"""
_CODE = r"\d+(?-i:[A-Z]+)(?<!\dE)\d"
"""how one begins in which letters stand between digits, as of an error; 1E5 is a number"""
_NUMBER = re.compile(
    rf"(?<!{LETTER})(?<!\.)(?:v?(?!{_CODE})"
    r"(?P<digits>(?:\d{1,3}(?: \d{3})+(?!\w)|\d+)(?:[.,]\d+)*(?:e[+-]?\d{1,3}(?!\w))?)"
    rf"|(?P<word>{'|'.join(_WORDS)})(?!\w))"
    rf"(?:[ -]?(?P<scale>{'|'.join(_SCALES)})(?!\w))?"
    rf"(?:[ -]?(?P<unit>%|per cent|(?:{'|'.join(sorted(_UNITS, key=len)[::-1])})s?(?!\w)))?",
    re.I,
)
_MONTHS: dict[str, str] = {name[:3]: name for name in _TABLE["months"].split()}
_WHEN = re.compile(
    r"(?<!\d)(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?!\d)|\b([A-Z][a-z]{2})t?\b\.?"
)
"""a date in digits, or what may be a month cut short"""

_ONE_MARK = str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb", '"'))
LEAST_WORDS = 4
"""of a quotation: fewer are a term, or ironic"""
_GAP = re.compile(r"\.{3}|\u2026|\[[^\]\n]*\]")
_TOKEN = re.compile(rf"(?:{LETTER}|\.)+")
_TYPED = ("`", "'", "\u2019", "-")
"""behind which a capital is no name's"""
_MOSTLY = 0.5
"""share of capitalised words from which a text is a title, or German: they mark no names"""
_PEOPLE = ("ian", "ean", "ish", "ese", "an")
_FORMS = ("", "s", "n", "ns", "an", "ans", "ian", "ians")
"""what a name may end with in the source and not in the claim"""


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it may be meant: `exact` in plain digits, with its scale."""

    exact: str
    measure: str = ""
    factor: float = 1.0

    @property
    def amount(self) -> float:
        """In base units of what is measured; nan for what is no number, such as a version."""
        try:
            return float(self.exact) * self.factor
        except ValueError:
            return math.nan

    def is_in(self, held: "_Number") -> bool:
        """Whether what a source says is this: the same, rounded, or in another unit."""
        both = self.measure and held.measure
        if both and self.measure != held.measure:
            return False
        if self.exact == held.exact and (self.factor == held.factor or not both):
            return True
        if self.factor == held.factor:
            return self._rounds(held)
        slack = _SLACK.get(self.measure, USUAL_SLACK)
        return bool(self.measure or held.measure == "share") and math.isclose(
            self.amount, held.amount, rel_tol=slack
        )

    def _rounds(self, held: "_Number") -> bool:
        digits = len(self.exact.replace(".", "").strip("0"))
        exact = float(held.exact) if math.isfinite(held.amount) else 0.0
        if exact < (1 if held.measure else LEAST_ROUNDED) or not math.isfinite(self.amount):
            return False
        ten = 10.0 ** (math.floor(math.log10(exact)) - digits + 1)
        near = (math.floor(exact / ten) * ten, round(exact / ten) * ten)
        return any(math.isclose(float(self.exact), each, rel_tol=1e-9) for each in near) and (
            math.isclose(float(self.exact), exact, rel_tol=ROUNDED)
        )


ROUNDED = 0.08
"""relative difference that rounding may make"""


def numbers(text: str) -> frozenset[str]:
    """The numbers of a text in one form; a percentage is included with and without its sign."""
    found = (number for _, readings in _numbers_in(text) for number in readings[:1])
    return frozenset(
        form for n in found for form in (n.exact, *([f"{n.exact}%"] * (n.measure == "share")))
    )


def missing_numbers(claim: str, text: str, *around: str) -> list[str]:
    """Numbers of the claim, with their units, that the text lacks; what it stands in is `around`.

    One that is rounded, or converted into another unit, is there; so is what "both" counts.
    """
    held = {number for _, readings in _numbers_in(text) for number in readings}
    held |= {_Number(str(_FEW[word])) for word in _FEW.keys() & {*WORD.findall(text.lower())}}
    return [
        said
        for said, readings in _numbers_in(claim, *around)
        if not any(number.is_in(each) for number in readings for each in held)
    ]


def _numbers_in(text: str, *around: str) -> Iterator[tuple[str, tuple[_Number, ...]]]:
    """Each number as it is written, and as what it may be meant: a fifth is the 5th, or 0.2.

    Elsewhere a comma stands before the fraction and a point or a space between thousands.
    """
    elsewhere = is_foreign(text, *around)
    for match in _NUMBER.finditer(plain_letters(text)):
        digits, word = match["digits"] or "", (match["word"] or "").lower()
        scale = _SCALES.get((match["scale"] or "").lower(), 1.0)
        value = _WORDS[word] if word else _plain(digits.replace(" ", ""))
        unit = (match["unit"] or "").lower().replace(" ", "")
        measure, factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"), ("", 1.0))
        readings = [_Number(_scaled(value, scale), measure, factor)]
        others = digits.split(" ") if " " in digits else []
        if elsewhere or math.isnan(readings[0].amount):
            others.append(digits.replace(" ", "").translate(_ELSEWHERE))
        plain = (_scaled(_plain(each), scale) for each in others if each)
        readings += [_Number(each, measure, factor) for each in plain]
        if word in _TABLE["fractions"].split():
            readings.append(_Number(f"{1 / int(value):g}".lstrip("0"), "share"))
        yield match[0].strip(), tuple(readings)


_ELSEWHERE = str.maketrans(".,", ",.")


def _scaled(value: str, scale: float) -> str:
    """So many times a number in plain digits; what is none, such as a version, has no scale."""
    amount = _Number(value).amount * scale
    return value if scale == 1 or not math.isfinite(amount) else f"{amount:.0f}"


def _plain(digits: str) -> str:
    """A number in English digits, without marks of thousands and a fraction of zeros."""
    whole, point, rest = digits.partition(".")
    if {len(group) for group in whole.split(",")[1:]} == {3}:
        whole = whole.replace(",", "")
    return (whole + point + rest if rest.strip("0") else whole).lstrip("0") or "0"


def missing_quotations(claim: str, text: str) -> list[str]:
    """Quotations of the claim whose words do not stand in the text in this order.

    A few words in quotation marks are a term, and mostly capitalised ones a title; one in another
    language than the text may be translated.
    """
    lines = claim.translate(_ONE_MARK).splitlines()
    quotations = [quoted for line in lines for quoted in line.split('"')[1:-1:2]]
    held, missing = _bare(text) if quotations else "", []
    for quoted in quotations:
        words = quoted.split()
        titled = sum(word[0].isupper() for word in words) * 2 > len(words)
        if len(words) < LEAST_WORDS or titled or is_foreign(quoted, text):
            continue
        if not all(_bare(part) in held for part in _GAP.split(quoted)):
            missing.append(quoted)
    return missing


def _bare(text: str) -> str:
    """Its words, whatever stands between them.

    Whether a hyphen at the end of a line is one of the word, a quotation need not know.
    """
    plain = compared(text).replace("-", "").casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in plain).split())


def missing_names(claim: str, text: str) -> list[str]:
    """Names of the claim that the text does not contain whole."""
    claim, text = compared(claim), compared(text)
    language = language_with(claim, text)
    return [
        name for name in dict.fromkeys(_names(claim, language)) if not _stands(name, text, language)
    ]


@lru_cache(maxsize=64)
def _write_out_dates(text: str) -> str:
    """The text as it is compared, with its months in words."""

    def in_words(found: re.Match[str]) -> str:
        if short := found[4]:
            month = _MONTHS.get(short, short)
            return month if month != short else found[0]
        month = list(_MONTHS.values())[int(found[2]) - 1]
        return f"{found[0]} {int(found[3])} {month} {found[1]}"

    return _WHEN.sub(in_words, compared(text))


def _names(claim: str, language: str) -> Iterator[str]:
    binding, tokens, capitals = stop_words(language), [*_TOKEN.finditer(claim)], []
    for token in tokens:
        name, (word, *after) = token[0].strip("._"), token[0].split(".")
        if name.lower() not in _UNITS and _is_identifier(name):
            yield name
        before = claim[: token.start()]
        if word[:1].isupper() and word.lower() not in binding and not before.endswith(_TYPED):
            capitals.append((word, before, len(word) == 1 and any(after)))
    if len(capitals) > _MOSTLY * len(tokens) and len(capitals) > 3:
        return
    for word, before, initial in capitals:
        unit = len(word) == 1 or word.lower() in _UNITS
        if (unit and before.rstrip()[-1:].isdigit()) or initial:
            continue
        acronym = sum(letter.isupper() for letter in word) > 1
        # A capital may stand there only because a sentence begins. German writes every noun so.
        if acronym or (language != "de" and not _ends_sentence(before)):
            yield word


def _is_identifier(name: str) -> bool:
    parts = name.split(".")
    dotted = any(any(map(str.isalpha, part)) for part in parts[:-1])
    humps = any(a.islower() and b.isupper() for a, b in pairwise(name))
    return (dotted or humps or "_" in name) and any(len(part) > 1 for part in parts)


def _ends_sentence(before: str) -> bool:
    """Whether a sentence, an item or a quotation begins behind this."""
    said = before.rstrip()
    space = before[len(said) :]
    ended = space and said[-1:] in ".!?:;\u2026-*"
    return bool(ended) or "\n" in space or said[-1:] in '("\u201c'


@lru_cache(maxsize=64)
def _words_of(text: str) -> tuple[str, ...]:
    """The parts between full stops of a text's tokens, in order."""
    return tuple(word for token in _TOKEN.findall(text) for word in token.split(".") if word)


def _stands(name: str, text: str, language: str) -> bool:
    last, words = name.rpartition(".")[2], _words_of(text)
    lower, plain = last.lower(), {word.lower() for word in words}
    if not plain.isdisjoint(lower + end for end in _FORMS):
        return True
    people = lower.removesuffix("s")
    root = next((people.removesuffix(end) for end in _PEOPLE if people.endswith(end)), "")
    if len(root) > 3 and any(w.startswith(root) and len(w) <= len(root) + 3 for w in plain):
        return True
    if last.isupper() and len(last) > 1:
        initials = "".join(word[0] for word in words if word[0].isalpha())
        return lower in initials.lower()
    return content_words(last, language) <= content_words(text, language)


SCOPE = 2
"""content words after a negation that it negates"""

_BOUNDS = str.maketrans(",;:.()", "||||||")
"""of what a negation reaches"""
NEGATIONS = frozenset({"not", "no", "nor"})
"""negations that count as content words"""
_NEGATIONS = {*NEGATIONS, "never", "without", "cannot", "neither", "nobody", "nothing"}
_COMPARING = {"more", "less", "fewer", "later", "earlier", "longer", "only", "just", "matter"}
"""words that turn a preceding negation into something else"""


def contradiction(claim: str, sentence: str) -> str:
    """What an English claim denies of the sentence, or the other way round; "" if nothing.

    Where more than one thing is denied, how far each denial reaches is unsure.
    """
    if is_foreign(claim, sentence):
        return ""
    denied_here, said_here, count = _split_by_negation(compared(claim))
    denied_there, said_there, count_there = _split_by_negation(compared(sentence))
    if count + count_there > 1:
        return ""
    if turned := denied_here & said_there:
        return f"it is denied of what the source asserts ({', '.join(sorted(turned))})"
    if turned := denied_there & said_here:
        return f"the source denies it ({', '.join(sorted(turned))})"
    return ""


def _split_by_negation(text: str) -> tuple[set[str], set[str], int]:
    """Stems of the content words that only occur negated, of those that never do, and negations.

    Python's None negates nothing.
    """
    denied: set[str] = set()
    said: set[str] = set()
    count = 0
    for clause in text.replace("\u2019", "'").translate(_BOUNDS).split("|"):
        left, words = 0, [word.removesuffix("'s") for word in WORD.findall(clause)]
        for word, after in pairwise([*words, ""]):
            lower = word.lower()
            if lower in _NEGATIONS or lower.endswith("n't") or word == "none":
                left, count = 0 if after.lower() in _COMPARING else SCOPE, count + 1
            elif word[0].isalpha() and lower not in STOP_WORDS:
                (denied if left else said).add(stem(lower))
                left = max(left - 1, 0)
    return denied - said, said - denied, count


def shares(claim: str, sentence: str) -> float:
    """Share of the claim's content words that the sentence has; negations do not count."""
    language = language_with(claim, sentence)
    words = content_words(claim, language) - NEGATIONS
    return len(words & content_words(sentence, language)) / len(words) if words else 0.0


_SAYING = r"(?:say|state|claim|answer|reply|respond|report|write)"
_BIDS = re.compile(
    r"(?:(?:^|[.!?:;,>)\]\-\u2013\u2014])\s{0,9}|\b(?:please|must|should|shall|ought to)\s{1,9})"
    rf"(?:{_SAYING}(?: to (?:the|your|its) \w{{1,20}})?,? that\b"
    r"|tell (?:him|her|them|people|everybody|(?:the|your|its) \w{1,20}) that\b"
    r"|(?:say|answer|reply|respond)[ :,]{1,3}"
    r"(?:exactly|only|just|nothing but|the following|with|so|as)\b"
    rf"|{_SAYING} word (?:by|for) word\b"
    r"|(?:give|name|cite|quote|credit)\b[^!?;\n]{1,80}\b(?:as|for) (?:the|a|your|its) source\b)",
    re.I,
)
"""an order to say something, at the beginning of a clause: "(...): say that it was 5" """


def bids(sentence: str) -> bool:
    """Whether a sentence tells its reader what to say, and so states nothing itself."""
    return bool(_BIDS.search(sentence))


@lru_cache(maxsize=256)
def statements_in(text: str) -> str:
    """A text without the sentences that tell its reader what to say."""
    kept, at, end = list[str](), 0, 0
    for said in sentences(text):
        start = text.index(said, end)
        end = start + len(said)
        if bids(said):
            kept.append(text[at:start])
            at = end
    return "".join([*kept, text[at:]])


def statements_of(source: Source) -> Source:
    """The source with only its statements, as `statements_in` finds them."""
    text = statements_in(source.text)
    return source if text == source.text else source.model_copy(update={"text": text})


CELLS = " | "
"""between the cells of a row, as readers write them"""
LEAST_QUOTED = 3
"""content words from which a claim found in its source counts as a quotation of it"""
_POSITIONS = ("page", "rows", "lines")
"""words with which readers write how far down a place is: its numbers are none of the source's"""


def _versions(question: str) -> Iterator[tuple[str, str]]:
    """Names within a question and their numbers, as of "in Python 3.12"; no years and dates."""
    for found in _NUMBER.finditer(question):
        before, number = question[: found.start()].split(), found["digits"]
        year = number and number.isdigit() and len(number) == 4 and number[:2] < "21"
        named = len(before) > 1 and before[-1].isalnum() and not before[-1].islower()
        if found[0] == number and named and not year and before[-1][:3] not in _MONTHS:
            yield before[-1], number


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim and one of the sources it cites; `beside` are its other sources."""

    claim: str
    source: Source
    beside: tuple[Source, ...] = ()
    context: str = ""
    """as of `CitationCheck`"""
    asked: str = ""
    """the question, of which a version such as "Python 3.12" need not stand in a source, too"""

    def verbatim(self) -> bool:
        """Whether the claim is whole sentences of the source, apart from spaces.

        Less than a sentence may be reversed by the rest of it.
        """
        claim, whole_text = compared(self.claim), compared(self.source.text)
        claim, text = (" ".join(each.split()) for each in (claim, whole_text))
        told = (" ".join(said.split()).rstrip(".") for said in sentences(whole_text))
        whole = claim in text and any(claim.startswith(said) for said in told if said)
        return whole and len(content_words(claim)) >= LEAST_QUOTED

    def fault(self) -> str:
        """Why it cannot be right, whatever a model says; "" if no rule finds a fault."""
        if wrong := self.must_occur():
            return wrong
        # The sentence that comes closest may be turned round by the claim.
        there = {part: shares(self.claim, part) for part in evidence(self.claim, self.source.text)}
        close = max(there, key=there.__getitem__, default="")
        return contradiction(self.claim, close) if there.get(close, 0.0) >= SAME else ""

    def must_occur(self, *, names: bool = True) -> str:
        """The first number, name or quotation that no source of the claim has; "" if none.

        It suffices if another source of the claim has it. `names`: whether these have to occur; a
        manual seldom names the product that it is about.
        """
        beside = [self.missing(source) for source in self.beside]
        for kind, term in self.missing(self.source):
            if (names or kind != "name") and all((kind, term) in missing for missing in beside):
                return f'the {kind} "{term}" is not in the source'
        return ""

    def missing(self, source: Source) -> list[tuple[str, str]]:
        """What of the claim the source lacks, by kind; numbers must be near a word of it."""
        claim, text = _write_out_dates(self.claim), _write_out_dates(source.text)
        told = self.context, self.asked
        everywhere = "\n".join((source.title, source.place, source.location, text))
        counted = _NUMBER.search(claim) is not None
        # A cell that is little but a number is about what its row and column are about.
        short = len(content_words(_NUMBER.sub(" ", claim))) < LEAST_QUOTED
        about = f"{claim} {self.context}" if short else claim
        parts = source.place.split(BELOW)
        above = [part for part in parts if part.partition(" ")[0] not in _POSITIONS]
        where = (source.title, source.location, *above)
        beside = [text] if apart(claim, text, *told) else _beside_words(claim, about, text)
        near = "\n".join((*where, *beside)) if counted else ""
        stated = claim
        for name, number in _versions(self.asked):
            stated = stated.replace(f"{name} {number}", name)
        return [
            *(("number", number) for number in missing_numbers(stated, near, *told)),
            *(("quotation", quoted) for quoted in missing_quotations(claim, text)),
            *(("name", name) for name in missing_names(claim, everywhere)),
        ]


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """How far the source supports the claim, and why not wholly."""

    verdict: CitationSupport
    reason: str = ""
    quote: str = ""
    """as of `CitationCheck`"""


@dataclass(frozen=True, slots=True)
class Findings:
    """One finding for each pair, in order, and their cost."""

    each: tuple[ClaimFinding, ...]
    usage: Usage = NO_USAGE


@runtime_checkable
class Checker(Protocol):
    """Decides for each pair whether the source's text as fetched supports the claim.

    Raises PolicyError if its model cannot be called.
    """

    @property
    def name(self) -> str: ...

    async def check(self, pairs: Sequence[Pair]) -> Findings: ...


NAME = BY_RULES
IN_PART = "the source has the words of only a part of it"
SENTENCES = 5
EVIDENCE_CHARACTERS = 1200
AGAIN = 0.3
"""factor on the weight of a word that a chosen sentence has already"""
WORDY = 1000
"""characters of a sentence that halve the weight of its words"""
SAME = 0.6
"""share of a claim's words from which a sentence is about the same thing"""
ENOUGH = 0.6
"""share of a clause's content words from which the evidence contains it"""
TOO_FEW = 0.4
"""share of them below which it does not"""
_CLAUSE = re.compile(
    r";|(?:,|(?<!\s))\s++(?:and|but|while|whereas)\s+|,\s+(?:which|who|so|or)\s+", re.I
)


class LexicalChecker:
    """A `Checker` by rules alone."""

    name = NAME

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        # A page of many thousand words takes a while.
        found = await asyncio.to_thread(lambda: tuple(map(lexical_finding, pairs)))
        return Findings(found)


def lexical_finding(pair: Pair) -> ClaimFinding:
    """What the rules are sure of: a fault, or a quotation; all else is unchecked."""
    if not content_words(pair.claim) or (pair.source.text and apart(pair.claim, pair.source.text)):
        return ClaimFinding("unchecked", "its words cannot be compared with the source's")
    if wrong := pair.fault():
        return ClaimFinding("unsupported", wrong)
    if not any(shares_of_clauses(pair)) and len(content_words(pair.claim)) > 1:
        return ClaimFinding("unsupported", "the source has none of its words")
    return ClaimFinding("supported" if pair.verbatim() else "unchecked")


def likely_finding(pair: Pair) -> ClaimFinding:
    """The same, but supported where the claim's words make that likely: for figures over many.

    A rule on words is blind to who did what, so it may not tell a reader that a claim holds.
    """
    found = lexical_finding(pair)
    if found != ClaimFinding("unchecked") or pair.missing(pair.source):
        return found
    return ClaimFinding("supported") if min(shares_of_clauses(pair)) >= ENOUGH else found


def _beside_words(claim: str, about: str, text: str) -> Iterator[str]:
    """The sentences with a word of what a claim is about, other than numbers, and their neighbours.

    Of the rows of tables only those that have most of its words, where these have another number
    in the place of the claim's: that another row has it says nothing.
    """
    parts = list(sentences(text))
    language = language_with(about, text)
    words = content_words(_NUMBER.sub(" ", about), language) - NEGATIONS
    held = [words & content_words(part, language) for part in parts]
    has = [False, *map(bool, held), False]
    rows = {i: held[i] for i, part in enumerate(parts) if CELLS in part}
    less = {i for i, own in rows.items() if any(own < other for other in rows.values())}
    if less and not _in_its_place(claim, "\n".join(parts[i] for i in rows.keys() - less)):
        less = set()
    return (part for i, part in enumerate(parts) if any(has[i : i + 3]) and i not in less)


def _in_its_place(claim: str, rows: str) -> bool:
    """Whether rows have none of the claim's numbers, and one of the same measure."""
    said, held = (
        [number for _, readings in _numbers_in(text) for number in readings[:1]]
        for text in (claim, rows)
    )
    alike = any(one.measure == other.measure for one in said for other in held)
    return alike and not any(one.is_in(other) for one in said for other in held)


def shares_of_clauses(pair: Pair) -> list[float]:
    """For each clause the share of its words that title and evidence have."""
    claim, text = _write_out_dates(pair.claim), _write_out_dates(pair.source.text)
    found = evidence(claim, text)
    near = "\n".join([pair.source.title, *found]) if found else ""
    return [shares(clause, near) for clause in clauses(claim)]


@lru_cache(maxsize=64)
def evidence(claim: str, text: str) -> tuple[str, ...]:
    """The few sentences that together have most of the claim's words, in the text's order.

    A word counts more the fewer sentences have it, and little once a chosen sentence has it. () if
    no sentence has any.
    """
    parts = list(sentences(text))
    language = language_with(claim, text)
    wanted = content_words(claim, language) - NEGATIONS
    held = [wanted & content_words(part, language) for part in parts]
    count = Counter(word for words in held for word in words)
    weight = {word: math.log(1 + len(parts) / (0.5 + count[word])) for word in count}
    left, kept, size = set(wanted), list[int](), 0

    def worth(i: int) -> float:
        said = sum(weight[word] * (1 if word in left else AGAIN) for word in held[i])
        return said / (1 + len(parts[i]) / WORDY)

    open_ = [i for i, words in enumerate(held) if words]
    while open_ and len(kept) < SENTENCES:
        best = max(open_, key=worth)
        kept.append(best)
        left -= held[best]
        size += len(parts[best])
        open_ = [i for i in open_ if i != best and size + len(parts[i]) <= EVIDENCE_CHARACTERS]
    return tuple(parts[i] for i in sorted(kept))


def clauses(claim: str) -> list[str]:
    """The parts of a claim that say something by themselves: each of two content words or more."""
    found, held = [], ""
    for part in _CLAUSE.split(claim):
        held = f"{held} {part}".strip()
        if len(content_words(held)) > 1:
            found.append(held)
            held = ""
    return found or [claim]


def apart(claim: str, text: str, *around: str) -> bool:
    """Whether they differ in script or language, as far as both can be told."""
    codes = {language_with(claim, *around), language_of(text)}
    return len(codes - {""}) > 1 or (len(codes) > 1 and codes.isdisjoint(("en", *LATIN)))
