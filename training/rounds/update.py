"""What a round keeps on disk, the rows that are read from it, and the updates by them.

    OUT/rounds.json             what shapes the rounds; resuming with other values is refused
    OUT/rounds/NNN/             one round: a collecting run of one step
    OUT/rounds/NNN/policy/      a copy of the checkpoint that it samples from
    OUT/held_out/NNN/           the held-out questions after NNN updates, a collecting run too
    OUT/data/                   the bank and the rubrics that the rounds share

A round's rollouts are trained on in its own update, its reflections in the next one, because they
are written while that update goes on (RubricEM, arXiv:2605.10899, appendix D).
"""

import json
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from rubricem.agent.learning.reflect import Reflected
from rubricem.agent.transcript.events import Tell
from rubricem.agent.weights.checkpoints import NOTE, note_of
from rubricem.memory.errors import PolicyError, RubricemError
from rubricem.memory.runs import writable, write_atomically
from rubricem.memory.schema import NO_USAGE, Judgement, Status, TrajectoryGroup, Usage, Value
from rubricem.memory.text import seed_of
from rubricem.training.collect.directory import JOURNAL, RunDirectory, group_name, thread_of
from rubricem.training.local.checkpoints import link_or_copy
from rubricem.training.local.load import release_memory
from rubricem.training.local.local_config import EngineConfig, rate_at
from rubricem.training.local.session import TrainingSession, open_session
from rubricem.training.rows.credit import Compiled
from rubricem.training.rows.row import TrainRow
from rubricem.training.show.training import SAVED_AT


@dataclass(frozen=True, slots=True)
class RoundGroup:
    """A group of a round as its parts on disk have it."""

    name: str
    """unique among all rounds"""
    group: TrajectoryGroup
    judged: tuple[Judgement | None, ...]
    """of each run of the group; None: it was not judged"""
    reflected: Reflected | None
    judging: Usage = NO_USAGE
    """of scoring and of proposing criteria"""


@dataclass(frozen=True, slots=True)
class RoundRows(Compiled):
    """What an update trains of a round, and what it does not, by reason."""

    lags: tuple[int, ...] = ()
    """of each row, updates between the weights that wrote its first token and those it trains"""


def groups_of_round(run: RunDirectory, number: int) -> list[RoundGroup]:
    """The groups of a round in the order of its questions."""
    asked, size = run.questions(), run.manifest().group_size
    return [_group(run, number, place, size) for place in range(len(asked))]


def _group(run: RunDirectory, number: int, place: int, size: int) -> RoundGroup:
    name = group_name(0, place)
    threads = [thread_of(name, member) for member in range(size)]
    runs = [run.store.load(thread) for thread in threads if run.store.has_ended(thread)]
    members = tuple(t for t in runs if t.status is not Status.FAILED)
    judged = run.judgement_of(0, name)
    known = {one.trajectory_id: one for one in judged.judgements} if judged else {}
    judging = sum((one.usage for one in judged.judgements), judged.usage) if judged else NO_USAGE
    return RoundGroup(
        name=f"r{number:03d}-{name}",
        group=TrajectoryGroup(
            question=run.questions()[place].question,
            trajectories=members,
            failures=tuple(t.reason for t in runs if t.status is Status.FAILED),
        ),
        judged=tuple(known.get(run.id) for run in members),
        reflected=run.reflection_of(0, name),
        judging=judging,
    )


Metrics = Mapping[str, Any]


def copy_files(checkpoint: Path, place: Path) -> None:
    """Have a checkpoint's files in another folder too, by other names of the same where that goes.

    They are there whole or not at all, in the place of what was there. The note is written anew: a
    base that is a path is told from the folder that it lies in.
    """
    temporary = place.with_name(f".{place.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for file in checkpoint.resolve().iterdir():
        if file.name == NOTE:
            told = note_of(checkpoint).beside(place).model_dump_json(indent=1)
            (temporary / NOTE).write_text(told, encoding="utf-8")
        elif file.is_file():
            link_or_copy(file, temporary / file.name)
    shutil.rmtree(place, ignore_errors=True)
    temporary.rename(place)


@dataclass(frozen=True, slots=True)
class RoundFolders:
    """The folder of one training run. Raises StoreError where it cannot be used."""

    out: Path
    data: Path

    def round(self, number: int) -> RunDirectory:
        return RunDirectory(self.out / "rounds" / f"{number:03d}")

    def held_out_run(self, updates: int) -> RunDirectory:
        return RunDirectory(self.out / "held_out" / f"{updates:03d}")

    @property
    def held_out_data(self) -> Path:
        """The rubrics of the held-out questions, made at their first asking and kept."""
        return self.out / "held_out" / "data"

    def journals(self) -> list[Path]:
        """Of all rounds and askings so far."""
        kept = (path for part in ("rounds", "held_out") for path in (self.out / part).glob("*/"))
        return sorted(path / JOURNAL for path in kept if (path / JOURNAL).exists())

    def policy(self, number: int) -> Path:
        """The checkpoint of a round; there is none where the base model is sampled."""
        return self.round(number).folder / "policy"

    def keep_policy(self, number: int, checkpoint: Path) -> None:
        """Keep a checkpoint for a round: the training removes its own while rollouts go on.

        A copy that is there already stays: rollouts were sampled from it.
        """
        place = self.policy(number)
        with writable(place):
            if not place.exists() and not self.round(number).finished_steps():
                copy_files(checkpoint, place)


def round_seed(seed: int, number: int) -> int:
    """A seed of 32 bits for each round, so that no two sample alike."""
    return seed_of(seed, f"round {number}")


ROUND, UNTRAINED, TOLD = "round", "untrained", "rounds.jsonl"


class Untrained(Value):
    """A round that had no row to train, and no checkpoint therefore."""

    metrics: dict[str, float]


END = "end"
"""the order that tells the other ranks that the rounds are over, with how many are done and why"""


class SessionUpdates:
    """A training session, counted in rounds.

    Under torchrun the first process has the rounds to itself: it collects, judges, reflects, and
    keeps bank and buffers. The others follow it: it sends them each step with its rows and each
    checkpoint, in which all have their part, and they read no row from disk. All but properties
    block: call them in a thread.
    """

    def __init__(self, session: TrainingSession, folders: RoundFolders, rounds: int) -> None:
        """`rounds` is how many there are to be, by which the learning rate goes."""
        self._session, self._folders, self._rounds = session, folders, rounds
        self._saved, self._done = session.done, int(session.place.get(ROUND, 0))
        while self._read_untrained(self._done) is not None:
            self._done += 1
        self.progress = session.progress
        self.progress.unit = "round"
        self.leads = session.ranks.first
        """whether this process makes the rounds; the others `follow`"""
        self._followed = self.leads
        """whether the others wait for an order"""
        if self.leads:
            self._tell_all()

    @property
    def done(self) -> int:
        """Rounds whose update is in a checkpoint, also before a kill."""
        return self._done

    @property
    def checkpoint(self) -> Path | None:
        """The newest one, or what training began with; None: the base model."""
        return self._session.folder.newest if self._saved else self._session.config.start_adapter

    @property
    def longest(self) -> int:
        """Tokens of the longest row that is trained."""
        return self._session.config.max_row_tokens or 0  # it is settled

    def changes(self, rounds: int) -> int:
        """How many of the first so many rounds, all done, have changed the weights."""
        return sum(self._read_untrained(number) is None for number in range(rounds))

    def update(self, rows: Sequence[TrainRow]) -> Metrics:
        """Updates of one window; nothing where there is no row."""
        if not rows:
            return {}
        rate = rate_at(min(self._done, self._rounds - 1), self._rounds, self._session.config)
        self.progress.begin(self._done + 1, self._rounds)
        metrics: Metrics = self._together("step", tuple(rows), rate)
        release_memory()  # the next round is sampled in this process, maybe
        return metrics

    def save(self, metrics: Metrics) -> None:
        """Keep the round with its metrics: a kill takes back all updates since the last one."""
        metrics = {**metrics, SAVED_AT: time()}
        if self._session.done == self._saved:
            kept = Untrained(metrics=dict(metrics))
            self._folders.round(self._done).save_part(0, UNTRAINED, kept)
        else:
            self._together("save", metrics, {ROUND: self._done + 1})
            self._saved = self._session.done
        self._done += 1
        self._tell_all()

    def _together(self, method: str, *given: Any) -> Any:
        """What a method of the session gives, in which all ranks have their part."""
        self._followed = False  # what fails on all of them has ended them
        self._session.ranks.broadcast((method, given))
        done = getattr(self._session, method)(*given)
        self._followed = True
        return done

    def follow(self) -> None:
        """Have a part in what the first process does, until it says that all rounds are done.

        Blocks for as long as they take. Raises what ended them there.
        """
        order: tuple[str, tuple[Any, ...]] = self._session.ranks.broadcast()
        while order[0] != END:
            getattr(self._session, order[0])(*order[1])
            order = self._session.ranks.broadcast()
        self._done, error = order[1]
        if error is not None:
            raise error
        self._saved = self._session.done

    def dismiss(self, error: BaseException | None = None) -> None:
        """Have the others end as this process does."""
        if not self._followed:
            return
        self._followed = False
        if error is not None and not isinstance(error, RubricemError):
            error = PolicyError(f"The first process ended: {type(error).__name__}.")
        with suppress(PolicyError):  # they are gone already
            self._session.ranks.broadcast((END, (self._done, error)))

    def _tell_all(self) -> None:
        """A line for each round, from what is kept with the checkpoints and beside them."""
        kept = {line[ROUND]: line for line in self._session.folder.metrics() if ROUND in line}
        for number in range(self._done):
            if found := self._read_untrained(number):
                kept[found.metrics[ROUND]] = found.metrics
        lines = (json.dumps(kept[number]) + "\n" for number in sorted(kept))
        write_atomically(self._folders.out / TOLD, lines)

    def _read_untrained(self, number: int) -> Untrained | None:
        return self._folders.round(number).part(0, UNTRAINED, Untrained)


@dataclass(frozen=True, slots=True)
class RoundsEnded:
    """What all rounds of a configuration led to."""

    checkpoint: Path | None
    """None: no round had anything to train"""
    rounds: int
    cost: float | None = None
    """US dollars of all calls so far; None: no limit was set, and none was counted"""


@asynccontextmanager
async def open_updates(
    config: EngineConfig, folders: RoundFolders, rounds: int, tell: Tell,
    weights_dir: Path | None, record: Mapping[str, Any],
    method: str = "ss-grpo",
) -> AsyncIterator[SessionUpdates]:  # fmt: skip
    """The updates of so many rounds.

    `record`: what must be the same when the rounds go on. `method`: as checkpoints name it. Under
    torchrun the first process makes the rounds, and the others take `updates.follow()` in their
    place. Raises as `open_session` does.
    """
    opening = open_session(config, "ss-grpo", tell, weights_dir, record)
    async with opening as session:
        session.note = session.note.model_copy(update={"method": method})
        updates = SessionUpdates(session, folders, rounds)
        try:
            yield updates
        except BaseException as error:
            updates.dismiss(error)
            raise
        updates.dismiss()
