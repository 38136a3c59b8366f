"""What earlier runs of one data directory found, as a source: `history`.

Of each run that ended: the passages that its report cites, under their own addresses, and the
report itself, paragraph by paragraph, as `run:NAME`. It is searched by words, like documents, and
only what lies in this data directory, which one person has, is in it. Kept text of sources serves a
later question better than a summary would.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rubricem.agent.sources.index import Indexed, LexicalIndex, stored_index
from rubricem.agent.transcript.scaffold import answer_text, citations, parse
from rubricem.memory.errors import RubricemError, SourceError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Passage, Status, Trajectory
from rubricem.memory.text import digest_of, one_line

MOST_RUNS = 1000
"""the latest, that are searched"""
LONGEST_TITLE = 120
_CITE = re.compile(r"</?cite\b[^>]*>")


class PastRuns(Indexed):
    """Passages and reports of the runs in a data directory."""

    name = "history"

    def __init__(self, data_dir: Path, cache_dir: Path) -> None:
        super().__init__(cache_dir)
        self._store = RunStore(data_dir)
        self._state = ""

    @property
    def about(self) -> tuple[str, ...]:
        return ("history: what earlier runs found, and their reports",)

    def _is_stale(self) -> bool:
        return self._state != self._read_state()

    def _read_state(self) -> str:
        ended = [run for run in self._store.threads() if self._store.has_ended(run)]
        changed = self._store.states()
        return digest_of("\n".join(f"{run} {changed.get(run)}" for run in ended[-MOST_RUNS:]))

    def _open(self) -> LexicalIndex:
        state = self._read_state()
        index = stored_index(self._cache_dir, self.name, state, lambda: [*self._passages()])
        if not index.passages:
            raise SourceError(
                "No earlier run has found anything that could be searched.",
                "Name another source, as a folder of documents or `web`.",
            )
        self._state = state
        return index

    def _passages(self) -> Iterator[Passage]:
        seen = set[Passage]()
        for run in reversed(self._store.threads()[-MOST_RUNS:]):
            # One that is damaged holds up nobody.
            with suppress(RubricemError):
                if self._store.has_ended(run):
                    yield from _new(self._store.load(run), seen)


def _new(run: Trajectory, seen: set[Passage]) -> Iterator[Passage]:
    """A run's passages that were not seen in a later one."""
    if run.status is Status.FAILED:
        return
    document = parse(run.transcript())
    cited = {i for cite in citations(document) for i in cite.ids}
    found = [
        Passage(s.title, s.location, s.place, s.text)
        for s in run.sources
        if s.id in cited and s.text
    ]
    asked, day = one_line(run.question, LONGEST_TITLE), f"{run.started_at:%-d %B %Y}"
    head = f"Report of {day}: {asked}"
    for block in _CITE.sub("", answer_text(document)).split("\n\n"):
        if block.strip() and not block.startswith("#"):
            found.append(Passage(head, f"run:{run.thread}", day, block.strip()))
    yield from (passage for passage in found if passage not in seen)
    seen.update(found)
