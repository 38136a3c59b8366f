"""The rubric bank and the rubric buffers of a training run, kept with its weights.

A policy and what it learnt in words belong together, and the rubrics that it was judged by evolve
with it: each checkpoint holds both as they stood then, and a run that goes on from a checkpoint
goes back to that (RubricEM, arXiv:2605.10899, section 3.4).
"""

from dataclasses import dataclass
from pathlib import Path

from memory.bank_snapshots import restore, snapshot
from memory.bank_store import BankStore
from memory.buffers import BufferStore

BANK, BUFFERS = "bank", "buffers"


@dataclass(frozen=True, slots=True)
class SteppedBank:
    """The bank and buffers of a data directory. Blocking: call it from a worker thread."""

    data_dir: Path

    def keep(self, checkpoint: Path) -> None:
        """Copy both as they stand into a checkpoint's folder."""
        snapshot(self._bank(), checkpoint / BANK)
        self._buffers().copy_to(checkpoint / BUFFERS)

    def go_back(self, checkpoint: Path) -> None:
        """Have both as they stood at a checkpoint; what has no copy there, as it stands.

        Raises SettingsError where the copy is of another bank.
        """
        if (checkpoint / BANK).is_dir():
            restore(self._bank(), checkpoint / BANK)
        if (checkpoint / BUFFERS).is_dir():
            self._buffers().go_back_to(checkpoint / BUFFERS)

    def _bank(self) -> BankStore:
        return BankStore(self.data_dir / BANK)

    def _buffers(self) -> BufferStore:
        return BufferStore(self.data_dir / BUFFERS)
