"""Whether a claim says the opposite of a sentence that uses the same words.

Three signs are looked for: a word that is denied in one and not in the other ("blocks", "does not
block"), a comparison the other way round, and a word that stands against its opposite ("oldest",
"newest"). They are read from words alone, so only where the two share most of what they say.
"""

import re

from agent.overlap import content_words
from agent.sources.words import STOP_WORDS, stem

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

_TOKEN = re.compile(r"[^\W\d_]+(?:['\u2019]t\b)?|[,;:.()]")
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
        return f"it is denied of what the source asserts ({_shown(turned)})"
    if turned := denied_there & said_here:
        return f"the source denies it ({_shown(turned)})"
    return _swapped(claim, sentence) or _opposed(_words(claim), _words(sentence))


def _swapped(claim: str, sentence: str) -> str:
    """Whether what is compared stands the other way round: "A more than B", "B more than A"."""
    parts = [_THAN.split(text) for text in (claim, sentence)]
    if any(len(part) != 2 for part in parts):
        return ""
    (more, less), (more_there, less_there) = (map(content_words, part) for part in parts)
    turned = (more - more_there) & less_there and (less - less_there) & more_there
    return "it compares them the other way round" if turned else ""


def _opposed(claim: list[str], sentence: list[str]) -> str:
    for word in claim:
        for other in sentence:
            if word not in sentence and other not in claim and _against(word, other):
                return f'it says "{word}" where the source says "{other}"'
    return ""


def _against(word: str, other: str) -> bool:
    if other in _OPPOSITES.get(word, ()):
        return True
    short, long = sorted((word, other), key=len)
    return len(short) > 4 and any(long == prefix + short for prefix in _PREFIXES)


def _denied(text: str) -> tuple[set[str], set[str]]:
    """Stems of the content words that negations alone reach, and of those that none reaches."""
    denied: set[str] = set()
    said: set[str] = set()
    left = 0
    words = [match[0].lower().replace("\u2019", "'") for match in _TOKEN.finditer(text)]
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word in _NEGATIONS or word.endswith("n't"):
            left = 0 if after in _COMPARING else SCOPE
        elif not word[0].isalpha():
            left = 0
        elif word not in STOP_WORDS:
            (denied if left else said).add(stem(word))
            left = max(left - 1, 0)
    return denied - said, said - denied


def _words(text: str) -> list[str]:
    return [match[0].lower() for match in _TOKEN.finditer(text) if match[0][0].isalpha()]


def _shown(words: set[str]) -> str:
    return ", ".join(sorted(words))


def shares(claim: str, sentence: str) -> float:
    """Share of the claim's content words that the sentence has; negations do not count.

    "Unbounded" is there where "bound" is denied.
    """
    words = content_words(claim) - NEGATIONS
    denied = {prefix + word for word in _denied(sentence)[0] for prefix in _PREFIXES}
    return len(words & (content_words(sentence) | denied)) / len(words) if words else 0.0
