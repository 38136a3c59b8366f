"""What can be judged afterwards: a run by its name, a trajectory's file, a collected run.

A run of a thread is judged under its question with the thread, without which it means little.

A run's judgement lies beside its trajectory as `judgement.json`: one `Judgement`, or a list of
them where the folder holds a collected run.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from agent.conversations.background import background_in
from agent.conversations.in_thread import in_thread
from memory.errors import SettingsError, StoreError
from memory.runs import RunStore, unusable, write_atomically
from memory.schema import Judgement, Trajectory, TrajectoryGroup, Value
from memory.versions import read

FILE = "judgement.json"
V = TypeVar("V", bound=Value)


class _Members(Value):
    """Of a line of `groups.jsonl` what is needed here."""

    question: str
    trajectories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgeable:
    """Groups to be judged in their order, and the folder that their judgement goes to."""

    groups: tuple[TrajectoryGroup, ...]
    folder: Path
    collected: bool

    def save(self, judgements: Sequence[Judgement]) -> Path:
        """Write the judgements down; returns the file."""
        listed = [judgement.model_dump(mode="json") for judgement in judgements]
        text = json.dumps(listed if self.collected else listed[0], ensure_ascii=False, indent=1)
        write_atomically(self.folder / FILE, text)
        return self.folder / FILE

    def judgement(self) -> Judgement | None:
        """What a lone run was judged to be; None where that was never scored, or cannot be read."""
        try:
            kept = Judgement.model_validate_json((self.folder / FILE).read_bytes())
        except (OSError, ValidationError):
            return None
        same = kept.trajectory_id == self.groups[0].trajectories[0].id
        scored = any(stage.score is not None for stage in kept.stages)
        return kept if same and scored else None


def find_run(name: str, data_dir: Path) -> Judgeable:
    """What the name stands for: a file or folder that exists, else a thread.

    Raises SettingsError where there is no such thing, StoreError where it cannot be read.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return _alone(_parsed(_text(path), Trajectory, path), path.parent, RunStore(data_dir))
    if (path / "trajectories.jsonl").is_file():
        return Judgeable(tuple(_groups(path)), path, collected=True)
    if (path / "trajectory.json").is_file():
        return find_run(str(path / "trajectory.json"), data_dir)
    if path.is_dir():
        raise SettingsError(
            f"{path} holds neither trajectory.json nor trajectories.jsonl.",
            "Name a thread, a trajectory's file, or the --out folder of rubricem collect.",
        )
    store = RunStore(data_dir)
    return _alone(store.load(name), store.folder / name, store)


def _alone(trajectory: Trajectory, folder: Path, store: RunStore) -> Judgeable:
    read = in_thread(trajectory, background_in(folder, store, trajectory.earlier))
    group = TrajectoryGroup(question=read.question, trajectories=(read,))
    return Judgeable((group,), folder, collected=False)


def _groups(folder: Path) -> Iterator[TrajectoryGroup]:
    """As they were collected; without a list of groups, those of one question together."""
    known = {t.id: t for t in _lines(folder / "trajectories.jsonl", Trajectory)}
    if (folder / "groups.jsonl").is_file():
        for record in _lines(folder / "groups.jsonl", _Members):
            members = tuple(known[name] for name in record.trajectories if name in known)
            yield TrajectoryGroup(question=record.question, trajectories=members)
        return
    together = defaultdict[str, list[Trajectory]](list)
    for trajectory in known.values():
        together[trajectory.question].append(trajectory)
    for question, found in together.items():
        yield TrajectoryGroup(question=question, trajectories=tuple(found))


def _lines(path: Path, kind: type[V]) -> list[V]:
    """Whole lines alone: a last one without its end is still being written."""
    whole = _text(path).rpartition("\n")[0]
    return [_parsed(line, kind, path) for line in whole.split("\n") if line]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise unusable(path, error) from error


def _parsed(text: str, kind: type[V], path: Path) -> V:
    try:
        return read(text, kind)
    except ValidationError as error:
        first = error.errors()[0]
        raise StoreError(
            f"{path} cannot be read as {kind.__name__.strip('_').lower()}: {first['msg']}",
            "Name a trajectory.json, a thread, or the folder of a collected run.",
        ) from error
