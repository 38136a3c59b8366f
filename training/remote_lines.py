"""What a rollout in another process and its run say to each other.

The run's process holds what there is once: the journal, the gate, the bank. A rollout elsewhere
asks it for each of these and waits, one question at a time, so that both are one walk through two
processes. What a rollout has finished is in the run's journal before it goes on; another process
can therefore go on with it at any time, and no file is shared.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from agent.asking import Ask
from agent.recalling import Recall
from memory.errors import RubricemError
from memory.interfaces import Completion
from memory.journal import CallKey, Journal, Reply
from memory.runs import RunStore
from memory.schema import NO_USAGE, Trajectory, Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Begin:
    """A rollout, with its calls that are finished already."""

    thread: str
    ask: Ask
    replies: Mapping[CallKey, Reply]


@dataclass(frozen=True, slots=True)
class MayCall:
    """Answered when a call of this server may begin, or with the error that it failed for."""

    server: str


@dataclass(frozen=True, slots=True)
class Called:
    """The call that was allowed has succeeded."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class CallFailed:
    """It has failed; answered when it may be tried again, or with the error if it may not."""

    error: RubricemError


@dataclass(frozen=True, slots=True)
class Keep:
    """Answered when the reply is on disk."""

    key: CallKey
    reply: Reply


@dataclass(frozen=True, slots=True)
class Recalls:
    """Answered by the `Recall` for a question."""

    question: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The rollout has ended: with a trajectory, or for what fails all of a run."""

    outcome: Trajectory | RubricemError


Asked = MayCall | Called | CallFailed | Keep | Recalls
Said = Asked | Ended


class Line:
    """One rollout's line to its run."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._free = asyncio.Lock()

    async def ask(self, question: Asked) -> Any:
        """The run's answer; raises it where it is an error."""
        async with self._free:
            self._asked.put_nowait(question)
            answer = await self._answers.get()
        if isinstance(answer, RubricemError):
            raise answer
        return answer

    def answer(self, answer: Any) -> None:
        self._answers.put_nowait(answer)

    async def asked(self) -> Asked:
        """The next question."""
        return await self._asked.get()


line: ContextVar[Line] = ContextVar("line")
"""the line of the rollout that is being written"""


class LineGate:
    """A `Gate` whose calls are made here, when the run lets them begin."""

    async def call(
        self, server: str, make: Callable[[], Awaitable[T]], *, of_rollout: bool = False
    ) -> T:
        await line.get().ask(MayCall(server))
        while True:
            try:
                made = await make()
            except RubricemError as error:
                await line.get().ask(CallFailed(error))
            else:
                usage = made.usage if isinstance(made, Completion) else NO_USAGE
                await line.get().ask(Called(usage))
                return made


class LineJournal(Journal):
    """Finished calls of rollouts whose journal is the run's: nothing is written here."""

    def __init__(self) -> None:
        self._replies: dict[str, dict[CallKey, Reply]] = {}

    def hold(self, thread: str, replies: Mapping[CallKey, Reply]) -> None:
        self._replies[thread] = dict(replies)

    async def append(self, key: CallKey, reply: Reply) -> None:
        await line.get().ask(Keep(key, reply))
        self._replies[key.thread][key] = reply


class LineRecaller:
    """A `Recaller` over the run's bank."""

    async def recall(self, question: str) -> Recall:
        found: Recall = await line.get().ask(Recalls(question))
        return found

    async def used(self, trajectory: Trajectory) -> None:
        """Noted by the run, which keeps the trajectory."""


class Elsewhere(RunStore):
    """The store of rollouts that the run keeps: nothing is written here."""

    def __init__(self) -> None:
        """It has no folder."""

    def create(self, thread: str, request: Mapping[str, Any]) -> None:
        pass

    def ended(self, thread: str) -> bool:
        return False

    def save(self, trajectory: Trajectory) -> None:
        pass
