"""What the tools of an MCP server work with, and what they return.

Model, sources and bank are opened by the first call that needs them. What is returned are objects
with a schema that clients are told.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Literal

from pydantic import BaseModel, Field

from rubricem.agent.learning.scoring import find_run, open_group_judge, score
from rubricem.agent.pages.read import open_pages
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import markdown
from rubricem.agent.research.act import nearest
from rubricem.agent.research.events import (
    Event,
    SourceProgress,
    StageStarted,
    ToolCalled,
    ToolReturned,
)
from rubricem.agent.research.question import checked
from rubricem.agent.research.researcher import Researcher, new_thread
from rubricem.agent.research.setup import Setup, open_bank, open_researcher, open_sources, reserve
from rubricem.judge.build import Wanted
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.interfaces import LocalModel, Passage, SearchTool
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import (
    AnswerFormat,
    BankItem,
    CitationSupport,
    Judgement,
    Match,
    Status,
    Trajectory,
)


class FoundPassage(BaseModel):
    """A passage of a document or page."""

    title: str
    location: str = Field(description="address or path")
    place: str = Field(description="symbol, heading, page or lines inside it")
    text: str

    @classmethod
    def of(cls, passage: Passage) -> "FoundPassage":
        return cls(
            title=passage.title,
            location=passage.location,
            place=passage.place,
            text=passage.text,
        )


class FoundPassages(BaseModel):
    passages: list[FoundPassage]


class CitedSource(BaseModel):
    """A source that the answer cites."""

    number: int = Field(description="of its marks in the answer")
    title: str
    location: str
    text: str = Field(description="the passage as it was fetched")


class CheckedCitation(BaseModel):
    """One claim on one source, and whether the source holds it."""

    number: int
    claim: str
    verdict: CitationSupport
    why: str
    quote: str = Field(description="the sentence of the source nearest to the claim")


class Researched(BaseModel):
    """A report and what it stands on."""

    answer: str = Field(description="with marks like [1]")
    report: str = Field(description="the whole report in Markdown")
    status: Literal["finished", "no_evidence", "partial"]
    reason: str = Field(description="why it is not finished")
    citations: list[CheckedCitation]
    sources: list[CitedSource]
    run: str = Field(description="its name, for judging it")

    @classmethod
    def of(cls, trajectory: Trajectory) -> "Researched":
        answer = cited_answer(trajectory)
        return cls.model_validate(
            {
                "answer": answer.text(),
                "report": markdown(trajectory),
                "status": trajectory.status.value,
                "reason": trajectory.reason,
                "citations": [
                    CheckedCitation(
                        number=c.number,
                        claim=c.claim,
                        verdict=c.verdict,
                        why=c.reason,
                        quote=c.quote,
                    )
                    for c in answer.citations
                ],
                "sources": [
                    CitedSource(number=n, title=s.title, location=s.location, text=s.text)
                    for n, s in enumerate(answer.sources, start=1)
                ],
                "run": trajectory.thread,
            }
        )


class JudgedStage(BaseModel):
    stage: str
    score: float | None = Field(description="from 0 to 1; null: it could not be scored")
    reason: str


class JudgedStages(BaseModel):
    """A run's scores, stage by stage."""

    judge: str
    stages: list[JudgedStage]

    @classmethod
    def of(cls, judgement: Judgement) -> "JudgedStages":
        stages = [
            JudgedStage(
                stage=each.stage.value,
                score=each.score,
                reason=each.unscored_reason if each.score is None else each.justification,
            )
            for each in judgement.stages
        ]
        return cls(judge=judgement.judge, stages=stages)


class KeptReflection(BaseModel):
    """What an earlier run taught."""

    id: str
    question: str = Field(description="of the run that taught it")
    score: float
    rubrics: str
    takeaways: str

    @classmethod
    def of(cls, item: BankItem) -> "KeptReflection":
        kept = item.reflection
        return cls(
            id=kept.id,
            question=kept.question,
            score=kept.score,
            rubrics=kept.rubrics,
            takeaways=kept.takeaways,
        )


class NearReflection(BaseModel):
    id: str
    question: str
    score: float
    similarity: float = Field(description="cosine of the question and what was looked for")


class NearReflections(BaseModel):
    matches: list[NearReflection]


MOST_OF_A_PAGE = 10
"""passages of a page that are returned"""
AT_ONCE = 16
"""questions researched at the same time"""


Tell = Callable[[str], None]
"""hears a line on what is done"""


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
        self._data_dir = setup.stores.data_dir
        self._pages = open_pages(self._data_dir / "pages", setup.sources.private_hosts)
        self._bank = open_bank(setup.stores)

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
        template = replace(
            self._setup.template, answer_format=answer_format, approve_plan=False, clarify=False
        )
        setup, question = replace(self._setup, template=template), checked(question)
        async with self._places:
            researcher = await self._opened()
            run = new_thread()
            ask = await asyncio.to_thread(reserve, setup, run, question)
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
        stores, shared = self._setup.stores, self._shared_model()
        found = await asyncio.to_thread(find_run, await self._folder_of(run), self._data_dir)
        replies = self._data_dir / "replies"
        async with open_group_judge(
            self._setup.model, Wanted("stage"), replies, shared=shared
        ) as judge:
            judged = await score(judge, found, stores, self._bank)
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
        store = RunStore(self._data_dir)
        await asyncio.to_thread(store.load, run)
        return str(store.folder / run)

    async def _sources(self) -> SearchTool:
        if self._tool is None:
            opening = open_sources(self._setup.sources, self._setup.stores, self._hear)
            tool = await self._stack.enter_async_context(opening)
            for problem in await tool.prepare():
                self._tell(problem)
            self._tool = tool
        return self._tool

    async def _opened(self) -> Researcher:
        async with self._lock:
            if self._researcher is None:
                tool = await self._sources()
                opening = open_researcher(self._setup, self._hear, search_tool=tool)
                self._researcher = await self._stack.enter_async_context(opening)
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
