"""A bank's items as they are shown, recalled and counted.

An item is a reflection and what became of it: for which generations it was the bank's word on
its question, what a person decided about it, and what came of the runs that recalled it.
"""

from dataclasses import dataclass
from datetime import datetime

from memory.errors import RubricemError
from memory.reflections import Reflection
from memory.values import Value

NEVER = 2**31
"""the generation in which an item that was not replaced is replaced"""


class BankItem(Value):
    """One reflection of a bank and its standing now."""

    reflection: Reflection
    since: int
    """the generation that it made by being put"""
    until: int = NEVER
    """the generation that replaced it"""
    pinned: bool = False
    """a person's word: no run's reflection replaces it"""
    disabled: bool = False
    removed: bool = False
    released: bool = False
    """a person released it from quarantine"""
    released_by: str = ""
    """where a person did; "" where an earlier version kept no such thing"""
    released_at: datetime | None = None
    edited_by: str = ""
    """where a person wrote it, at its `written_at`"""
    recalled: int = 0
    """how many runs were given it"""
    mean_score: float | None = None
    """in [0, 1], over those of these runs that were scored; None: none was"""

    @property
    def quarantined(self) -> bool:
        return bool(self.reflection.flags) and not self.released

    @property
    def live(self) -> bool:
        """Whether it may be recalled."""
        barred = self.removed or self.disabled or self.quarantined
        return self.until == NEVER and not barred


@dataclass(frozen=True, slots=True)
class Match:
    """A reflection found by meaning; similarity is a cosine in [-1, 1]."""

    reflection: Reflection
    similarity: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """What is worth knowing before a question."""

    own: Reflection | None = None
    """of this very question"""
    similar: tuple[Match, ...] = ()
    """of others: first the nearest, then what is near and adds to what is chosen"""
    fault: RubricemError | None = None
    """why nothing similar could be looked for; what is here is good all the same"""


@dataclass(frozen=True, slots=True)
class Released:
    """What became of an item that was let out of quarantine."""

    item: BankItem
    instead: BankItem | None = None
    """what stands on its question in its place; None: the item itself, or nothing"""


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of reflections that were brought in, each counted once."""

    added: int = 0
    """on questions that the bank knew nothing of"""
    replaced: int = 0
    """in the place of the bank's own, which went to the history"""
    kept: int = 0
    """the bank's own stayed: the newcomer went to the history, or was there already"""
    quarantined: int = 0
    removed: int = 0
    """passed over, as a person had removed them from the bank"""


@dataclass(frozen=True, slots=True)
class BankStats:
    """A bank in numbers."""

    generation: int
    live: int
    disabled: int
    quarantined: int
    replaced: int
    removed: int
    uses: int
    """runs that were given something"""
    embedder: str
    """whose vectors the index holds; "": there is none yet"""
    journal_bytes: int
    index_bytes: int
    """of the index on this machine; 0 where a server holds it"""
