"""Workers as Ray actors: on this machine by default, or wherever a Ray cluster has room.

A Ray that is started here listens on loopback alone, keeps its files in a folder of its own that
goes with it, and lets in whoever knows a token that is nowhere on disk; left to itself, Ray
writes one into the home directory. Settings, with their keys, reach a worker as an argument of a
call between two processes: not in a runtime environment or an actor's constructor, which the
cluster keeps and shows.
"""

import asyncio
import math
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agent.clients import open_researcher
from agent.researcher import Researcher
from agent.settings import Settings
from memory.errors import PolicyError, RubricemError, SettingsError
from training.extra_packages import needed
from training.flow import Flow
from training.opening_flow import at_once
from training.remote_lines import Begin, Said
from training.remote_rollouts import RemoteRollouts
from training.remote_worker import RolloutWorker
from training.worker_pool import Worker, WorkerLost, WorkerPool

OBJECT_STORE = 80 * 2**20
"""bytes, little more than Ray's least: what passes through is small and gone at once"""
CONNECT_SECONDS = 10.0
_LOCAL = {
    # Read as it is imported: without clusters, Ray binds all its ports to loopback.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where rollouts are written."""

    workers: int = 2
    address: str | None = None
    """of a Ray cluster; None: one is started on this machine, for this run"""


@asynccontextmanager
async def ray_rollouts(
    options: RayOptions,
    settings: Settings,
    researcher: Researcher,
    flow: Flow,
) -> AsyncIterator[RemoteRollouts]:
    """Rollouts by Ray's workers, each with clients of its own as the settings want them.

    Raises SettingsError where Ray is missing or cannot be reached, and what a worker raises that
    cannot begin, if none can.
    """
    async with _connected(options) as ray:
        hire = _Hiring(ray, settings, researcher)
        share = math.ceil(at_once(settings, options.workers) / options.workers)
        pool = WorkerPool(hire, options.workers, share, flow.tell)
        try:
            # What no worker can do is told before the run begins.
            await pool.ready()
            yield RemoteRollouts(researcher, flow.journal, flow, pool)
        finally:
            await pool.close()


class RolloutActor:
    """The actor: a `RolloutWorker` once it was opened."""

    async def open(self, settings: Settings) -> tuple[str, str] | RubricemError:
        """Name and version of the policy that it writes with."""
        self._opened = AsyncExitStack()
        # The bank is the run's; a worker has none.
        own = settings.model_copy(update={"memory": "off"})
        try:
            researcher = await self._opened.enter_async_context(open_researcher(own))
        except RubricemError as error:
            return error
        self._worker = RolloutWorker(researcher, recalls=settings.memory != "off")
        return researcher.policy.name, researcher.policy.version

    async def begin(self, rollout: Begin) -> Said:
        return await self._worker.begin(rollout)

    async def go_on(self, thread: str, answer: Any) -> Said:
        return await self._worker.go_on(thread, answer)


class _RayWorker:
    """A `Worker` that is a Ray actor."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor

    async def begin(self, rollout: Begin) -> Said:
        said: Said = await self.done(self._actor.begin.remote(rollout))
        return said

    async def go_on(self, thread: str, answer: Any) -> Said:
        said: Said = await self.done(self._actor.go_on.remote(thread, answer))
        return said

    async def open(self, settings: Settings) -> tuple[str, str]:
        opened: tuple[str, str] | RubricemError = await self.done(self._actor.open.remote(settings))
        if isinstance(opened, RubricemError):
            raise opened
        return opened

    async def done(self, reply: Any) -> Any:
        try:
            return await reply
        except self._ray.exceptions.RayActorError as error:
            # One that cannot be reached may still live, and would write on for nobody.
            self._ray.kill(self._actor)
            raise WorkerLost(_in_a_sentence(error)) from error


class _Hiring:
    """Starts an actor wherever there is room, and opens it."""

    def __init__(self, ray: Any, settings: Settings, researcher: Researcher) -> None:
        self._ray = ray
        # A worker starts in another folder.
        whole = {
            "source": tuple(researcher.choices["source"]),
            "model": researcher.choices["model"],
        }
        self._settings = settings.model_copy(update=whole)
        self._policy = researcher.policy
        self._actors = ray.remote(RolloutActor).options(num_cpus=1, max_concurrency=10_000)

    async def __call__(self) -> Worker:
        worker = _RayWorker(self._ray, self._actors.remote())
        opened, own = await worker.open(self._settings), (self._policy.name, self._policy.version)
        if opened != own:
            raise PolicyError(
                f"it would write with {_named(opened)}, and the run is of {_named(own)}",
                "Have the same weights, or the same server, on all machines.",
            )
        return worker


@asynccontextmanager
async def _connected(options: RayOptions) -> AsyncIterator[Any]:
    """Ray, connected to a cluster; what was started here ends here."""
    folder = None
    if options.address is None:
        for name, value in (*_LOCAL.items(), ("RAY_AUTH_TOKEN", secrets.token_hex(32))):
            os.environ.setdefault(name, value)
        folder = tempfile.mkdtemp(prefix="ray-")
    try:
        ray = needed("ray", "ray")
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
        if options.address:
            _answers(options.address)
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        doing = "started here" if folder else f"reached at {options.address}"
        raise SettingsError(
            f"Ray cannot be {doing}: {_in_a_sentence(error)}.",
            "Collect without --engine ray, or name a running cluster by --ray-address.",
        ) from error


def _answers(address: str) -> None:
    """Raise OSError where nobody listens; Ray itself would try for a quarter of an hour."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()


def _named(policy: tuple[str, str]) -> str:
    return " ".join(filter(None, policy))


def _in_a_sentence(error: Exception) -> str:
    """The last line of what Ray says: the lines before it name ids; its hints follow a period."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip().split(". ")[0].rstrip(".")
