"""One collecting run on disk: what was asked for, what is finished, what every step gave.

    manifest.json           the settings that shape the run, written once
    questions.jsonl         the questions, as they were when it began
    held_out.jsonl          those that are never collected, where some are held out
    journal.jsonl           every finished call of a model or tool
    runs/THREAD/            each rollout, as `rubricem ask` keeps its own
    steps/NNN/*.json        the finished parts of a step: the bank's state, judged groups with the
                            rubrics they led to, reflections
    steps/NNN/done.json     the step is committed, with the sizes of the files below
    trajectories.jsonl, groups.jsonl, judgements.jsonl, reflections.jsonl

The last four only grow. A step's lines are appended and fsynced before its `done.json` is
written; what a kill leaves beyond the sizes named there was never committed, and is cut off
when the run goes on. Readers stop at those sizes.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.journal import Journal, identity
from rubricem.memory.runs import RunStore, unusable, writable, write_atomically
from rubricem.memory.schema import (
    NO_USAGE,
    Decoding,
    Judgement,
    ReflectionCandidate,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Value,
    Versioned,
    read,
)
from rubricem.training.collect.scaffolding import ScaffoldRule


class Selection(Value):
    """How the questions of a run were chosen from those that were read."""

    read: int
    filtered: int
    duplicates: int
    """dropped: the same text, but for spaces and case, came before"""
    held_out: int
    filters: tuple[str, ...] = ()
    held_out_share: float = 0.0

    def sentence(self) -> str:
        asked = self.read - self.filtered - self.duplicates - self.held_out
        return (
            f"{self.read} questions read, {self.filtered} filtered out, {self.duplicates} "
            f"duplicates dropped, {self.held_out} held out, {asked} asked"
        )


Product = Literal["trajectories", "groups", "judgements", "reflections"]
PRODUCTS: tuple[Product, ...] = ("trajectories", "groups", "judgements", "reflections")
JOURNAL = "journal.jsonl"
V = TypeVar("V", bound=Value)


class Question(Value):
    """One line of a questions file."""

    id: str
    question: str
    criteria: tuple[str, ...] = ()
    """what a good answer says, where whoever asks knows it; kept for evaluation"""


class Manifest(Versioned):
    """What shapes a run; going on with it under another manifest is refused."""

    policy: str
    policy_version: str
    decoding: Decoding
    teacher: str = ""
    """the model that wrote the rollouts, where they are for imitation alone; "": they are the
    policy's own"""
    judge: str = ""
    """its model; "": rollouts are not judged"""
    judge_kind: str = "stage"
    """as `--judge` names it; a rubric of one's own with a hash of its code"""
    group_size: int
    step_size: int
    """questions in one step"""
    windows: int = 0
    """steps of new questions after which the same are asked again; 0: none are"""
    reflections: int
    """candidates for each group; 0: none are written"""
    memory: str
    seed: int
    tool_calls: int
    settings: dict[str, Any]
    """the policy's and the sources' settings, without keys"""
    questions_sha256: str
    scaffold: ScaffoldRule | None = None
    """how much of its question's rubric a rollout is shown; None: nothing"""
    selection: Selection | None = None
    """None: all that were given are asked"""

    @property
    def imitated(self) -> bool:
        """Whether its rollouts are traces that a policy imitates, and form no ratio."""
        return bool(self.teacher) or self.decoding is Decoding.FORCED


class GroupRecord(Value):
    """One group of a finished step; its trajectories are named, not repeated."""

    id: str
    step: int
    question_id: str
    question: str
    trajectories: tuple[str, ...]
    replay_of: int | None = None
    """the step that asked these questions before in its window; None: they were new"""
    failures: tuple[str, ...] = ()
    """why rollouts gave no trajectory"""
    lost: Usage = NO_USAGE
    """what the rollouts that failed had cost"""
    rubric_version: str = ""
    """of the rubrics under which it was judged"""
    reflected: str = ""
    """the trajectory that was reflected upon, drawn at random"""
    recalled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """what could not be done for this group, in sentences"""


class RunDirectory:
    """A run's folder. Raises StoreError where it cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = RunStore(folder)

    @property
    def exists(self) -> bool:
        return (self.folder / "manifest.json").exists()

    def begin(
        self,
        manifest: Manifest,
        questions: Sequence[Question],
        held_out: Sequence[Question] = (),
    ) -> None:
        """Write down what is collected, or go on with the same; another run is refused."""
        if self.exists:
            before, after = _shape(self.manifest()), _shape(manifest)
            if fields := [name for name in before if before[name] != after[name]]:
                told = ("list of questions" if f == "questions_sha256" else f for f in fields)
                raise SettingsError(
                    f"{self.folder} holds a run with another {', '.join(told).replace('_', ' ')}.",
                    "Go on with the flags it was begun with, or name another --out.",
                )
        else:
            if held_out:
                write_atomically(self.folder / "held_out.jsonl", _lines(held_out))
            write_atomically(self.folder / "questions.jsonl", _lines(questions))
            write_atomically(self.folder / "manifest.json", manifest.model_dump_json(indent=1))
        self._cut_uncommitted()

    def manifest(self) -> Manifest:
        if not self.exists:
            raise SettingsError(
                f"{self.folder} is no collecting run: it has no manifest.json.",
                "Name the folder that was given to rubricem collect by --out.",
            )
        return self._load(self.folder / "manifest.json", Manifest)

    def questions(self) -> list[Question]:
        path = self.folder / "questions.jsonl"
        return [_parsed(line, Question, path) for line in _text(path).split("\n") if line]

    def journal(self, *listening: Any) -> Journal:
        """The run's journal, opened with what `Journal` takes beside its path."""
        return Journal(self.folder / JOURNAL, *listening)

    def part(self, step: int, name: str, kind: type[V]) -> V | None:
        """A finished part of a step, or None if it is still to be done."""
        path = self._step(step) / f"{name}.json"
        return self._load(path, kind) if path.exists() else None

    def save_part(self, step: int, name: str, value: Value) -> None:
        write_atomically(self._step(step) / f"{name}.json", value.model_dump_json())

    def finished_steps(self) -> int:
        """Steps that are committed; they follow one another from 0."""
        step = 0
        while (self._step(step) / "done.json").exists():
            step += 1
        return step

    def commit(self, step: int, products: Mapping[Product, Iterable[Value]]) -> None:
        """Append what a step gave, one value after another, then mark it as done."""
        self._cut_uncommitted()
        sizes = {}
        for name in PRODUCTS:
            sizes[name] = _append(self.folder / f"{name}.jsonl", products.get(name, ()))
        write_atomically(self._step(step) / "done.json", json.dumps({"sizes": sizes}))

    def trajectories(self) -> Iterator[Trajectory]:
        return self._committed("trajectories", Trajectory)

    def groups(self) -> Iterator[GroupRecord]:
        return self._committed("groups", GroupRecord)

    def judgements(self) -> Iterator[Judgement]:
        return self._committed("judgements", Judgement)

    def reflections(self) -> Iterator[ReflectionCandidate]:
        return self._committed("reflections", ReflectionCandidate)

    def _step(self, step: int) -> Path:
        return self.folder / "steps" / f"{step:03d}"

    def _sizes(self) -> dict[str, int]:
        """Bytes of each product that belong to finished steps."""
        finished = self.finished_steps()
        if not finished:
            return dict.fromkeys(PRODUCTS, 0)
        path = self._step(finished - 1) / "done.json"
        try:
            sizes = json.loads(_text(path))["sizes"]
            return {name: int(sizes[name]) for name in PRODUCTS}
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error

    def _cut_uncommitted(self) -> None:
        for name, size in self._sizes().items():
            path = self.folder / f"{name}.jsonl"
            with writable(path):
                if path.exists() and path.stat().st_size > size:
                    os.truncate(path, size)

    def _committed(self, name: Product, kind: type[V]) -> Iterator[V]:
        path, left = self.folder / f"{name}.jsonl", self._sizes()[name]
        if not left:
            return
        with writable(path), path.open("rb") as file:
            while left > 0 and (line := file.readline()):
                left -= len(line)
                yield _parsed(line, kind, path)

    def _load(self, path: Path, kind: type[V]) -> V:
        return _parsed(_text(path), kind, path)


def group_of(record: GroupRecord, trajectories: Mapping[str, Trajectory]) -> TrajectoryGroup:
    """The group that a record names."""
    members = tuple(trajectories[name] for name in record.trajectories)
    return TrajectoryGroup(question=record.question, trajectories=members, failures=record.failures)


def hash_of(questions: Sequence[Question]) -> str:
    """SHA-256 of what is asked, in order."""
    lines = "\n".join(question.model_dump_json() for question in questions)
    return hashlib.sha256(lines.encode()).hexdigest()


def _lines(questions: Sequence[Question]) -> str:
    return "".join(question.model_dump_json() + "\n" for question in questions)


def _shape(manifest: Manifest) -> dict[str, Any]:
    """The manifest without the addresses of servers, which may move while a run goes on."""
    shape = {name: getattr(manifest, name) for name in Manifest.model_fields}
    settings = {**manifest.settings, "base_url": bool(manifest.settings.get("base_url"))}
    models = {name: identity(shape[name]) for name in ("policy", "teacher", "judge")}
    return {**shape, **models, "settings": settings}


def _append(path: Path, values: Iterable[Value]) -> int:
    """The size of the file with a line for each at its end, once they are on disk."""
    with writable(path), path.open("ab") as file:
        for value in values:
            file.write(value.model_dump_json().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise unusable(path, error) from error


def _parsed(text: str | bytes, kind: type[V], path: Path) -> V:
    try:
        return read(text, kind)
    except ValidationError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path} cannot be read: {type(error).__name__}",
        "It was altered after it was written; take it from a copy, or collect into another folder.",
    )
