"""Sampling for a round: its collecting run, and the held-out questions between rounds.

A round is a collecting run of one step, in a folder of its own, because a run has one policy. Like
any other it is resumed after a kill: finished rollouts, judgements and reflections are not
repeated. The held-out questions are asked of a checkpoint with the same seeds, judged, and never
learnt from: their rubrics are made at the first asking and kept, no memory is recalled, and nothing
enters the bank, so that askings differ by the checkpoint alone.

Servers that sample are given each new checkpoint through their own interface, or by a command of
the user's. Each is then asked what it serves; a server without the checkpoint is left out, tried
again while the round goes on, and gets no call before it reports the checkpoint. An adapter has a
name of its own on a server, by which it is called; weights that replace others have a version that
the server reports. Both are part of the policy's version, which the rows carry.

If weights replace others, rounds that run ahead share one policy: the newest weights. They are
replaced between calls. Rollouts in flight either go on, each turn with the weights of its time, or
are cut and begun anew; this is a setting.

Above 600 lines, since servers, their weights, and what is asked of them when belong together.
"""

import asyncio
import json
import os
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx2

from rubricem.agent.learning.scoring import resolve_judge
from rubricem.agent.models.opening import OpenPolicy, embedder_in, in_tokens
from rubricem.agent.models.policy import Policy, TokenWriter
from rubricem.agent.settings import Settings, load_settings
from rubricem.agent.settings.door import model_of
from rubricem.agent.transcript.question import Ask
from rubricem.agent.weights.checkpoints import ADAPTER, note_of
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import PolicyError
from rubricem.memory.runs import value_in, writable, write_atomically
from rubricem.memory.schema import (
    Completion,
    Embedder,
    OnText,
    Sampling,
    Segment,
    StopPredicate,
    Trajectory,
)
from rubricem.memory.text import one_line, seed_of
from rubricem.training.collect.collector import Collector, Rollouts
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.gate import Purse
from rubricem.training.collect.questions import QuestionBatch, Selected
from rubricem.training.collect.remote import RayOptions, connect
from rubricem.training.collect.setup import BankMemory, CollectOptions, open_collector
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.ranks import device_of
from rubricem.training.local.session import settle_dtype
from rubricem.training.rounds.numbers import numbers_of, reward_intervals
from rubricem.training.rounds.rounds_config import RoundsConfig
from rubricem.training.rounds.update import (
    RoundFolders,
    Updates,
    copy_files,
    groups_of_round,
    round_seed,
)
from rubricem.training.rows.credit import RowRule
from rubricem.training.show.events import (
    HeldOutJudged,
    PhaseChanged,
    Watch,
    of_held_out,
    watch_nothing,
)

PLACE = "{checkpoint}"
LOADED_IN = 900.0
"""seconds in which a server takes over a checkpoint, at most"""
TRIED_AGAIN = 10.0
"""seconds until a server that was not given a checkpoint is tried again"""
SERVED, SERVED_ADAPTER, GIVEN = "served", "adapter.gguf", "given.json"
"""in a training's folder, what servers read: checkpoints by their versions, the adapter that
llama-server's router loads anew, and the versions that took each other's place, with their updates
"""


async def refresh_server(command: Sequence[str], checkpoint: Path, table: str) -> str:
    """Run the command, the checkpoint's folder in its place; returns the last line it prints.

    That is the model to ask the server for, or nothing where it stays the same. `table` is where
    the command was set. Raises PolicyError where it fails.
    """
    parts = [part.replace(PLACE, str(checkpoint)) for part in command]
    try:
        process = await asyncio.create_subprocess_exec(
            *parts,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise _not_refreshed(f"{error.strerror}: {parts[0]}", table) from error
    try:
        said, wrong = await process.communicate()
    finally:
        if process.returncode is None:  # cancelled: what is still loaded now would come too late
            process.kill()
            await process.wait()
    if process.returncode:
        raise _not_refreshed(wrong.decode(errors="replace").strip()[-200:], table)
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _not_refreshed(reason: str, table: str = "[rounds]") -> PolicyError:
    return PolicyError(
        f"The server was not given the checkpoint: {reason}",
        f"Correct `refresh` under {table}; the same command continues.",
    )


@cache
def _ssl_context() -> ssl.SSLContext:
    """Whom a connection trusts; reading it takes 20 ms of CPU."""
    return httpx2.create_ssl_context(trust_env=False)


class SamplingServer:
    """One server, by the interface of its engine; see docs/scale.md for the versions read.

    Each call raises PolicyError where the server refuses or does not answer.
    """

    def __init__(self, address: str, kind: str, model: str, key: str | None = None) -> None:
        """`address` ends in /v1; `model` is the server's name of the base weights."""
        self.address, self.root = address, address.removesuffix("/v1")
        self.kind, self.model = kind, model
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def name_of(self, version: str) -> str:
        """The model to ask for, once the checkpoint of that version is served."""
        if self.kind == "vllm-lora":
            return version
        return f"{self.model}:{version}" if self.kind == "sglang-lora" else self.model

    async def serves(self, version: str, served: Path) -> bool:
        """Whether it says that it serves the checkpoint; `served` is where llama-server has it."""
        match self.kind:
            case "vllm-lora" | "sglang-lora":
                models = (await self._get("/v1/models"))["data"]
                return any(model["id"] == version for model in models)
            case "vllm-weights":
                return bool((await self._get("/weight_info"))["weight_version"] == version)
            case "sglang-weights":
                return bool((await self._get("/get_model_info"))["weight_version"] == version)
        applied = [one["path"] for one in await self._adapters() if one["scale"]]
        return applied == [str(served)]

    async def take(self, version: str, folder: Path, served: Path) -> None:
        """Have the server serve a checkpoint's folder, which it must see under the same path."""
        match self.kind:
            case "vllm-lora" | "sglang-lora":
                told = {"lora_name": version, "lora_path": str(folder)}
                await self._post(self._of_adapters("load"), told)
            case "sglang-weights":
                await self._post(
                    "/update_weights_from_disk",
                    {"model_path": str(folder), "weight_version": version},
                )
            case "vllm-weights":
                await self._reload(version, folder)
            case _:
                await self._apply(served)

    async def release(self, version: str) -> None:
        """Have an adapter forgotten that nothing samples any more."""
        if self.kind.endswith("-lora"):
            await self._post(self._of_adapters("unload"), {"lora_name": version})

    def _of_adapters(self, verb: str) -> str:
        return f"{'/v1' if self.kind == 'vllm-lora' else ''}/{verb}_lora_adapter"

    async def _reload(self, version: str, folder: Path) -> None:
        """The workers of vLLM read weights from disk while no call runs.

        The prefixes that it keeps are those of the old weights, and go with the pause.
        """
        await self._post("/pause?mode=wait&clear_cache=true", {})
        try:
            told = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            await self._post("/collective_rpc", told)
            await self._post("/update_weight_version", {"new_version": version})
        finally:
            await self._post("/resume", {})

    async def _apply(self, served: Path) -> None:
        """llama-server loads adapters as it begins: as a router it begins a model's instance anew.

        A server without a router has to have the file already, and applies it alone.
        """
        adapters = await self._adapters()
        mine = [one["id"] for one in adapters if one["path"] == str(served)]
        if await self._routes():
            await self._post("/models/unload", {"model": self.model})
            await self._post("/models/load", {"model": self.model})
        elif mine:
            scales = [{"id": one["id"], "scale": float(one["id"] in mine)} for one in adapters]
            await self._post("/lora-adapters", scales)
        else:
            raise _not_refreshed(
                f"{self.root} is no router, and loads {served} only as it begins (--lora)"
            )

    async def _routes(self) -> bool:
        """Whether the models of llama-server can be loaded while it runs; they have a status."""
        listed = (await self._get("/models")).get("data", [])
        return any(one["id"] == self.model and "status" in one for one in listed)

    async def _adapters(self) -> list[Any]:
        found: Any = await self._get(f"/lora-adapters?model={self.model}")
        return list(found)

    async def _get(self, path: str) -> Any:
        return (await self._call("GET", path)).json()

    async def _post(self, path: str, body: Any) -> None:
        await self._call("POST", path, json=body)

    async def _call(self, method: str, path: str, **body: Any) -> httpx2.Response:
        try:
            async with httpx2.AsyncClient(
                base_url=self.root, headers=self._headers, timeout=LOADED_IN, trust_env=False,
                verify=_ssl_context(),
            ) as client:  # fmt: skip
                reply = await client.request(method, path, **body)
        except httpx2.HTTPError as error:
            raise _not_refreshed(f"{self.root} did not answer ({type(error).__name__})") from error
        if reply.is_error:
            said = one_line(reply.text, 200)
            raise _not_refreshed(f"{self.root}{path} said {reply.status_code}: {said}")
        return reply


class SamplingServers:
    """All servers that sample for one training."""

    def __init__(self, servers: Sequence[SamplingServer], out: Path, tell: "Tell") -> None:
        self._servers, self._out, self._tell = servers, out, tell
        self._users: dict[str, int] = {}
        """who samples from each version"""
        # A round and held-out questions begin with one checkpoint at once, and end with it.
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def serving(self, checkpoint: Path) -> AsyncIterator[tuple[str, tuple[str, ...]]]:
        """The model to ask for while the checkpoint is served, and of whom.

        That is all servers, those that have it first. Raises PolicyError where none takes it; some
        that do not are tried again until the end.
        """
        version, began = note_of(checkpoint).version, time.monotonic()
        self._users[version] = self._users.get(version, 0) + 1
        try:
            async with self._changing:
                folder = await asyncio.to_thread(self._place, checkpoint, version)
                giving = (self._give(server, version, folder) for server in self._servers)
                found = await asyncio.gather(*giving)
            faults = dict(zip(self._servers, found, strict=True))
            if all(faults.values()):
                raise next(fault for fault in found if fault)
            count, seconds = found.count(None), time.monotonic() - began
            self._tell(f"{count} of {len(found)} servers have {version} after {seconds:.1f} s")
            again = asyncio.create_task(self._again(version, folder))
            try:
                ready = sorted(self._servers, key=lambda server: faults[server] is not None)
                yield ready[0].name_of(version), tuple(server.address for server in ready)
            finally:
                again.cancel()
                await asyncio.gather(again, return_exceptions=True)
        finally:
            self._users[version] -= 1
            async with self._changing:
                if not self._users[version]:
                    await asyncio.gather(*(self._release(s, version) for s in self._servers))
                    await asyncio.to_thread(shutil.rmtree, self._out / SERVED / version, True)

    def _place(self, checkpoint: Path, version: str) -> Path:
        """The folder that servers read the version from, which outlives its round's."""
        place = self._out / SERVED / version
        with writable(place):
            if not place.exists():
                copy_files(checkpoint, place)
            if self._servers[0].kind == "llama-adapter":
                latest = self._adapter.with_suffix(".part")
                shutil.copy2(place / ADAPTER, latest)
                os.replace(latest, self._adapter)
        return place

    @property
    def _adapter(self) -> Path:
        return self._out / SERVED / SERVED_ADAPTER

    async def _give(self, server: SamplingServer, version: str, folder: Path) -> PolicyError | None:
        served = self._adapter
        try:
            if server.kind == "llama-adapter" or not await server.serves(version, served):
                await server.take(version, folder, served)
                if not await server.serves(version, served):
                    raise _not_refreshed(f"{server.root} does not say that it serves {version}")
        except PolicyError as error:
            self._tell(f"{server.root} is left out: {error}")
            return error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            told = f"{server.root} is no server of {server.kind} ({type(error).__name__})"
            self._tell(f"{server.root} is left out: {told}")
            return _not_refreshed(told)
        return None

    async def _again(self, version: str, folder: Path) -> None:
        """Give it to those that were away or have begun anew; pools then take them back.

        Asked of all: a server that is started again has lost an adapter without a word.
        """
        lost = set[SamplingServer]()
        while True:
            await asyncio.sleep(TRIED_AGAIN)
            for server in self._servers:
                try:
                    if await server.serves(version, self._adapter):
                        continue
                    await server.take(version, folder, self._adapter)
                    self._tell(f"{server.root} has {version} again")
                    lost.discard(server)
                except (PolicyError, LookupError, TypeError, ValueError, AttributeError) as error:
                    if server not in lost:
                        self._tell(f"{server.root} does not have {version}: {error}")
                    lost.add(server)

    async def _release(self, server: SamplingServer, version: str) -> None:
        with suppress(PolicyError):  # it is away, or has forgotten it
            await server.release(version)


Tell = Callable[[str], None]


@dataclass(eq=False)
class HeldWeights:
    """What the servers have at one time."""

    policy: Policy
    version: str
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """set once they are to be replaced"""
    calls: int = 0
    """in flight"""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """set whenever a call has ended"""

    async def wait_until_idle(self) -> None:
        """Return once no call is in flight; none may begin meanwhile."""
        while self.calls:
            self.ended.clear()
            await self.ended.wait()


OpenWeights = Callable[[Path | None], AbstractAsyncContextManager[tuple[Policy, str]]]
"""a policy and its version, of servers that have a checkpoint; None: what they began with"""


class NewestWeights:
    """Servers that have one policy at a time, which is the newest: whoever samples shares it.

    It is replaced while no call is in flight: those that are end first, and those that come wait.
    So each call is by one policy, which this process knows without asking.
    """

    def __init__(self, opened: OpenWeights, out: Path) -> None:
        self._opened, self._given = opened, out / SERVED / GIVEN
        self._stack = AsyncExitStack()
        self._there = asyncio.Event()
        self._checkpoint: Path | None = None
        self._now: HeldWeights | None = None

    async def replace(self, checkpoint: Path | None, updates: int) -> None:
        """Have everybody sample from the checkpoint after so many updates; None: as it began.

        Raises PolicyError where no server takes it.
        """
        place = checkpoint and checkpoint.resolve()
        if self._now is not None:
            if place == self._checkpoint:
                return
            self._there.clear()
            self._now.leaving.set()
            await self._now.wait_until_idle()
        await self._stack.aclose()
        policy, version = await self._stack.enter_async_context(self._opened(checkpoint))
        await asyncio.to_thread(self._note, version, updates)
        self._now, self._checkpoint = HeldWeights(policy, version), place
        self._there.set()

    def _note(self, version: str, updates: int) -> None:
        given = value_in(self._given, dict[str, int]) or {}
        write_atomically(self._given, json.dumps({version: updates, **given}))

    def updates_of(self, version: str) -> int | None:
        """After how many updates servers were given a version; None: they never were."""
        return (value_in(self._given, dict[str, int]) or {}).get(version)

    async def now(self) -> HeldWeights:
        """What the servers have, as soon as that is not being replaced."""
        while not self._there.is_set():
            await self._there.wait()
        assert self._now is not None
        return self._now

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[HeldWeights]:
        """What the servers have, and keep until the end."""
        weights = await self.now()
        weights.calls += 1
        try:
            yield weights
        finally:
            weights.calls -= 1
            weights.ended.set()

    async def policy(self, begun: str | None) -> "NewestPolicy":
        """The policy of a run that was begun by that version; None: it begins by this one."""
        async with self.hold() as weights:
            return NewestPolicy(self, weights.policy, begun or weights.version)

    async def aclose(self) -> None:
        await self._stack.aclose()


class NewestPolicy:
    """A `Policy` whose every call is by the newest weights, and says so.

    It is called by the version that its run was begun with: a run that goes on finds its calls.
    """

    def __init__(self, newest: NewestWeights, opened: Policy, version: str) -> None:
        self._newest = newest
        self.name, self.version = opened.name, version
        self.retokenised, self.context_tokens = opened.retokenised, opened.context_tokens
        self.reader, self.chat, self.priced = opened.reader, opened.chat, opened.priced
        self.model = getattr(opened, "model", None)

    async def render(self, system: str, question: str) -> tuple[int, ...] | None:
        async with self._newest.hold() as weights:
            return await weights.policy.render(system, question)

    async def encode(self, text: str) -> tuple[int, ...] | None:
        async with self._newest.hold() as weights:
            return await weights.policy.encode(text)

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        async with self._newest.hold() as weights:
            said = await weights.policy.write(system, transcript, sampling, stop, on_text)
        other = weights.version if weights.version != self.version else ""
        return replace(said, policy_version=other)


@dataclass(frozen=True, slots=True)
class CutRollouts:
    """`Rollouts` of which those in flight are begun anew when the weights are replaced.

    By another seed, so that nothing of what was sampled before is found in the journal.
    """

    rollouts: Rollouts
    newest: NewestWeights
    tell: Tell

    @property
    def template(self) -> Ask:
        return self.rollouts.template

    async def ask(self, ask: Ask, thread: str) -> Trajectory:
        while True:
            weights = await self.newest.now()
            anew = replace(ask, seed=seed_of(ask.seed, weights.version))
            asking = asyncio.ensure_future(self.rollouts.ask(anew, thread))
            leaving = asyncio.ensure_future(weights.leaving.wait())
            try:
                await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    return asking.result()
            finally:
                for task in (asking, leaving):
                    task.cancel()
                await asyncio.gather(asking, leaving, return_exceptions=True)
            self.tell(f"{thread} is cut: it is sampled again by newer weights")


@dataclass(slots=True)
class Sampled:
    """Where rounds are collected: with which weights, settings and judge."""

    config: RoundsConfig
    training: EngineConfig
    folders: RoundFolders
    tell: Tell
    purse: Purse = field(default_factory=Purse)
    """that all rounds and askings share"""
    bank: RubricBank | None = None
    """open for all rounds, since its embedding model is loaded for long"""
    _embedder: Embedder | None = None
    _versions: dict[str, str] = field(default_factory=dict)
    """of the checkpoints, by the names that the server has for them"""
    _servers: SamplingServers | None = None
    _shared: Any = None
    """the open `SharedPolicies`, whose module takes a second to import; None: none yet"""
    newest: NewestWeights | None = field(default=None, init=False)
    """None: servers, or the embedded model, have several policies at the same time"""

    def __post_init__(self) -> None:
        if self.config.replaced:
            self.newest = NewestWeights(self._open_newest, self.training.out.absolute())

    @property
    def _ray(self) -> RayOptions | None:
        """Ray's workers for as many rounds as are under way, and for held-out questions."""
        workers, rounds = self.config.ray_workers, 2 * self.config.ahead + 1
        return RayOptions(workers, self.config.ray_address, rounds + 1) if workers else None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Have open what all rounds share."""
        async with AsyncExitStack() as stack:
            if self._ray is not None:
                await stack.enter_async_context(connect(self._ray))
            if self.newest is not None:
                stack.push_async_callback(self.newest.aclose)
            yield

    @asynccontextmanager
    async def round(self, number: int, batch: QuestionBatch) -> AsyncIterator[Collector]:
        """The collector of a round, whose checkpoint lies in the round's folder."""
        config = self.config
        memory = "on" if config.remembers else "off"
        policy = self.folders.policy(number)
        options = self._options(
            len(batch.questions), group_size=config.group_size, reflections=config.reflections,
            scaffold=config.scaffold_of(number),
        )  # fmt: skip
        run = self.folders.round(number)
        chosen, tell = Selected(batch.questions), self._telling(f"round {number + 1}")
        async with (
            self._serve(policy if policy.exists() else None) as sampled,
            self._opening(run, sampled[0]) as opening,
            open_collector(
                self._settings(
                    *sampled, memory=memory, data_dir=self.folders.data,
                    seed=round_seed(self.training.seed, number),
                ),
                options, run, chosen, tell, self.purse, opening,
            ) as collector,
        ):  # fmt: skip
            if isinstance(collector.memory, BankMemory):
                self.bank = collector.memory.bank = self.bank or collector.memory.bank
            if self.newest is not None and config.in_flight == "cut":
                collector.rollouts = CutRollouts(collector.rollouts, self.newest, tell)
            yield collector

    async def embedder(self) -> Embedder | None:
        """That of the bank, where something was looked up by meaning, or one if it is asked for."""
        loaded = self.bank.embedder if self.bank is not None else None
        if loaded is None and self.config.embed_answers and self._embedder is None:
            settings = load_settings()
            self._embedder = await embedder_in(settings.weights_dir, name=settings.embedder)
        return loaded or self._embedder

    @asynccontextmanager
    async def open_held_out(
        self, run: RunDirectory, asked: Selected, checkpoint: Path | None
    ) -> AsyncIterator[Collector]:
        """The collector of one asking of the held-out questions: always with the same seeds."""
        buffers = self.folders.held_out_data / "buffers"
        options = self._options(len(asked.questions), group_size=1, reflections=0, buffers=buffers)
        tell = self._telling("held-out questions")
        async with (
            self._serve(checkpoint) as sampled,
            self._opening(run, sampled[0]) as opening,
            open_collector(
                self._settings(
                    *sampled, memory="off",
                    data_dir=self.folders.data, seed=self.training.seed,
                ),
                options, run, asked, tell, self.purse, opening,
            ) as collector,
        ):  # fmt: skip
            yield collector

    def _telling(self, what: str) -> Tell:
        return lambda line: self.tell(f"{what}: {line}")

    def _options(self, questions: int, **shape: Any) -> CollectOptions:
        config = self.config
        model, base_url = config.judge_model, config.judge_base_url
        if model is None and base_url is None:
            # What training began with: the policy must not score itself as it changes.
            model = config.model or self.training.model
            base_url = config.servers[0] if config.servers else None
        kept_in = load_settings({"data_dir": self.folders.data})
        judging = resolve_judge("relative", config.rubric, kept_in.data_dir, kept_in.seed)
        return CollectOptions(
            step_size=questions, judge=config.judge, judge_model=model, judge_base_url=base_url,
            judging=judging, gated=config.gated, ray=self._ray,
            short=config.system_prompt == "short", passages=config.passages,
            passage_words=config.passage_words, **shape,
        )  # fmt: skip

    @asynccontextmanager
    async def _serve(
        self, checkpoint: Path | None
    ) -> AsyncIterator[tuple[str | None, tuple[str, ...]]]:
        """The model to ask for while it is sampled, and of which servers.

        Without a checkpoint it is the base model.
        """
        config, addresses = self.config, self.config.servers
        if not addresses:
            yield str(checkpoint) if checkpoint else self.training.model, ()
        elif checkpoint is None or self.newest is not None:
            yield config.model, addresses
        elif isinstance(config.refresh, tuple):
            yield await self._refresh(checkpoint, config.refresh), addresses
        else:
            async with self._find_servers().serving(checkpoint) as found:
                yield found

    def _find_servers(self) -> SamplingServers:
        if self._servers is None:
            key = load_settings().api_key
            secret = key.get_secret_value() if key else None
            kind, named = str(self.config.refresh), self.config.model or ""
            found = [SamplingServer(url, kind, named, secret) for url in self.config.servers]
            self._servers = SamplingServers(found, self.training.out.absolute(), self.tell)
        return self._servers

    @asynccontextmanager
    async def _open_newest(self, checkpoint: Path | None) -> AsyncIterator[tuple[Policy, str]]:
        async with AsyncExitStack() as stack:
            name, addresses, version = self.config.model, self.config.servers, ""
            if checkpoint is not None:
                serving = self._find_servers().serving(checkpoint)
                name, addresses = await stack.enter_async_context(serving)
                version = note_of(checkpoint).version
            choice = in_tokens(model_of(self._settings(name, addresses)))
            policy = await stack.enter_async_context(choice.open_policy(self.tell))
            # llama-server's is that of the base, whatever adapter it applies.
            told = version in policy.version
            yield policy, policy.version if told else f"{policy.version}@{version}"

    @asynccontextmanager
    async def _opening(
        self, run: RunDirectory, model: str | None
    ) -> AsyncIterator[OpenPolicy | None]:
        """What opens the policy of a run where it is not the run's own choice; None: it is."""
        if (newest := self.newest) is not None:
            begun = run.manifest().policy_version if run.exists else None
            yield lambda: newest.policy(begun)
        elif self.config.sampler == "torch" and model is not None:
            from rubricem.training.local.sampler import SharedPolicies, TorchConfig

            settings, training = self._settings(model, ()), self.training
            device = device_of(training.device)
            dtype = await asyncio.to_thread(settle_dtype, training, device.type == "cuda")
            self.tell(f"torch samples from {model} in {dtype}; half a minute for the 0.5b")
            config = TorchConfig(
                slots=model_of(settings).at_once, context_tokens=settings.context_tokens,
                dtype=dtype, device=device, threads=training.threads or settings.threads,
            )  # fmt: skip
            self._shared = self._shared or SharedPolicies()
            async with self._shared.share(model, settings.weights_dir, config) as policy:

                async def reuse() -> Policy:
                    return TokenWriter(policy)

                yield reuse
        else:
            yield None

    def _settings(self, model: str | None, addresses: Sequence[str], **chosen: Any) -> Settings:
        """The settings of a collecting run."""
        config = self.config
        first = addresses[0] if addresses else None
        settings = load_settings(
            {
                "model": model, "base_url": first,
                "source": config.source,
                "tool_calls": config.tool_calls, "max_tokens": config.max_tokens,
                "slots": config.slots, "decoding": "free", "temperature": 1.0, **chosen,
            }
        )  # fmt: skip
        # A server that the environment names for other commands samples from no checkpoint.
        update: dict[str, Any] = {"base_url": first}
        if config.model in settings.prices and model is not None:
            price = settings.prices[config.model]
            update["prices"] = {model: price, **settings.prices}
        return settings.model_copy(update=update)

    async def _refresh(self, checkpoint: Path, command: Sequence[str]) -> str | None:
        """The model to ask the servers for, once they sample from the checkpoint."""
        told = await refresh_server(command, checkpoint, "[rounds]")
        name = told or self.config.model
        await asyncio.to_thread(self._check_own, name or "", note_of(checkpoint).version)
        return name

    def _check_own(self, name: str, version: str) -> None:
        """Rollouts, reflections and held-out questions of several checkpoints overlap."""
        start = self.training.start_adapter
        begun = note_of(start).version if start else "the weights that training began with"
        known = begun if name == self.config.model else self._versions.setdefault(name, version)
        if known != version:
            raise PolicyError(
                f"`refresh` has the server call the checkpoint {version} {name!r}, the name of "
                f"{known}.",
                "Have `refresh` under [rounds] print a name of its own for each checkpoint, since "
                "several are sampled at the same time.",
            )


NUMBERS = "numbers.json"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """When they are asked, and of what."""

    sampled: Sampled
    asked: Selected
    updates: Updates
    rule: RowRule
    stop: asyncio.Event | None = None
    watch: Watch = watch_nothing

    async def __call__(self, updates: int) -> None:
        """Ask them after so many updates if it is time for that; once, also after a kill."""
        config, run = self.sampled.config, self.sampled.folders.held_out_run(updates)
        if updates % config.held_out_every and updates < config.rounds:
            return
        if not (run.folder / NUMBERS).exists():
            self.watch(PhaseChanged("held-out", updates, True))
            newest = self.updates.checkpoint
            async with self.sampled.open_held_out(run, self.asked, newest) as collector:
                await collector.collect(self.stop)
            found = await asyncio.to_thread(self._write, run, updates)
            self.watch(PhaseChanged("held-out", updates, False))
            self.watch(HeldOutJudged(updates, found))
        if await asyncio.to_thread(self._is_best, updates):
            await asyncio.to_thread(self.updates.keep_best)

    def _is_best(self, updates: int) -> bool:
        """Whether `best_by` chooses by this asking, and none of those before was as good."""
        name = of_held_out(self.sampled.training.best_by)
        if name is None:
            return False
        better, now = self.sampled.training.better(name), self._numbers(updates)
        return all(better(now, self._numbers(n)) for n in range(1, updates))

    def _numbers(self, updates: int) -> dict[str, float]:
        """What an asking gave; {} where there was none."""
        path = self.sampled.folders.held_out_run(updates).folder / NUMBERS
        return value_in(path, dict[str, float]) or {}

    def _write(self, run: RunDirectory, updates: int) -> dict[str, float]:
        """The asking's numbers, its rewards with the 95% intervals of their means."""
        groups = groups_of_round(run, updates)
        numbers = {n: v for n, v in numbers_of(groups, self.rule).items() if "spread" not in n}
        found = {"updates": float(updates), **numbers, **reward_intervals(groups)}
        write_atomically(run.folder / NUMBERS, json.dumps(found, indent=1))
        return found
