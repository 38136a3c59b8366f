"""Collecting and rounds that kill themselves on the way and go on, as often as they are told.

python -m tests.programs.runs_killed collect|rounds FOLDER SEED RUNS
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rubricem.agent.learning.reflect import Reflected
from rubricem.agent.models.policy import JournaledCalls, JournaledChat
from rubricem.memory.bank import RubricBank
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import (
    Completion,
    GroupJudgement,
    Judgement,
    Message,
    OnText,
    Reflection,
    RubricBuffer,
    Sampling,
    StopPredicate,
    Trajectory,
    TrajectoryGroup,
)
from rubricem.training.collect.directory import RunDirectory
from tests.programs.killing import CALLS, Moments, kill_at_moments, note
from tests.support.collected import (
    QUESTIONS,
    Failing,
    LengthJudge,
    ManyReflections,
    Opened,
    two_turns,
)
from tests.support.policies import ScriptedPolicy

ROUNDS = 3


class AskingJudge(LengthJudge):
    """Asks a chat model about every trajectory before it scores the group."""

    def __init__(self, model: JournaledChat) -> None:
        super().__init__()
        self._model = model

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        for trajectory in group.trajectories:
            await self._model.chat([Message("user", trajectory.transcript())], Sampling())
        return await super().judge(group, buffer, step)


class AskingReflections(ManyReflections):
    """Asks a chat model about the run before it reflects on it."""

    def __init__(self, model: JournaledChat) -> None:
        super().__init__()
        self._model = model

    async def __call__(
        self,
        trajectory: Trajectory,
        judgement: Judgement | None,
        seed: int,
        beside: Trajectory | None = None,
    ) -> Reflected:
        await self._model.chat([Message("user", f"Reflect with {seed}.")], Sampling())
        return await super().__call__(trajectory, judgement, seed, beside)


class LoggedChat:
    """A chat model that writes every call it answered into a file."""

    name = "chat"

    def __init__(self, log: Path, moments: Moments) -> None:
        self._log, self._moments = log, moments

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self._moments.pass_one()
        note(self._log, f"judge {messages[0].content}")
        return Completion(text="fine", stop_reason="eos")


class LoggedPolicy(Failing):
    def __init__(self, log: Path, moments: Moments) -> None:
        super().__init__(ScriptedPolicy(two_turns), moments.pass_one)
        self._log = log

    async def write(self, *call: Any) -> Any:
        completion = await super().write(*call)
        note(self._log, f"write {call[2].seed} {completion.text}")
        return completion


class PinnedBank(RubricBank):
    def pin(self, generation: int, *, own: bool = True) -> None:
        pass

    async def put(self, reflection: Reflection) -> bool:
        # As the real reflections do, it has one id for one text, whatever the time.
        return await super().put(reflection.model_copy(update={"id": reflection.question}))


def products(folder: Path) -> dict[str, object]:
    """All that a run leaves, but for the names and times that no two runs share."""
    run = RunDirectory(folder / "run")
    threads = {t.id: t.thread for t in run.trajectories()}
    return {
        "trajectories": [(t.thread, t.seed, t.transcript()) for t in run.trajectories()],
        "groups": [(g.id, [threads[i] for i in g.trajectories]) for g in run.groups()],
        "judged": [(threads[j.trajectory_id], j.stages) for j in run.judgements()],
        "reflected": [threads[c.trajectory_id] for c in run.reflections()],
        "rubrics": [BufferStore(folder / "rubrics").load(q.question).version for q in QUESTIONS],
    }


def collect(folder: Path, moments: Moments) -> None:
    with Opened(folder, LoggedPolicy(folder / CALLS, moments)) as opened:
        calls = JournaledCalls(opened.journal)
        judge = AskingJudge(JournaledChat(LoggedChat(folder / CALLS, moments), calls))
        collector = opened.collector(judge=judge, memory=PinnedBank(folder), at_once=1)
        asyncio.run(collector.collect())


def do_rounds(folder: Path, moments: Moments) -> None:
    from tests.support.rows import Parts  # torch with it, which collecting does without

    log = folder / CALLS
    model = LoggedChat(log, moments)

    class KilledParts(Parts):
        """Parts of rounds whose calls are written down."""

        def journaled(self, calls: JournaledCalls) -> None:
            self.judge = AskingJudge(JournaledChat(model, calls))
            self.reflecting = AskingReflections(JournaledChat(model, calls))

    parts = KilledParts(
        folder,
        ROUNDS,
        per_round=1,
        policy=lambda number: LoggedPolicy(log, moments),
        memory=PinnedBank(folder / "data"),
    )
    asyncio.run(parts.rounds().run())


if __name__ == "__main__":
    what, place, seed, runs = sys.argv[1:]
    work = {"collect": collect, "rounds": do_rounds}[what]
    kill_at_moments(work, Path(place), int(seed), int(runs))
