"""One way to write code that waits only where something has to be waited for.

`Steps` is a generator that yields what it has to wait for and is sent its outcome. `run` takes
it to its end at once if it yields nothing; otherwise it stops at the first wait and gives a
coroutine for the rest. Nothing is started twice, and nothing is left behind unawaited: a
generator that is dropped closes what it was about to wait for.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Coroutine, Generator, Sequence
from typing import Any

Steps = Generator[Awaitable[Any], Any, float]


class Score(float):
    """A score that is there already; awaiting it gives it as well, so callers need not know."""

    def __await__(self) -> Generator[None, None, float]:
        return float(self)
        yield  # what makes this a generator, as awaiting asks for one


Result = Score | Coroutine[Any, Any, Score]


def run(steps: Steps) -> Result:
    """The score, or a coroutine for it from the first thing that is waited for."""
    try:
        first = next(steps)
    except StopIteration as end:
        return Score(end.value)
    return _rest(steps, first)


def settled(value: Any) -> Generator[Awaitable[Any], Any, Any]:
    """The value itself, or what it comes to once it was waited for."""
    if isinstance(value, Score) or not inspect.isawaitable(value):
        return value
    try:
        return (yield value)
    except GeneratorExit:
        discard(value)
        raise


async def together(waiting: Sequence[Awaitable[Any]]) -> list[Any]:
    """All outcomes, in order; at the first failure the others are cancelled and it is raised."""
    tasks = [asyncio.ensure_future(one) for one in waiting]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def discard(value: object) -> None:
    """Close a coroutine that was never started, and with it those that it holds."""
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        value.close()


async def _rest(steps: Steps, waiting: Awaitable[Any]) -> Score:
    try:
        while True:
            try:
                outcome = await waiting
            except BaseException as error:
                waiting = steps.throw(error)
            else:
                waiting = steps.send(outcome)
    except StopIteration as end:
        return Score(end.value)
