"""Which runs are still to be learnt from, and what was learnt: two small files beside each run.

    runs/THREAD/learn.json          what was decided about learning from it: a `Mark`
    runs/THREAD/reflections.json    every candidate written on it, scored: it was learnt from

A run without a mark waits if it was asked with `--memory on`, has ended and was not learnt
from. There is no list to keep in step: the folders are the queue.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from memory.errors import RubricemError, StoreError
from memory.runs import RunStore, unusable, write_atomically
from memory.schema import ReflectionCandidate, Status, Trajectory, Value

MARK, WRITTEN = "learn.json", "reflections.json"
JOURNAL = "learning.jsonl"
"""the calls of a learning that has not come to its end"""
_CANDIDATES = TypeAdapter(list[ReflectionCandidate])


class Mark(Value):
    """`queued`: waits, whatever was learnt from it before. `skipped`: does not wait."""

    state: Literal["queued", "skipped"] = "queued"
    reason: str = ""
    failed: tuple[str, ...] = ()
    """steps at which a judge gave nothing of use, one entry for each time: it is asked anew"""


def mark_in(folder: Path) -> Mark | None:
    """The mark of the run in this folder; one that cannot be read counts as none."""
    try:
        return Mark.model_validate_json((folder / MARK).read_bytes())
    except (OSError, ValidationError):
        return None


def set_mark(folder: Path, mark: Mark) -> None:
    write_atomically(folder / MARK, mark.model_dump_json())


def clear_mark(folder: Path) -> None:
    path = folder / MARK
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise unusable(path, error) from error


def candidates_in(folder: Path) -> list[ReflectionCandidate]:
    """What was written on the run in this folder; none where it was not learnt from."""
    path = folder / WRITTEN
    try:
        return _CANDIDATES.validate_json(path.read_bytes())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unusable(path, error) from error
    except ValidationError as error:
        raise StoreError(
            f"{path} holds no reflections: {error.errors()[0]['msg']}",
            "Remove it, and learn from the run again.",
        ) from error


def save_candidates(folder: Path, candidates: Sequence[ReflectionCandidate]) -> None:
    write_atomically(folder / WRITTEN, _CANDIDATES.dump_json(list(candidates)).decode())


def learnt_candidates(data_dir: Path) -> Iterator[list[ReflectionCandidate]]:
    """The scored candidates of every run learnt from, run by run, the latest run last.

    Those of one run are what a training row's baseline is taken over.
    """
    store = RunStore(data_dir)
    for thread in store.threads():
        if found := candidates_in(store.folder / thread):
            yield found


def was_learnt(folder: Path, trajectory: Trajectory) -> bool:
    """Whether this very run was learnt from, and nothing has called for it again."""
    mark = mark_in(folder)
    if mark is not None and mark.state == "queued":
        return False
    return any(c.trajectory_id == trajectory.id for c in candidates_in(folder))


def enter(store: RunStore, trajectory: Trajectory) -> str:
    """See that a run asked with `--memory on` waits; or why it does not."""
    if why := why_not(trajectory):
        return why
    folder = store.folder / trajectory.thread
    if was_learnt(folder, trajectory):
        return "this run was learnt from before"
    if candidates_in(folder) and mark_in(folder) is None:
        set_mark(folder, Mark(reason="it went on after it had been learnt from"))
    return ""


def queued(store: RunStore, *, every: bool = False) -> list[str]:
    """Threads of the runs that wait, the oldest first.

    `every`: also those that were asked without `--memory on`, and those that were skipped.
    """
    return [thread for thread in store.threads() if _waits(store, thread, every)]


def models_of(store: RunStore, thread: str) -> tuple[str, str]:
    """The model and the server that a run was asked with; "": none was named."""
    choices = store.request(thread).get("choices") or {}
    return choices.get("model") or "", choices.get("base_url") or ""


def _waits(store: RunStore, thread: str, every: bool) -> bool:
    """Whether it waits; what cannot be read holds nothing else up."""
    folder = store.folder / thread
    mark = mark_in(folder)
    if mark is not None and mark.state == "skipped" and not every:
        return False
    if (mark is None or mark.state == "skipped") and (folder / WRITTEN).exists():
        return False
    try:
        wanted = mark or every or store.request(thread)["choices"].get("memory") == "on"
        ready = wanted and store.ended(thread) and not store.running(thread)
        return bool(ready) and why_not(store.load(thread)) == ""
    except (RubricemError, KeyError, TypeError, AttributeError):
        return False


def why_not(trajectory: Trajectory) -> str:
    """Why a run is not to be learnt from; "" where it is."""
    if trajectory.status is Status.FAILED:
        return "a failed run teaches nothing"
    if trajectory.ended_by == "interrupt":
        return "nothing was learnt from this run: it was interrupted"
    return ""
