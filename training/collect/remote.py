"""Groups of rollouts collected by Ray, for a run in this process.

A remote function collects the group of a question by a `Collector` over a temporary folder. The
run's process holds journal, bank and rubrics: it sends what is known of a group, and gets each
further call as soon as it is finished, so that a group whose process died goes on elsewhere.

A Ray that is started here listens on loopback alone, and admits whoever knows a token that is
nowhere on disk. Settings, with their keys, are an argument of a call between two processes: not in
a runtime environment, which the cluster stores and shows.
"""

import asyncio
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.agent.research.recall import Recall
from rubricem.agent.research.researcher import Researcher, request_of
from rubricem.agent.research.setup import Setup, open_researcher
from rubricem.memory.errors import PolicyError, RubricemError, SettingsError, import_extra
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import CallKey, Journal, Reply
from rubricem.memory.schema import RubricBuffer, Trajectory
from rubricem.training.collect.collector import Collector, Judging
from rubricem.training.collect.directory import (
    JOURNAL,
    GroupRecord,
    Manifest,
    RunDirectory,
    thread_of,
)
from rubricem.training.collect.gate import GO_ON, GatedPolicy, Meter, RunGate
from rubricem.training.collect.questions import Question
from rubricem.training.collect.scaffolding import Scaffold, ask_under

LIVES = 3
_LOCAL = {
    # Read as it is imported: without clusters, Ray binds all its ports to loopback.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True, slots=True)
class GroupJob:
    setup: Setup
    judging: Judging | None
    manifest: Manifest
    record: GroupRecord
    question: Question
    buffer: RubricBuffer
    recalled: Recall | None
    parts: Mapping[str, bytes]
    """files that are on disk of the group, by their names in its step"""
    replies: Mapping[CallKey, Reply]
    judged: tuple[Trajectory, ...] = ()
    """the group's rollouts, failed ones too, where these are judged and so are not made again"""


@dataclass(frozen=True, slots=True)
class GroupDone:
    trajectories: tuple[Trajectory, ...]
    parts: Mapping[str, bytes]


Said = tuple[CallKey, Reply] | str | GroupDone | RubricemError
"""what is reported: a finished call, a line of progress, and in the end one of the others"""
Report = Callable[[Said], None]


class _ToldJournal(Journal):
    report: Report

    async def append(self, key: CallKey, reply: Reply) -> None:
        await super().append(key, reply)
        self.report((key, reply))


@dataclass(frozen=True, slots=True)
class GivenRecall:
    """A `Recaller` of what another process has recalled."""

    found: Recall

    async def recall(self, question: str) -> Recall:
        return self.found

    async def note_use(self, trajectory: Trajectory) -> None:
        """Recorded by the run, which stores the trajectory."""


def collect_group(job: GroupJob) -> Iterator[Said]:
    """Collect a group, in a process of Ray's."""
    said = SimpleQueue[Said]()
    working = Thread(target=lambda: asyncio.run(_work(job, said.put)), daemon=True)
    working.start()
    while True:
        yield (one := said.get())
        if isinstance(one, GroupDone | RubricemError):
            return


async def _work(job: GroupJob, report: Report) -> None:
    try:
        async with AsyncExitStack() as stack:
            # The bank is the run's.
            opening = open_researcher(replace(job.setup, memory="off"))
            researcher, model = await stack.enter_async_context(opening), None
            researcher = replace(researcher, verifier=AnswerVerifier("mark", None))
            policy, own = researcher.policy, job.manifest
            if (policy.name, policy.version) != (own.policy, own.policy_version):
                raise PolicyError(
                    f"A worker would write with {policy.name}, and the run is of {own.policy}.",
                    "Have the same weights, or the same server, on all machines.",
                )
            if job.judging is not None:
                judge = job.judging.open_model(job.setup.model, policy)
                model = await stack.enter_async_context(judge)
            done = await collect_here(job, researcher, model, report)
        report(done)
    except Exception as error:
        report(known_error(error))


def known_error(error: BaseException) -> RubricemError:
    """The first error in it, which groups of tasks wrap, as one of ours."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, RubricemError):
        return error
    return PolicyError(f"A worker failed: {type(error).__name__}: {error}")


async def collect_here(
    job: GroupJob, researcher: Researcher, model: Any, report: Report
) -> GroupDone:
    """Collect a group by open models in a temporary folder."""
    name, policy = job.record.id, researcher.policy
    with tempfile.TemporaryDirectory(prefix="rubricem-") as place:
        run, folder = RunDirectory(Path(place)), Path(place)
        run.begin(job.manifest, [job.question])
        run.save_parts(job.record.step, job.parts)
        for trajectory in job.judged:
            run.store.save(trajectory)
        buffers = BufferStore(folder / "buffers")
        if job.buffer.version:
            buffers.save(job.buffer)
        lines = (json.dumps({"key": k, "reply": r}) + "\n" for k, r in job.replies.items())
        (folder / JOURNAL).write_text("".join(lines), encoding="utf-8")
        with closing(_ToldJournal(folder / JOURNAL)) as journal:
            journal.report = report
            gate = RunGate(journal, Meter(), tell=report)
            rollouts = replace(
                researcher,
                policy=GatedPolicy(policy, gate),
                store=run.store,
                journal=journal,
                recaller=GivenRecall(job.recalled) if job.recalled else None,
            )
            at_once = job.setup.model.at_once
            collector = Collector(run, rollouts, buffers, gate, at_once=at_once, tell=report)
            if job.judging is not None:
                judges = job.judging.over(model, policy, gate.with_journal)
                collector.judge, collector.reflecting = judges
            await gate.through(collector.collect_group(job.record, job.question))
        threads = [thread_of(name, member) for member in range(job.manifest.group_size)]
        return GroupDone(tuple(map(run.store.load, threads)), run.parts_of(job.record.step, name))


@dataclass
class RemoteGroups:
    """The `GroupWriter` of a run whose `researcher` stores and recalls, but writes nothing."""

    collector: Collector
    researcher: Researcher
    setup: Setup
    judging: Judging | None
    workers: int
    start: Callable[[GroupJob], AsyncIterator[Awaitable[Said]]]
    lost: type[Exception]

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.workers)

    async def collect(self, record: GroupRecord, question: Question) -> Sequence[Trajectory]:
        """The group's rollouts; it never returns where the run has ended."""
        gate, lives = self.collector.gate, LIVES
        async with self._places:
            while gate.ended_by is None:
                try:
                    with gate.job():
                        done = await self._collect(await self._job(record, question))
                except self.lost as why:
                    self.collector.tell(f"a worker ended: {_in_a_sentence(why)}")
                    if lives := lives - 1:
                        continue
                    done = PolicyError(
                        f"{LIVES} workers ended, one after another, while they wrote {record.id}.",
                        f"See that each has enough memory, or use fewer. {GO_ON}",
                    )
                if isinstance(done, GroupDone):
                    return await self._keep(record, done)
                gate.end(done)
        await asyncio.Event().wait()
        raise AssertionError("the run has ended")

    async def _job(self, record: GroupRecord, question: Question) -> GroupJob:
        run, recaller = self.collector.run, self.researcher.recaller
        manifest, journal = run.manifest(), self.collector.gate.journal
        rollouts = [thread_of(record.id, member) for member in range(manifest.group_size)]
        judged, store = run.judgement_of(record.step, record.id), run.store
        calls = (*rollouts, run.judgement_part(record.id), run.reflection_part(record.id))
        return GroupJob(
            self.setup.absolute(), self.judging, manifest, record, question,
            await asyncio.to_thread(self.collector.buffers.load, question.question),
            await recaller.recall(question.question) if recaller else None,
            run.parts_of(record.step, record.id),
            dict(chain.from_iterable(journal.replies_of(name).items() for name in calls)),
            tuple(store.load(name) for name in rollouts if judged and store.has_ended(name)),
        )  # fmt: skip

    async def _collect(self, job: GroupJob) -> GroupDone | RubricemError:
        gate = self.collector.gate
        async for reference in self.start(job):
            said = await reference
            if isinstance(said, GroupDone | RubricemError):
                return said
            if isinstance(said, str):
                self.collector.tell(said)
            else:
                await gate.journal.append(*said)
                gate.meter.hear(said[1])
        return PolicyError("A worker ended without a word.", GO_ON)

    async def _keep(self, record: GroupRecord, done: GroupDone) -> Sequence[Trajectory]:
        run, kept = self.collector.run, []
        for each in done.trajectories:
            told = each.scaffold
            shown = Scaffold(told.text, told.shown) if told else Scaffold()
            # As a run in one process stores it, which may have to go on with it.
            template, form = self.researcher.template, each.answer_format
            ask = ask_under(template, record.question, form, each.seed, shown)
            request = request_of(ask, self.researcher.choices)
            await asyncio.to_thread(run.store.create, each.thread, request)
            kept.append(await self.researcher.keep(each))
        await asyncio.to_thread(run.save_parts, record.step, done.parts)
        for name in done.parts:
            self.collector.gate.journal.forget(name.removesuffix(".json"))
        return kept


@asynccontextmanager
async def open_workers(
    workers: int,
    setup: Setup,
    judging: Judging | None,
    collector: Collector,
    researcher: Researcher,
) -> AsyncIterator[RemoteGroups]:
    """Groups by Ray's workers. Raises SettingsError without Ray, and with a limit of cost."""
    if collector.gate.purse.most is not None:
        raise SettingsError(
            "A limit of cost is kept by one process, and Ray's workers are several.",
            "Leave out ray_workers, or max_run_cost.",
        )
    async with connect(workers) as ray:
        # A part of a core, since the rounds of a training that overlap share them.
        remote = ray.remote(collect_group).options(
            num_returns="streaming", num_cpus=0.25, scheduling_strategy="SPREAD", max_retries=0
        )
        lost = ray.exceptions.RayError
        yield RemoteGroups(collector, researcher, setup, judging, workers, remote.remote, lost)


@asynccontextmanager
async def connect(workers: int) -> AsyncIterator[Any]:
    """Ray, connected to the cluster at RAY_ADDRESS, or to one that starts and ends here."""
    if (begun := sys.modules.get("ray")) is not None and begun.is_initialized():
        yield begun
        return
    folder, address = None, os.environ.get("RAY_ADDRESS")
    if not address:
        for name, value in (*_LOCAL.items(), ("RAY_AUTH_TOKEN", secrets.token_hex(32))):
            os.environ.setdefault(name, value)
        folder = tempfile.mkdtemp(prefix="ray-")
    try:
        ray = import_extra("ray", "ray")
        try:
            await asyncio.to_thread(_init, ray, workers, address, folder)
        except Exception as error:  # of a node that is too slow to start Ray raises a bare one
            doing = "started here" if folder else f"reached at {address}"
            raise SettingsError(
                f"Ray cannot be {doing}: {_in_a_sentence(error)}.",
                "Collect without ray_workers, or name a running cluster in RAY_ADDRESS.",
            ) from error
        try:
            yield ray
        finally:
            await asyncio.to_thread(ray.shutdown)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _init(ray: Any, workers: int, address: str | None, folder: str | None) -> None:
    where: dict[str, Any] = {"address": address}
    if folder:
        # Little more than Ray's minimum of memory for objects.
        where = {"address": "local", "num_cpus": workers, "num_gpus": 0, "_temp_dir": folder,
                 "include_dashboard": False, "object_store_memory": 80 * 2**20}  # fmt: skip
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():  # Ray itself would try for a quarter of an hour
        socket.create_connection((host, int(port)), 10.0).close()
    ray.init(**where, log_to_driver=False, logging_level="ERROR")


def _in_a_sentence(error: Exception) -> str:
    """The last line of Ray's message: earlier lines have ids; its hints follow a period."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip().split(". ")[0].rstrip(".")
