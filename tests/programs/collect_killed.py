"""A process that collects a run, kills itself on the way and goes on, as often as it is told.

    python -m tests.programs.collect_killed FOLDER SEED KILLS

Each attempt is a fork that is killed (SIGKILL) at a random one of the moments at which it opens
or renames a file or calls a model. It prints how many moments an uninterrupted run has.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rubricem.agent.models.policy import JournaledCalls, JournaledChat
from rubricem.judge.stage import GroupJudgement
from rubricem.memory.bank import RubricBank
from rubricem.memory.interfaces import Completion, Message, OnText, Sampling, StopPredicate
from rubricem.memory.rubrics import RubricBuffer
from rubricem.memory.schema import Reflection, TrajectoryGroup
from tests.support.collected import Failing, LengthJudge, Opened, two_turns
from tests.support.policies import ScriptedPolicy


class Moments:
    """Counts the moments of a process and kills it at one of them."""

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self.last = last

    def pass_one(self, *event: object) -> bool:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


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


def note(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(line.replace("\n", " ") + "\n")


def collect(folder: Path, moments: Moments) -> None:
    log = folder / "calls.log"
    opened = Opened(folder, LoggedPolicy(log, moments))
    judge = AskingJudge(
        JournaledChat(LoggedChat(log, moments), calls := JournaledCalls(opened.journal))
    )
    bank = PinnedBank(folder)
    collector = opened.collector(judge=judge, memory=bank, at_once=1)
    collector.calls = calls
    asyncio.run(collector.collect())
    opened.close()


def attempt(folder: Path, last: int | None) -> bool:
    """Whether a fork came to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (child := os.fork()):
        moments = Moments(last)
        sys.addaudithook(
            lambda event, args: (
                moments.pass_one()
                if event in ("open", "os.rename") and str(args[0]).startswith(str(folder))
                else None
            )
        )
        try:
            collect(folder, moments)
            (folder / "moments").write_text(str(moments.count))
        finally:
            os._exit(sys.exc_info()[0] is not None)
    return os.waitpid(child, 0)[1] == 0


def main(folder: Path, seed: int, kills: int) -> None:
    if not attempt(folder / "whole", None):
        raise SystemExit("the uninterrupted run failed")
    moments = int((folder / "whole" / "moments").read_text())
    draw = random.Random(seed)
    for number in range(kills):
        killed = folder / f"killed{number}"
        while not attempt(killed, draw.randrange(1, moments)):
            note(killed / "kills.log", "killed")
    print(moments)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
