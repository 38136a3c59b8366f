"""The local engine behind `Updates`: the two updates of a round, and one checkpoint of both."""

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from time import time

from rubricem.memory.errors import StoreError, boundary
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Value
from rubricem.training.local.local_config import rate_at
from rubricem.training.local.session import TrainingSession, check_best
from rubricem.training.rounds.update import Metrics, RoundFolders
from rubricem.training.rows.row import TrainRow
from rubricem.training.show.events import RowsDone, Watch, of_held_out, unwatched
from rubricem.training.show.training import SAVED_AT

ROUND, UNTRAINED, TOLD = "round", "untrained", "rounds.jsonl"


class Untrained(Value):
    """A round that had no row to train, and no checkpoint therefore."""

    metrics: dict[str, float]


class SessionUpdates:
    """A training session, counted in rounds."""

    def __init__(
        self,
        session: TrainingSession,
        folders: RoundFolders,
        rounds: int,
        watch: Watch = unwatched,
    ) -> None:
        """`rounds` is how many there are to be, by which the learning rate goes."""
        self._session = session
        self._folders = folders
        self._rounds = rounds
        self._watch = watch
        self._saved = session.done
        self._done = int(session.place.get(ROUND, 0))
        while self._untrained(self._done) is not None:
            self._done += 1
        self._row: TrainRow | None = None
        self._tell_all()

    @property
    def done(self) -> int:
        return self._done

    @property
    def checkpoint(self) -> Path | None:
        return self._session.folder.newest if self._saved else self._session.config.start_adapter

    @property
    def last(self) -> TrainRow | None:
        """One of the rows trained last, also before a kill, to compare llama.cpp by; None: none."""
        if self._row is None and self._kept_row.exists():
            with boundary(StoreError, f"reading {self._kept_row}"):
                self._row = TrainRow.model_validate_json(self._kept_row.read_bytes())
        return self._row

    @property
    def _kept_row(self) -> Path:
        return self._folders.out / "canary_row.json"

    def changes(self, rounds: int) -> int:
        return sum(self._untrained(number) is None for number in range(rounds))

    def update(self, rows: Sequence[TrainRow]) -> Metrics:
        if not rows:
            return {}
        self._row = rows[-1]
        rate = rate_at(min(self._done, self._rounds - 1), self._rounds, self._session.config)

        def on_row(done: int, rows: int) -> None:
            self._watch(RowsDone("round", self._done + 1, self._rounds, done, rows))

        return self._session.step(rows, rate, on_row)

    def save(self, metrics: Metrics) -> None:
        best_by = self._session.config.best_by
        # Some numbers come with the reflections of the round before, so not in the first.
        if (self._done or self._rounds == 1) and not of_held_out(best_by):
            before = (line.keys() for line in self._session.folder.metrics())
            check_best(best_by, {**dict.fromkeys(chain(*before)), **metrics})
        metrics = {**metrics, SAVED_AT: time()}
        if self._session.done == self._saved:
            kept = Untrained(metrics=dict(metrics))
            self._folders.round(self._done).save_part(0, UNTRAINED, kept)
        else:
            if self._row is not None:
                write_atomically(self._kept_row, self._row.model_dump_json())
            self._session.save(metrics, place={ROUND: self._done + 1})
            self._saved = self._session.done
        self._done += 1
        self._tell_all()

    def keep_best(self) -> None:
        if self._saved:
            self._session.folder.keep_best()

    def _tell_all(self) -> None:
        """A line for each round, from what is kept with the checkpoints and beside them."""
        kept = {line[ROUND]: line for line in self._session.folder.metrics() if ROUND in line}
        for number in range(self._done):
            if found := self._untrained(number):
                kept[found.metrics[ROUND]] = found.metrics
        lines = (json.dumps(kept[number]) + "\n" for number in sorted(kept))
        write_atomically(self._folders.out / TOLD, lines)

    def _untrained(self, number: int) -> Untrained | None:
        return self._folders.round(number).part(0, UNTRAINED, Untrained)
