"""Rounds over scripted rollouts, with an engine that writes down what it was given."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent.free import FreeDecoder
from agent.journaled import Calls
from agent.policy import Policy
from agent.researcher import Researcher
from agent.run import Ask
from memory.buffers import BufferStore
from memory.runs import write_atomically
from memory.schema import Decoding, Judgement, Reflection, Trajectory
from tests.collected import (
    FixedReflections,
    LengthJudge,
    ListMemory,
    candidate,
    manifest,
    two_turns,
)
from tests.fakes import FixedSearch, ScriptedPolicy
from training.collecting import Collector
from training.curriculum import Batch, Curriculum
from training.flow import Flow
from training.groups import GroupJudge, Memory, Reflected, Reflecting
from training.meter import Meter
from training.rounds.folders import RoundFolders
from training.rounds.running import RoundRules, Rounds
from training.rounds.updating import Metrics
from training.row_rule import CREDITS
from training.rows import TrainRow
from training.run_directory import Question
from training.watching.plain import PlainLines

ASKED = tuple(Question(id=str(n), question=f"What is {n}?") for n in range(6))


class FileUpdates:
    """An engine whose weights are a count, kept in a file; rows are written down by their id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._taken: list[list[str]] = []

    @property
    def lines(self) -> list[dict[str, Any]]:
        path = self.folder / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def done(self) -> int:
        return len(self.lines)

    @property
    def checkpoint(self) -> Path | None:
        trained = self.changes(self.done)
        return self.folder / "checkpoints" / f"{trained}" if trained else None

    def changes(self, rounds: int) -> int:
        return sum(any(line["taken"]) for line in self.lines[:rounds])

    def update(self, rows: Sequence[TrainRow]) -> Metrics:
        self._taken.append([row.id for row in rows])
        return {"loss": 0.5} if rows else {}

    def save(self, metrics: Metrics) -> None:
        lines = [*self.lines, {**metrics, "taken": self._taken}]
        self._taken = []
        if any(lines[-1]["taken"]):
            trained = f"{self.changes(self.done) + 1}"
            (self.folder / "checkpoints" / trained).mkdir(parents=True, exist_ok=True)
            (self.folder / "checkpoints" / trained / "weights").write_text(trained)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_atomically(self.folder / "metrics.jsonl", text)

    def keep_best(self) -> None:
        raise NotImplementedError("no best is chosen here")


class ManyReflections(FixedReflections):
    """Two candidates that differ in their score, the better one for the bank."""

    async def __call__(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected:
        found = await super().__call__(trajectory, judgement, seed)
        worse = candidate(trajectory, 0.2).model_copy(update={"accepted": False})
        return found.model_copy(update={"candidates": (*found.candidates, worse)})


class NamedMemory(ListMemory):
    """A bank whose items are called by their questions."""

    async def put(self, reflection: Reflection) -> bool:
        return await super().put(reflection.model_copy(update={"id": reflection.question}))


class Parts:
    """What the rounds of one folder are made with; the same parts go on with them."""

    def __init__(
        self,
        folder: Path,
        rounds: int = 3,
        ahead: int = 1,
        *,
        per_round: int = 2,
        windows: int = 0,
        policy: Callable[[int], Policy] | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.folders = RoundFolders(folder, folder / "data")
        self.updates = FileUpdates(folder)
        self.memory: Memory = memory or NamedMemory()
        self.judge: GroupJudge = LengthJudge()
        self.reflecting: Reflecting = ManyReflections()
        self.curriculum = Curriculum(ASKED, per_round, windows)
        self.rules = RoundRules(rounds, ahead, ahead + 1, 10_000, CREDITS["answer-only"])
        self.policy = policy or (lambda number: ScriptedPolicy(two_turns))
        self.sampled: dict[int, str] = {}
        """by round, the weights that it sampled from"""
        self.held_out: list[int] = []
        self.told: list[str] = []

    def rounds(self, stop: asyncio.Event | None = None) -> Rounds:
        async def held_out(updates: int) -> None:
            self.held_out.append(updates)

        return Rounds(
            self.rules, self.curriculum, self.folders, self.open_round, self.updates, held_out,
            tell=self.told.append, watch=PlainLines(self.told.append), stop=stop,
        )  # fmt: skip

    def journaled(self, calls: Calls) -> None:
        """Where judge and reflections are to make calls: those of the round that is opened."""

    @asynccontextmanager
    async def open_round(self, number: int, batch: Batch) -> AsyncIterator[Collector]:
        weights = self.folders.policy(number) / "weights"
        self.sampled[number] = weights.read_text() if weights.exists() else "base"
        run = self.folders.round(number)
        journal = run.journal((meter := Meter()).hear)
        version = f"v{self.sampled[number]}"
        shape = {"group_size": 2, "step_size": len(batch.questions), "seed": number}
        run.begin(manifest(batch.questions, policy_version=version, **shape), batch.questions)
        calls = Calls(journal)
        self.journaled(calls)
        try:
            yield Collector(
                run,
                self._researcher(number, run.store, journal),
                calls,
                BufferStore(self.folders.data / "buffers"),
                Flow(journal, meter),
                judge=self.judge,
                reflecting=self.reflecting,
                memory=self.memory,
                at_once=4,
                judged_at_once=4,
            )
        finally:
            journal.close()

    def _researcher(self, number: int, store: Any, journal: Any) -> Researcher:
        return Researcher(
            policy=self.policy(number),
            decoder=FreeDecoder(),
            decoding=Decoding.FREE,
            search_tool=FixedSearch(),
            store=store,
            template=Ask("", tool_calls=3),
            journal=journal,
        )
