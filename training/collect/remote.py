"""Groups of rollouts written by Ray, for a run in this process.

A remote function writes the rollouts of a question in a temporary folder; the run's process judges
them and reflects. That holds journal, bank and rubrics: it sends what is known of a rollout, and
gets each further call as soon as it is finished, so that a group whose process died goes on in
another.

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
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.agent.research.recall import GivenRecall, Recall
from rubricem.agent.research.researcher import Researcher, request_of
from rubricem.agent.research.setup import Setup, open_researcher
from rubricem.agent.transcript.question import Ask
from rubricem.judge.rubrics.core import together
from rubricem.memory.errors import PolicyError, RubricemError, SettingsError, import_extra
from rubricem.memory.runs import CallKey, Journal, Reply, RunStore
from rubricem.memory.schema import Trajectory
from rubricem.training.collect.collector import Collector
from rubricem.training.collect.directory import JOURNAL
from rubricem.training.collect.gate import GO_ON, GatedPolicy, Meter, RunGate

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
    policy: tuple[str, str]
    """name and version of what has to write"""
    asks: Mapping[str, Ask]
    """by the names of the rollouts that have not ended"""
    recalled: Recall | None
    replies: Mapping[CallKey, Reply]


Said = tuple[CallKey, Reply] | str | Trajectory | RubricemError
"""what is reported: a finished call, a line of progress, an ended rollout, what ended the work"""
Report = Callable[[Said], None]


class _ToldJournal(Journal):
    report: Report

    async def append(self, key: CallKey, reply: Reply) -> None:
        await super().append(key, reply)
        self.report((key, reply))


def collect_group(job: GroupJob) -> Iterator[Said]:
    """Write the rollouts of a group, in a process of Ray's."""
    said = SimpleQueue[Said | None]()

    def work() -> None:
        try:
            asyncio.run(_work(job, said.put))
        except Exception as error:
            said.put(known_error(error))
        said.put(None)

    Thread(target=work, daemon=True).start()
    while (one := said.get()) is not None:
        yield one


async def _work(job: GroupJob, report: Report) -> None:
    # The bank is the run's.
    async with open_researcher(replace(job.setup, memory="off")) as researcher:
        policy = researcher.policy
        if (policy.name, policy.version) != job.policy:
            raise PolicyError(
                f"A worker would write with {policy.name}, and the run is of {job.policy[0]}.",
                "Have the same weights, or the same server, on all machines.",
            )
        await collect_here(job, replace(researcher, verifier=AnswerVerifier("mark", None)), report)


def known_error(error: BaseException) -> RubricemError:
    """The first error in it, which groups of tasks wrap, as one of ours."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, RubricemError):
        return error
    return PolicyError(f"A worker failed: {type(error).__name__}: {error}")


async def collect_here(job: GroupJob, researcher: Researcher, report: Report) -> None:
    """Write the rollouts by an open model in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="rubricem-") as place:
        path = Path(place) / JOURNAL
        lines = (json.dumps({"key": k, "reply": r}) + "\n" for k, r in job.replies.items())
        path.write_text("".join(lines), encoding="utf-8")
        with closing(_ToldJournal(path)) as journal:
            journal.report = report
            gate = RunGate(journal, Meter(), tell=report)
            rollouts = replace(
                researcher,
                policy=GatedPolicy(researcher.policy, gate),
                store=RunStore(Path(place)),
                journal=journal,
                recaller=GivenRecall(job.recalled) if job.recalled else None,
            )
            places = asyncio.Semaphore(job.setup.model.at_once)

            async def roll(thread: str, ask: Ask) -> None:
                async with places:
                    with gate.rollout():
                        report(await rollouts.ask(ask, thread))

            await gate.through(together(roll(*one) for one in job.asks.items()))


@dataclass
class RemoteGroups:
    """Writes groups of a run whose `researcher` stores and recalls, but writes nothing."""

    collector: Collector
    researcher: Researcher
    setup: Setup
    workers: int
    start: Callable[[GroupJob], AsyncIterator[Awaitable[Said]]]
    lost: type[Exception]

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.workers)

    async def collect(self, question: str, asks: Mapping[str, Ask]) -> Sequence[Trajectory]:
        """The rollouts; it never returns where the run has ended."""
        gate, lives, made = self.collector.gate, LIVES, dict[str, Trajectory]()
        async with self._places:
            while gate.ended_by is None:
                try:
                    with gate.job():
                        await self._collect(question, asks, made)
                    return list(made.values())
                except self.lost as why:
                    self.collector.tell(f"a worker ended: {_in_a_sentence(why)}")
                    if not (lives := lives - 1):
                        gate.end(
                            PolicyError(
                                f"{LIVES} workers ended, one after another, while they wrote "
                                f"{', '.join(asks.keys() - made.keys())}.",
                                f"See that each has enough memory, or use fewer. {GO_ON}",
                            )
                        )
                except RubricemError as error:
                    gate.end(error)
        await asyncio.Event().wait()
        raise AssertionError("the run has ended")

    async def _collect(
        self, question: str, asks: Mapping[str, Ask], made: dict[str, Trajectory]
    ) -> None:
        gate, policy = self.collector.gate, self.researcher.policy
        recaller = self.researcher.recaller
        left = {name: ask for name, ask in asks.items() if name not in made}
        known = chain.from_iterable(gate.journal.replies_of(name).items() for name in left)
        recalled = await recaller.recall(question) if recaller else None
        job = GroupJob(
            self.setup.absolute(), (policy.name, policy.version), left, recalled, dict(known)
        )
        async for reference in self.start(job):
            said = await reference
            if isinstance(said, RubricemError):
                raise said
            if isinstance(said, str):
                self.collector.tell(said)
            elif isinstance(said, Trajectory):
                request = request_of(left[said.thread], self.researcher.choices)
                await asyncio.to_thread(self.collector.run.store.create, said.thread, request)
                made[said.thread] = await self.researcher.keep(said)
            else:
                await gate.journal.append(*said)
                gate.meter.hear(said[1])
        if len(made) < len(asks):
            raise PolicyError("A worker ended without a word.", GO_ON)


@asynccontextmanager
async def open_workers(
    workers: int, setup: Setup, collector: Collector, researcher: Researcher
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
        yield RemoteGroups(collector, researcher, setup, workers, remote.remote, lost)


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
