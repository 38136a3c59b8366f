"""Runs behind OpenAI's interface: begun for a request, followed to their end, let go with it.

A run belongs to its request: a client that goes away ends it with what there is, since clients
try again by themselves and each try costs a run. What there is stays, and can be resumed.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from agent.protocols.openai_answer import Answer, answer_of
from agent.protocols.openai_asked import Asked, Dialogue
from agent.serve.desk import RunDesk
from agent.serve.refusals import Refused
from agent.serve.work import Work
from memory.errors import PolicyError, RubricemError
from memory.schema import Status

LOOKED_THROUGH = 300
"""of the latest runs, for the one whose report a client sends back"""
Event = tuple[str, Any]


class Runs:
    """The runs of one desk."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk

    async def begin(self, asked: Asked, said: Dialogue) -> Work:
        """Begin a run for the question, in the conversation that its earlier messages are of."""
        conversation = await asyncio.to_thread(self._conversation, said)
        question = said.question if conversation else said.as_question()
        return await self._desk.start(asked.run(question, conversation))

    async def begin_after(self, asked: Asked, question: str, run: str) -> Work:
        """Begin a run in the conversation of another, right after it. Refused where none is."""
        await self._desk.known(run)
        conversation = (await asyncio.to_thread(self._desk.conversations.after, run)).id
        return await self._desk.start(asked.run(question, conversation))

    @asynccontextmanager
    async def held(self, work: Work) -> AsyncIterator[None]:
        """While a client waits for it; the run is stopped if it goes on when this ends.

        Where the server ends, the run is left to the next one.
        """
        try:
            yield
        finally:
            if not work.heard.over and not self._desk.closing.is_set():
                await asyncio.shield(self._let_go(work.run))

    async def progress(self, work: Work) -> AsyncIterator[str]:
        """Lines on what is done, as it is done; "" where nothing was for a while."""
        async for told in work.heard.follow():
            if self._desk.closing.is_set():
                return
            if not told:
                yield ""
            for name, held in told:
                if line := line_of(name, held):
                    yield line

    async def answer(self, run: str, conversation: str | None) -> Answer:
        """What an ended run came to. Raises PolicyError for one that failed."""
        if await asyncio.to_thread(self._desk.store.ended, run):
            trajectory = await asyncio.to_thread(self._desk.store.load, run)
            if trajectory.status is Status.FAILED:
                raise PolicyError(trajectory.reason)
            return await asyncio.to_thread(answer_of, trajectory, conversation)
        status, reason = await self._finished(run)
        if status == Status.FAILED.value:
            raise PolicyError(reason)
        return Answer(run, conversation, status, reason)

    async def _finished(self, run: str) -> tuple[str, str]:
        """How a run ended of which no trajectory is kept, as its events tell it."""
        work = self._desk.live.get(run)
        if work is not None and not work.heard.over:
            raise Refused(503, "This server ends; the run goes on when it starts again.")
        told = work.heard.said if work is not None else await self._logged(run)
        last = [held for name, held in told if name == "finished"]
        return (last[-1]["status"], last[-1]["reason"]) if last else ("failed", "")

    async def _logged(self, run: str) -> list[Event]:
        """The last events of a run that this process does not work on."""
        log = await self._desk.log(run)
        return [(event.name, event.data) for event in await log.read(max(log.last - 8, 0))]

    async def _let_go(self, run: str) -> None:
        try:
            await self._desk.stop(run)
        except RubricemError:
            # It ended by itself meanwhile.
            return

    def _conversation(self, said: Dialogue) -> str | None:
        """The conversation that goes on; None where no run of it is known here."""
        asked = [turn.text for turn in said.earlier if turn.role == "user"]
        reports = [turn.text for turn in said.earlier if turn.role == "assistant"]
        if not asked or not reports or said.earlier[-1].role != "assistant":
            return None
        run = self._reported(asked[-1], reports[-1])
        return self._desk.conversations.after(run).id if run else None

    def _reported(self, question: str, report: str) -> str | None:
        """The run whose answer was this report."""
        store = self._desk.store
        for run in reversed(store.threads()[-LOOKED_THROUGH:]):
            try:
                same = store.request(run)["ask"]["question"].startswith(question.strip())
                if same and store.ended(run):
                    content = answer_of(store.load(run), None).content
                    if _words(content) == _words(report):
                        return run
            except (RubricemError, LookupError, TypeError, AttributeError):
                # A damaged run is nobody's thread.
                continue
        return None


def line_of(name: str, held: Any) -> str:
    """An event of a run, as a line of what a reader may follow; "" for what is none."""
    match name:
        case "stage":
            return f"Stage: {held['stage']}\n"
        case "plan":
            return f"Plan: {held['text']}\n"
        case "tool":
            return f"Call {held['number']}: {held['name']}: {held['query']}\n"
        case "results":
            return _results(held["sources"], held["error"])
        case "retry":
            return f"Again: {held['reason']}\n"
        case "note" | "restart":
            return f"{held['message']}\n" if held.get("message") else ""
        case _:
            return ""


def _results(sources: Sequence[Any], error: str) -> str:
    if error:
        return f"It failed: {error}\n"
    titles = "; ".join(source["title"] for source in sources)
    return f"Found: {titles}\n" if titles else "Nothing was found.\n"


def _words(text: str) -> list[str]:
    return text.split()
