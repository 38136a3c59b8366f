"""Everything a question is answered with, as one value, and a researcher opened from it.

A `Setup` is resolved once, from settings or another origin. Every command, page, tool server and
trainer opens its researcher here, with clients that are built once and closed at the end. Heavy
packages are imported only if chosen: an answer from a server loads no llama.cpp and, without a
folder or library as source, no index.

`--source auto` is resolved before anything is asked: to the web if it answers soon enough, else to
`python`. The result is stored with the run, so that a resume searches the same source.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rubricem.agent.models.opening import OpenPolicy, PolicyChoice, embedder_in
from rubricem.agent.models.policy import Policy
from rubricem.agent.reports.verifier import AnswerVerifier, can_tell
from rubricem.agent.research.deep.parts import Steering
from rubricem.agent.research.graph import Decoder
from rubricem.agent.research.recall import BankRecaller, out_of_scope
from rubricem.agent.research.researcher import Researcher, request_of
from rubricem.agent.sources.choice import AUTO, PYTHON, WEB, Meaning, Sources, web_answers
from rubricem.agent.transcript.events import Listener, Tell, hush, ignore, tell_to
from rubricem.agent.transcript.question import Ask, Budgets, Person
from rubricem.memory import errors
from rubricem.memory.bank import RubricBank
from rubricem.memory.embedder import MEANING, CountedEmbedder
from rubricem.memory.errors import SettingsError, SourceError, WeightsError, import_extra
from rubricem.memory.parts import parts_of
from rubricem.memory.runs import RunStore, hold_lock
from rubricem.memory.schema import Decoding, Embedder, Reflection, Sampling, SearchTool, Trajectory

SOON = 0.5
"""seconds in which a source that cannot be used mostly shows it"""

Answers = Callable[[], Awaitable[bool]]
"""whether the web answers; never takes long"""


@dataclass(frozen=True, slots=True)
class Stores:
    """The folders that everything is kept in, and how what lies in them is opened."""

    data_dir: Path
    """runs, threads, bank, rubrics, indexes, pages and uploads"""
    weights_dir: Path
    embedder: str
    """of the bank and of reranking"""

    @property
    def runs(self) -> RunStore:
        return RunStore(self.data_dir)

    async def open_embedder(self, tell: Tell = hush) -> Embedder:
        if self.embedder not in parts_of("embedders"):
            import_extra("tokenizers", "memory", MEANING)  # before anything is fetched
        return await embedder_in(self.weights_dir, tell, self.embedder)

    def open_bank(
        self, tell: Tell = hush, on_embedded: Callable[[int], None] | None = None
    ) -> RubricBank:
        """The bank; its embedding model is fetched when it is first needed.

        `on_embedded` is called with the number of texts that were embedded so far.
        """

        async def open_embedder() -> Embedder:
            embedder = await self.open_embedder(tell)
            return CountedEmbedder(embedder, on_embedded) if on_embedded else embedder

        return RubricBank(self.data_dir, open_embedder)


@dataclass(frozen=True, slots=True)
class Setup:
    """All that shapes an answer, but for the question."""

    model: PolicyChoice
    reflecting: PolicyChoice
    """what judges single runs and reflects on them; mostly `model`"""
    decoding: Decoding
    attempts: int
    """tries of a turn in free mode that breaks the scaffold"""
    short: bool
    """the system prompt of free decoding, for a model that was trained to it"""
    template: Ask
    """the limits of every question, without budgets: those who collect have none"""
    budgets: Budgets
    """of a question that a person asks"""
    sources: Sources
    stores: Stores
    memory: Literal["on", "off", "read-only"]
    recalls: bool
    reflection_tokens: int
    verify: Literal["off", "mark", "repair"]
    checker: Any  # `auto`, `lexical`, another model's choice, or a `Checker`
    choices: Mapping[str, Any]
    """what of it is kept with a run, so that a resume has it again"""
    temperature: float = 1.0
    """of free decoding"""

    def with_sources(self, names: Sequence[str], kept: Sequence[str]) -> "Setup":
        """The same over other sources, which are kept with a run by their whole names."""
        sources = replace(self.sources, names=tuple(names))
        return replace(self, sources=sources, choices={**self.choices, "source": [*kept]})

    def absolute(self) -> "Setup":
        """The same for a process that starts in another folder."""
        names = self.choices["source"]
        return replace(self.with_sources(names, names), model=self.model.absolute())

    def over_whole_sources(self) -> "Setup":
        """For those who compare answers or collect them: each question finds the same."""
        return replace(self, sources=replace(self.sources, whole=True))

    @asynccontextmanager
    async def open_sources(
        self, tell: Tell = hush, meaning: Meaning | None = None
    ) -> AsyncIterator[SearchTool]:
        """The named sources as one; folders and libraries are indexed when it is prepared.

        `meaning` is filled by who opened it; None: with what is there.
        """
        meaning = meaning or Meaning(await self.open_embedder(tell))
        async with self.sources.open(self.stores.data_dir, tell, meaning) as tool:
            yield tool

    async def open_embedder(self, tell: Tell = hush, *, fetch: bool = False) -> Embedder | None:
        """What tells texts by their meaning: fetched with a model that is fetched (`fetch`), or
        used if it is there; else that is told.
        """
        from rubricem.agent.weights.store import WeightsStore

        name = self.stores.embedder
        with suppress(WeightsError):
            there = WeightsStore(self.stores.weights_dir).has_embedder
            if fetch or name in parts_of("embedders") or there(name):
                return await self.stores.open_embedder(tell)
        tell(f"ranked by words alone: `rubricem models fetch {name}` adds meaning")
        return None

    def open_recaller(self, model: Policy, tell: Tell) -> BankRecaller | None:
        """What puts lessons before a question that a model answers; None: nothing does."""
        if self.memory == "off" or not self.recalls:
            return None
        return BankRecaller(
            self.stores.open_bank(tell),
            context_tokens=model.context_tokens,
            tell=tell,
            bars=self.bars(model),
            learns=self.memory == "on",
        )

    def bars(self, model: Policy) -> Callable[[Reflection], bool]:
        """Whether a lesson may not be put before a question that a model answers."""
        asks, server = self.sources.asks_others, self.model.server
        return partial(out_of_scope, server=server, model=model.name, asks=asks)

    def open_decoder(self, embedder: Embedder | None) -> Decoder:
        """What leads the policy through the stages; the embedder is forced decoding's."""
        if self.decoding is Decoding.FORCED:
            from rubricem.agent.research.forced import ForcedDecoder

            return ForcedDecoder(embedder=embedder)
        from rubricem.agent.research.deep.lead import LeadDecoder
        from rubricem.agent.research.free import FreeDecoder

        sampling = Sampling(temperature=self.temperature)
        kind = LeadDecoder if self.template.leads else FreeDecoder
        return kind(sampling, self.attempts, short=self.short)

    def lacks_model(self) -> bool:
        """Whether a model has to be fetched before anything can be asked."""
        from rubricem.agent.weights.store import WeightsStore

        return self.model.embedded and WeightsStore(self.stores.weights_dir).lacks_model(
            self.model.name
        )


async def resolve_auto(
    setup: Setup,
    thread: str | None = None,
    tell: Tell = hush,
    answers: Answers | None = None,
) -> Setup:
    """The setup with a source in the place of `auto`, which is told.

    A thread that was begun goes on with what it took then, and nothing is probed.
    """
    if AUTO not in setup.sources.names:
        return setup
    store = setup.stores.runs
    held = thread is not None and await asyncio.to_thread(store.holds, thread)
    if thread is not None and held and not await asyncio.to_thread(store.is_restored, thread):
        request = await asyncio.to_thread(store.request, thread)
        names = request["choices"]["source"]
        return setup.with_sources(names, names)
    began = time.monotonic()
    found = await (answers or web_answers)()
    seconds = f"in {time.monotonic() - began:.1f} s"
    missing = f"the web did not answer {seconds}; name another with --source"
    libraries = f"the Python libraries installed here, since {missing}"
    said = f"the web, which answered {seconds}" if found else libraries
    tell(f"source: {said}")
    taken = {AUTO: WEB if found else PYTHON}

    names, kept = (
        list(dict.fromkeys(taken.get(name, name) for name in each))
        for each in (setup.sources.names, setup.choices["source"])
    )
    parts = {taken.get(name, name): part for name, part in setup.sources.parts.items()}
    setup = replace(setup, sources=replace(setup.sources, parts=parts))
    return setup.with_sources(names, kept)


def reserve(
    setup: Setup, thread: str, question: str, earlier: tuple[str, ...] | None = None
) -> Ask:
    """Write down what is asked under a name, and after which runs, before any work is done for it.

    `earlier`: None means those that it was asked after before, where the name is known. Raises
    what cannot be asked: a thread that holds another question, a bad data directory.
    """
    store = setup.stores.runs
    if earlier is None:
        known = store.request(thread).get("ask", {}) if store.holds(thread) else {}
        earlier = tuple(known.get("earlier", ()))
    ask = replace(setup.template, question=question, earlier=earlier, budgets=setup.budgets)
    prices = {name: [*each] for name, each in setup.model.prices.items()}
    beside = {"allow_hosts": [*setup.sources.private_hosts], "prices": prices}
    store.create(thread, {**request_of(ask, setup.choices), "beside": beside})
    return ask


async def ask_once(
    setup: Setup,
    question: str,
    thread: str,
    listener: Listener = ignore,
    stopping: AbstractContextManager[asyncio.Event | None] | None = None,
    person: Person | None = None,
    steering: Steering | None = None,
) -> Trajectory:
    """One question from its setup to its trajectory, with clients of its own.

    `stopping` is entered once the run begins; its event ends the run with what there is. `person`
    is asked where the run is to ask somebody; `steering` has what they tell a lead.
    """
    tell, store = tell_to(listener), setup.stores.runs
    setup = await resolve_auto(setup, thread, tell)
    await asyncio.to_thread(setup.sources.check)  # what cannot be asked leaves no run behind
    known = await asyncio.to_thread(store.holds, thread)
    ask = await asyncio.to_thread(reserve, setup, thread, question)
    async with AsyncExitStack() as stack:
        busy = errors.StoreError(f"{thread} belongs to a run that goes on.", "Wait for its end.")
        stack.enter_context(hold_lock(store.folder_of(thread) / "request.json", busy))
        try:
            researcher = await stack.enter_async_context(open_researcher(setup, tell))
        except Exception:
            if not known:
                await asyncio.to_thread(store.discard, thread)
            raise
        stop = stack.enter_context(stopping) if stopping else None
        return await researcher.ask(ask, thread, listener, stop, person, steering)


@asynccontextmanager
async def open_researcher(
    setup: Setup,
    tell: Tell = hush,
    *,
    policy: OpenPolicy | None = None,
    search_tool: SearchTool | None = None,
) -> AsyncIterator[Researcher]:
    """A researcher as the setup wants it; what it opened is closed at the end.

    `policy` gives a model, and `search_tool` is what is searched, that are open already and stay
    so: where several researchers share them.
    """
    setup = await resolve_auto(setup, tell=tell)
    meaning, new = Meaning(), setup.lacks_model()
    async with AsyncExitStack() as stack:
        tool = search_tool
        if tool is None:
            tool = await stack.enter_async_context(setup.open_sources(tell, meaning))
        # An empty folder is told before a gigabyte of weights is fetched for it.
        ready = await stack.enter_async_context(_prepare(tool, tell))
        await asyncio.wait([ready], timeout=SOON)
        if ready.done():
            await ready
        if policy is None:
            model = await stack.enter_async_context(setup.model.open_policy(tell))
        else:
            model = await policy()
        if setup.template.leads and model.chat is None:
            raise SettingsError(
                "Deep research needs a model that exchanges messages.",
                "Name one that a server answers with, or leave --effort out.",
            )
        meaning.embedder = await setup.open_embedder(tell, fetch=new)
        checker: Any = setup.checker
        if hasattr(checker, "open_judge") and setup.verify != "off":
            checker = await stack.enter_async_context(checker.open_judge(tell))
        # Not beside a model that writes: on few cores an index being built would starve it.
        await _read_in_time(ready, setup)
        yield Researcher(
            policy=model,
            decoder=setup.open_decoder(meaning.embedder if can_tell(model) else None),
            decoding=setup.decoding,
            search_tool=tool,
            store=setup.stores.runs,
            template=setup.template,
            choices=setup.choices,
            recaller=setup.open_recaller(model, tell),
            pages=setup.sources.open_pages(setup.stores.data_dir),
            beyond=setup.sources.beyond,
            verifier=AnswerVerifier.choose(model, setup.verify, checker),
        )


async def _read_in_time(ready: asyncio.Task[None], setup: Setup) -> None:
    """Raises SourceError where the sources take longer than a question may."""
    # Whole sources are read once for many questions, each of which has the seconds to itself.
    most = None if setup.sources.whole else setup.budgets.seconds
    try:
        await asyncio.wait_for(ready, most)
    except TimeoutError as cause:
        raise SourceError(
            f"The sources were not read within the run's {most:g} s.",
            "Ask again, as what was read is kept, or with a larger budget or a smaller folder.",
        ) from cause


@asynccontextmanager
async def _prepare(tool: SearchTool, tell: Tell) -> AsyncIterator[asyncio.Task[None]]:
    """Documents are read and indexed while weights are fetched and loaded."""

    async def prepare() -> None:
        for problem in await tool.prepare():
            tell(problem)

    task = asyncio.create_task(prepare())
    try:
        yield task
    finally:
        task.cancel()
        # What it raised is told where it is awaited; here something else already went wrong.
        await asyncio.gather(task, return_exceptions=True)
