"""What is sampled for a round: its collecting run, and the held-out questions between rounds.

A round is a collecting run of one step, in a folder of its own, because a run has one policy. It
goes on after a kill like any other: what is finished, rollouts, judgements and reflections, is
not repeated. The held-out questions are asked of a checkpoint by the same seeds, judged, and never
learnt from: their rubrics are made at the first asking and kept, no memory is recalled, and nothing
is put into the bank, so that askings differ by the checkpoint alone. A server that samples is given
each new checkpoint by a command of the user's own.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rubricem.agent.cli.judge import wanted_of
from rubricem.agent.cli.options import JUDGE_FLAGS
from rubricem.agent.models.opening import embedder_in
from rubricem.agent.settings import Settings, load_settings
from rubricem.agent.weights.checkpoints import note_of
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import PolicyError
from rubricem.memory.runs import value_in, write_atomically
from rubricem.memory.schema import Embedder
from rubricem.training.collect.collector import Collector
from rubricem.training.collect.curriculum import QuestionBatch
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.gate import Purse
from rubricem.training.collect.questions import Selected
from rubricem.training.collect.setup import BankMemory, CollectOptions, open_collector
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.rounds.numbers import numbers_of, reward_intervals
from rubricem.training.rounds.rounds_config import RoundsConfig
from rubricem.training.rounds.update import RoundFolders, Updates, groups_of_round, round_seed
from rubricem.training.rows.credit import RowRule
from rubricem.training.show.events import HeldOutJudged, PhaseChanged, Watch, of_held_out, unwatched

PLACE = "{checkpoint}"


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


def _not_refreshed(reason: str, table: str) -> PolicyError:
    return PolicyError(
        f"The server was not given the checkpoint: {reason}",
        f"Correct `refresh` under {table}; the same command goes on.",
    )


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
    async def round(self, number: int, batch: QuestionBatch) -> AsyncIterator[Collector]:
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
            scaffold=config.scaffold_of(number), branch=config.branch,
        )  # fmt: skip
        run = self.folders.round(number)
        chosen, tell = Selected(batch.questions), self._telling(f"round {number + 1}")
        async with open_collector(settings, options, run, chosen, tell, self.purse) as collector:
            if isinstance(collector.memory, BankMemory):
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
            checkpoint, memory="off", data_dir=self.folders.data, seed=self.training.seed
        )
        buffers = self.folders.held_out_data / "buffers"
        options = self._options(len(asked.questions), group_size=1, reflections=0, buffers=buffers)
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
        told = {name: getattr(config, name) for name in JUDGE_FLAGS if name != "gated"}
        judging = wanted_of("stage", told, load_settings({"data_dir": self.folders.data}))
        return CollectOptions(
            step_size=questions, judge=config.judge, judge_model=model, judge_base_url=base_url,
            judging=judging, gated=config.gated, **shape,
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
                "system_prompt": config.system_prompt, "passages": config.passages,
                "passage_words": config.passage_words,
                "least_reflection_score": config.least_reflection_score,
                "reflection_tokens": config.reflection_tokens, "slots": config.slots,
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
        told = await refresh_server(self.config.refresh, checkpoint, "[rounds]")
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
    watch: Watch = unwatched

    async def __call__(self, updates: int) -> None:
        """Ask them after so many updates if it is time for that; once, also after a kill."""
        config, run = self.sampled.config, self.sampled.folders.held_out(updates)
        if updates % config.held_out_every and updates < config.rounds:
            return
        if not (run.folder / NUMBERS).exists():
            self.watch(PhaseChanged("held-out", updates, True))
            newest = self.updates.checkpoint
            async with self.sampled.held_out(run, self.asked, newest) as collector:
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
        path = self.sampled.folders.held_out(updates).folder / NUMBERS
        return value_in(path, dict[str, float]) or {}

    def _write(self, run: RunDirectory, updates: int) -> dict[str, float]:
        """The asking's numbers, its rewards with the 95% intervals of their means."""
        groups = groups_of_round(run, updates)
        numbers = {n: v for n, v in numbers_of(groups, self.rule).items() if "spread" not in n}
        found = {"updates": float(updates), **numbers, **reward_intervals(groups)}
        write_atomically(run.folder / NUMBERS, json.dumps(found, indent=1))
        return found
