"""Research from Python: a question in, a report with checked citations out.

    from rubricem import research

    report = await research("What does functools.lru_cache evict?", source="python")
    print(report.markdown)

Options are settings by their names; those not given come from the environment, `rubricem.toml`
and the defaults, as they do on the command line. Runs are kept in the data directory like those
of the command line: `rubricem runs` lists them, `rubricem learn` learns from them. With
`memory="on"` and a server's model that begins by itself once the report is returned, in the
event loop that asked; `learnt` waits for it.

What answers a question is imported by the first one, so that importing this is cheap.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack
from weakref import WeakKeyDictionary

from rubricem.agent.transcript.events import Listener, Tell, ignore, tell_to
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import AnswerFormat, Source, Status, Trajectory, Usage

if TYPE_CHECKING:
    from pydantic import SecretStr

    from rubricem.agent.learning.lessons import LearningQueue, Lesson
    from rubricem.agent.reports.cited import Citation
    from rubricem.agent.research.setup import Setup


class Options(TypedDict, total=False):
    """The settings by their names, as `research` takes them; docs/configuration.md has each."""

    model: str | Path | None
    models: str | Sequence[str]
    base_url: str | None
    more_servers: str | Sequence[str]
    api_key: "str | SecretStr | None"
    dialect: Literal["openai", "auto", "vllm", "sglang", "llama.cpp"] | None
    source: str | Path | Sequence[str | Path]
    scholar_key: "str | SecretStr | None"
    tavily_key: "str | SecretStr | None"
    exa_key: "str | SecretStr | None"
    brave_key: "str | SecretStr | None"
    allow_hosts: str | Sequence[str]
    tool_calls: int
    review_returns: int
    max_total_tokens: int
    max_seconds: float
    max_cost: float
    answer_format: AnswerFormat | Literal["long", "short", "exact"]
    decoding: Literal["auto", "forced", "free"]
    retrieval: Literal["auto", "lexical", "rerank", "hybrid"]
    bank_server: str | None
    embedder: str | Path
    verify: Literal["off", "mark", "repair"]
    checker: Literal["auto", "lexical"]
    approve_plan: bool
    clarify: bool
    checkpoints: "str | SecretStr | None"
    memory: Literal["on", "off", "read-only"]
    memory_items: Literal["both", "reflections", "episodes"]
    data_dir: str | Path
    weights_dir: str | Path
    threads: int | None
    context_tokens: int
    slots: int
    temperature: float | None
    max_tokens: int
    least_reflection_score: float | None
    reflect_model: str | Path | None
    reflection_tokens: int
    similarity_floor: float | None
    attempts: int
    system_prompt: Literal["full", "short"]
    passages: int | None
    passage_words: int | None
    timeout: float
    concurrency: int
    prices: Mapping[str, tuple[float, float, float]]
    mcp_servers: Mapping[str, Any]
    tracing: bool
    seed: int


_QUEUES = WeakKeyDictionary[asyncio.AbstractEventLoop, "LearningQueue"]()
"""what is learnt from behind the reports, on each event loop"""


@dataclass(frozen=True, slots=True)
class Report:
    """An answered question."""

    text: str
    """the answer with its marks, as in `It never evicts [1].`; "" where none was written"""
    markdown: str = field(repr=False)
    """the whole report: notes, answer, sources with the sentences cited, numbers of the run"""
    citations: "tuple[Citation, ...]"
    """in order of appearance: claim, source, quote, verdict and why"""
    sources: tuple[Source, ...]
    """those that the answer cites, in the order of their numbers from 1"""
    status: Status
    """FINISHED, or PARTIAL or NO_EVIDENCE with a reason"""
    reason: str
    usage: Usage
    trajectory: Trajectory = field(repr=False)
    """the whole run; its `thread` is the name to go on with"""

    def _repr_markdown_(self) -> str:
        """What a notebook shows of it."""
        return self.markdown


async def research(
    question: str,
    *,
    thread: str | None = None,
    on_event: Listener = ignore,
    stop: asyncio.Event | None = None,
    **settings: Unpack[Options],
) -> Report:
    """Answer a question; `settings` are those of `agent.settings.Settings`, by name.

    `thread` names the run: the same name and question go on with a run that was broken off.
    `on_event` is told the values of `agent.transcript.events` as they happen, in the event loop.
    `stop`, once set, ends the run soon with a PARTIAL report of what there is; cancelling the task
    ends it at once, without one. Raises SettingsError for what cannot be asked, and another
    RubricemError, with a remedy, where the run failed, or was stopped before it had begun.
    """
    from rubricem.agent.research.researcher import new_thread
    from rubricem.agent.research.setup import answer
    from rubricem.agent.settings import load_settings
    from rubricem.agent.settings.door import setup_of, with_default_source
    from rubricem.agent.transcript.question import checked

    setup = setup_of(with_default_source(load_settings(settings)))
    thread = thread or new_thread()
    begun = asyncio.Event()

    @contextmanager
    def stopping() -> Iterator[asyncio.Event | None]:
        begun.set()
        yield stop

    asked = answer(setup, checked(question), thread, on_event, stopping())
    trajectory = await asked if stop is None else await _unless_stopped(asked, stop, begun)
    report = report_of(trajectory)
    if setup.memory == "on":
        await _learn_later(setup, trajectory, tell_to(on_event))
    return report


class _NotBegun(RubricemError):
    """A person wanted the end of a run for which weights or documents were still being read."""


async def _unless_stopped(
    asked: Coroutine[Any, Any, Trajectory], stop: asyncio.Event, begun: asyncio.Event
) -> Trajectory:
    """The run that is asked for; `stop` is heeded here until it has `begun`, and then there."""
    work, stopped = asyncio.ensure_future(asked), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not begun.is_set():
            raise _NotBegun("The run was stopped before it had begun.", "Ask again.")
        return await work
    finally:
        work.cancel()
        stopped.cancel()
        await asyncio.gather(work, stopped, return_exceptions=True)


async def learnt() -> "tuple[Lesson, ...]":
    """Wait until the runs of this event loop that are to be learnt from were; what came of the
    latest twenty.

    A run that is still waiting when the event loop ends is left to `rubricem learn`.
    """
    queue = _QUEUES.get(asyncio.get_running_loop())
    if queue is None:
        return ()
    await queue.idle()
    return tuple(queue.lessons)


def research_sync(
    question: str,
    *,
    thread: str | None = None,
    on_event: Listener = ignore,
    **settings: Unpack[Options],
) -> Report:
    """`research` for code without an event loop; ^C once gives a PARTIAL report.

    Before the run has begun, as while weights are fetched, ^C is a KeyboardInterrupt. A run that is
    to be learnt from at once was learnt from when this returns; ^C ends only that.
    Raises SettingsError where an event loop runs already.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asked = _until_interrupted(question, thread=thread, on_event=on_event, **settings)
        return asyncio.run(asked)
    raise SettingsError(
        "research_sync cannot be used where an event loop runs.",
        "Use: await research(...)",
    )


async def _until_interrupted(question: str, **options: Any) -> Report:
    """asyncio.run cancels its task at the first ^C, and raises KeyboardInterrupt at the second."""
    stop = asyncio.Event()
    work = asyncio.ensure_future(research(question, stop=stop, **options))
    try:
        report = await asyncio.shield(work)
    except asyncio.CancelledError as interrupted:
        stop.set()
        try:
            return await work
        except _NotBegun:
            raise interrupted from None  # which asyncio.run makes a KeyboardInterrupt of
    # Interrupted now, the answer stands and the run waits.
    with suppress(asyncio.CancelledError):
        await learnt()
    return report


async def _learn_later(setup: "Setup", trajectory: Trajectory, tell: Tell) -> None:
    """Have the run learnt from behind its report, or leave it to whoever learns later."""
    from rubricem.agent.learning.lessons import LearningQueue, enter, learn, open_learner

    said = "this run waits to be learnt from: rubricem learn"
    try:
        why = await asyncio.to_thread(enter, setup.stores.runs, trajectory)
    except RubricemError as error:
        why = f"nothing was learnt from this run: {error}"

    async def lesson() -> "Lesson":
        async with open_learner(setup, tell) as learner:
            came = await learn(learner, trajectory.thread)
        tell(came.said)
        return came

    if not why and not setup.reflecting.embedded:
        queue = _QUEUES.setdefault(asyncio.get_running_loop(), LearningQueue())
        if queue.put(trajectory.thread, lesson):
            return
    tell(why or said)


def report_of(trajectory: Trajectory) -> Report:
    """The report of a run that ended. Raises RubricemError for one that failed."""
    from rubricem.agent.reports.cited import cited_answer
    from rubricem.agent.reports.report import markdown

    if trajectory.status is Status.FAILED:
        raise RubricemError(
            trajectory.reason, f"Go on from where it ended: thread={trajectory.thread!r}"
        )
    answer = cited_answer(trajectory)
    return Report(
        text=answer.text(),
        markdown=markdown(trajectory),
        citations=answer.citations,
        sources=answer.sources,
        status=trajectory.status,
        reason=trajectory.reason,
        usage=trajectory.usage,
        trajectory=trajectory,
    )
