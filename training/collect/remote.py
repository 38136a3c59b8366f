"""Rollouts written, judged and reflected on by workers in other processes, for a run in this one.

The run's process holds everything of which there is one: the journal, the gate, the bank, the
rubrics. A job elsewhere (a rollout, a group to be judged, a run to be reflected on) asks it for
each of these and waits, one request at a time, so that both follow the same path in two processes.
What it has finished is in the run's journal before it continues; no file is shared, and if a worker
dies only the calls in flight are made again, by another one. A worker has a limited number of jobs
at a time, and the others wait in the run's process.

Workers are Ray actors: on this machine by default, or wherever a Ray cluster has room. A Ray that
is started here listens on loopback alone, keeps its files in a temporary folder of its own, and
admits whoever knows a token that is nowhere on disk; by default, Ray writes one into the home
directory. Settings, with their keys, reach a worker as an argument of a call between two processes:
not in a runtime environment or an actor's constructor, which the cluster stores and shows.

Above 600 lines, since the two ends of the connection form one protocol.
"""

import asyncio
import logging
import math
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from rubricem.agent.learning.reflect import Reflected, Reflector
from rubricem.agent.models.policy import JournaledCalls, call_scope, journal_calls, scope_name
from rubricem.agent.research.recall import Recall
from rubricem.agent.research.researcher import Researcher, request_of
from rubricem.agent.research.setup import Setup, open_researcher
from rubricem.agent.transcript.question import Ask
from rubricem.memory.errors import (
    PolicyError,
    RubricemError,
    SettingsError,
    StoreError,
    import_extra,
)
from rubricem.memory.runs import CallKey, Journal, Reply
from rubricem.memory.schema import (
    Completion,
    GroupJudge,
    GroupJudgement,
    Judgement,
    RubricBuffer,
    Trajectory,
    TrajectoryGroup,
    Usage,
)
from rubricem.training.collect.collector import Judging, Keeping, Reflecting
from rubricem.training.collect.gate import GO_ON, GatedPolicy, RunGate, usage_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Begin:
    """A rollout, with its calls that are finished already."""

    thread: str
    ask: Ask
    replies: Mapping[CallKey, Reply]


@dataclass(frozen=True, slots=True)
class BeginJudging:
    """A group to be judged, whose calls are named by `thread`."""

    thread: str
    group: TrajectoryGroup
    buffer: RubricBuffer
    step: int
    replies: Mapping[CallKey, Reply]


@dataclass(frozen=True, slots=True)
class BeginReflecting:
    """A trajectory to be reflected on."""

    thread: str
    trajectory: Trajectory
    judgement: Judgement | None
    seed: int
    replies: Mapping[CallKey, Reply]


Work = Begin | BeginJudging | BeginReflecting
Outcome = Trajectory | GroupJudgement | Reflected


@dataclass(frozen=True, slots=True)
class MayCall:
    """Answered when a call of this server may begin, or with the error for which it failed."""

    server: str


@dataclass(frozen=True, slots=True)
class Called:
    """The allowed call has succeeded."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class CallFailed:
    """It has failed; answered when it may be retried, or with the error if it may not."""

    error: RubricemError


@dataclass(frozen=True, slots=True)
class Keep:
    """Answered when the reply is on disk."""

    key: CallKey
    reply: Reply


@dataclass(frozen=True, slots=True)
class Recalls:
    """Answered by the `Recall` for a question."""

    question: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The job has ended: with its result, or with an error that fails the whole run."""

    outcome: Outcome | RubricemError


Asked = MayCall | Called | CallFailed | Keep | Recalls
Said = Asked | Ended


class Line:
    def __init__(self) -> None:
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._free = asyncio.Lock()
        self.calling = asyncio.Lock()
        """held during a call, from asking for it to its end: the run's side sees one at a time"""

    async def ask(self, question: Asked) -> Any:
        """The run's answer; an error is raised."""
        async with self._free:
            self._asked.put_nowait(question)
            answer = await self._answers.get()
        if isinstance(answer, RubricemError):
            raise answer
        return answer

    def answer(self, answer: Any) -> None:
        self._answers.put_nowait(answer)

    async def receive(self) -> Asked:
        return await self._asked.get()


line: ContextVar[Line] = ContextVar("line")
"""the connection of the current job"""


class LineGate:
    """A `CallGate` whose calls are made here, when the run allows them to begin."""

    async def call(
        self, server: str, make: Callable[[], Awaitable[T]], *, of_rollout: bool = False
    ) -> T:
        async with line.get().calling:
            await line.get().ask(MayCall(server))
            while True:
                try:
                    made = await make()
                except RubricemError as error:
                    await line.get().ask(CallFailed(error))
                else:
                    told: Any = made
                    usage = told.usage if isinstance(told, Completion) else usage_of(told)
                    await line.get().ask(Called(usage))
                    return made


class LineJournal:
    """A `CallJournal` for jobs whose journal is the run's: nothing is written here."""

    def __init__(self) -> None:
        self._replies: dict[str, dict[CallKey, Reply]] = {}

    def hold(self, thread: str, replies: Mapping[CallKey, Reply]) -> None:
        self._replies[thread] = dict(replies)

    def find(self, key: CallKey) -> Reply | None:
        return self._replies[key.thread].get(key)

    async def append(self, key: CallKey, reply: Reply) -> None:
        await line.get().ask(Keep(key, reply))
        self._replies[key.thread][key] = reply

    def forget(self, thread: str) -> None:
        self._replies.pop(thread, None)

    def close(self) -> None:
        """Nothing is open here."""


class LineRecaller:
    """A `Recaller` over the run's bank."""

    async def recall(self, question: str) -> Recall:
        found: Recall = await line.get().ask(Recalls(question))
        return found

    async def note_use(self, trajectory: Trajectory) -> None:
        """Recorded by the run, which stores the trajectory."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The `Runs` of rollouts that the run stores: nothing is written here, nothing known."""

    calls: LineJournal

    def create(self, thread: str, request: Mapping[str, Any]) -> None:
        """The run has done so."""

    def journal(self, thread: str) -> LineJournal:
        return self.calls

    def has_ended(self, thread: str) -> bool:
        return False

    def save(self, trajectory: Trajectory) -> None:
        """The run does so when it receives the end."""

    def request(self, thread: str) -> dict[str, Any]:
        raise StoreError(f"The rollout {thread} is kept by its run.")

    def load(self, thread: str) -> Trajectory:
        raise StoreError(f"The rollout {thread} is kept by its run.")


class WorkerLost(Exception):
    """A worker's process has ended, or cannot be reached; says why."""


class Worker(Protocol):
    """A `RolloutWorker` in another process. Its calls raise WorkerLost."""

    async def begin(self, work: Work) -> Said: ...
    async def go_on(self, thread: str, answer: Any) -> Said: ...


Hire = Callable[[], Awaitable[Worker]]
"""a new worker that is ready; raises RubricemError or WorkerLost"""


class WorkerPool:
    """A number of workers, started at the same time; jobs begin as soon as one is ready."""

    def __init__(self, hire: Hire, size: int, share: int, tell: Callable[[str], None]) -> None:
        """`share`: most simultaneous jobs of one worker."""
        self._hire = hire
        self._share = share
        self._tell = tell
        self._load: dict[Worker, int] = {}
        """number of jobs of each worker that is ready"""
        self._numbers: dict[Worker, int] = {}
        self._hiring: dict[int, asyncio.Task[None]] = {}
        """by the number of the worker that is starting"""
        self._fault: RubricemError | None = None
        self._changed = asyncio.Event()
        for number in range(1, size + 1):
            self._replace(number)

    async def ready(self) -> None:
        """Return once a worker is ready; raises RubricemError if none ever will be."""
        while not self._load:
            if self._fault is not None and not self._hiring:
                raise self._fault
            await self._change()

    async def take(self) -> Worker:
        """The least busy worker, to be given back; raises as `ready` does."""
        while True:
            await self.ready()
            worker = min(self._load, key=self._load.__getitem__)
            if self._load[worker] < self._share:
                self._load[worker] += 1
                return worker
            await self._change()

    def give_back(self, worker: Worker) -> None:
        if worker in self._load:
            self._load[worker] -= 1
            self._changed.set()

    def replace_lost(self, worker: Worker, why: WorkerLost) -> None:
        """Replace a worker that died; every job that lost it may report it."""
        if self._load.pop(worker, None) is None:
            return
        number = self._numbers.pop(worker)
        self._tell(
            f"worker {number} ended: {why}. Another takes its place, "
            "and its work goes on from the finished calls"
        )
        self._replace(number)

    @property
    def workers(self) -> list[Worker]:
        """The workers that are ready."""
        return list(self._load)

    async def close(self) -> None:
        coming = list(self._hiring.values())
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _replace(self, number: int) -> None:
        self._hiring[number] = asyncio.create_task(self._hire_worker(number))

    async def _hire_worker(self, number: int) -> None:
        try:
            worker = await self._hire()
            self._load[worker], self._numbers[worker] = 0, number
        except WorkerLost as lost:
            self._note_missing(number, PolicyError(f"it ended while it began: {lost}"))
        except RubricemError as error:
            self._note_missing(number, error)
        except Exception as error:
            # A fault of ours, too, is told: nobody else waits for this task.
            self._note_missing(number, PolicyError(f"{type(error).__name__}: {error}"))
        finally:
            del self._hiring[number]
            self._changed.set()

    def _note_missing(self, number: int, why: RubricemError) -> None:
        """Report a worker that cannot start; the others continue."""
        self._tell(f"worker {number} cannot begin: {why}")
        remedy = why.remedy or "Fix that and run the same command again."
        self._fault = type(why)(f"No worker could begin. The last: {why}", remedy)


LIVES = 3
"""workers that one job may lose"""


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where Ray runs the rollouts."""

    workers: int = 2
    address: str | None = None
    """of a Ray cluster; None: one is started on this machine, for this run"""
    runs: int = 1
    """simultaneous runs with this many workers each, which share their cores"""


@dataclass
class RemoteRollouts:
    """`Rollouts` by workers; `researcher` writes none, but stores and recalls.

    If workers judge as well, it is the `GroupJudge`, and its `reflect` is `Reflecting`.
    """

    researcher: Researcher
    journal: Journal
    gate: RunGate
    pool: WorkerPool
    judging: Judging | None = None
    """how the workers judge; None: they do not"""

    @property
    def name(self) -> str:
        return self.judging.judge if self.judging else ""

    def judges(self) -> tuple[GroupJudge, Reflecting | None]:
        """Itself, and what reflects, if anything is to."""
        return self, self.reflect if self.judging and self.judging.reflections else None

    @property
    def template(self) -> Ask:
        return self.researcher.template

    async def ask(self, ask: Ask, thread: str) -> Trajectory:
        request = request_of(ask, self.researcher.choices)
        await asyncio.to_thread(self.researcher.store.create, thread, request)
        written = await self._do(lambda: Begin(thread, ask, self._finished_calls(thread, ask)))
        assert isinstance(written, Trajectory)
        return await self.researcher.keep(written)

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        part, held = scope_name(), self.journal.replies_of
        judged = await self._do(lambda: BeginJudging(part, group, buffer, step, held(part)))
        assert isinstance(judged, GroupJudgement)
        return judged

    async def reflect(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected:
        part, held = scope_name(), self.journal.replies_of
        written = await self._do(
            lambda: BeginReflecting(part, trajectory, judgement, seed, held(part))
        )
        assert isinstance(written, Reflected)
        return written

    async def _do(self, begin: Callable[[], Work]) -> Outcome:
        """The result of a job, which is restarted from its finished calls if its worker is lost."""
        for _ in range(LIVES):
            work = begin()
            with self.gate.park() if isinstance(work, Begin) else nullcontext():
                worker = await self.pool.take()
            try:
                said = await worker.begin(work)
                while not isinstance(said, Ended):
                    answer = await self._answer(said, worker, work)
                    said = await worker.go_on(work.thread, answer)
            except WorkerLost as lost:
                self.pool.replace_lost(worker, lost)
            else:
                if isinstance(said.outcome, RubricemError):
                    raise said.outcome
                return said.outcome
            finally:
                self.pool.give_back(worker)
        raise PolicyError(
            f"{LIVES} workers ended, one after another, while they wrote {work.thread}.",
            f"See that each has enough memory, or use fewer. {GO_ON}",
        )

    def _finished_calls(self, thread: str, ask: Ask) -> dict[CallKey, Reply]:
        """The finished calls of a rollout."""
        return dict(self.journal.replies_of(thread))

    async def _answer(
        self, asked: Asked, worker: Worker, work: Work
    ) -> Recall | RubricemError | None:
        recaller = self.researcher.recaller
        try:
            match asked:
                case MayCall(server):

                    async def make_call() -> Mapping[str, Any]:
                        said = await worker.go_on(work.thread, None)
                        while isinstance(said, Keep):  # a judge's reply, before its call is over
                            kept = await self._answer(said, worker, work)
                            said = await worker.go_on(work.thread, kept)
                        if isinstance(said, CallFailed):
                            raise said.error
                        assert isinstance(said, Called), said
                        return {"usage": said.usage}

                    await self.gate.call(server, make_call, of_rollout=isinstance(work, Begin))
                case Keep(key, reply):
                    await self.journal.append(key, reply)
                case Recalls(question):
                    return await recaller.recall(question) if recaller else Recall()
        except RubricemError as error:
            return error
        return None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        options: RayOptions,
        setup: Setup,
        researcher: Researcher,
        gate: RunGate,
        judging: Judging | None = None,
        judged_at_once: int = 0,
    ) -> AsyncIterator["RemoteRollouts"]:
        """Rollouts by Ray's workers, each with its own clients for the setup.

        `judging`: how they judge and reflect, so many groups at the same time; None: they do not.
        Raises SettingsError if Ray is missing or cannot be reached, and a worker's own error if
        none can start.
        """
        async with connect(options) as ray:
            cores = 1 / options.runs
            actors = ray.remote(RolloutActor).options(num_cpus=cores, max_concurrency=10_000)
            own = researcher.policy.name, researcher.policy.version
            anywhere = setup.anywhere()

            async def hire() -> Worker:
                """An idle actor, or a new one wherever there is room, opened."""
                while resting := next((one for one in _RESTING if one[0] == cores), None):
                    _RESTING.remove(resting)
                    with suppress(WorkerLost):  # it ended while it rested
                        return await open_worker(_RayWorker(ray, resting[1]))
                return await open_worker(_RayWorker(ray, actors.remote()))

            async def open_worker(worker: _RayWorker) -> Worker:
                if (found := await worker.open(anywhere, judging)) != own:
                    raise PolicyError(
                        f"it would write with {_policy_name(found)}, "
                        f"and the run is of {_policy_name(own)}",
                        "Have the same weights, or the same server, on all machines.",
                    )
                return worker

            model = setup.model
            share = model.at_once
            if not model.embedded:
                share = math.ceil((model.at_once + judged_at_once) / options.workers)
            pool = WorkerPool(hire, options.workers, share, gate.tell)
            try:
                # What no worker can do is told before the run begins.
                await pool.ready()
                yield cls(researcher, gate.journal, gate, pool, judging)
            finally:
                await pool.close()
                rested = await asyncio.gather(*(_rest(worker) for worker in pool.workers))
                _RESTING.extend((cores, actor) for actor in rested if actor is not None)


Judges = Callable[[Keeping], tuple[GroupJudge, Reflector | None]]


class RolloutWorker:
    """Does any number of jobs at the same time with one researcher.

    `begin` and `go_on` return the job's next request; `go_on` brings the answer to the previous
    one. Both raise errors other than the run's own values.
    """

    def __init__(
        self, researcher: Researcher, *, recalls: bool, judges: Judges | None = None
    ) -> None:
        """`recalls`: the run has a bank. `judges`: None if it does not judge."""
        self._journal = LineJournal()
        gate = LineGate()

        def keep_calls(model: Any) -> Any:
            calls = JournaledCalls(self._journal, partial(gate.call, model.name))
            return journal_calls(model, calls)

        made: tuple[GroupJudge | None, Reflector | None] = (None, None)
        self._judge, self._reflector = judges(keep_calls) if judges else made
        self._researcher = replace(
            researcher,
            policy=GatedPolicy(researcher.policy, gate),
            journal=self._journal,
            store=Elsewhere(self._journal),
            recaller=LineRecaller() if recalls else None,
            verifier=None,
        )
        self._begun: dict[str, tuple[Line, asyncio.Task[Ended]]] = {}

    async def begin(self, work: Work) -> Said:
        self._journal.hold(work.thread, work.replies)
        opened = Line()

        async def write() -> Ended:
            line.set(opened)
            try:
                return Ended(await self._do(work))
            except RubricemError as error:
                return Ended(error)

        self._begun[work.thread] = opened, asyncio.create_task(write())
        return await self._next(work.thread)

    async def go_on(self, thread: str, answer: Any) -> Said:
        self._begun[thread][0].answer(answer)
        return await self._next(thread)

    async def _do(self, work: Work) -> Outcome:
        if isinstance(work, Begin):
            return await self._researcher.ask(work.ask, work.thread)
        with call_scope(work.thread):
            if isinstance(work, BeginJudging):
                assert self._judge is not None
                return await self._judge.judge(work.group, work.buffer, work.step)
            assert self._reflector is not None
            return await self._reflector(work.trajectory, work.judgement, work.seed)

    async def end(self) -> None:
        """Abandon all jobs: nobody waits for them any more."""
        tasks = [task for _, task in self._begun.values()]
        self._begun.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self, thread: str) -> Said:
        opened, written = self._begun[thread]
        asked = asyncio.ensure_future(opened.receive())
        await asyncio.wait({asked, written}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        asked.cancel()
        self._journal.forget(thread)
        self._begun.pop(thread, None)  # none where all was left
        return written.result()


OBJECT_STORE = 80 * 2**20
"""bytes, little more than Ray's minimum: objects are small and short-lived"""
CONNECT_SECONDS = 10.0
_LOCAL = {
    # Read as it is imported: without clusters, Ray binds all its ports to loopback.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class RolloutActor:
    async def open(self, setup: Setup, judging: Judging | None) -> tuple[str, str] | RubricemError:
        """Name and version of the policy that it writes with."""
        self._opened = AsyncExitStack()
        # The bank is the run's; a worker has none.
        own, judges = replace(setup, memory="off"), None
        try:
            researcher = await self._opened.enter_async_context(open_researcher(own))
            policy = researcher.policy
            if judging is not None:
                opening = judging.open_model(setup.model, policy)
                model = await self._opened.enter_async_context(opening)
                judges = partial(judging.over, model, policy)
        except RubricemError as error:
            return error
        self._worker = RolloutWorker(researcher, recalls=setup.memory != "off", judges=judges)
        return policy.name, policy.version

    async def close(self) -> None:
        """Close everything; another run may open it."""
        await self._worker.end()
        await self._opened.aclose()

    async def begin(self, work: Work) -> Said:
        return await self._worker.begin(work)

    async def go_on(self, thread: str, answer: Any) -> Said:
        return await self._worker.go_on(thread, answer)


_RESTING: list[tuple[float, Any]] = []
"""idle actors of ended runs, each by its share of a core: a process takes seconds to start"""
REST_SECONDS = 10.0
"""in which a worker has to close its run"""


async def _rest(worker: Worker) -> Any:
    """The actor of a worker that has closed its run; None if it cannot be reused."""
    assert isinstance(worker, _RayWorker)
    try:
        await asyncio.wait_for(worker.close(), REST_SECONDS)
    except Exception as error:  # of Ray, of the worker's own code, or of a connection
        # A new one is begun in its place, so no run ends by it.
        logging.getLogger(__name__).warning("A worker of Ray is not kept: %r", error)
        return None
    return worker.actor


class _RayWorker:
    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self.actor = actor

    async def begin(self, work: Work) -> Said:
        said: Said = await self.wait_for(self.actor.begin.remote(work))
        return said

    async def go_on(self, thread: str, answer: Any) -> Said:
        said: Said = await self.wait_for(self.actor.go_on.remote(thread, answer))
        return said

    async def open(self, setup: Setup, judging: Judging | None) -> tuple[str, str]:
        opening = self.actor.open.remote(setup, judging)
        opened: tuple[str, str] | RubricemError = await self.wait_for(opening)
        if isinstance(opened, RubricemError):
            raise opened
        return opened

    async def close(self) -> None:
        await self.wait_for(self.actor.close.remote())

    async def wait_for(self, reply: Any) -> Any:
        told = self._ray.exceptions
        try:
            return await reply
        except told.OutOfMemoryError as error:  # Ray itself ended it; no kind of RayActorError
            raise WorkerLost("its machine had no memory left") from error
        except (told.RayActorError, told.NodeDiedError, told.WorkerCrashedError) as error:
            # One that cannot be reached may still live, and would write on for nobody.
            self._ray.kill(self.actor)
            raise WorkerLost(_in_a_sentence(error)) from error


@asynccontextmanager
async def connect(options: RayOptions) -> AsyncIterator[Any]:
    """Ray, connected to a cluster; a cluster started here ends here.

    Nested calls share the connection: for several runs at the same time.
    """
    if (begun := sys.modules.get("ray")) is not None and begun.is_initialized():
        yield begun
        return
    folder = None
    if options.address is None:
        for name, value in (*_LOCAL.items(), ("RAY_AUTH_TOKEN", secrets.token_hex(32))):
            os.environ.setdefault(name, value)
        folder = tempfile.mkdtemp(prefix="ray-")
    try:
        ray = import_extra("ray", "ray")
        await asyncio.to_thread(_init, ray, options, folder)
        try:
            yield ray
        finally:
            _RESTING.clear()
            await asyncio.to_thread(ray.shutdown)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _init(ray: Any, options: RayOptions, folder: str | None) -> None:
    where: dict[str, Any] = {"address": options.address}
    if folder:
        where = {
            "address": "local",
            "num_cpus": options.workers,
            "num_gpus": 0,
            "object_store_memory": OBJECT_STORE,
            "include_dashboard": False,
            "_temp_dir": folder,
        }
    try:
        if options.address:
            _answers(options.address)
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # of a node that is too slow to start Ray raises a bare one
        doing = "started here" if folder else f"reached at {options.address}"
        raise SettingsError(
            f"Ray cannot be {doing}: {_in_a_sentence(error)}.",
            "Collect without --engine ray, or name a running cluster by --ray-address.",
        ) from error


def _answers(address: str) -> None:
    """Raise OSError if nobody listens; Ray itself would try for a quarter of an hour."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()


def _policy_name(policy: tuple[str, str]) -> str:
    return " ".join(filter(None, policy))


def _in_a_sentence(error: Exception) -> str:
    """The last line of Ray's message: earlier lines have ids; its hints follow a period."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip().split(". ")[0].rstrip(".")
