"""A process that does rounds, kills itself on the way and goes on, as often as it is told.

    python -m tests.programs.rounds_killed FOLDER SEED KILLS

Each attempt is a fork that is killed (SIGKILL) at a random one of the moments at which it opens
or renames a file or calls a model. It prints how many moments an uninterrupted run has.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

from rubricem.agent.models.policy import JournaledCalls, JournaledChat
from rubricem.memory.interfaces import Message, Sampling
from rubricem.memory.schema import Judgement, Trajectory
from rubricem.training.collect.groups import Reflected
from tests.programs.collect_killed import (
    AskingJudge,
    LoggedChat,
    LoggedPolicy,
    Moments,
    PinnedBank,
    note,
)
from tests.support.rows import ManyReflections, Parts

ROUNDS = 3


class AskingReflections(ManyReflections):
    """Asks a chat model about the run before it reflects on it."""

    def __init__(self, model: JournaledChat) -> None:
        super().__init__()
        self._model = model

    async def __call__(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected:
        await self._model.chat([Message("user", f"Reflect with {seed}.")], Sampling())
        return await super().__call__(trajectory, judgement, seed)


class KilledParts(Parts):
    """Parts whose calls are written down, and whose bank is on disk."""

    def __init__(self, folder: Path, moments: Moments) -> None:
        log = folder / "calls.log"
        super().__init__(
            folder,
            ROUNDS,
            per_round=1,
            policy=lambda number: LoggedPolicy(log, moments),
            memory=PinnedBank(folder / "data"),
        )
        self._model = LoggedChat(log, moments)

    def journaled(self, calls: JournaledCalls) -> None:
        self.judge = AskingJudge(JournaledChat(self._model, calls))
        self.reflecting = AskingReflections(JournaledChat(self._model, calls))


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
            asyncio.run(KilledParts(folder, moments).rounds().run())
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
