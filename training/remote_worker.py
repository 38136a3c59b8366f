"""A process that writes rollouts for a run in another process."""

import asyncio
from dataclasses import replace
from typing import Any

from agent.researcher import Researcher
from memory.errors import RubricemError
from training.gated_policy import GatedPolicy
from training.remote_lines import (
    Begin,
    Elsewhere,
    Ended,
    Line,
    LineGate,
    LineJournal,
    LineRecaller,
    Said,
    line,
)


class RolloutWorker:
    """Writes any number of rollouts at the same time with one researcher.

    `begin` and `go_on` return what a rollout asks next; `go_on` brings the answer to what it
    asked before. Both raise what broke a rollout that is no value of ours.
    """

    def __init__(self, researcher: Researcher, *, recalls: bool) -> None:
        """`recalls`: the run has a bank."""
        self._journal = LineJournal()
        self._researcher = replace(
            researcher,
            policy=GatedPolicy(researcher.policy, LineGate()),
            journal=self._journal,
            store=Elsewhere(),
            recaller=LineRecaller() if recalls else None,
            verifier=None,
        )
        self._rollouts: dict[str, tuple[Line, asyncio.Task[Ended]]] = {}

    async def begin(self, rollout: Begin) -> Said:
        self._journal.hold(rollout.thread, rollout.replies)
        opened = Line()
        self._rollouts[rollout.thread] = opened, asyncio.create_task(self._write(rollout, opened))
        return await self._next(rollout.thread)

    async def go_on(self, thread: str, answer: Any) -> Said:
        self._rollouts[thread][0].answer(answer)
        return await self._next(thread)

    async def _write(self, rollout: Begin, opened: Line) -> Ended:
        line.set(opened)
        try:
            return Ended(await self._researcher.ask(rollout.ask, rollout.thread))
        except RubricemError as error:
            return Ended(error)

    async def _next(self, thread: str) -> Said:
        opened, written = self._rollouts[thread]
        asked = asyncio.ensure_future(opened.asked())
        await asyncio.wait({asked, written}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        asked.cancel()
        self._journal.forget(thread)
        del self._rollouts[thread]
        return written.result()
