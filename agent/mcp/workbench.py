"""What the tools of an MCP server share; opened by the first call that needs it."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from rubricem.agent.learning.scoring import score_run
from rubricem.agent.research.researcher import Researcher, new_thread
from rubricem.agent.research.setup import Setup, open_researcher, reserve
from rubricem.agent.transcript.events import Tell, line_of
from rubricem.agent.transcript.question import check_question
from rubricem.agent.transcript.words import nearest
from rubricem.memory.bank import BankItem
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import (
    AnswerFormat,
    Judgement,
    LocalModel,
    Passage,
    SearchTool,
    Status,
    Trajectory,
)

MOST_OF_A_PAGE = 10
AT_ONCE = 16


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
        self.bank = setup.stores.open_bank()

    async def __aenter__(self) -> "Workbench":
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    async def research(self, question: str, answer_format: AnswerFormat, tell: Tell) -> Trajectory:
        """Answer a question, telling what is done. Raises RubricemError for a run that failed."""
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
            trajectory = await researcher.ask(ask, run, lambda event: tell(line_of(event)))
        if trajectory.status is Status.FAILED:
            raise RubricemError(trajectory.reason, f"Continue with: rubricem ask --resume {run}")
        return trajectory

    async def search(self, query: str, limit: int) -> list[Passage]:
        async with self._lock:
            tool = await self._sources()
        return await tool.search(query, limit)

    async def open_page(self, address: str, words: str) -> list[Passage]:
        """The passages of a page of the web that are nearest to some words, in its order."""
        passages = await self._pages.read(address)
        return await asyncio.to_thread(nearest, passages, words, "", MOST_OF_A_PAGE)

    async def judge(self, run: str) -> Judgement:
        # A client names no path of this machine: what is no run's name is refused.
        await asyncio.to_thread(self._setup.stores.runs.load, run)
        return await score_run(self._setup, run, self.reader)

    async def bank_show(self, identifier: str) -> BankItem:
        """One reflection. Raises SettingsError where none has the id."""
        items = await self.bank.find(identifier)
        item = await self.bank.item(identifier) or (items[0] if len(items) == 1 else None)
        if item is None:
            raise SettingsError(
                f"{len(items) or 'No'} reflections have the id {identifier[:40]!r}.",
                "Take an id that bank_search gave.",
            )
        return item

    @property
    def reader(self) -> LocalModel | None:
        return None

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
