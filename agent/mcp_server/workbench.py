"""What the tools work with: model, sources and bank, opened by the first call that needs them."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType

from agent.auto_source import settled
from agent.banking import open_bank
from agent.building import built
from agent.choice import choose_policy
from agent.clients import choices_of, decoding_of, open_policy, reserve, template_of
from agent.events import Event, SourceProgress, StageStarted, ToolCalled, ToolReturned
from agent.judged_runs import find_run
from agent.opened_sources import close_sources, open_sources
from agent.pages.opening import nearest
from agent.pages.reader import open_pages
from agent.question import checked
from agent.researcher import Researcher, new_thread
from agent.settings import Settings
from judge.building import LocalModel
from memory.errors import RubricemError, SettingsError
from memory.interfaces import Passage, SearchTool
from memory.items import BankItem, Match
from memory.runs import RunStore
from memory.schema import AnswerFormat, Judgement, Status, Trajectory

MOST_OF_A_PAGE = 10
"""passages of a page that are returned"""
AT_ONCE = 16
"""questions researched at the same time"""


Tell = Callable[[str], None]
"""hears a line on what is done"""


class Workbench:
    """Everything that the tools do; closed at the end of the server."""

    def __init__(self, settings: Settings, tell: Tell) -> None:
        """`tell` is given sentences on what cannot be used, for whoever runs the server."""
        self._settings = settings
        self._tell = tell
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tool: SearchTool | None = None
        self._researcher: Researcher | None = None
        self._pages = open_pages(settings.data_dir / "pages", settings.allow_hosts)
        self._bank = open_bank(settings)

    async def __aenter__(self) -> "Workbench":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def research(self, question: str, answer_format: AnswerFormat, tell: Tell) -> Trajectory:
        """Answer a question, telling what is done. Raises RubricemError for a run that failed."""
        settings = self._settings.model_copy(
            update={"answer_format": answer_format, "approve_plan": False, "clarify": False}
        )
        question = checked(question)
        async with self._places:
            researcher = await self._opened()
            run = new_thread()
            ask = await asyncio.to_thread(reserve, settings, run, question)
            trajectory = await researcher.ask(ask, run, lambda event: tell(line_of(event)))
        if trajectory.status is Status.FAILED:
            raise RubricemError(trajectory.reason, f"Go on with: rubricem ask --resume {run}")
        return trajectory

    async def search(self, query: str, limit: int) -> list[Passage]:
        """What the sources of the settings hold on a query."""
        async with self._lock:
            tool = await self._sources()
        return await tool.search(query, limit)

    async def open_page(self, address: str, words: str) -> list[Passage]:
        """The passages of a page of the web that are nearest to some words, in its order."""
        passages = await self._pages.read(address)
        return await asyncio.to_thread(nearest, passages, words, "", MOST_OF_A_PAGE)

    async def judge(self, run: str) -> Judgement:
        """Score an ended run stage by stage, and keep the scores beside it."""
        from agent.judging import open_group_judge
        from agent.judging_runs import check_scored, judged_groups, tell_bank
        from judge.building import Wanted

        data_dir = self._settings.data_dir
        found = await asyncio.to_thread(find_run, await self._folder_of(run), data_dir)
        shared = self._shared_model()
        async with open_group_judge(self._settings, Wanted("stage"), shared=shared) as judge:
            judged = await judged_groups(judge, found, data_dir)
        check_scored(judged)
        await asyncio.to_thread(found.save, [j for group in judged for j in group.judgements])
        await tell_bank(self._bank, found, judged)
        return judged[0].judgements[0]

    async def bank_search(self, text: str, count: int) -> list[Match]:
        """The reflections whose questions are nearest in meaning."""
        return await self._bank.search(text, count)

    async def bank_show(self, identifier: str) -> BankItem:
        """One reflection. Raises SettingsError where none has the id."""
        items = await self._bank.find(identifier)
        exact = [item for item in items if item.reflection.id == identifier] or items
        if len(exact) != 1:
            raise SettingsError(
                f"{len(exact) or 'No'} reflections have the id {identifier[:40]!r}.",
                "Take an id that bank_search gave.",
            )
        return exact[0]

    def _shared_model(self) -> LocalModel | None:
        """A model that is open already and can judge."""
        return None

    async def _folder_of(self, run: str) -> str:
        """The folder of a run by its name: a client names no path of this machine."""
        store = RunStore(self._settings.data_dir)
        await asyncio.to_thread(store.load, run)
        return str(store.folder / run)

    async def _sources(self) -> SearchTool:
        if self._tool is None:
            tool = await open_sources(await settled(self._settings), self._hear)
            self._stack.push_async_callback(close_sources, tool)
            for problem in await tool.prepare():
                self._tell(problem)
            self._tool = tool
        return self._tool

    async def _opened(self) -> Researcher:
        async with self._lock:
            if self._researcher is None:
                settings = self._settings
                choice = choose_policy(settings)
                decoding = decoding_of(settings, choice)
                tool = await self._sources()
                opening = open_policy(settings, choice, self._hear)
                policy = await self._stack.enter_async_context(opening)
                choices = await asyncio.to_thread(choices_of, settings)
                template = template_of(settings)
                self._researcher = built(
                    settings, policy, decoding, tool, template, choices, self._hear
                )
            return self._researcher

    def _hear(self, event: object) -> None:
        if isinstance(event, SourceProgress) and not event.message.startswith("reading"):
            self._tell(event.message)


def line_of(event: Event) -> str:
    """An event as a line of progress; "" for what is none."""
    match event:
        case StageStarted(stage):
            return f"stage: {stage.value}"
        case ToolCalled(name, query, number):
            return f"call {number}: {name}: {query}"
        case ToolReturned(sources, _, error):
            return error or f"found {len(sources)} passages"
        case SourceProgress(message):
            return message
        case _:
            return ""
