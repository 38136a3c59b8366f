r"""The score that a judge's plain words hold: `Score: 0.8`, `8/10`, `7 out of 10`, `40 %`, `0,7`.

The first number counts, unless one stands right after the word score, rating, grade or reward:
then the first of those. A denominator or a percent sign divides it.
"""

import math
import re

_NUMBER = r"[-+\u2212]?(?:\d+(?:[.,]\d+)?|[.,]\d+)(?:e[-+]?\d+)?"
_BEFORE = r"(?<![\w.,])(?<![\w.,][-+\u2212])"
_OF = rf"(?:\s*(?P<percent>%)|\s*(?:/|out\s+of)\s*(?P<whole>{_NUMBER}))?"
_VALUE = rf"{_BEFORE}(?P<value>{_NUMBER})(?!\w|[.,]\d){_OF}"
_FIRST = re.compile(_VALUE, re.I)
_LABELLED = re.compile(
    rf"\b(?:score|rating|grade|reward)\b[\"'*_`\s]*(?:[:=]|is|of)?[\"'*_`\s]*{_VALUE}", re.I
)
_THOUGHT = re.compile(r"^.*?</think>", re.S)


def score_in(text: str) -> float | None:
    """The score as written, of whatever range; None where there is no finite number."""
    said = _THOUGHT.sub("", text, count=1)
    found = _LABELLED.search(said) or _FIRST.search(said)
    if found is None:
        return None
    score = _number(found["value"])
    whole = 100.0 if found["percent"] else _number(found["whole"] or "1")
    return score / whole if whole > 0 and math.isfinite(score / whole) else None


def _number(text: str) -> float:
    return float(text.replace(",", ".").replace("\u2212", "-"))
