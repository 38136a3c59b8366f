"""What the questions before this one found: their reports, and every passage under its id.

Ids are one numbering for a whole thread: a passage keeps the id it was first given, new ones are
numbered after all of them. Runs that were asked side by side may have given one id to two
passages; the later run's are then renumbered here, also in its report.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path

from pydantic import ValidationError

from agent.reports.citations import cited_answer
from agent.reports.cited import NO_SOURCE, Cited, Uncited, doubt
from memory.errors import RubricemError
from memory.runs import RunStore, write_atomically
from memory.schema import Source, ToolUse, Trajectory
from memory.values import Value

FILE = "earlier.json"
"""in a run's folder: what it began with, so that a resume begins with the same"""
_NUMBER = re.compile(r"S(\d+)")


class Turn(Value):
    """One earlier question and its report, whose claims are marked with ids: `... [S1]`."""

    run: str
    question: str
    report: str = ""


class Background(Value):
    """What a thread had asked and found before a question; empty for one that is asked alone."""

    turns: tuple[Turn, ...] = ()
    """the latest last"""
    sources: tuple[Source, ...] = ()
    searched: tuple[ToolUse, ...] = ()
    notes: tuple[str, ...] = ()
    """why an earlier run is left out"""

    @property
    def questions(self) -> tuple[str, ...]:
        return tuple(turn.question for turn in self.turns)

    @cached_property
    def by_id(self) -> Mapping[str, Source]:
        return {source.id: source for source in self.sources}

    @cached_property
    def answered(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Tool, and what was asked of it, case folded -> ids of what it brought."""
        return {(use.tool, use.asked): use.sources for use in self.searched}

    @cached_property
    def numbered(self) -> int:
        """The highest number that an id has."""
        return _highest(self.by_id)


NOTHING = Background()


def background_of(store: RunStore, run: str, earlier: Sequence[str]) -> Background:
    """What a run of a thread begins with: kept when it is first begun, and read from then on."""
    if not earlier:
        return NOTHING
    folder = store.folder / run
    if (kept := _kept(folder)) is not None:
        return kept
    found = _gathered(store, earlier)
    write_atomically(folder / FILE, found.model_dump_json())
    return found


def background_in(folder: Path, store: RunStore, earlier: Sequence[str]) -> Background:
    """What the run in a folder began with; empty where neither that nor its thread is left."""
    if not earlier:
        return NOTHING
    kept = _kept(folder)
    return _gathered(store, earlier) if kept is None else kept


def _kept(folder: Path) -> Background | None:
    try:
        return Background.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def _gathered(store: RunStore, earlier: Sequence[str]) -> Background:
    found, notes = _ended(store, earlier)
    return gathered(found).model_copy(update={"notes": tuple(notes)})


def gathered(trajectories: Iterable[Trajectory]) -> Background:
    """The background that ended runs are, in the order in which they were asked."""
    turns: list[Turn] = []
    sources: dict[str, Source] = {}
    places: dict[tuple[str, str, str], str] = {}
    searched: dict[tuple[str, str], ToolUse] = {}
    for trajectory in trajectories:
        names = _names(trajectory.sources, places, sources)
        for source in trajectory.sources:
            sources[names[source.id]] = source.model_copy(update={"id": names[source.id]})
        for use in trajectory.searched:
            ids = tuple(names[i] for i in use.sources if i in names)
            searched[use.tool, use.asked] = use.model_copy(update={"sources": ids})
        turns.append(_turn(trajectory, names))
    ordered = sorted(sources.values(), key=lambda source: (len(source.id), source.id))
    return Background(turns=tuple(turns), sources=tuple(ordered), searched=tuple(searched.values()))


def _ended(store: RunStore, runs: Sequence[str]) -> tuple[list[Trajectory], list[str]]:
    """Those that came to an end, and why one that did could not be read."""
    found, notes = [], []
    for run in runs:
        try:
            if store.ended(run):
                found.append(store.load(run))
        except RubricemError as error:
            notes.append(f"an earlier question of the thread is left out: {error}")
    return found, notes


def _names(
    sources: Sequence[Source],
    places: dict[tuple[str, str, str], str],
    taken: Mapping[str, Source],
) -> dict[str, str]:
    """Each id of a run -> that in the thread; `places` learns what it did not know."""
    highest = max(_highest(taken), _highest(source.id for source in sources))
    free, names = count(highest + 1), dict[str, str]()
    for source in sources:
        place = (source.location, source.place, source.text)
        if place not in places:
            places[place] = source.id if source.id not in taken else f"S{next(free)}"
        names[source.id] = places[place]
    return names


def _highest(ids: Iterable[str]) -> int:
    return max((int(found[1]) for i in ids if (found := _NUMBER.fullmatch(i))), default=0)


def _turn(trajectory: Trajectory, names: Mapping[str, str]) -> Turn:
    def mark(piece: Cited | Uncited) -> str:
        if isinstance(piece, Uncited):
            return NO_SOURCE
        return "".join(f"[{names[c.id]}{doubt(c)}]" for c in piece.citations)

    report = cited_answer(trajectory).text(mark)
    return Turn(run=trajectory.thread, question=trajectory.question, report=report)
