"""Words in a note that would order its reader about, as injected text does.

A reflection is full of advice in the imperative, so what counts is not the mood but the matter:
dropping one's instructions, another role, hiding, leaving out citations, an answer or a name
settled beforehand, an action beside research, being carried on. The rules (`orders.toml`) know
many ways to say so in English, and the commonest in other languages, where it takes two or three
words in one clause, so that a lesson about ignoring a rule of grammar is none. A paraphrase that
the rules have no words for gets by.

A text is also read as it would be if its letters stood for others: whoever hides words relies on
a reader who makes the same effort. Each such reading is cheap and says nothing by itself: it
counts only where an order can be read in it.
"""

import base64
import binascii
import codecs
import html
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from rubricem.memory.screening.stripping import entities_read, visible

QUOTED = 80
"""characters of the offending words in a flag"""
BOND = "claims a past or a bond with its reader"
_WORD_PLACE = re.compile(r"\{([A-Z_]+)\}")


@cache
def _rules() -> dict[str, Any]:
    text = (files("rubricem.memory.screening") / "orders.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _pattern(text: str) -> str:
    """A pattern of the rules with its words put in."""
    return _WORD_PLACE.sub(lambda at: _pattern(_rules()["words"][at[1]]), text.replace("\n", ""))


@cache
def _orders() -> Mapping[str, re.Pattern[str]]:
    """What a note does -> words that do it.

    Compiled when something is first screened: it takes a tenth of a second.
    """
    return {
        what: re.compile("|".join(f"(?:{_pattern(one)})" for one in patterns), re.I)
        for what, patterns in _rules()["orders"].items()
    }


@cache
def _courting() -> re.Pattern[str]:
    return re.compile(_pattern("{COURTING}"))


def pleading(text: str) -> str:
    """The first words that speak to whoever judges, in lower case, or ""."""
    match = _courting().search(text.casefold())
    return match.group(0) if match else ""


def orders(text: str, *, asked: bool = False) -> Iterator[str]:
    """A sentence for each thing that the text does to its reader, with the words that do it.

    `asked`: it is a question, which may speak of itself and to its reader.
    """
    told = dict(_found(folded(text)))
    if asked:
        told.pop(BOND, None)
    yield from (f'It {what}: "{words}".' for what, words in told.items())
    for what, words in dict(_orders_abroad(text)).items():
        yield f'It {what}: "{words[:QUOTED]}".'
    for reading in hidden_readings(text):
        for what, words in _found(reading):
            if what not in told and not (asked and what == BOND):
                yield f'Read otherwise, it {what}: "{words}".'


def _found(plain: str) -> Iterator[tuple[str, str]]:
    """What a folded text does, and the first words that do it."""
    for what, pattern in _orders().items():
        if match := pattern.search(plain):
            yield what, match.group().strip(" .,:;!?-")[:QUOTED]


_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u03bf\u03b1\u03bd\u0131"
    "\u04bb\u051b\u051d\u0261\u03c1\u03c4\u03ba"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0405\u0391\u039f"
    "\u0392\u0395\u0397\u0399\u039a\u039c\u039d\u03a1\u03a4\u03a5\u03a7",
    "aeopcyxijsdoavihqwgptkABEKMHOPCTXISAOBEHIKMNPTYX",
)
"""Cyrillic and Greek letters that pass for Latin ones"""
_EMPHASIS = re.compile(r"[*`~]+|\b_+|_+\b")
_ITEM = re.compile(r"\n\s*(?:[-+\u2022]|\d{1,2}[.)])\s+|\n\s*\n\s*")
_APART = re.compile(r"(?<!\w)[^\W_]([ .\-_*|])(?:[^\W_]\1)+[^\W_](?!\w)")
_BETWEEN = re.compile(r"[ .\-_*|]")
_MIXED = re.compile(r"(?<!\w)(?=[\w@$!|]*[a-z])[\w@$!|]*[013457@$!|][\w@$!|]*(?!\w)", re.I)
_DIGITS = str.maketrans("013457@$!|", "oieastasil")
_BASE64 = re.compile(r"(?<![\w+/-])[A-Za-z0-9+/_-]{16,400}={0,2}")
_HEX = re.compile(r"(?:(?:0x|\\x|%)?[0-9A-Fa-f]{2}[ ,:]?){8,}")
_LEAST_SHARE = 0.9
"""of a decoded piece that must be plain letters and spaces to be words"""
_MOST_PIECES = 20
_SCRAMBLED = "ignore disregard forget previous instructions instruction system prompt rules sources"
_KEYWORDS = {
    (word[0], word[-1], "".join(sorted(word))): word for word in re.findall(r"\w+", _SCRAMBLED)
}
"""words that are known although their letters stand in another order"""
_LIKELY = re.compile(
    r"ignor|instruct|disregard|forget|prompt|answer|cite|citation|recommend|source|judge|assistant"
    r"|agent|rules|always|never",
    re.I,
)
"""what one of any reading's words must be, so that most texts are read once"""


def folded(text: str) -> str:
    """The text as it reads: letters by their look, one clause after the other, no emphasis."""
    plain = unicodedata.normalize("NFKD", visible(entities_read(text)).translate(_LOOKALIKES))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    plain = plain.replace("\u2019", "'")
    return " ".join(_EMPHASIS.sub("", _ITEM.sub(". ", plain)).split())


def hidden_readings(text: str) -> Iterator[str]:
    """What else the text says to somebody who knows how to read it, as `folded` gives it."""
    plain = visible(entities_read(text))
    once = folded(text)
    for other in (
        folded(_APART.sub(lambda match: _BETWEEN.sub("", match.group()), plain)),
        folded(_MIXED.sub(lambda match: match.group().translate(_DIGITS), plain)),
        re.sub(r"[A-Za-z]{5,}", _in_order, once),
        codecs.encode(once, "rot13"),
        once[::-1],
        *map(folded, _decoded(plain)),
    ):
        if other != once and _LIKELY.search(other):
            yield other


def _in_order(match: re.Match[str]) -> str:
    word = match.group().casefold()
    known = _KEYWORDS.get((word[0], word[-1], "".join(sorted(word))))
    return known or str(match.group())


def _decoded(text: str) -> Iterator[str]:
    """Pieces in base64, in hexadecimal or in escapes that come to words."""
    for match in [*_BASE64.finditer(text)][:_MOST_PIECES]:
        piece = match.group().rstrip("=").replace("-", "+").replace("_", "/")
        with_padding = piece + "=" * (-len(piece) % 4)
        yield from _words(with_padding, base64.b64decode)
    for match in [*_HEX.finditer(text)][:_MOST_PIECES]:
        yield from _words(re.sub(r"0x|\\x|[% ,:]", "", match.group()), bytes.fromhex)
    if "%" in text:
        yield unquote(text, errors="replace")
    if "\\u" in text or "\\x" in text:
        yield html.unescape(re.sub(r"\\(?:u|x)([0-9A-Fa-f]{2,4})", r"&#x\1;", text))


def _words(piece: str, decode: Callable[[str], bytes]) -> Iterator[str]:
    try:
        text = decode(piece).decode("utf-8")
    except (binascii.Error, ValueError):
        return
    plain = sum(letter.isalpha() or letter.isspace() for letter in text)
    if plain >= _LEAST_SHARE * len(text):
        yield text


_NEGATIONS = ("kein", "nicht", "ne", "pas", "no", "non", "nao", "niet", "inte", "ikke", "nie", "не")
_DROPS = "tells its reader in another language to drop what it was told"
_PROMOTES = "promotes something in another language"
_CLAUSE = re.compile(r"[.!?;:\n\u3002\uff01\uff1f\uff1b]")
_WORD = re.compile(r"[\w']+")
_SPACED = "\u0600"
"""scripts before this letter part words with spaces, and prefix them with nothing"""
_BESIDE = 2
"""letters between always and what is always to be promoted"""
_MOST = 200
"""letters of a clause that are looked at"""


@dataclass(frozen=True, slots=True)
class _Language:
    """Beginnings of one language's words, separated by |, without accents."""

    drop: str
    which: str
    rules: str
    void: str
    always: str
    promote: str


@cache
def _languages() -> tuple[_Language, ...]:
    return tuple(_Language(**words) for words in _rules()["languages"])


def _orders_abroad(text: str) -> Iterator[tuple[str, str]]:
    """What the text does in another language, and its words, letters without their accents."""
    for clause in _CLAUSE.split(_unaccented(text)):
        words = f" {' '.join(_WORD.findall(clause))}"[:_MOST]
        for language in _languages():
            if _drops(words, language):
                yield _DROPS, words.strip()
            if _promotes(words, language):
                yield _PROMOTES, words.strip()


def _drops(words: str, language: _Language) -> bool:
    if not (_at(words, language.rules) and _at(words, language.which)):
        return False
    if _at(words, language.void):
        return True
    return any(
        not any(f" {negation} " in words[: start + 1] for negation in _NEGATIONS)
        for start, _ in _at(words, language.drop)
    )


def _promotes(words: str, language: _Language) -> bool:
    always, promote = _at(words, language.always), _at(words, language.promote)
    return any(
        0 <= second[0] - first[1] <= _BESIDE
        for one in always
        for other in promote
        for first, second in (sorted((one, other)),)
    )


def _at(words: str, stems: str) -> list[tuple[int, int]]:
    """Start and end of each word that begins with one of the stems."""
    found = []
    for stem in stems.split("|"):
        sought = f" {stem}" if stem < _SPACED else stem
        if (start := words.find(sought)) >= 0:
            end = start + len(sought)
            space = words.find(" ", end)
            found.append((start, (space if space >= 0 else len(words)) if stem < _SPACED else end))
    return found


def _unaccented(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in letters if not unicodedata.combining(c)).replace("\u2019", "'")
