"""An evaluation that kills itself on the way and goes on, as often as it is told.

python -m tests.programs.eval_killed FOLDER SEED RUNS
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import Experiment
from rubricem.agent.evaluate.questions import QuestionSet
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.schema import Sampling
from tests.programs.killing import CALLS, Moments, kill_at_moments, note
from tests.support.collected import Failing
from tests.support.evaluated import PLAIN, written
from tests.support.policies import FixedSearch, ScriptedPolicy, answer, plan


def script(before: str, sampling: Sampling) -> str:
    if before.endswith("Answer:") or sampling.max_tokens < 300:
        return "unbounded" if before.endswith("Answer:") else PLAIN
    return answer() if before else plan()


class LoggedEvaluation(Failing):
    """A policy that writes every call it answered into a file."""

    def __init__(self, log: Path, moments: Moments) -> None:
        super().__init__(ScriptedPolicy(script), moments.pass_one)
        self._log = log

    async def write(self, *call: Any) -> Any:
        completion = await super().write(*call)
        note(self._log, f"write {call[3] and ''} {call[2].seed} {completion.text}")
        return completion


@dataclass(frozen=True)
class ScriptedChoice:
    """The choice of a model that is opened without one."""

    log: Path
    moments: Moments
    embedded = False
    name = "scripted"
    at_once = 4
    checkpoint, chain = None, False

    @asynccontextmanager
    async def open_policy(self, tell: Any) -> AsyncIterator[Any]:
        yield LoggedEvaluation(self.log, self.moments)


def evaluation(folder: Path, moments: Moments) -> None:
    asked = [{"id": f"q{n}", "question": f"What is {n}?", "answer": "unbounded"} for n in range(3)]
    settings = load_settings(
        {"base_url": "http://127.0.0.1:9/v1", "verify": "off", "data_dir": folder / "data"}
    )
    setup: Any = replace(setup_of(settings), model=ScriptedChoice(folder / CALLS, moments))
    experiment = Experiment(
        setup,
        QuestionSet.read(written(folder / "questions.jsonl", asked)),
        Arm.parse("stages,plain,closed"),
        folder / "out",
        search_tool=FixedSearch(),
    )
    asyncio.run(experiment.run())


if __name__ == "__main__":
    place, seed, runs = sys.argv[1:]
    kill_at_moments(evaluation, Path(place), int(seed), int(runs))
