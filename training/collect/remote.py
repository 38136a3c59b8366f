"""Groups of rollouts collected by Ray's workers, for a run in this process.

A worker collects the whole group of a question as one process does: by a `Collector` over a folder
of its own, which is removed afterwards. The run's process holds everything of which there is one:
the journal, the bank, the rubrics. It sends a group with what is known of it, its finished calls
included, and gets each further call as soon as it is finished, then the group. So a group whose
worker died, or whose run was ended, goes on from its finished calls in another one.

Workers are Ray actors: on this machine by default, or wherever a Ray cluster has room. A Ray that
is started here listens on loopback alone, keeps its files in a temporary folder of its own, and
admits whoever knows a token that is nowhere on disk; by default, Ray writes one into the home
directory. Settings, with their keys, reach a worker as an argument of a call between two processes:
not in a runtime environment or an actor's constructor, which the cluster stores and shows.
"""

import asyncio
import json
import math
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rubricem.agent.learning.reflect import Reflected
from rubricem.agent.research.recall import Recall
from rubricem.agent.research.researcher import Researcher, request_of
from rubricem.agent.research.setup import Setup, open_researcher
from rubricem.memory.errors import PolicyError, RubricemError, SettingsError, import_extra
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import CallKey, Journal, Reply
from rubricem.memory.schema import GroupJudgement, RubricBuffer, Trajectory, Value
from rubricem.training.collect.collector import Collector, InForce, Judging
from rubricem.training.collect.directory import (
    JOURNAL,
    GroupRecord,
    Manifest,
    RunDirectory,
    thread_of,
)
from rubricem.training.collect.gate import GO_ON, GatedPolicy, Meter, RunGate
from rubricem.training.collect.questions import Question

LIVES = 3
"""workers that one group may lose"""
OBJECT_STORE = 80 * 2**20
"""bytes, little more than Ray's minimum: objects are small and short-lived"""
CONNECT_SECONDS = 10.0
_LOCAL = {
    # Read as it is imported: without clusters, Ray binds all its ports to loopback.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where Ray collects groups."""

    workers: int = 2
    address: str | None = None
    """of a Ray cluster; None: one is started on this machine, for this run"""
    runs: int = 1
    """simultaneous runs with this many workers each, which share their cores"""


@dataclass(frozen=True, slots=True)
class GroupJob:
    """A group to be collected, with what is known of it."""

    manifest: Manifest
    record: GroupRecord
    question: Question
    buffer: RubricBuffer
    recalled: Recall | None
    parts: dict[str, Value]
    """its parts that are finished"""
    replies: dict[CallKey, Reply]
    """its calls that are finished"""


@dataclass(frozen=True, slots=True)
class GroupDone:
    """A group as a worker collected it."""

    trajectories: tuple[Trajectory, ...]
    judged: GroupJudgement | None
    reflected: Reflected | None


Said = tuple[CallKey, Reply] | str | GroupDone | RubricemError
"""what a worker reports: a finished call, a line of progress, and in the end one of the others"""


class _ToldJournal(Journal):
    """A journal whose records are reported, too."""

    report: Callable[[Said], None]

    async def append(self, key: CallKey, reply: Reply) -> None:
        await super().append(key, reply)
        self.report((key, reply))


@dataclass(frozen=True, slots=True)
class _Recalled:
    """A `Recaller` of what the run has looked up."""

    found: Recall

    async def recall(self, question: str) -> Recall:
        return self.found

    async def note_use(self, trajectory: Trajectory) -> None:
        """Recorded by the run, which stores the trajectory."""


class GroupWorker:
    """Collects any number of groups at the same time with one researcher; a Ray actor."""

    async def open(self, setup: Setup, judging: Judging | None) -> tuple[str, str] | RubricemError:
        """Open the models; returns the policy's name and version."""
        self._stack, self._stop = AsyncExitStack(), asyncio.Event()
        self._judging, self._at_once = judging, setup.model.at_once
        try:
            # The bank is the run's; a worker has none.
            opening = open_researcher(replace(setup, memory="off"))
            self._researcher = await self._stack.enter_async_context(opening)
            policy = self._researcher.policy
            if judging is not None:
                model = judging.open_model(setup.model, policy)
                self._model = await self._stack.enter_async_context(model)
        except RubricemError as error:
            return error
        return policy.name, policy.version

    async def stop(self) -> None:
        """Begin no call any more; groups end when those in flight are finished."""
        self._stop.set()

    async def collect(self, job: GroupJob) -> AsyncIterator[Said]:
        said: asyncio.Queue[Said] = asyncio.Queue()

        async def work() -> None:
            try:
                with tempfile.TemporaryDirectory(prefix="rubricem-") as folder:
                    done: Said = await self._collect(job, Path(folder), said.put_nowait)
            except Exception as error:
                done = _known(error)
            said.put_nowait(done)

        working = asyncio.create_task(work())
        try:
            while True:
                yield (one := await said.get())
                if isinstance(one, GroupDone | RubricemError):
                    return
        finally:
            working.cancel()

    async def _collect(
        self, job: GroupJob, folder: Path, report: Callable[[Said], None]
    ) -> GroupDone:
        run, step, name = RunDirectory(folder), job.record.step, job.record.id
        run.begin(job.manifest, [job.question])
        for part, value in job.parts.items():
            run.save_part(step, part, value)
        buffers = BufferStore(folder / "buffers")
        if job.buffer.version:
            buffers.save(job.buffer)
        lines = (json.dumps({"key": k, "reply": r}) + "\n" for k, r in job.replies.items())
        (folder / JOURNAL).write_text("".join(lines), encoding="utf-8")
        with closing(_ToldJournal(folder / JOURNAL)) as journal:
            journal.report = report
            gate = RunGate(journal, Meter(), tell=report)
            own = self._researcher
            researcher = replace(
                own,
                policy=GatedPolicy(own.policy, gate),
                store=run.store,
                journal=journal,
                recaller=_Recalled(job.recalled) if job.recalled else None,
                verifier=None,
            )
            collector = Collector(
                run, researcher, buffers, gate, at_once=self._at_once, tell=report
            )
            if self._judging is not None:
                judges = self._judging.over(self._model, own.policy, gate.with_journal)
                collector.judge, collector.reflecting = judges
            await gate.through(collector.collect_group(job.record, job.question), self._stop)
        threads = (thread_of(name, member) for member in range(job.manifest.group_size))
        return GroupDone(
            tuple(map(run.store.load, threads)),
            run.judgement_of(step, name),
            run.reflection_of(step, name),
        )


@dataclass(eq=False)
class _Seat:
    """A place for a worker, which is replaced if it dies."""

    worker: Any
    hiring: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class RemoteGroups:
    """The `GroupWriter` of a run whose `researcher` stores and recalls, but writes nothing."""

    collector: Collector
    researcher: Researcher
    hire: Callable[[], Awaitable[Any]]
    """a new worker that is open"""
    lost: type[Exception]
    """what is raised of a worker whose process has ended"""
    free: "asyncio.Queue[_Seat]" = field(default_factory=asyncio.Queue)
    """a seat as often as its worker has room for a group"""

    async def collect(self, record: GroupRecord, question: Question) -> Sequence[Trajectory]:
        """The group's rollouts; a group that lost its worker goes on in another one."""
        seat = await self.free.get()
        try:
            for _ in range(LIVES):
                worker = seat.worker
                try:
                    with self.collector.gate.job():
                        job = await self._job(record, question)
                        done = await self._collect(worker, job)
                except self.lost as why:
                    self.collector.tell(f"a worker ended: {_in_a_sentence(why)}")
                    async with seat.hiring:
                        if seat.worker is worker:
                            seat.worker = await self.hire()
                    continue
                if done is None:
                    await asyncio.Event().wait()  # the run is ended
                    continue
                return await self._keep(record, done)
        finally:
            self.free.put_nowait(seat)
        raise PolicyError(
            f"{LIVES} workers ended, one after another, while they wrote {record.id}.",
            f"See that each has enough memory, or use fewer. {GO_ON}",
        )

    async def _job(self, record: GroupRecord, question: Question) -> GroupJob:
        run, recaller = self.collector.run, self.researcher.recaller
        manifest, journal = run.manifest(), self.collector.gate.journal
        kinds: dict[str, type[Value]] = {
            run.criteria_part(record.id): InForce,
            run.judgement_part(record.id): GroupJudgement,
            run.reflection_part(record.id): Reflected,
        }
        parts = {name: run.part(record.step, name, kind) for name, kind in kinds.items()}
        rollouts = (thread_of(record.id, member) for member in range(manifest.group_size))
        calls = (journal.replies_of(name).items() for name in (*rollouts, *kinds))
        return GroupJob(
            manifest,
            record,
            question,
            await asyncio.to_thread(self.collector.buffers.load, question.question),
            await recaller.recall(question.question) if recaller else None,
            {name: part for name, part in parts.items() if part is not None},
            dict(chain.from_iterable(calls)),
        )

    async def _collect(self, worker: Any, job: GroupJob) -> GroupDone | None:
        """None: the run was ended."""
        gate = self.collector.gate

        async def stop_with_run() -> None:
            await gate.ended()
            await worker.stop.remote()

        stopping = asyncio.create_task(stop_with_run())
        try:
            async for reference in worker.collect.options(num_returns="streaming").remote(job):
                said: Said = await reference
                if isinstance(said, str):
                    self.collector.tell(said)
                elif isinstance(said, tuple):
                    await gate.journal.append(*said)
                    gate.meter.hear(said[1])
                elif isinstance(said, GroupDone):
                    return said
                else:
                    gate.end(said)
        finally:
            stopping.cancel()
        return None

    async def _keep(self, record: GroupRecord, done: GroupDone) -> Sequence[Trajectory]:
        run, kept = self.collector.run, []
        ask = replace(self.researcher.template, question=record.question)
        request = request_of(ask, self.researcher.choices)
        for each in done.trajectories:
            await asyncio.to_thread(run.store.create, each.thread, request)
            kept.append(await self.researcher.keep(each))
        for name, part in (
            (run.judgement_part(record.id), done.judged),
            (run.reflection_part(record.id), done.reflected),
        ):
            if part is not None:
                await asyncio.to_thread(run.save_part, record.step, name, part)
            self.collector.gate.journal.forget(name)
        return kept


@asynccontextmanager
async def open_workers(
    options: RayOptions,
    setup: Setup,
    judging: Judging | None,
    collector: Collector,
    researcher: Researcher,
) -> AsyncIterator[RemoteGroups]:
    """Groups by Ray's workers, each with its own clients for the setup.

    `judging`: how they judge and reflect; None: they do not. Raises SettingsError if Ray is missing
    or cannot be reached, and with a limit of cost; and a worker's own error if it cannot start.
    """
    if collector.gate.purse.most is not None:
        raise SettingsError(
            "A limit of cost is kept by one process, and Ray's workers are several.",
            "Leave out ray_workers, or max_run_cost.",
        )
    async with connect(options) as ray:
        actors = ray.remote(GroupWorker).options(num_cpus=1 / options.runs, max_concurrency=1000)
        own, anywhere = (researcher.policy.name, researcher.policy.version), setup.anywhere()

        async def hire() -> Any:
            worker = actors.remote()
            found = await worker.open.remote(anywhere, judging)
            if isinstance(found, RubricemError):
                raise found
            if found != own:
                raise PolicyError(
                    f"A worker would write with {' '.join(found)}, the run with {' '.join(own)}.",
                    "Have the same weights, or the same server, on all machines.",
                )
            return worker

        workers = await asyncio.gather(*(hire() for _ in range(options.workers)))
        seats = [_Seat(worker) for worker in workers]
        groups = RemoteGroups(collector, researcher, hire, ray.exceptions.RayError)
        among = 1 if setup.model.embedded else options.workers
        share = math.ceil(setup.model.at_once / (collector.run.manifest().group_size * among))
        for seat in seats * share:
            groups.free.put_nowait(seat)
        try:
            yield groups
        finally:
            for seat in seats:
                ray.kill(seat.worker)


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
        host, _, port = (options.address or "").removeprefix("ray://").rpartition(":")
        if host and port.isdigit():  # Ray itself would try for a quarter of an hour
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # of a node that is too slow to start Ray raises a bare one
        doing = "started here" if folder else f"reached at {options.address}"
        raise SettingsError(
            f"Ray cannot be {doing}: {_in_a_sentence(error)}.",
            "Collect without ray_workers, or name a running cluster by ray_address.",
        ) from error


def _known(error: BaseException) -> RubricemError:
    """The first error of ours in it; groups of tasks wrap theirs."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, RubricemError):
        return error
    return PolicyError(f"A worker failed: {type(error).__name__}: {error}")


def _in_a_sentence(error: Exception) -> str:
    """The last line of Ray's message: earlier lines have ids; its hints follow a period."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip().split(". ")[0].rstrip(".")
