"""Research from Python: a question in, a report with checked citations out.

    from rubricem import research

    report = await research("What does functools.lru_cache evict?", source="python")
    print(report.markdown)

Keyword arguments are settings; a setting that is not given comes from the environment,
`rubricem.toml` or the defaults, as on the command line, and runs are kept as there. With
`memory="on"` and a model on a server, learning from a run starts by itself once its report is
returned, in the same event loop; `learnt` waits for it.

Importing this module is cheap: the first question imports what is needed to answer it.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from inspect import iscoroutinefunction as _awaits
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack
from weakref import WeakKeyDictionary

from rubricem.agent.transcript.events import Event, Listener, Tell, ignore, tell_to
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import AnswerFormat, Source, Status, Trajectory, Usage

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph
    from pydantic import SecretStr

    from rubricem.agent.learning.lessons import LearningQueue, Lesson
    from rubricem.agent.reports.cited import Citation
    from rubricem.agent.research.setup import Setup
    from rubricem.agent.transcript.question import Person


class Options(TypedDict, total=False):
    """The settings that `research` accepts by name; docs/configuration.md explains each."""

    model: Any  # a name or path, or a `BaseChatModel` of LangChain
    models: str | Sequence[str]
    base_url: str | None
    api_key: "str | SecretStr | None"
    source: Any  # a name or path, a `BaseRetriever`, a `SearchTool`, or several of these
    collections: Mapping[str, Sequence[str]]
    tavily_key: "str | SecretStr | None"
    allow_hosts: str | Sequence[str]
    effort: Literal["quick", "standard", "deep"]
    length: int | None
    tool_calls: int | None
    max_total_tokens: int | None
    max_seconds: float | None
    max_cost: float | None
    answer_format: AnswerFormat | Literal["long", "short", "exact"]
    decoding: Literal["auto", "forced", "free"]
    embedder: str | Path
    verify: Literal["off", "mark", "repair"]
    checker: Any  # a name, or a `Checker` of `agent.reports.rules`
    approve_plan: bool
    clarify: bool
    memory: Literal["on", "off", "read-only"]
    data_dir: str | Path
    weights_dir: str | Path
    context_tokens: int
    max_tokens: int | None
    reasoning_effort: str | None
    extra_body: Mapping[str, Any]
    concurrency: int | None
    prices: Mapping[str, tuple[float, float, float]]
    mcp_servers: Mapping[str, Any]
    seed: int


_QUEUES = WeakKeyDictionary[asyncio.AbstractEventLoop, "LearningQueue"]()
"""for each event loop, the queue of runs that are learnt from in the background"""


@dataclass(frozen=True, slots=True)
class Report:
    """An answered question."""

    text: str
    """the answer with citation marks, as in `It never evicts [1].`; "" if none was written"""
    markdown: str = field(repr=False)
    """the whole report: notes, answer, sources with the cited sentences, figures of the run"""
    citations: "tuple[Citation, ...]"
    """in order of appearance, each with claim, source, quote, verdict and its reason"""
    sources: tuple[Source, ...]
    """the cited sources in the order of their numbers, which start at 1"""
    status: Status
    """FINISHED, or PARTIAL or NO_EVIDENCE with a reason"""
    reason: str
    usage: Usage
    trajectory: Trajectory = field(repr=False)
    """the whole run; pass its `thread` to `research` to continue it"""

    def _repr_markdown_(self) -> str:
        return self.markdown


async def research(
    question: str,
    *,
    thread: str | None = None,
    on_event: Listener = ignore,
    stop: asyncio.Event | None = None,
    person: "Person | None" = None,
    **settings: Unpack[Options],
) -> Report:
    """Answer a question; `settings` are fields of `agent.settings.Settings`.

    `thread` names the run: the same name and question continue a run that was interrupted.
    `on_event` is called in the event loop with each event of `agent.transcript.events`. Setting
    `stop` ends the run soon with a PARTIAL report of what was found so far; cancelling the task
    ends it at once, without a report. `person` decides on the plan, and on whatever else the run
    asks (`agent.transcript.question.Person`). Raises SettingsError if the question or a setting is
    invalid, and another RubricemError, with a remedy, if the run failed or was stopped before it
    began.
    """
    from rubricem.agent.research.researcher import new_thread
    from rubricem.agent.research.setup import ask_once
    from rubricem.agent.transcript.question import check_question

    for name, value, wanted, fits in (
        ("thread", thread, "a string", thread is None or isinstance(thread, str)),
        ("on_event", on_event, "a plain function", callable(on_event) and not _awaits(on_event)),
        ("stop", stop, "an asyncio.Event", stop is None or isinstance(stop, asyncio.Event)),
        ("person", person, "an object with `async def decide(self, asked)`", _decides(person)),
    ):
        if not fits:
            raise SettingsError(f"{name}=... cannot be {value!r}.", f"Pass {wanted}.")
    setup = _setup_of(settings)
    if person is None and (setup.template.approve_plan or setup.template.clarify):
        raise SettingsError(
            "approve_plan and clarify ask a person, and none is given.",
            "Pass person=..., or approve_plan=False and clarify=False.",
        )
    thread = thread or new_thread()
    question, stopping = check_question(question), nullcontext(stop)
    trajectory = await ask_once(setup, question, thread, on_event, stopping, person)
    report = report_of(trajectory)
    if setup.memory == "on":
        await _learn_later(setup, trajectory, tell_to(on_event))
    return report


def _decides(person: object) -> bool:
    return person is None or _awaits(getattr(person, "decide", None))


def _setup_of(settings: Mapping[str, Any]) -> "Setup":
    """What the arguments name, and the objects among them, in force for this task."""
    from rubricem.agent.models.opening import GIVEN, by_name
    from rubricem.agent.settings import load_settings
    from rubricem.agent.settings.door import setup_of, with_default_source

    objects: dict[str, Any] = {}
    GIVEN.set(objects)
    named = {name: by_name(value, objects) for name, value in settings.items()}
    return setup_of(with_default_source(load_settings(named, arguments=True)))


async def research_stream(
    question: str,
    *,
    thread: str | None = None,
    person: "Person | None" = None,
    **settings: Unpack[Options],
) -> "AsyncIterator[Event | Report]":
    """`research`, event by event; the last one is the `Report`. Raises what `research` raises.

    Closing the iterator before its end cancels the run; its thread goes on from there.
    """
    queue = asyncio.Queue[Event | None]()
    work = asyncio.ensure_future(
        research(question, thread=thread, on_event=queue.put_nowait, person=person, **settings)
    )
    work.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        yield await work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@asynccontextmanager
async def research_graph(
    **settings: Unpack[Options],
) -> "AsyncIterator[CompiledStateGraph[Any, Any, Any, Any]]":
    """The LangGraph graph of a run, compiled; what it opened is closed at the end.

    It takes `{"question": ...}` and gives `report` (Markdown) and `status`; its updates have
    `research_plan`, `rubric` and `sources`, and `stream_mode="custom"` gives `{"text": ...}` as
    the model writes and `{"doing": ...}`. It can be a node of another graph with these keys.
    """
    from rubricem.agent.research.setup import open_researcher

    async with open_researcher(_setup_of(settings)) as researcher:
        yield researcher.graph()


async def learnt() -> "tuple[Lesson, ...]":
    """Wait for this event loop's queue of runs to learn from; returns the latest twenty lessons.

    A run that is still in the queue when the event loop ends is left to `rubricem learn`.
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
    """`research` for code without an event loop; one ^C ends it with a PARTIAL report.

    A second one raises KeyboardInterrupt. If the run is to be learnt from at once, this returns
    after that; ^C then ends the learning alone. Raises SettingsError if an event loop is already
    running.
    """
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        message = "research_sync cannot be used where an event loop runs."
        raise SettingsError(message, "Use: await research(...)")

    async def ask() -> Report:
        task, stop = asyncio.current_task(), asyncio.Event()
        assert task is not None
        with suppress(ValueError, RuntimeError):  # of the main thread alone
            asyncio.get_running_loop().add_signal_handler(
                signal.SIGINT, lambda: task.cancel() if stop.is_set() else stop.set()
            )
        report = await research(question, thread=thread, on_event=on_event, stop=stop, **settings)
        stop.set()
        with suppress(asyncio.CancelledError):  # the run stays queued for `rubricem learn`
            await learnt()
        return report

    try:
        return asyncio.run(ask())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _learn_later(setup: "Setup", trajectory: Trajectory, tell: Tell) -> None:
    """Learn from the run in the background if possible, else leave it to `rubricem learn`."""
    from rubricem.agent.learning.lessons import LearningQueue, enter, learn, open_learner

    async def lesson() -> "Lesson":
        async with open_learner(setup, tell) as learner:
            came = await learn(learner, trajectory.thread)
        tell(came.said)
        return came

    try:
        why = await asyncio.to_thread(enter, setup.stores.runs, trajectory)
        if not why and not setup.reflecting.embedded:
            queue = _QUEUES.setdefault(asyncio.get_running_loop(), LearningQueue())
            queue.put(trajectory.thread, lesson)
            return
    except RubricemError as error:
        why = f"nothing was learnt from this run: {error.told()}"
    tell(why or "this run waits to be learnt from: rubricem learn")


def report_of(trajectory: Trajectory) -> Report:
    """The report of a run that ended. Raises RubricemError if the run failed."""
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
