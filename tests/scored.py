"""Rubrics with a fixed score, at once or after a wait, that say when they were called."""

import asyncio
from typing import Any

from judge.rubrics import Rubric


class Fixed(Rubric):
    """Its score at once; an exception is raised instead."""

    def __init__(self, score: float | Exception, name: str = "", log: list[str] | None = None):
        super().__init__()
        self.score = score
        self.name = name
        self.log = [] if log is None else log

    def forward(self, action: Any, observation: Any) -> float:
        self.log.append(self.name)
        if isinstance(self.score, Exception):
            raise self.score
        return self.score


class Slow(Fixed):
    """Its score after other tasks had their turn, or after some seconds."""

    def __init__(
        self,
        score: float | Exception,
        name: str = "",
        log: list[str] | None = None,
        seconds: float = 0.0,
    ):
        super().__init__(score, name, log)
        self.seconds = seconds

    async def forward(self, action: Any, observation: Any) -> float:
        await asyncio.sleep(self.seconds)
        return super().forward(action, observation)


class Called(Rubric):
    """What a function makes of action and observation."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, action: Any, observation: Any) -> Any:
        return self.function(action, observation)
