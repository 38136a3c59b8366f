"""A run's trajectories with what the judge said of them: whole groups, or one line each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memory.errors import StoreError
from memory.schema import Judgement, Trajectory, TrajectoryGroup
from training.run_directory import GroupRecord, RunDirectory, group_of


class JudgedTrajectory(Trajectory):
    """A trajectory with its place in the run, for a reader that has only this one line."""

    group: str
    step: int
    question_id: str
    judgement: Judgement | None
    """None: it was not judged"""


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """A group of a run; what is judged and what is not stand in the order of the trajectories."""

    record: GroupRecord
    rollouts: TrajectoryGroup
    judgements: tuple[Judgement | None, ...]

    def each(self) -> Iterator[JudgedTrajectory]:
        for trajectory, judgement in zip(self.rollouts.trajectories, self.judgements, strict=True):
            yield JudgedTrajectory(
                **dict(trajectory),
                group=self.record.id,
                step=self.record.step,
                question_id=self.record.question_id,
                judgement=judgement,
            )


def judged_groups(run: RunDirectory) -> Iterator[JudgedGroup]:
    """The groups of the finished steps, in order, one in memory at a time.

    Raises StoreError where a trajectory that a group names is not there, or a judgement is of
    nothing that a group names.
    """
    read, known = run.trajectories(), dict[str, Trajectory]()
    judging = _Judgements(run)
    for record in run.groups():
        for name in record.trajectories:
            _read_until(name, read, known, run)
        rollouts = group_of(record, known)
        judged = judging.of(record)
        yield JudgedGroup(record, rollouts, tuple(judged.get(name) for name in record.trajectories))
        for name in record.trajectories:
            known.pop(name, None)
    judging.end()


def judged_trajectories(run: RunDirectory) -> Iterator[JudgedTrajectory]:
    return (judged for group in judged_groups(run) for judged in group.each())


class _Judgements:
    """A run's judgements, which stand in the order of its groups; some may have none."""

    def __init__(self, run: RunDirectory) -> None:
        self._path = run.folder / "judgements.jsonl"
        self._left = run.judgements()
        self._next = next(self._left, None)

    def of(self, record: GroupRecord) -> dict[str, Judgement]:
        found: dict[str, Judgement] = {}
        while self._next is not None and self._next.trajectory_id in record.trajectories:
            found[self._next.trajectory_id] = self._next
            self._next = next(self._left, None)
        return found

    def end(self) -> None:
        if self._next is not None:
            raise StoreError(
                f"{self._path} judges {self._next.trajectory_id} out of its group's place.",
                "It was altered after it was written; take it from a copy.",
            )


def _read_until(
    name: str, read: Iterable[Trajectory], known: dict[str, Trajectory], run: RunDirectory
) -> None:
    if name in known:
        return
    for trajectory in read:
        known[trajectory.id] = trajectory
        if trajectory.id == name:
            return
    raise StoreError(
        f"{run.folder / 'trajectories.jsonl'} lacks the trajectory {name} of a group.",
        "It was altered after it was written; take it from a copy.",
    )
