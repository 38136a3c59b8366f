"""What the tools of an MCP server share; opened by the first call that needs it.

Whoever calls them is a model that reads what they show. As in a run, what was private in it leaves
for a public service by no later call: the words of a query stand in public text or in a query of
before, an address in public text.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, replace

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import markdown
from rubricem.agent.research.outlet import REMEDY, Outlet
from rubricem.agent.research.researcher import Researcher, new_thread
from rubricem.agent.research.setup import Setup, open_researcher, reserve
from rubricem.agent.sources.fetch import SENDING, Sending, addresses_in
from rubricem.agent.sources.index import nearest
from rubricem.agent.transcript.events import Tell, line_of
from rubricem.agent.transcript.question import Found, check_question
from rubricem.memory.errors import RubricemError, SourceError
from rubricem.memory.schema import AnswerFormat, Passage, SearchTool, Source, Status, Trajectory

MOST_OF_A_PAGE = 10
AT_ONCE = 16
MOST_SHOWN = 2000
"""private texts with which what is to leave is compared; beyond that nothing leaves"""


class Workbench:
    """Everything that the tools do; closed at the end of the server."""

    def __init__(self, setup: Setup, tell: Tell) -> None:
        """`tell` is given sentences on what cannot be used, for whoever runs the server."""
        self._setup = setup
        self._tell = tell
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tool: SearchTool | None = None
        self._researcher: Researcher | None = None
        self._pages = setup.sources.open_pages(setup.stores.data_dir)
        self._outlet = Outlet()
        self._shown = set[Source]()

    async def __aenter__(self) -> "Workbench":
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    async def research(self, question: str, answer_format: AnswerFormat, tell: Tell) -> Trajectory:
        """Answer a question, telling what is done. Raises RubricemError for a run that failed."""
        self._outlet.turn()
        strange = self._outlet.strange(question)
        if strange and (self._setup.sources.asks_others or addresses_in(question)):
            told = ", ".join(strange)
            raise SourceError(f"Not asked, since private text was read before: {told}.", REMEDY)
        if not self._outlet.guards:
            self._outlet.say(question)
        trajectory = await self._answer(question, answer_format, tell)
        if trajectory.status is Status.FAILED:
            self._tell_of(trajectory.private, trajectory.reason)
            resume = f"Continue with: rubricem ask --resume {trajectory.thread}"
            raise RubricemError(trajectory.reason, resume)
        self._show(trajectory.sources)
        shown = cited_answer(trajectory).text(), markdown(trajectory)
        self._tell_of(trajectory.private, *shown)
        return trajectory

    async def _answer(self, question: str, answer_format: AnswerFormat, tell: Tell) -> Trajectory:
        template = replace(
            self._setup.template, answer_format=answer_format, approve_plan=False, clarify=False
        )
        setup, question = replace(self._setup, template=template), check_question(question)
        async with self._places:
            async with self._lock:
                if self._researcher is None:
                    tool = await self._sources()
                    opening = open_researcher(self._setup, self._hear, search_tool=tool)
                    self._researcher = await self._stack.enter_async_context(opening)
            researcher, run = self._researcher, new_thread()
            ask = await asyncio.to_thread(reserve, setup, run, question)
            return await researcher.ask(ask, run, lambda event: tell(line_of(event)))

    async def search(self, query: str, limit: int) -> tuple[list[Passage], str]:
        """The passages, and why one of the sources was not asked; "": all were."""
        async with self._lock:
            tool = await self._sources()
        with self._guarded(query, getattr(tool, "private", True)) as sending:
            found = await tool.search(query, limit)
        self._show(map(_source, found))
        return found, " ".join(dict.fromkeys(sending.kept))

    async def open_page(self, address: str, words: str) -> list[Passage]:
        """The passages of a page of the web that are nearest to some words, in its order."""
        with self._guarded(address):
            passages = await self._pages.read(address)
        rows = await asyncio.to_thread(nearest, passages, words, "")
        found = [passages[row] for row in sorted(rows[:MOST_OF_A_PAGE])]
        self._show(map(_source, found))
        return found

    @contextmanager
    def _guarded(self, asked: str, private: bool = False) -> Iterator[Sending]:
        """What is sent meanwhile passes the gate; `private`: what is said of a failure may be."""
        self._outlet.turn()
        if not self._outlet.guards:
            self._outlet.say(asked)
        token = SENDING.set(sending := Sending(self._let_out))
        try:
            yield sending
        except RubricemError as error:
            self._tell_of(private and str(error) not in sending.kept, error.told())
            raise
        finally:
            SENDING.reset(token)

    def _let_out(self, service: str, text: str, *, address: bool = False) -> tuple[str, str]:
        if len(self._outlet.private.texts) > MOST_SHOWN:
            said = f"more than {MOST_SHOWN:,} private passages were shown, too many to compare with"
            return text, f"Not sent to {service}: {said}. Start the server again."
        return self._outlet.let_out(service, text, address=address)

    def _show(self, sources: Iterable[Source]) -> None:
        new = tuple(source for source in sources if source not in self._shown)
        self._shown.update(new)
        self._outlet.see(Found(new))

    def _tell_of(self, private: bool, *texts: str) -> None:
        """Note what a call shows beside passages."""
        if private:
            self._outlet.hold(*texts)

    async def _sources(self) -> SearchTool:
        if self._tool is None:
            opening = self._setup.open_sources(self._hear)
            tool = await self._stack.enter_async_context(opening)
            for problem in await tool.prepare():
                self._tell(problem)
            self._tool = tool
        return self._tool

    def _hear(self, line: str) -> None:
        if not line.startswith("reading"):
            self._tell(line)


def _source(passage: Passage) -> Source:
    return Source(id="", tool="", query="", **asdict(passage))
