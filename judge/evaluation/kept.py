"""Verdicts kept in a file as they come, so that an evaluation that was ended goes on.

One JSON line a verdict. A last line without its end was cut by a kill and is dropped. A file
belongs to one judge: verdicts of two would be counted as one.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from judge.evaluation.labelled import Comparison, Mark, Pair
from judge.evaluation.recorded import read_comparisons, read_marks
from memory.errors import SettingsError
from memory.runs import writable


class VerdictFile:
    """The verdicts of one judge; None for a path keeps nothing."""

    def __init__(self, path: Path | None, judge: str) -> None:
        self._path = path
        self.judge = judge

    def comparisons(self, pairs: Sequence[Pair]) -> list[Comparison]:
        """What was kept before. Raises SettingsError for a file of another judge or data."""
        if self._path is None or not self._whole_lines(self._path):
            return []
        kept = read_comparisons(self._path, pairs)
        self._check({comparison.judge for comparison in kept})
        return kept

    def marks(self, items: Iterable[str]) -> list[Mark]:
        """Likewise for marks of the items with these ids."""
        if self._path is None or not self._whole_lines(self._path):
            return []
        kept = read_marks(self._path, items)
        self._check({mark.judge for mark in kept})
        return kept

    def add(self, verdict: Comparison | Mark) -> None:
        """Write one down, under the judge's name."""
        if self._path is not None:
            named = verdict.model_copy(update={"judge": self.judge})
            with writable(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(named.model_dump_json() + "\n")

    def _whole_lines(self, path: Path) -> bool:
        """Whether the file holds any; what a kill left of the last one is cut away."""
        with writable(path):
            if not path.exists():
                return False
            held = path.read_bytes()
            whole = held[: held.rfind(b"\n") + 1]
            if len(whole) < len(held):
                path.write_bytes(whole)
        return bool(whole.strip())

    def _check(self, judges: set[str]) -> None:
        if others := sorted(judges - {self.judge}):
            raise SettingsError(
                f"{self._path} holds verdicts of {others[0] or 'an unnamed judge'}, "
                f"not of {self.judge}.",
                "Name another file by --out; to count what it holds, use --recorded.",
            )
