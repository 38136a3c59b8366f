"""One collecting run on disk: its settings, what is finished, and the results of every step.

    manifest.json, questions.jsonl, held_out.jsonl      written once, as the run begins
    journal.jsonl           every finished call of a model or tool
    runs/THREAD/            each rollout, stored as by `rubricem ask`
    steps/NNN/*.json        the finished parts of a step
    steps/NNN/done.json     the step is committed, with the sizes of the files below
    trajectories.jsonl, groups.jsonl, judgements.jsonl, reflections.jsonl

The last four only grow: a step's lines are fsynced before its `done.json` is written. What lies
beyond the sizes given there was never committed: it is not read, and cut off at a resume.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import Field

from rubricem.agent.learning.reflect import Reflected
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import (
    Journal,
    RunStore,
    identity,
    value_in,
    value_of,
    writable,
    write_atomically,
)
from rubricem.memory.schema import (
    NO_USAGE,
    Decoding,
    GroupJudgement,
    Judgement,
    ReflectionCandidate,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Value,
    Versioned,
)
from rubricem.memory.text import digest_of
from rubricem.training.collect.questions import Question
from rubricem.training.collect.scaffolding import ScaffoldRule

Product = Literal["trajectories", "groups", "judgements", "reflections"]
PRODUCTS: tuple[Product, ...] = get_args(Product)
JOURNAL = "journal.jsonl"
BRANCHED = "ec15fe0e"
"""the last version that sampled branches"""
V = TypeVar("V", bound=Value)


class Manifest(Versioned):
    """What shapes a run; going on with it under another manifest is refused."""

    policy: str
    policy_version: str
    decoding: Decoding
    teacher: str = ""
    """the model that wrote the rollouts, where they are for imitation alone; "": they are the
    policy's own"""
    judge: str = ""
    judge_kind: str = "stage"
    """as `--judge` names it; a rubric of one's own with a hash of its code"""
    group_size: int
    step_size: int
    windows: int = 0
    reflections: int
    memory: str
    seed: int
    tool_calls: int
    settings: dict[str, Any]
    """the policy's and the sources' settings, without keys"""
    questions_sha256: str
    judge_options: dict[str, Any] = Field(default_factory=dict)
    scaffold: ScaffoldRule | None = None
    branch: bool = False
    """whether a group's rollouts share a beginning, as in runs of ec15fe0e; they are refused"""

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
    failures: tuple[str, ...] = ()
    lost: Usage = NO_USAGE
    rubric_version: str = ""
    """of the rubrics under which it was judged"""
    reflected: str = ""
    recalled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def group(self, trajectories: Mapping[str, Trajectory]) -> TrajectoryGroup:
        members = tuple(trajectories[name] for name in self.trajectories)
        return TrajectoryGroup(question=self.question, trajectories=members, failures=self.failures)


class StepMemory(Value):
    generation: int


class _Committed(Value):
    sizes: dict[Product, int] = Field(min_length=len(PRODUCTS))


_REMEDY = (
    "It was altered after it was written; take it from a copy, or collect into another folder."
)


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
        known: Collection[str] = (),
    ) -> None:
        """Write down what is collected, or go on with the same; another run is refused.

        `known`: the settings that this version has, by which runs are told apart.
        """
        if self.exists:
            old, new = _shape(self.manifest(), known), _shape(manifest, known)
            if fields := [name for name in old if old[name] != new[name]]:
                told = ("list of questions" if f == "questions_sha256" else f for f in fields)
                raise SettingsError(
                    f"{self.folder} holds a run with another {', '.join(told).replace('_', ' ')}.",
                    "Continue with its original options, or name another --out.",
                )
        else:
            if held_out:
                write_atomically(self.folder / "held_out.jsonl", _lines(held_out))
            write_atomically(self.folder / "questions.jsonl", _lines(questions))
            write_atomically(self.folder / "manifest.json", manifest.model_dump_json(indent=1))
        self._cut_uncommitted()

    def manifest(self) -> Manifest:
        if (found := value_in(self.folder / "manifest.json", Manifest, _REMEDY)) is None:
            raise SettingsError(
                f"{self.folder} is no collecting run: it has no manifest.json.",
                "Name the folder that was given to rubricem collect by --out.",
            )
        if found.branch:
            raise SettingsError(
                f"{self.folder} was collected by branch sampling, which is gone.",
                f"Read it with rubricem of commit {BRANCHED}, or collect anew.",
            )
        return found

    def questions(self) -> list[Question]:
        path = self.folder / "questions.jsonl"
        with writable(path):
            lines = path.read_bytes().split(b"\n")
        return [value_of(line, Question, _REMEDY, str(path)) for line in lines if line]

    def journal(self, *listening: Any) -> Journal:
        return Journal(self.folder / JOURNAL, *listening)

    def part(self, step: int, name: str, kind: type[V]) -> V | None:
        return value_in(self._step(step) / f"{name}.json", kind, _REMEDY)

    def judgement_of(self, step: int, group: str) -> GroupJudgement | None:
        return self.part(step, part_of(group, "judged"), GroupJudgement)

    def reflection_of(self, step: int, group: str) -> Reflected | None:
        return self.part(step, part_of(group, "reflected"), Reflected)

    def judgements_now(self) -> list[GroupJudgement]:
        """Of the groups that are judged of the step that is worked on."""
        step = self._step(self.finished_steps())
        paths = sorted(step.glob(f"{part_of('*', 'judged')}.json"))
        return list(filter(None, (value_in(path, GroupJudgement, _REMEDY) for path in paths)))

    def save_part(self, step: int, name: str, value: Value) -> None:
        write_atomically(self._step(step) / f"{name}.json", value.model_dump_json())

    def finished_steps(self) -> int:
        step = 0
        while (self._step(step) / "done.json").exists():
            step += 1
        return step

    def commit(self, step: int, products: Mapping[Product, Iterable[Value]]) -> None:
        """Append what a step gave, one value after another, then mark it as done."""
        self._cut_uncommitted()
        sizes = {}
        for name in PRODUCTS:
            path = self.folder / f"{name}.jsonl"
            with writable(path), path.open("ab") as file:
                for value in products.get(name, ()):
                    file.write(value.model_dump_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                sizes[name] = file.tell()
        self.save_part(step, "done", _Committed(sizes=sizes))

    def trajectories(self) -> Iterator[Trajectory]:
        return self._read_committed("trajectories", Trajectory)

    def groups(self) -> Iterator[GroupRecord]:
        return self._read_committed("groups", GroupRecord)

    def judgements(self) -> Iterator[Judgement]:
        return self._read_committed("judgements", Judgement)

    def reflections(self) -> Iterator[ReflectionCandidate]:
        return self._read_committed("reflections", ReflectionCandidate)

    def _step(self, step: int) -> Path:
        return self.folder / "steps" / f"{step:03d}"

    def _sizes(self) -> dict[str, int]:
        done = self.part(self.finished_steps() - 1, "done", _Committed)
        return {name: done.sizes[name] if done else 0 for name in PRODUCTS}

    def _cut_uncommitted(self) -> None:
        for name, size in self._sizes().items():
            path = self.folder / f"{name}.jsonl"
            if _size(path, size) > size:
                with writable(path):
                    os.truncate(path, size)

    def _read_committed(self, name: Product, kind: type[V]) -> Iterator[V]:
        path, left = self.folder / f"{name}.jsonl", self._sizes()[name]
        if not left:
            return
        _size(path, left)
        with writable(path), path.open("rb") as file:
            while left > 0 and (line := file.readline()):
                left -= len(line)
                yield value_of(line, kind, _REMEDY, str(path))


def _size(path: Path, committed: int) -> int:
    """Of a file, in bytes. Raises StoreError where it has lost some that were committed."""
    with writable(path):
        size = path.stat().st_size if path.exists() else 0
    if size < committed:
        raise StoreError(f"{path} is shorter than it was.", _REMEDY)
    return size


def group_name(step: int, number: int) -> str:
    return f"s{step:03d}-q{number:03d}"


def part_of(group: str, what: Literal["criteria", "judged", "reflected"]) -> str:
    """What names a part of a group on disk, and the calls that were made for it."""
    return f"{group}-{what}"


def thread_of(group: str, member: int) -> str:
    return f"{group}-r{member}"


def hash_of(questions: Sequence[Question]) -> str:
    return digest_of("\n".join(q.model_dump_json(exclude_none=True) for q in questions))


def _lines(questions: Sequence[Question]) -> str:
    return "".join(question.model_dump_json() + "\n" for question in questions)


def _shape(manifest: Manifest, known: Collection[str]) -> dict[str, Any]:
    """What two manifests must share for one run: no addresses, and of settings those `known`."""
    shape = {name: getattr(manifest, name) for name in Manifest.model_fields}
    # A setting that is newer than the run is as if it had been left alone.
    settings = {name: manifest.settings.get(name) or None for name in known}
    settings["base_url"] = bool(manifest.settings.get("base_url"))
    settings["effort"] = settings.get("effort") or "standard"
    models = {name: identity(shape[name]) for name in ("policy", "teacher", "judge")}
    return {**shape, **models, "settings": settings}
