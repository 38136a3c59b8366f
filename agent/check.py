"""What one look at the set-up found: the value that all checks of `rubricem doctor` give."""

from dataclasses import dataclass
from typing import Literal

from memory.errors import RubricemError


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and what to do about it."""

    name: str
    state: Literal["ok", "note", "fault"]
    found: str
    remedy: str = ""


def fault_of(name: str, error: RubricemError) -> Check:
    return Check(name, "fault", str(error), error.remedy)
