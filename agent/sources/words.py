"""The words of a text, for matching: the same for passages and for questions.

Words are lower-cased and brought to a light stem (plural, -ing, -ed and a last -e go, which
makes "caching", "cached" and "caches" one word). An identifier counts as a whole and as its
parts: `functools.lru_cache` gives itself, `functools`, `lru_cache`, `lru` and `cache`; a dotted
name gives each of its endings, so that `Path.read_text` meets `pathlib.Path.read_text`.
"""

import re

WORDS_VERSION = 1
"""Part of every index's key: raise it when the words of a text change."""

_RAW = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*|\d+(?:[.,]\d+)*")
_CASE_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_VOWEL = re.compile("[aeiouy]")
_KEEP_DOUBLE = frozenset("lsz")

_STOP_WORDS = """
    a about after all also an and any are as at be because been before being between both
    but by can could did do does doing done each for from had has have having he her here
    him his how i if in into is it its itself just may me might more most must my no nor not
    now of off on once only or other our out over own same shall she should so some such
    than that the their them then there these they this those through to too under until up
    upon us very was we were what when where whether which while who whom whose why will
    with would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def stem(word: str) -> str:
    """A light English stem of a lower-case word."""
    word = _singular(word)
    for ending, shortest in (("ing", 6), ("ed", 6)):
        if word.endswith(ending) and len(word) >= shortest:
            rest = word[: -len(ending)]
            if _VOWEL.search(rest):
                word = _single_last(rest)
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


def _single_last(rest: str) -> str:
    doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in _KEEP_DOUBLE
    return rest[:-1] if doubled else rest


def raw_words(text: str) -> list[str]:
    """Words and dotted identifiers as they stand in the text."""
    return _RAW.findall(text)


def expand(raw: str) -> tuple[str, ...]:
    """What one raw word is matched by; empty for a stop word."""
    if raw.isalpha() and (raw.islower() or raw.istitle()):
        word = raw.lower()
        return () if word in STOP_WORDS else (stem(word),)
    names = raw.split(".")
    found = [".".join(names[i:]).lower() for i in range(max(0, len(names) - 4), len(names) - 1)]
    for name in names:
        found += _name_parts(name)
    return tuple(found)


def _name_parts(name: str) -> list[str]:
    whole = name.strip("_").lower()
    if not whole or whole in STOP_WORDS:
        return []
    parts = [part.lower() for part in _CASE_PARTS.findall(name)]
    if len(parts) < 2:
        return [stem(whole)]
    return [whole, *(stem(part) for part in parts if part not in STOP_WORDS)]


def words(text: str) -> list[str]:
    """All words of a text that count, in order."""
    return [word for raw in raw_words(text) for word in expand(raw)]
