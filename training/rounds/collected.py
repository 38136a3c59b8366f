"""One round's collecting: the settings, the policy it samples from, and its collector.

A round is a collecting run of one step, in a folder of its own, because a run has one policy. It
goes on after a kill like any other: what is finished, rollouts, judgements and reflections, is
not repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.banking import embedder_in
from agent.settings import Settings, load_settings
from agent.weights.checkpoints import note_of
from memory.bank import RubricBank
from memory.errors import PolicyError
from memory.interfaces import Embedder
from training.collecting import Collector
from training.curriculum import Batch
from training.local.config import EngineConfig
from training.opening import CollectOptions, open_collector
from training.purse import Purse
from training.questions_selecting import Selected
from training.refreshing import refreshed
from training.rounds.config import RoundsConfig
from training.rounds.folders import RoundFolders, round_seed
from training.run_directory import RunDirectory
from training.step_memory import StepMemory

Tell = Callable[[str], None]


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

    @asynccontextmanager
    async def round(self, number: int, batch: Batch) -> AsyncIterator[Collector]:
        """The collector of a round, whose checkpoint lies in the round's folder."""
        config = self.config
        memory = "on" if config.reflections else "off"
        policy = self.folders.policy(number)
        settings = await self._settings(
            policy if policy.exists() else None, memory=memory, data_dir=self.folders.data,
            seed=round_seed(self.training.seed, number),
        )  # fmt: skip
        options = self._options(
            len(batch.questions), group_size=config.group_size, reflections=config.reflections,
            scaffold=config.scaffold_of(number),
        )  # fmt: skip
        run = self.folders.round(number)
        chosen, tell = Selected(batch.questions), self._telling(f"round {number + 1}")
        async with open_collector(settings, options, run, chosen, tell, self.purse) as collector:
            if isinstance(collector.memory, StepMemory):
                self.bank = collector.memory.bank = self.bank or collector.memory.bank
            yield collector

    async def embedder(self) -> Embedder | None:
        """That of the bank, where something was looked up by meaning, or one if it is asked for."""
        loaded = self.bank.embedder if self.bank is not None else None
        if loaded is None and self.config.embed_answers and self._embedder is None:
            settings = load_settings()
            self._embedder = await embedder_in(settings.weights_dir, name=settings.embedder)
        return loaded or self._embedder

    @asynccontextmanager
    async def held_out(
        self, run: RunDirectory, asked: Selected, checkpoint: Path | None
    ) -> AsyncIterator[Collector]:
        """The collector of one asking of the held-out questions: always with the same seeds."""
        settings = await self._settings(
            checkpoint, memory="off", data_dir=self.folders.held_out_data, seed=self.training.seed
        )
        options = self._options(len(asked.questions), group_size=1, reflections=0)
        tell = self._telling("held-out questions")
        async with open_collector(settings, options, run, asked, tell, self.purse) as collector:
            yield collector

    def _telling(self, what: str) -> Tell:
        return lambda line: self.tell(f"{what}: {line}")

    def _options(self, questions: int, **shape: Any) -> CollectOptions:
        config = self.config
        model, base_url = config.judge_model, config.judge_base_url
        if model is None and base_url is None:
            # What training began with: the policy must not score itself as it changes.
            model, base_url = config.model or self.training.model, config.base_url
        return CollectOptions(
            step_size=questions, judge=config.judge, judge_model=model, judge_base_url=base_url,
            **shape,
        )  # fmt: skip

    async def _settings(self, checkpoint: Path | None, **chosen: Any) -> Settings:
        """The settings of a collecting run; without a checkpoint the base model is sampled."""
        config = self.config
        if config.base_url:
            model = await self._refreshed(checkpoint)
        else:
            model = str(checkpoint) if checkpoint else self.training.model
        settings = load_settings(
            {
                "model": model, "base_url": config.base_url, "source": config.source,
                "tool_calls": config.tool_calls, "max_tokens": config.max_tokens,
                "least_reflection_score": config.least_reflection_score,
                "decoding": "free", "temperature": 1.0, "attempts": 1, **chosen,
            }
        )  # fmt: skip
        # A server that the environment names for other commands samples from no checkpoint.
        update: dict[str, Any] = {"base_url": config.base_url}
        if config.model in settings.prices and model is not None:
            price = settings.prices[config.model]
            update["prices"] = {model: price, **settings.prices}
        return settings.model_copy(update=update)

    async def _refreshed(self, checkpoint: Path | None) -> str | None:
        """The model to ask the server for, once it samples from the checkpoint."""
        if checkpoint is None:
            return self.config.model
        name = await refreshed(self.config.refresh, checkpoint, "[rounds]") or self.config.model
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
