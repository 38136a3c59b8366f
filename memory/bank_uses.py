"""Which runs were given which items, and how these runs were scored.

    {"trajectory": ..., "ids": [...], "question": sha256}    items were put before its question
    {"trajectory": ..., "mean": 0.7}                         its mean stage score, in [0, 1]

They are no events of the bank, so that recalling makes no generations. A run told of twice is
one use, and its last score counts: writing looks nothing up. One fsynced line each.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from memory.bank_events import question_key
from memory.bank_journal import BankJournal, State
from memory.errors import StoreError
from memory.values import Value


class Used(Value):
    trajectory: str
    ids: tuple[str, ...]
    question: str
    """its key: no text is kept here that would have to be removed"""


class Scored(Value):
    trajectory: str
    mean: float


_LINE: TypeAdapter[Used | Scored] = TypeAdapter(Used | Scored)


class BankUses:
    """The uses of one bank, read on as the file grows. Blocking, for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.file = BankJournal(path)
        self._state: State | None = None
        self._offset = 0
        self._lines = 0
        self._ids: dict[str, tuple[str, ...]] = {}
        self._means: dict[str, float] = {}

    def used(self, trajectory: str, ids: Sequence[str], question: str) -> None:
        """Returns once it is on disk."""
        key = question_key(question)
        self._append(Used(trajectory=trajectory, ids=tuple(ids), question=key))

    def scored(self, trajectory: str, mean: float) -> None:
        """Returns once it is on disk."""
        self._append(Scored(trajectory=trajectory, mean=mean))

    def count(self) -> int:
        """Runs that were given something."""
        self._read_on()
        return len(self._ids)

    def by_item(self) -> dict[str, tuple[int, float | None]]:
        """Id -> how many runs were given it, and the mean score of those that were scored."""
        self._read_on()
        means: dict[str, list[float]] = defaultdict(list)
        counts: dict[str, int] = defaultdict(int)
        for trajectory, ids in self._ids.items():
            for identifier in ids:
                counts[identifier] += 1
                if trajectory in self._means:
                    means[identifier].append(self._means[trajectory])
        return {i: (n, sum(m) / len(m) if (m := means[i]) else None) for i, n in counts.items()}

    def _append(self, line: Value) -> None:
        with self.file.locked() as descriptor:
            self.file.append(descriptor, line.model_dump_json().encode() + b"\n")

    def _read_on(self) -> None:
        state = self.file.state()
        if state is None or self._state is None or state[:2] != self._state[:2]:
            self._offset = self._lines = 0
            self._ids, self._means = {}, {}
        self._state = state
        for offset, line in self.file.lines(self._offset):
            self._take(line)
            self._offset = offset + len(line)

    def _take(self, line: bytes) -> None:
        self._lines += 1
        try:
            told = _LINE.validate_json(line)
        except ValidationError as error:
            raise StoreError(
                f"line {self._lines} of the bank's uses {self.file.path} is damaged",
                "Remove that line, or move the file away to count from nought.",
            ) from error
        if isinstance(told, Used):
            self._ids.setdefault(told.trajectory, told.ids)
        else:
            self._means[told.trajectory] = told.mean
