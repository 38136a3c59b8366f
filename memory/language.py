"""What a word, a sentence and a text's length are, in the languages that people write.

The language of a text is guessed from its script and, among Latin ones, from its function words:
those of another language must be twice as many as the English ones, so that an English text with
foreign titles stays English. Words are compared in a common form: English ones by a light stem,
those of other languages by Snowball's (Porter, 2001), without accents and without the article that
French and Italian attach; negations are "not" in all of them. Scripts without spaces, and those
whose vowel signs break a pattern for words, are read as overlapping pairs of characters, which
needs no dictionary (McNamee and Mayfield, 2004). An unknown language is read by the English rules,
on both sides of a comparison.
"""

import re
import threading
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from importlib.resources import files
from itertools import groupby, takewhile
from typing import Any, Final

LATIN: Final = ("de", "fr", "es", "it", "pt", "nl")
NAMES: Final = {
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
    "ru": "Russian",
    "el": "Greek",
    "ar": "Arabic",
    "he": "Hebrew",
    "hi": "Hindi",
    "th": "Thai",
    "ko": "Korean",
    "ja": "Japanese",
    "zh": "Chinese",
}
"""the languages that can be recognised, in English; others may share a script such as Cyrillic"""
_SNOWBALL = {code: NAMES[code].lower() for code in (*LATIN, "ru", "el", "ar")}

_WORDS = tomllib.loads((files("rubricem.memory") / "function_words.toml").read_text("utf-8"))
STOP_WORDS = frozenset(_WORDS["binding"]["en"].split())
_ELIDED = frozenset(_WORDS["elided"].split())
_IN_TITLES = frozenset(_WORDS["titles"].split())
_ENGLISH_IN_TITLES = frozenset(("and", "of", "the"))
"""also found in titles and names in a text of another language; three of them count twice"""
_AMBIGUOUS = frozenset(_WORDS["doubtful"].split())
_TABLES = {
    code: frozenset(f"{said} {_WORDS['denying'][code]}".split())
    for code, said in _WORDS["binding"].items()
    if code != "en"
}
_MARKS = {code: _TABLES[code] - STOP_WORDS - _AMBIGUOUS - {*"acdlnos"} for code in LATIN}
_AGAINST = {code: STOP_WORDS - _TABLES[code] - _ENGLISH_IN_TITLES for code in LATIN}
_FOREIGN = frozenset(word for marks in _MARKS.values() for word in marks)
_SURE = _FOREIGN - _IN_TITLES

_PLAINLY_ENGLISH = ("are", "as", "by", "is", "to", "with")

PAIRED = (
    "\u0900-\u0963\u0971-\u0dff\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecf\u1000-\u103f\u1780-\u17d3"
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
"""characters of scripts that are read in pairs, for the brackets of a pattern"""
LETTER = rf"[^\W{PAIRED}]"
"""a character of a word of the other scripts, in a pattern: what `\\w` is for English"""
WORD: Final = re.compile(
    rf"\d+(?:[.,]\d+)*+(?![^\W_{PAIRED}])|[{PAIRED}]+"
    rf"|[^\W_{PAIRED}]+(?:['\u2019][^\W_{PAIRED}]+)?+"
)
"""a word, a number, or a run of the scripts that are read in pairs"""
PAIRED_RUN = re.compile(f"[{PAIRED}]+")
_POINTS = re.compile("[\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]")
"""vowels and lengthening that Arabic and Hebrew may leave out"""
_SPELT = str.maketrans("أإآё", "اااе")
_SCRIPTS = {
    "latin": "AZaz\u00c0\u024f",
    "ja": "\u3040\u30ff",
    "zh": "\u3005\u3007\u3400\u9fff\uf900\ufaff",
    "ko": "\uac00\ud7af",
    "th": "\u0e01\u0e3a",
    "hi": "\u0900\u0963",
    "ru": "\u0400\u052f",
    "el": "\u0370\u03ff",
    "ar": "\u0600\u06ff",
    "he": "\u05d0\u05ea",
}
"""the first and the last letter of each range of a script, by the language that it tells"""
_WORTH = 3
"""letters that convey as much as a character of Chinese, Japanese or Korean"""


@lru_cache(1024)
def language_of(text: str) -> str:
    """The code of a text's language; "en" by English function words, "" if there is no sign.

    By the script of most of its letters; Chinese and Japanese may contain more of another one.
    """
    text = plain_letters(text)
    if not text.isascii():
        told = dict.fromkeys(_SCRIPTS, 0)
        for letter, count in Counter(text).items():
            if code := _script_of(letter):
                told[code] += count * (_WORTH if code in ("ja", "zh", "ko") else 1)
        latin = told.pop("latin")
        if told["ja"]:
            told["ja"], told["zh"] = told["ja"] + told["zh"], 0
        code = max(told, key=lambda c: told[c])
        if told[code] and told[code] >= latin:
            return code
    written = WORD.findall(text)
    bound = any(word.lower() in STOP_WORDS for word in written)
    return foreign({*written}, written[0] if written else "", text) or ("en" if bound else "")


@lru_cache(2**14)
def _script_of(letter: str) -> str:
    for code, ends in _SCRIPTS.items():
        if any(a <= letter <= b for a, b in zip(ends[::2], ends[1::2], strict=True)):
            return code
    return ""


def foreign(words: AbstractSet[str], first: str, text: str) -> str:
    """Which of `LATIN` has most function words in a text; "" for English and unknown.

    The `first` word of a question counts twice, since questions are short.
    """
    if "the" in words and not words.isdisjoint(_PLAINLY_ENGLISH):
        return ""
    begins = first.lower()
    hits = words & _FOREIGN | {begins}
    if hits.isdisjoint(_SURE) and begins not in _AMBIGUOUS and len(hits) < 3:
        return ""
    of_titles = not words.isdisjoint(_ENGLISH_IN_TITLES)
    best, most = "", (2, 0)
    for code in LATIN:
        told = hits & _MARKS[code]
        sure = told - _IN_TITLES
        doubtful = begins in _AMBIGUOUS and begins in _TABLES[code]
        score = len(sure) + min(2, (len(told) - len(sure) + 1) // 2)
        score += doubtful + (begins in sure and text.rstrip().endswith(("?", "\uff1f")))
        against = len(words & _AGAINST[code]) + (begins in _AGAINST[code]) + of_titles
        if score > 2 * against and (score, len(told)) > most:
            best, most = code, (score, len(told))
    return best


_SIGNS = re.compile(
    "([\u00b2\u00b3\u00b9\u2070\u2071\u2074-\u207f]+)"
    "|(?<=\\d)[\u00bc-\u00be\u2150-\u215f\u2189\u2460-\u24ff]|[\u2122\u2120]"
)
"""raised ones, and others that would be glued to what precedes them"""
_BROKEN = re.compile(r"(?<=[^\W\d_])-\n\s{0,99}(?=[a-z\u00df-\u00ff\u03ac-\u03ce\u0430-\u045f])")
"""a hyphen at the end of a line within a word"""


def plain_letters(text: str) -> str:
    """The text with each letter, digit and sign in its canonical form, as texts are compared.

    That is NFKC: ligatures, full and half widths and presentation forms are plain. What it would
    glue stays apart: a power is 10^5, two and a half is 2 1/2, a trade mark is no letters.
    Soft hyphens and what scripts may leave out are gone.
    """
    if text.isascii():
        return text
    text = text.replace("\u00ad", "")
    if not unicodedata.is_normalized("NFKC", text):
        text = _SIGNS.sub(lambda sign: f"{'^' if sign[1] else ' '}{sign[0]}", text)
        text = unicodedata.normalize("NFKC", text).replace("\u2044", "/")
    return _POINTS.sub("", text).replace("\u2010", "-")


def compared(text: str) -> str:
    """`plain_letters` of a text whose words are not broken at the ends of lines."""
    text = plain_letters(text)
    return _BROKEN.sub("", text) if "-\n" in text else text


def hyphenless(plain: str) -> list[str]:
    """The hyphenated words of a text in plain letters, in lower case and as one: "wellknown".

    So such a word is found where it was broken at the end of a line, or is written as one.
    """
    if "-" not in plain:
        return []
    if "-\n" in plain:
        plain = _BROKEN.sub("-", plain)
    parted = " ".join([word for word in plain.split() if "-" in word])
    found = _COMPOUND.findall(parted)
    return [word.replace("-", "").lower() for word in found if len(word) < LONGEST_COMPOUND]


LONGEST_COMPOUND = 40
"""characters of a word with hyphens that is also found without them"""
_COMPOUND = re.compile(r"(?<![^\W\d_])[^\W\d_]++(?:-[^\W\d_]++)++")


def apart(text: str) -> str:
    """The text with each character of the scripts that are read in pairs as a separate word.

    For counting words or comparing them in order; a text of other scripts stays as it is.
    """
    if text.isascii() or not PAIRED_RUN.search(text):
        return text
    return PAIRED_RUN.sub(lambda run: f" {' '.join(run[0])} ", plain_letters(text))


def stands(word: str, text: str) -> bool:
    """Whether a text has the whole word; 12 is not in 128, but is in a date in Chinese."""
    word = re.escape(plain_letters(word))
    return bool(re.search(rf"(?<!{LETTER}){word}(?!{LETTER})", plain_letters(text), re.I))


def is_foreign(text: str, *wholes: str) -> bool:
    """Whether a text is recognised as not English; see `language_with`."""
    return language_with(text, *wholes) not in ("", "en")


def language_with(text: str, *wholes: str) -> str:
    """The language of a text; if unknown, of its context or of the text it is compared with."""
    return next(filter(None, map(language_of, (text, *wholes))), "")


_NO_FORM = frozenset(("",))


def words_in(text: str, language: str = "") -> frozenset[str]:
    """The distinct content words of a text, each in its common form.

    `language`: that of its context, or of the text it is compared with; "": its own.
    """
    text = plain_letters(text)
    if "-\n" in text:  # a word has both forms
        text = f"{text} {_BROKEN.sub('', text)}"
    written = WORD.findall(text)
    # Each distinct word once: prose says most of its words again.
    words = {*written}
    code = language or foreign(words, written[0] if written else "", text)
    forms = frozenset(form(word, code) for word in words)
    if not text.isascii() and (runs := PAIRED_RUN.findall(text)):
        forms = forms.difference(runs).union(pair for run in runs for pair in pairs(run))
    return forms - _NO_FORM


@lru_cache(2**16)
def form(written: str, language: str) -> str:
    """The common form of a word in a text of this language; "" for a function word."""
    word = unicodedata.normalize("NFKC", written).lower().replace("\u2019", "'")
    if word[0].isdigit():
        return _number(word)
    if word[0] >= "\u0370":
        script = _script_of(word[0])
        language = script if script in ("ru", "el", "ar") else ""
    elif language not in LATIN:
        if word in STOP_WORDS:
            return word if word in ("no", "nor", "not") else ""
        return "not" if word.endswith("n't") else stem(word.removesuffix("'s"))
    article, mark, rest = word.partition("'")
    if language in ("fr", "it") and mark and article in _ELIDED:
        word = rest
    word = (word.removeprefix("و") if word.startswith("وال") else word).translate(_SPELT)
    if word in _WORDS["denying"].get(language, "").split():
        return "not"
    if word in stop_words(language):
        return ""
    if language in ("es", "pt") and len(word) > 3:
        word = word.removesuffix("s")
    word = _stem(word, language)
    return _bare(word) if language in LATIN else word


def _number(word: str) -> str:
    """The number without thousands separators, in Western digits."""
    word = word.replace(",", "")
    return word if word.isascii() else "".join(str(unicodedata.decimal(c, c)) for c in word)


@lru_cache
def stop_words(language: str) -> frozenset[str]:
    """The function words of a language in lower case; the English ones for unknown ones."""
    told = _WORDS["binding"].get(language, _WORDS["binding"]["en"])
    return frozenset(told.translate(_SPELT).split())


def _bare(word: str) -> str:
    """The word without accents, which are often left out."""
    if word.isascii():
        return word
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


_stemming = threading.Lock()


def _stem(word: str, language: str) -> str:
    if language not in _SNOWBALL:
        return word
    with _stemming:  # a stemmer keeps the word that it is at
        stemmed: str = _stemmer(language).stemWord(word)
    return stemmed


@lru_cache
def _stemmer(language: str) -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer(_SNOWBALL[language])


_VOWELS = frozenset("aeiouy")
_KEEP_DOUBLE = frozenset("lsz")


def stem(word: str) -> str:
    """A light English stem of a lower-case word: without plural, -ing, -ed and a final -e."""
    word = _singular(word)
    for ending, shortest in (("ing", 6), ("ed", 6)):
        if word.endswith(ending) and len(word) >= shortest:
            rest = word[: -len(ending)]
            if not _VOWELS.isdisjoint(rest):
                doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in _KEEP_DOUBLE
                word = rest[:-1] if doubled else rest
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def _singular(word: str) -> str:
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1]


_HAN_BINDS = re.compile(
    "为什么|為什麼|什么时候|什麼時候|什么|什麼|甚麼|多少|怎么样|怎么|怎麼|怎样|怎樣|如何|哪里|哪裡|哪些|哪个|哪個|"
    "[哪谁誰何的了是吗嗎呢吧在这這那它他她们們与與被]"
)
_KANA_BINDS = re.compile(
    "(?:について|によって|により|において|という|とは|から|まで|より|ため|など|また|です|でした|ですか|ます|ました|ません|"
    "して|した|する|され|れる|れた|られ|いる|いた|います|ある|あった|あります|なる|なった|こと|もの|これ|それ|あれ|どれ|"
    "この|その|あの|どの|ここ|そこ|どこ|いつ|だれ|なに|なぜ|どう|いくつ|ない|なかった|さ|き|り|く|い|っ|ち|し|み|え|け|め|べ|"
    "ば|な|は|が|を|に|の|で|と|も|へ|や|か|ね|よ|て|た|だ|る|れ)+"
)
_KANA_DENIES = ("ない", "なかった", "ません", "ずに")
_HANGUL_ENDS = _WORDS["hangul_ends"].split()


def _kind(letter: str) -> str:
    return "hiragana" if "\u3041" <= letter <= "\u309f" else _script_of(letter)


def pairs(run: str) -> Iterator[str]:
    """The terms of a run of such a script: pairs of neighbouring characters, or a single one.

    Function words are left out, as far as their characters show them, and endings.
    """
    for kind, letters in groupby(run, _kind):
        said = "".join(letters)
        parts = [said]
        if kind == "hiragana":
            if any(each in said for each in _KANA_DENIES):
                yield "not"
            parts = [] if _KANA_BINDS.fullmatch(said) else parts
        elif kind == "ko":
            ends = (end for end in _HANGUL_ENDS if said[2:].endswith(end))
            parts = [said.removesuffix(next(ends, ""))]
        elif kind == "zh":
            parts = _HAN_BINDS.split(said)
        for part in parts:
            yield from (part[i : i + 2] for i in range(len(part) - 1)) if len(part) > 1 else [part]


_ITEM = re.compile(
    r"\n[ \t]*\n\s*|\n(?=[^\S\n]*(?:[-*•]|\d+[.)])\s|[^\n|]*+(?<=[ ])\|[ ])"
    r"|(?<=[):])\n(?=[^\S\n]*[^\sa-z])"
)
"""an empty line, or the end of one before an item, a row of a table, or what it introduces"""
_CLOSING = r"['\")\]\u201d\u2019`*\u00bb]"
SENTENCE_END: Final = re.compile(
    rf"[.!?\u061f\u06d4\u0964]++{_CLOSING}*+(?=\s++(\S)|\s*+\Z)"
    rf"|[\u3002\uff01\uff1f\uff61]++(?:{_CLOSING}|[\u300d\u300f\u3011\uff09])*+"
)
"""the end of a sentence in an unfinished or short text: its mark and what closes after it

The group is the character that follows the space behind it.
"""
_SHORT = frozenset(_WORDS["short"].split())
_SHORT_ABROAD = frozenset(_WORDS["short_abroad"].split())


MOST_KEPT = 8000
"""characters of a text whose sentences are cached: citing, checking and reporting all need them"""


def sentences(text: str) -> Iterator[str]:
    """The sentences, list items and paragraphs of a text, without surrounding space."""
    return iter(_read_again(text)) if len(text) <= MOST_KEPT else _sentences(text)


def _sentences(text: str) -> Iterator[str]:
    for item in _ITEM.split(text):
        start = 0
        for stop in SENTENCE_END.finditer(item):
            within = stop[1] and stop[1].islower() and stop[0][0] in ".!?"
            before = item[max(start, stop.start() - 6) : stop.start()]
            if not within and not (stop[0][0] == "." != stop[0][1:2] and _goes_on(before, text)):
                yield item[start : stop.end()].strip()
                start = stop.end()
        if rest := item[start:].strip():
            yield rest


_read_again = lru_cache(1024)(lambda text: tuple(_sentences(text)))


def _goes_on(before: str, text: str) -> bool:
    """Whether a full stop behind this is part of an abbreviation, or a German ordinal."""
    last = "".join(takewhile(str.isalnum, reversed(before)))[::-1].lower()
    if last in _SHORT or (len(last) == 1 and "a" <= last <= "z"):
        return True
    ordinal = last.isdigit() and len(last) < 3 and before.split()[-1] == last
    if not ordinal and last not in _SHORT_ABROAD and (len(last) != 1 or last.isdigit()):
        return False
    code = language_of(text)
    return code == "de" if ordinal else code not in ("", "en")


PAIR = 2
"""characters, in scripts that are read in pairs, of about one word"""


def length(text: str) -> int:
    """Number of words in a text; in scripts without spaces `PAIR` characters count as one."""
    if text.isascii():
        return len(text.split())
    spaced, count = PAIRED_RUN.subn(" ", text)
    return len(spaced.split()) + (-(-(len(text) - len(spaced) + count) // PAIR) if count else 0)


def beginning(text: str, words: int, at: int = 0) -> str:
    """The text from an offset, up to this many words as counted by `length`.

    Its white space is kept.
    """
    word = r"\S++" if text.isascii() else rf"(?:[{PAIRED}]{{1,{PAIR}}}|[^\s{PAIRED}]++)"
    found = re.compile(rf"(?:\s*+{word}){{0,{words}}}+").match(text, at)
    assert found is not None, "none of it is a beginning, too"
    return found[0]
