"""Rounds in which the judge learns from its own verdicts: sample, reward, update, repeat.

A round samples several comparisons of each of its pairs from the newest judge, rewards each by its
verdict (1 if it is right, -1 if it is wrong or missing), and makes one update: GRPO with one stage,
a clipped ratio and a divergence from the first judge (RM-R1, arXiv:2505.02387, 3.3).

    OUT/checkpoints, metrics.jsonl  the engine's, with one checkpoint for each round
    OUT/rounds/NNN/journal.jsonl    the round's samples: none is made twice
    OUT/rounds.jsonl                one line of numbers for each round
    OUT/held_out/NNN.json           the held-out pairs after NNN rounds, in both orders
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from rubricem.agent.models.opening import in_tokens
from rubricem.agent.models.policy import call_scope
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import model_of
from rubricem.agent.transcript.events import Tell
from rubricem.judge.base import fit_messages, outcome
from rubricem.judge.evaluation.data import LabelledPair
from rubricem.judge.evaluation.report import PairReport
from rubricem.judge.evaluation.run import compare_all, tasks_of
from rubricem.judge.pairwise import ChainComparer, reward, verdict_end, verdict_of
from rubricem.judge.rubrics.core import together
from rubricem.memory.errors import JudgeError, PolicyError, SettingsError
from rubricem.memory.runs import value_in, write_atomically
from rubricem.memory.schema import Completion, Sampling, TokenPolicy
from rubricem.memory.text import digest_of, seed_of
from rubricem.training.collect.gate import MEND, RunGate
from rubricem.training.collect.questions import apart_from
from rubricem.training.extras import in_thread
from rubricem.training.judge_training.pairs import (
    PairsConfig,
    ShownPair,
    open_gate,
    read_pairs,
    show_once,
    take_table,
)
from rubricem.training.local.local_config import (
    EngineConfig,
    SampledConfig,
    check_config,
    check_sampled,
)
from rubricem.training.rounds.rollouts import refresh_server
from rubricem.training.rounds.update import (
    Metrics,
    RoundFolders,
    RoundsEnded,
    SessionUpdates,
    open_updates,
    round_seed,
)
from rubricem.training.rows.credit import Compiled, separate_rows, stage_advantages, trainable
from rubricem.training.rows.row import TrainRow
from rubricem.training.statistics import share_if_any
from rubricem.training.tables import read_toml

BETA = 1e-3


class GrpoConfig(PairsConfig, SampledConfig):
    """What is sampled between updates."""

    held_out: tuple[Path, ...] = ()
    """pairs that are never trained on; judged in both orders before and after"""
    pairs_per_round: int = Field(default=8, ge=1)
    """pairs whose samples make one update"""
    samples: int = Field(default=7, ge=2)
    """samples of each pair; together they are one group"""
    max_tokens: int = Field(default=2048, ge=16)
    """tokens of one sample; a sample cut off by this limit is unscored"""

    @model_validator(mode="after")
    def _refreshed_by_command(self) -> Self:
        if isinstance(self.refresh, str):
            raise ValueError("a judge's server is given a checkpoint by a command, as a list")
        return self


def read_grpo(path: Path, overrides: Sequence[str] = ()) -> tuple[EngineConfig, GrpoConfig]:
    """A file's settings of the rounds. Raises SettingsError with every fault in a sentence."""
    values = {"judge": "full", **read_toml(path, overrides)}
    told = take_table(values, "grpo", GrpoConfig, path.parent)
    if "save_every" in values:
        raise SettingsError(
            "[grpo] saves a checkpoint after every round.", "Leave out `save_every`."
        )
    objective = values.get("objective", {})
    if isinstance(objective, dict):
        values["objective"] = {"beta": BETA, **objective}
    engine = check_config(values, path.parent, EngineConfig)
    check_sampled(engine, told, "grpo")
    return engine, told


def batch_of(
    pairs: Sequence[LabelledPair], size: int, number: int, seed: int
) -> list[LabelledPair]:
    """The pairs of a round: each pass over all pairs draws another order."""
    size, chosen = min(size, len(pairs)), []
    for place in range(number * size, (number + 1) * size):
        epoch, at = divmod(place, len(pairs))
        order = list(pairs)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        chosen.append(order[at])
    return list({pair.id: pair for pair in chosen}.values())


NO_LOGPROBS = "without the ids or log-probabilities of its tokens"
CUT_OFF = "unscored: cut off by its limit of tokens"
NOT_SAMPLED = "unscored: the model failed"


@dataclass(frozen=True, slots=True)
class SampledPair:
    """All samples of one pair, from the same prompt ids; an error where the model failed."""

    pair: ShownPair
    prefix: tuple[int, ...]
    samples: tuple[Completion | JudgeError | PolicyError, ...]
    version: str
    """of the judge that wrote them"""

    @property
    def scored(self) -> list[Completion]:
        """Those that were not cut off: without a verdict they are wrong, cut off they may be."""
        return [
            one for one in self.samples
            if isinstance(one, Completion) and one.stop_reason != "length"
        ]  # fmt: skip

    @property
    def advantages(self) -> Sequence[float]:
        """Of the scored samples, in standard deviations of the group; 0 if nothing is learnt."""
        rewards = [[reward(sample.text, self.pair.better)] for sample in self.scored]
        values: list[float] = stage_advantages(np.reshape(rewards, (-1, 1)))[:, 0].tolist()
        return values

    def rows(self, name: str) -> Compiled:
        """A row for each sample with a score and token ids; `name` is the group's."""
        advantages = iter(self.advantages)

        def row(number: int, sample: Completion | JudgeError | PolicyError) -> TrainRow | str:
            if not isinstance(sample, Completion):
                return NOT_SAMPLED
            if sample.stop_reason == "length":
                return CUT_OFF
            advantage = next(advantages)
            if not sample.token_ids or sample.logprobs is None or sample.retokenised:
                return NO_LOGPROBS
            return TrainRow.written(
                f"{name}:{number}", name, "judge", self.version, self.prefix, sample.token_ids,
                advantage, sample.logprobs,
            )  # fmt: skip

        return separate_rows(row(*one) for one in enumerate(self.samples))


METHOD = "judge-grpo"
CHANGEABLE = {"rounds", "base_url", "refresh", "pairs", "held_out"}
"""settings that may change when the rounds of a folder continue; pairs are compared by content"""


@dataclass(frozen=True, slots=True)
class JudgeTrained(RoundsEnded):
    """The result of training a judge."""

    before: PairReport | None = None
    """on the held-out pairs; None: there are none"""
    after: PairReport | None = None


@dataclass(frozen=True, slots=True)
class JudgeRounds:
    """The rounds of one training, one after another, and the judge being sampled."""

    config: EngineConfig
    grpo: GrpoConfig
    settings: Settings
    pairs: Sequence[LabelledPair]
    held_out: Sequence[LabelledPair]
    updates: SessionUpdates
    folders: RoundFolders
    tell: Tell
    stop: asyncio.Event | None = None

    async def run(self) -> tuple[PairReport | None, PairReport | None]:
        """Do the remaining rounds; judges the held-out pairs before and after."""
        before = await self._measure(0)
        while self.updates.done < self.grpo.rounds:
            await self._round(self.updates.done)
        return before, await self._measure(self.updates.done)

    async def _round(self, number: int) -> None:
        seed = round_seed(self.config.seed, number)
        pairs = batch_of(self.pairs, self.grpo.pairs_per_round, number, self.config.seed)
        sampled = await self._sample(number, show_once(pairs, seed), seed)
        found, numbers = round_rows(sampled, number, self.updates.longest)
        if not found.rows:
            left = found.dropped.items()
            why = "".join(f"; {count} left out, {reason}" for reason, count in left)
            self.tell(
                f"round {number + 1} had nothing to learn: no pair's samples differ in reward{why}"
            )

        def update() -> Metrics:
            """Update and save in one call, so that stopping keeps an update that has begun."""
            metrics = {**numbers, **self.updates.update(found.rows)}
            self.updates.save(metrics)
            return metrics

        metrics = await in_thread(update)
        self.updates.progress.step(number + 1, self.grpo.rounds, metrics)

    async def _measure(self, updates: int) -> PairReport | None:
        """The judge on the held-out pairs after so many rounds; done once, also after a kill."""
        if not self.held_out:
            return None
        folder = self.config.out / "held_out"
        path = folder / f"{updates:03d}.json"
        report = value_in(path, PairReport)
        if report is None:
            checkpoint = self.updates.checkpoint if updates else self.config.start_adapter
            async with self._open(checkpoint, folder / f"{updates:03d}") as (gate, model, at_once):
                comparer = ChainComparer(model, self.grpo.max_tokens)
                tasks = tasks_of(self.held_out)
                with call_scope("compare"):
                    work = compare_all(comparer, tasks, at_once, lambda comparison: None)
                    found = await gate.through(work, self.stop)
            if not any(comparison.text for comparison in found):
                # A judge that was asked in vain is not one that names no winner.
                raise PolicyError(
                    f"The judge could compare none of the held-out pairs: {found[0].reason}", MEND
                )
            report = PairReport.of("held out", f"after {updates} rounds", self.held_out, found)
            write_atomically(path, report.model_dump_json(indent=1))
            right = report.measures.accuracy
            self.tell(f"held-out pairs after {updates} rounds: {right.hits:g} of {right.n}")
        return report

    async def _sample(
        self, number: int, pairs: Sequence[ShownPair], seed: int
    ) -> list[SampledPair]:
        """The samples of each pair that has any. Raises PolicyError if none has."""
        place = self.folders.round(number).folder
        async with self._open(self.updates.checkpoint, place) as (gate, model, _):
            work = together(self._pair(model, pair, seed) for pair in pairs)
            found = await gate.through(work, self.stop)
        if failed := [one for one in found if isinstance(one, str)]:
            self.tell(f"{len(failed)} of {len(found)} pairs were not sampled: {failed[0]}")
        if len(failed) == len(found):
            raise PolicyError(
                f"The judge could compare none of {len(found)} pairs: {failed[0]}", MEND
            )
        return [one for one in found if isinstance(one, SampledPair)]

    @asynccontextmanager
    async def _open(
        self, checkpoint: Path | None, folder: Path
    ) -> AsyncIterator[tuple[RunGate, TokenPolicy, int]]:
        """The gate to a judge, the judge behind it, and how many calls it takes at once."""
        grpo, name = self.grpo, str(checkpoint or self.config.model)
        if grpo.base_url:
            name = grpo.model or ""
            if checkpoint is not None:
                name = await refresh_server(grpo.refresh, checkpoint, "[grpo]") or name
        chosen = self.settings.model_copy(update={"model": name, "base_url": grpo.base_url})
        choice = in_tokens(model_of(chosen))
        async with choice.open_tokens() as model:
            with open_gate(folder, self.tell) as gate:
                yield gate, gate.with_journal(model), choice.at_once

    async def _pair(self, model: TokenPolicy, pair: ShownPair, seed: int) -> SampledPair | str:
        limit = self.grpo.max_tokens
        try:
            _, prefix = await fit_messages(model, pair.messages, limit)
        except (PolicyError, JudgeError) as error:
            return str(error)
        draws = [Sampling(max_tokens=limit, seed=seed_of(seed, pair.id, number))
                 for number in range(self.grpo.samples)]  # fmt: skip
        with call_scope(pair.id):
            found = await together(
                outcome(model.complete(prefix, draw, verdict_end)) for draw in draws
            )
        if not any(isinstance(one, Completion) for one in found):
            return str(found[0])
        return SampledPair(pair, prefix, tuple(found), model.version)


async def train_judge(
    config: EngineConfig, grpo: GrpoConfig, settings: Settings, tell: Tell,
    stop: asyncio.Event | None = None,
) -> JudgeTrained:  # fmt: skip
    """Do the remaining rounds; the same call continues after an interruption.

    Raises SettingsError for incompatible settings, RunStopped at `stop`, PolicyError if no pair
    could be sampled, a server was away for too long, or a gradient is not finite.
    """
    found = await asyncio.to_thread(read_pairs, grpo.pairs)
    held_out = await asyncio.to_thread(read_pairs, grpo.held_out)
    pairs = apart_from(found, held_out, lambda pair: pair.prompt, "pairs", tell)

    def digest(pairs: Sequence[LabelledPair]) -> str:
        return digest_of("\n".join(pair.model_dump_json() for pair in pairs))

    claimed = grpo.model_dump(mode="json", exclude=CHANGEABLE)
    record = {f"grpo.{name}": value for name, value in claimed.items()}
    record |= {"judge": config.judge, "grpo.pairs": digest(pairs), "grpo.asked": digest(held_out)}
    folders = RoundFolders(config.out, config.out / "data")
    async with open_updates(
        config, folders, grpo.rounds, tell, settings.weights_dir, record, METHOD
    ) as updates:
        before = after = None
        if updates.leads:
            rounds = JudgeRounds(
                config, grpo, settings, pairs, held_out, updates, folders, tell, stop
            )
            before, after = await rounds.run()
        else:
            await in_thread(updates.follow)
        return JudgeTrained(updates.checkpoint, updates.done, before=before, after=after)


def round_rows(
    sampled: Sequence[SampledPair], number: int, max_row_tokens: int
) -> tuple[Compiled, dict[str, float]]:
    """The rows and the numbers of a round; no rows if no sample was better than another.

    If the round teaches something, rows without an advantage are kept: the divergence from the
    reference applies to them.
    """
    found = sum((one.rows(f"r{number:03d}-{one.pair.id}") for one in sampled), Compiled())
    kept = trainable(found.each(), max_row_tokens)
    if not any(row.moves for row in kept.rows):
        kept = Compiled(dropped=kept.dropped)
    numbers = {
        "round": float(number + 1),
        **_verdicts(sampled),
        "groups": float(len(sampled)),
        "groups/no_spread": float(sum(not any(one.advantages) for one in sampled)),
        "rows/judge": float(len(kept.rows)),
        **{f"dropped/{reason}": float(count) for reason, count in kept.dropped.items()},
    }
    return kept, numbers


def _verdicts(sampled: Sequence[SampledPair]) -> dict[str, float]:
    """Shares of all scored samples; `unscored` of all; `reward` is their mean.

    If none was scored, `unscored` alone.
    """
    drawn = sum(len(one.samples) for one in sampled)
    scored = [(sample, one.pair.better) for one in sampled for sample in one.scored]
    verdicts = [verdict_of(sample.text) for sample, _ in scored]
    right = [verdict == better for verdict, (_, better) in zip(verdicts, scored, strict=True)]
    numbers = {"unscored": 1 - len(scored) / max(drawn, 1)}
    if scored:
        numbers["reward"] = fmean(reward(sample.text, better) for sample, better in scored)
        numbers["tokens/mean"] = fmean(len(sample.token_ids or ()) for sample, _ in scored)
    return {
        **numbers,
        **share_if_any("right", right),
        **share_if_any("malformed", (verdict is None for verdict in verdicts)),
        **share_if_any("shown_first", (verdict == "A" for verdict in verdicts)),
    }
