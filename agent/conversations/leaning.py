"""Questions that lean on the one before ("and in Python 3.12?"), made to stand by themselves.

A search knows nothing of a thread. A question that names too little of its own, or points back,
is searched for with the names and content words of the last question that stood by itself.
English words tell that a question points back; that it names little is told in any language.
"""

import re
from collections.abc import Sequence

from agent.claims import NAME
from agent.overlap import content_words

LEAST_WORDS = 3
"""content words, numbers aside, of a question that can stand by itself without an identifier"""
SUBJECT_WORDS = 8
"""words taken of the earlier question at most"""

_GOES_ON = re.compile(
    r"\s*(?:and|but|or|so|also|then|now|ok(?:ay)?|what about|how about|why(?: not)?\s*\?|"
    r"what else|anything else|more)\b",
    re.I,
)
_POINTS_BACK = re.compile(
    r"\b(?:it|its|they|them|their|theirs|he|him|his|she|her|this|that|these|those|there|former|"
    r"latter|same|both|one|ones|instead|above|earlier|else|again)\b",
    re.I,
)
_ASKING = content_words("about change difference example happen mean use work way version")
"""words that a question asks with, and that name nothing"""


def leans(question: str) -> bool:
    """Whether a question says too little to be searched for by itself."""
    if _GOES_ON.match(question):
        return True
    if any(map(_is_name, question.split())):
        return False
    words = {word for word in content_words(question) - _ASKING if not word[0].isdigit()}
    return len(words) < LEAST_WORDS or _POINTS_BACK.search(question) is not None


def standalone(question: str, earlier: Sequence[str]) -> str:
    """The question as it is; one that leans, with the thread's subject before it."""
    if not earlier or not leans(question):
        return question
    known = content_words(question)
    new = [word for word in subject_of(earlier) if content_words(word) - known]
    return " ".join([*new[:SUBJECT_WORDS], question])


def subject_of(earlier: Sequence[str]) -> tuple[str, ...]:
    """What the last question that stands by itself is about, word by word, names first."""
    alone = next((each for each in reversed(earlier) if not leans(each)), earlier[0])
    words = dict.fromkeys(word.strip(".,;:!?\"'()[]") for word in alone.split())
    telling = [word for word in words if content_words(word) - _ASKING]
    names = [word for word in telling if _is_name(word) or word[1:] != word[1:].lower()]
    return (*names, *(word for word in telling if word not in names))


def _is_name(word: str) -> bool:
    return NAME.search(word) is not None and not word[0].isdigit()
