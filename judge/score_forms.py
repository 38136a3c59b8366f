"""Scores as models write them, whatever scale they chose, brought to [0, 1] for a whole group.

Numbers, texts of numbers, fractions such as "8/10" and percentages are read. Plain numbers share
one scale, told from the largest: to 1.5 it is 1, to 10 it is 10, to 100 it is 100.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

ONE, TEN, HUNDRED = 1.5, 10.0, 100.0
"""the largest plain number that speaks for a scale to 1, to 10 and to 100"""
_NUMBER = r"([+-]?\d+(?:\.\d+)?|[+-]?\.\d+)"
_FRACTION = re.compile(rf"{_NUMBER}\s*(?:/|out of|of)\s*{_NUMBER}", re.I)
_PERCENT = re.compile(rf"{_NUMBER}\s*%")
_ID = re.compile(r"\W*(?:attempt|trajectory|id)?[\s_#-]*(\d+)\W*", re.I)


@dataclass(frozen=True, slots=True)
class Raw:
    """A number as written; `scaled`: it named its own scale."""

    value: float
    scaled: bool = False


def raw_score(value: Any) -> Raw:
    """Raises ValueError for what is no finite number."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, str):
        return _read(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("the score must be a number from 0 to 1")
    return Raw(_finite(value))


def in_unit_range(scores: Sequence[Raw]) -> list[float]:
    """Scores of one group in [0, 1]. Raises ValueError where their scale cannot be told."""
    plain = [score.value for score in scores if not score.scaled]
    most = max(plain, default=0.0)
    if most > HUNDRED:
        raise ValueError("the scores must be numbers from 0 to 1")
    scale = 1.0 if most <= ONE else TEN if most <= TEN else HUNDRED
    if scale > 1 and any(0 < value < 1 for value in plain):
        raise ValueError("the scores are on different scales; each must be from 0 to 1")
    return [min(max(s.value if s.scaled else s.value / scale, 0.0), 1.0) for s in scores]


def plain_id(value: Any) -> str:
    """An attempt's number however it was written; what holds none stays as it is."""
    match = _ID.fullmatch(str(value))
    return str(int(match.group(1))) if match else str(value)


class GivenScore(BaseModel):
    """One entry of a reply."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: Annotated[str, BeforeValidator(plain_id), WithJsonSchema({"type": "string"})]
    explanation: Annotated[str, BeforeValidator(lambda value: value or "")] = ""
    score: Annotated[Raw, BeforeValidator(raw_score), WithJsonSchema({"type": "number"})] = Field()


def id_fault(given: Sequence[str], wanted: Sequence[str]) -> str:
    """What is wrong with the ids of a reply, or ""."""
    if sorted(given) == sorted(wanted):
        return ""
    missing = [name for name in wanted if name not in given]
    twice = sorted({name for name in given if given.count(name) > 1})
    foreign = sorted(set(given) - set(wanted))
    parts = {"missing": missing, "more than once": twice, "unknown": foreign}
    told = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
    return f"it needs exactly {len(wanted)} entries, one for each id, and has {len(given)} ({told})"


def _read(text: str) -> Raw:
    if match := _FRACTION.fullmatch(text):
        value, scale = map(float, match.groups())
        if scale <= 0:
            raise ValueError(f"{text!r} is no score")
        return Raw(_finite(value / scale), scaled=True)
    if match := _PERCENT.fullmatch(text):
        return Raw(_finite(float(match.group(1)) / 100), scaled=True)
    try:
        return Raw(_finite(float(text)))
    except ValueError:
        raise ValueError("the score must be a number from 0 to 1") from None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("the score must be a finite number from 0 to 1")
    return float(value)
