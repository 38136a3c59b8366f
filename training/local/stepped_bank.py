"""The rubric bank of a training run, kept with its weights.

A policy and what it learnt in words belong together: each checkpoint holds the bank as it stood
then, and a run that goes on from a checkpoint goes back to that (RubricEM, arXiv:2605.10899,
section 3.4).
"""

from dataclasses import dataclass
from pathlib import Path

from memory.bank_snapshots import restore, snapshot
from memory.bank_store import BankStore

FOLDER = "bank"


@dataclass(frozen=True, slots=True)
class SteppedBank:
    """The bank of a data directory. Blocking: call it from a worker thread."""

    data_dir: Path

    def keep(self, checkpoint: Path) -> None:
        """Copy the bank as it stands into a checkpoint's folder."""
        snapshot(self._store(), checkpoint / FOLDER)

    def go_back(self, checkpoint: Path) -> None:
        """Have the bank as it stood at a checkpoint; without a copy there, as it stands.

        Raises SettingsError where the copy is of another bank.
        """
        if (checkpoint / FOLDER).is_dir():
            restore(self._store(), checkpoint / FOLDER)

    def _store(self) -> BankStore:
        return BankStore(self.data_dir / "bank")
