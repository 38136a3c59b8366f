"""What a claim must have from its source as it stands: numbers, names and quotations.

A number counts with its scale and its percent sign ("5 million", "12%"), and words for numbers
are numbers ("three" is 3); so a changed number is seen however it is written. A name is an
identifier, an acronym or a capitalised word that does not merely begin a sentence. A quotation
is what stands in double quotation marks.
"""

import re
from collections.abc import Iterator

from agent.overlap import content_words
from agent.sources.words import STOP_WORDS

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
_IDENTIFIER = re.compile(r"[^\W\d]\w*[._]\w|[a-z][A-Z]|\w_\w")
_CAPITAL = re.compile(r"(?<![\w.`'\u2019-])[^\W\d_a-z][\w]*")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\u2026]\s|[(\"\u201c\n]|[-*]\s)\s*$")
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
        if not _begins_sentence(claim, match):
            yield match[0]


def _begins_sentence(claim: str, match: re.Match[str]) -> bool:
    """Whether a capital stands there only because a sentence begins."""
    acronym = sum(letter.isupper() for letter in match[0]) > 1
    followed = _CAPITAL.match(claim, match.end() + 1)
    return not acronym and not followed and bool(_SENTENCE_START.search(claim[: match.start()]))


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
