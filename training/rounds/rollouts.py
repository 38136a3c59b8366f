"""Sampling for a round: its collecting run, and the held-out questions between rounds.

A round is a collecting run of one step, in a folder of its own, because a run has one policy. Like
any other it is resumed after a kill: finished rollouts, judgements and reflections are not
repeated. The held-out questions are asked of a checkpoint with the same seeds, judged, and never
learnt from: their rubrics are made at the first asking and kept, no memory is recalled, and nothing
enters the bank, so that askings differ by the checkpoint alone.

A server that samples is given each new checkpoint through vLLM's interface for adapters, or by a
command of the user's. Each checkpoint has a name of its own there, by which it is called, since
several are sampled at the same time; that name is part of the policy's version.
"""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rubricem.agent.models.limits import AttemptError, Endpoint, Server
from rubricem.agent.models.model_server import ModelServer
from rubricem.agent.models.opening import OpenPolicy
from rubricem.agent.models.policy import Policy, TokenWriter
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import model_of, setup_of
from rubricem.agent.transcript.events import Tell
from rubricem.agent.weights.checkpoints import note_of
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.runs import value_in, write_atomically
from rubricem.training.collect.collect_config import CollectConfig, GroupsConfig
from rubricem.training.collect.collector import Collector
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.gate import Purse
from rubricem.training.collect.questions import QuestionBatch, Selected
from rubricem.training.collect.setup import (
    BankMemory,
    check_config,
    open_collector,
)
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.ranks import device_of
from rubricem.training.local.session import settle_dtype
from rubricem.training.rounds.numbers import numbers_of, reward_intervals
from rubricem.training.rounds.rounds_config import TABLE, VLLM, RoundsConfig
from rubricem.training.rounds.update import RoundFolders, copy_files, groups_of_round, round_seed
from rubricem.training.rows.credit import RowRule
from rubricem.training.show.console import Progress

PLACE = "{checkpoint}"
LOADED_IN = 900.0
"""seconds in which a server takes over a checkpoint, at most"""
NUMBERS = "numbers.json"
ROWS_OF_A_GPU = 256
"""rollouts that it writes side by side: a pass of the 0.5B takes hardly longer than with 16"""
SERVED = "served"
"""the folder in a training's with the checkpoints that a server reads, by their versions"""


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


def samples_by_torch(config: RoundsConfig) -> bool:
    """Whether torch writes the rollouts: it was chosen, or nothing was, and there is a GPU."""
    if config.sampler != "auto":
        return config.sampler == "torch"
    here = not (config.base_url or config.ray_workers)
    return here and device_of().type == "cuda"


class VllmServer:
    """A server of vLLM (or a router before several) that has each checkpoint as an adapter.

    It must see the training's folder under the same path, and be started with --enable-lora and
    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.
    """

    def __init__(self, address: str, out: Path, key: str | None, tell: Tell) -> None:
        self._server = ModelServer(Server(Endpoint.parse(address), "", key or ""))
        self._out, self._tell = out, tell
        self._users: dict[str, int] = {}
        """who samples from each version"""
        # A round and held-out questions begin with one checkpoint at once, and end with it.
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def serving(self, checkpoint: Path) -> AsyncIterator[str]:
        """The model to ask for while the checkpoint is served.

        Raises PolicyError where the server refuses it or does not answer.
        """
        version, began = note_of(checkpoint).version, time.monotonic()
        self._users[version] = self._users.get(version, 0) + 1
        place = self._out / SERVED / version
        try:
            async with self._changing:
                if not place.exists():  # it outlives its round's
                    await asyncio.to_thread(copy_files, checkpoint, place)
                try:
                    if version not in await self._server.model_names():
                        await self._change("load", lora_name=version, lora_path=str(place))
                        took = time.monotonic() - began
                        self._tell(f"the server has {version} after {took:.1f} s")
                except AttemptError as error:
                    raise _not_refreshed(str(error)) from error
            yield version
        finally:
            self._users[version] -= 1
            async with self._changing:
                if not self._users[version]:
                    with suppress(AttemptError):  # it is away, or has forgotten it
                        await self._change("unload", lora_name=version)
                    await asyncio.to_thread(shutil.rmtree, place, True)

    async def _change(self, what: str, **told: str) -> None:
        path = f"{self._server.root}/v1/{what}_lora_adapter"
        await (await self._server.send(path, told, LOADED_IN)).aclose()


@dataclass(slots=True)
class RoundCollectors:
    """Opens what collects a round, or asks the held-out questions: its weights, settings, judge."""

    config: RoundsConfig
    training: EngineConfig
    settings: Settings
    folders: RoundFolders
    tell: Tell
    purse: Purse = field(default_factory=Purse)
    """that all rounds and askings share"""
    bank: RubricBank | None = None
    """open for all rounds, since its embedding model is loaded for long"""
    _versions: dict[str, str] = field(default_factory=dict)
    """of the checkpoints, by the names that the server has for them"""
    _server: VllmServer | None = None

    def check(self, asked: int) -> None:
        """Raises SettingsError for a source, a judge or a server that no round could begin with."""
        config, model = self.config, self.training.model
        setup = setup_of(self._settings(config.model or model, {}))
        setup.sources.check()
        check_config(setup, self._groups(config.questions_per_round))
        wanted = config.questions_per_round * max(config.windows, 1)
        if asked < wanted:
            rounds = f"{config.windows} rounds of a window" if config.windows else "a round"
            raise SettingsError(
                f"{config.questions} has {asked} questions to train on, of {wanted} for {rounds}.",
                f"Give more questions, or set questions_per_round under [{TABLE}] lower.",
            )

    @asynccontextmanager
    async def round(self, number: int, batch: QuestionBatch) -> AsyncIterator[Collector]:
        """The collector of a round, whose checkpoint lies in the round's folder."""
        config, policy = self.config, self.folders.policy(number)
        groups, progress = self._groups(len(batch.questions)), config.progress_of(number)
        chosen = {
            "memory": "on" if config.reflections else "off",
            "seed": round_seed(self.training.seed, number),
        }
        asked, run = Selected(batch.questions), self.folders.round(number)
        checkpoint = policy if policy.exists() else None
        what = f"round {number + 1}"
        async with self._collector(
            what, run, asked, checkpoint, groups, chosen, progress=progress
        ) as collector:
            if isinstance(collector.memory, BankMemory):
                self.bank = collector.memory.bank = self.bank or collector.memory.bank
            yield collector

    def open_held_out(
        self, run: RunDirectory, asked: Selected, checkpoint: Path | None
    ) -> AbstractAsyncContextManager[Collector]:
        """The collector of one asking of the held-out questions: always with the same seeds."""
        buffers = self.folders.held_out_data / "buffers"
        groups = self._groups(len(asked.questions), group_size=1, reflections=0)
        chosen = {"memory": "off", "seed": self.training.seed}
        what = "held-out questions"
        return self._collector(what, run, asked, checkpoint, groups, chosen, buffers=buffers)

    async def ask_held_out(
        self, asked: Selected, updates: int, checkpoint: Path | None, rule: RowRule,
        progress: Progress, stop: asyncio.Event | None = None,
    ) -> None:  # fmt: skip
        """Ask them after so many updates if it is time for that; once, also after a kill.

        Kept are the asking's numbers, its rewards with the 95% intervals of their means.
        """
        run, every = self.folders.held_out_run(updates), self.config.held_out_every
        if updates % every and updates < self.config.rounds:
            return
        if value_in(run.folder / NUMBERS, dict[str, float]) is not None:
            return
        async with self.open_held_out(run, asked, checkpoint) as collector:
            await collector.collect(stop)
        groups = await asyncio.to_thread(groups_of_round, run, updates)
        numbers = await asyncio.to_thread(numbers_of, groups, rule)
        numbers = {name: value for name, value in numbers.items() if "spread" not in name}
        found = {"updates": float(updates), **numbers, **reward_intervals(groups)}
        write_atomically(run.folder / NUMBERS, json.dumps(found, indent=1))
        progress.held_out(updates, found)

    @asynccontextmanager
    async def _collector(
        self, what: str, run: RunDirectory, asked: Selected, checkpoint: Path | None,
        groups: CollectConfig, chosen: dict[str, Any], **more: Any,
    ) -> AsyncIterator[Collector]:  # fmt: skip
        def tell(line: str) -> None:
            self.tell(f"{what}: {line}")

        async with self._serve(checkpoint) as model:
            settings = self._settings(model, chosen)
            async with (
                self._opening(settings) as opening,
                open_collector(
                    settings, groups, run, asked, tell, self.purse, opening, **more
                ) as found,
            ):
                yield found

    def _groups(self, questions: int, **shape: Any) -> CollectConfig:
        """How a step of so many questions is collected; windows and cost are the rounds' own."""
        config = self.config
        model, base_url = config.judge_model, config.judge_base_url
        if model is None and base_url is None:
            # What training began with: the policy must not score itself as it changes.
            model, base_url = config.model or self.training.model, config.base_url
        shared = {name: getattr(config, name) for name in GroupsConfig.model_fields}
        own = {"judge_model": model, "judge_base_url": base_url, "windows": 0, "max_run_cost": None}
        given = CollectConfig(out=self.training.out, **shared)
        return given.model_copy(update={"step_size": questions, **own, **shape})

    @asynccontextmanager
    async def _serve(self, checkpoint: Path | None) -> AsyncIterator[str]:
        """The model to ask for while it is sampled; without a checkpoint it is the base model."""
        config = self.config
        if config.base_url is None:
            yield str(checkpoint) if checkpoint else self.training.model
        elif checkpoint is None:
            yield config.model or ""
        elif config.refresh == VLLM:
            if self._server is None:
                key = self.settings.api_key
                secret = key.get_secret_value() if key else None
                out = self.training.out.absolute()
                self._server = VllmServer(config.base_url, out, secret, self.tell)
            async with self._server.serving(checkpoint) as found:
                yield found
        else:
            told = await refresh_server(config.refresh, checkpoint, "[rounds]")
            name = told or config.model or ""
            await asyncio.to_thread(self._check_own, name, note_of(checkpoint).version)
            yield name

    @asynccontextmanager
    async def _opening(self, settings: Settings) -> AsyncIterator[OpenPolicy | None]:
        """What opens the policy of a run if torch samples; None: the run itself does."""
        if not samples_by_torch(self.config) or settings.model is None:
            yield None
            return
        from rubricem.training.local.sampler import TorchConfig, open_torch

        training, device = self.training, device_of()
        dtype = await asyncio.to_thread(settle_dtype, training, device.type == "cuda")
        self.tell(f"torch samples from {settings.model} in {dtype}; half a minute for the 0.5b")
        config = TorchConfig(
            slots=model_of(settings).at_once, context_tokens=settings.context_tokens,
            dtype=dtype, device=device,
        )  # fmt: skip
        async with open_torch(settings.model, settings.weights_dir, config) as policy:

            async def reuse() -> Policy:
                return TokenWriter(policy)

            yield reuse

    def _settings(self, model: str, chosen: dict[str, Any]) -> Settings:
        """The settings of a collecting run."""
        config, settings = self.config, self.settings
        update = {
            "model": model, "base_url": config.base_url, "source": config.source,
            "tool_calls": config.tool_calls, "max_tokens": config.max_tokens,
            "data_dir": self.folders.data, "decoding": "free",
            **chosen,
        }  # fmt: skip
        if samples_by_torch(config) and device_of().type == "cuda":
            update["concurrency"] = settings.concurrency or ROWS_OF_A_GPU
        if config.model in settings.prices:
            price = settings.prices[config.model]
            update["prices"] = {model: price, **settings.prices}
        return settings.model_copy(update=update)

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
