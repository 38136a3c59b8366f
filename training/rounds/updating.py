"""What rounds need of an engine: updates of rows as they come, kept round by round."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from training.rows import TrainRow

Metrics = Mapping[str, Any]


class Updates(Protocol):
    """A training under way. All but `done` and `checkpoint` block: call it in a thread."""

    @property
    def done(self) -> int:
        """Rounds whose update is in a checkpoint, also before a kill."""
        ...

    @property
    def checkpoint(self) -> Path | None:
        """The newest one, or what training began with; None: the base model."""
        ...

    def changes(self, rounds: int) -> int:
        """How many of the first so many rounds, all done, have changed the weights."""
        ...

    def update(self, rows: Sequence[TrainRow]) -> Metrics:
        """Updates of one window; nothing where there is no row."""
        ...

    def save(self, metrics: Metrics) -> None:
        """Keep the round with its metrics: a kill takes back all updates since the last one."""
        ...

    def keep_best(self) -> None:
        """Have the newest checkpoint as the best; nothing where none was written."""
        ...
