"""Small training rows, and a learner of the tiny model to train on them.

Rounds over scripted rollouts, with an engine that writes down what it was given.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch

from rubricem.agent.models.policy import JournaledCalls, Policy
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import GroupJudge, Reflection
from rubricem.training.collect.collector import Collector, Memory
from rubricem.training.collect.gate import Meter, RunGate
from rubricem.training.collect.questions import Curriculum, Question, QuestionBatch
from rubricem.training.local.learner import Learner
from rubricem.training.local.load import load_base
from rubricem.training.local.local_config import EngineConfig, TrainConfig, check_config
from rubricem.training.local.logprobs import batch_logprobs
from rubricem.training.local.weights import Adapter
from rubricem.training.objective.batch import Batch
from rubricem.training.rounds.rounds import Rounds
from rubricem.training.rounds.rounds_config import RoundsConfig
from rubricem.training.rounds.update import Metrics, RoundFolders
from rubricem.training.rows.credit import CREDITS
from rubricem.training.rows.row import Objective, TrainRow
from rubricem.training.show.console import Progress
from tests.support.collected import (
    LengthJudge,
    ListMemory,
    ManyReflections,
    manifest,
    researcher_of,
    two_turns,
)
from tests.support.policies import FixedSearch, ScriptedPolicy

LENGTH, PROMPT = 24, 10


def row(number: int, objective: Objective = "sft", advantage: float = 1.0, **more: Any) -> TrainRow:
    """Ten tokens of prompt, six written, three of a tool, five written; two rows make a group."""
    mask = (0,) * PROMPT + (1,) * 6 + (0,) * 3 + (1,) * 5
    values: dict[str, Any] = {
        "id": f"row{number}",
        "group": f"group{number // 2}",
        "trajectory": f"t{number}",
        "objective": objective,
        "policy_version": "v",
        "ids": tuple((number * 31 + place * 7) % 120 for place in range(LENGTH)),
        "loss_mask": mask,
        "advantages": tuple(advantage * bit for bit in mask),
        "behaviour_logprobs": tuple(-4.0 * bit for bit in mask),
        "stages": (-1,) * LENGTH,
    }
    values |= more
    prompt = (*values["loss_mask"], 1).index(1)
    return TrainRow(prompt_tokens=min(prompt, len(values["ids"])), **values)


def policy_rows(count: int) -> list[TrainRow]:
    return [row(n, "policy", 1.0 if n % 2 else -1.0) for n in range(count)]


def learner(tiny: Path, **settings: Any) -> Learner:
    model = load_base(tiny)
    config = EngineConfig(out=Path("unused"), **settings)
    return Learner(model, Adapter.attach(model, 4, 8.0, seed=0), config)


def adapter_of(one: Learner) -> Adapter:
    assert isinstance(one.weights, Adapter)
    return one.weights


def logprobs(one: Learner, rows: list[TrainRow]) -> torch.Tensor:
    with torch.no_grad():
        return batch_logprobs(one.model, Batch.collate(rows))


def written(path: Path, rows: list[TrainRow]) -> Path:
    path.write_text("".join(r.model_dump_json() + "\n" for r in rows), encoding="utf-8")
    return path


def config_of(folder: Path, tiny: Path, rows: list[TrainRow], **settings: Any) -> TrainConfig:
    values = {
        "out": "run",
        "rows": [written(folder / "rows.jsonl", rows).name],
        "model": str(tiny),
        "learning_rate": 0.01,
        "rank": 4,
        "alpha": 8.0,
        "dtype": "float32",
    }
    given = {name: value for name, value in (values | settings).items() if value is not None}
    return check_config(given, folder, TrainConfig)


def quiet(line: str) -> None:
    pass


def window_loss(metrics: dict[str, float]) -> tuple[float, float]:
    return metrics["loss"], metrics["grad_norm"]


def lasting(metrics: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a step that do not depend on the machine's speed and memory."""
    measured = ("seconds", "reference_seconds", "tokens_per_second", "trained_per_second")
    return {n: value for n, value in metrics.items() if n not in (*measured, "memory_peak")}


ASKED = tuple(Question(id=str(n), question=f"What is {n}?") for n in range(6))


class FileUpdates:
    """An engine whose weights are a count, kept in a file; rows are written down by their id."""

    progress: Progress

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
        self.reflecting: Any = ManyReflections()
        self.curriculum = Curriculum(ASKED, per_round, windows)
        self.config = RoundsConfig(questions="q", rounds=rounds, ahead=ahead)
        self.policy = policy or (lambda number: ScriptedPolicy(two_turns))
        self.sampled: dict[int, str] = {}
        """by round, the weights that it sampled from"""
        self.held_out: list[int] = []
        self.told: list[str] = []
        self.updates.progress = Progress(self.told.append)
        self.updates.progress.unit = "round"

    def rounds(self, stop: asyncio.Event | None = None) -> Rounds:
        async def held_out(updates: int) -> None:
            self.held_out.append(updates)

        return Rounds(
            self.config, CREDITS["answer-only"], 10_000, self.curriculum, self.folders,
            self.open_round, self.updates, held_out,
            tell=self.told.append, stop=stop,
        )  # fmt: skip

    def journaled(self, calls: JournaledCalls) -> None:
        """Where judge and reflections are to make calls: those of the round that is opened."""

    @asynccontextmanager
    async def open_round(self, number: int, batch: QuestionBatch) -> AsyncIterator[Collector]:
        weights = self.folders.policy(number) / "weights"
        self.sampled[number] = weights.read_text() if weights.exists() else "base"
        run = self.folders.round(number)
        journal = run.journal((meter := Meter()).hear)
        version = f"v{self.sampled[number]}"
        shape = {"group_size": 2, "step_size": len(batch.questions), "seed": number}
        run.begin(manifest(batch.questions, policy_version=version, **shape), batch.questions)
        calls = JournaledCalls(journal)
        self.journaled(calls)
        try:
            yield Collector(
                run,
                researcher_of(self.policy(number), run.store, journal, FixedSearch()),
                BufferStore(self.folders.data / "buffers"),
                RunGate(journal, meter),
                judge=self.judge,
                reflecting=self.reflecting,
                memory=self.memory,
                at_once=4,
                judged_at_once=4,
            )
        finally:
            journal.close()
