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
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from rubricem.agent.models.opening import PolicyChoice, in_tokens
from rubricem.agent.models.policy import call_scope
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import model_of
from rubricem.judge.base import fit_messages, outcome
from rubricem.judge.evaluation.data import LabelledComparison, LabelledPair
from rubricem.judge.evaluation.report import PairReport
from rubricem.judge.evaluation.run import compare_all, tasks_of
from rubricem.judge.pairwise import ChainComparer, Side, reward, verdict_end, verdict_of
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
    read_toml,
)
from rubricem.training.local.session import Tell
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
from rubricem.training.rows.sequences import NO_STAGE
from rubricem.training.show.events import StepTaken, Watch, watch_nothing

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
    return check_config(values, path.parent, EngineConfig), told


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
class Sample:
    """One comparison written by the judge in training."""

    verdict: Side | None = None
    reward: float = np.nan
    """1, -1, or NaN if it is unscored"""
    unscored: str = NOT_SAMPLED
    """why"""
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None

    @classmethod
    def of(cls, said: Completion, better: Side) -> "Sample":
        """A rewarded text: a missing verdict is wrong, but a cut off text is unscored."""
        cut_off = said.stop_reason == "length"
        return cls(
            verdict=verdict_of(said.text),
            reward=np.nan if cut_off else float(reward(said.text, better)),
            unscored=CUT_OFF if cut_off else "",
            ids=said.token_ids or (),
            logprobs=None if said.retokenised else said.logprobs,
        )


@dataclass(frozen=True, slots=True)
class SampledPair:
    """All samples of one pair, from the same prompt ids."""

    pair: ShownPair
    prefix: tuple[int, ...]
    samples: tuple[Sample, ...]
    version: str
    """of the judge that wrote them"""

    @property
    def advantages(self) -> Sequence[float]:
        """In standard deviations of the group; 0 if nothing is learnt."""
        rewards = np.array([[sample.reward] for sample in self.samples])
        values: list[float] = stage_advantages(rewards)[:, 0].tolist()
        return values

    def rows(self, name: str) -> Compiled:
        """A row for each sample with a score and token ids; `name` is the group's."""

        def row(number: int, sample: Sample, advantage: float) -> TrainRow | str:
            if sample.unscored:
                return sample.unscored
            if not sample.ids or sample.logprobs is None:
                return NO_LOGPROBS
            before, written = len(self.prefix), len(sample.ids)
            return TrainRow(
                id=f"{name}:{number}",
                group=name,
                trajectory=f"{name}:{number}",
                objective="judge",
                policy_version=self.version,
                ids=(*self.prefix, *sample.ids),
                prompt_tokens=before,
                loss_mask=(0,) * before + (1,) * written,
                advantages=(0.0,) * before + (advantage,) * written,
                behaviour_logprobs=(0.0,) * before + sample.logprobs,
                stages=(NO_STAGE,) * (before + written),
            )

        pairs = zip(self.samples, self.advantages, strict=True)
        return separate_rows(row(n, sample, value) for n, (sample, value) in enumerate(pairs))


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
    watch: Watch = watch_nothing

    async def run(self) -> tuple[PairReport | None, PairReport | None]:
        """Do the remaining rounds; judges the held-out pairs before and after."""
        before = await self._measure(0)
        while self.updates.done < self.grpo.rounds:
            await self._round(self.updates.done)
        return before, await self._measure(self.updates.done)

    async def _round(self, number: int) -> None:
        seed = round_seed(self.config.seed, number)
        pairs = batch_of(self.pairs, self.grpo.pairs_per_round, number, self.config.seed)
        found = await self._sample(number, show_once(pairs, seed), seed)
        sampled = [one for one in found if isinstance(one, SampledPair)]
        rows, numbers = round_rows(sampled, number, self.updates.longest)
        if not rows:
            self.tell(
                f"round {number + 1} had nothing to learn: no pair's samples differ in reward"
            )

        def update() -> Metrics:
            """Update and save in one call, so that stopping keeps an update that has begun."""
            metrics = {**numbers, **self.updates.update(rows)}
            self.updates.save(metrics)
            return metrics

        metrics = await in_thread(update)
        self.watch(StepTaken(number + 1, self.grpo.rounds, metrics, "round"))

    async def _measure(self, updates: int) -> PairReport | None:
        """The judge on the held-out pairs after so many rounds; done once, also after a kill."""
        if not self.held_out:
            return None
        folder = self.config.out / "held_out"
        path = folder / f"{updates:03d}.json"
        report = value_in(path, PairReport)
        if report is None:
            checkpoint = self.updates.checkpoint if updates else self.config.start_adapter
            found = await self._compare(folder / f"{updates:03d}", checkpoint)
            report = PairReport.of("held out", f"after {updates} rounds", self.held_out, found)
            write_atomically(path, report.model_dump_json(indent=1))
            right = report.measures.accuracy
            self.tell(f"held-out pairs after {updates} rounds: {right.hits:g} of {right.n}")
        return report

    async def _sample(
        self, number: int, pairs: Sequence[ShownPair], seed: int
    ) -> list[SampledPair | str]:
        """For each pair its samples, or why it has none. Raises PolicyError if no pair has any."""
        choice = await self._choice(self.updates.checkpoint)
        async with self._open(choice, self.folders.round(number).folder) as (gate, model):
            work = together(self._pair(model, pair, seed) for pair in pairs)
            found = await gate.through(work, self.stop)
        if failed := [one for one in found if isinstance(one, str)]:
            self.tell(f"{len(failed)} of {len(found)} pairs were not sampled: {failed[0]}")
        if len(failed) == len(found):
            raise PolicyError(
                f"The judge could compare none of {len(found)} pairs: {failed[0]}", MEND
            )
        return found

    async def _compare(self, folder: Path, checkpoint: Path | None) -> list[LabelledComparison]:
        """The held-out pairs in both orders at temperature 0.

        Raises PolicyError if none is compared.
        """
        choice = await self._choice(checkpoint)
        async with self._open(choice, folder) as (gate, model):
            comparer = ChainComparer(model, self.grpo.max_tokens)
            tasks = tasks_of(self.held_out)
            with call_scope("compare"):
                work = compare_all(comparer, tasks, choice.at_once, lambda comparison: None)
                found = await gate.through(work, self.stop)
        if not any(comparison.text for comparison in found):
            # A judge that was asked in vain is not one that names no winner.
            raise PolicyError(
                f"The judge could compare none of the held-out pairs: {found[0].reason}", MEND
            )
        return found

    @asynccontextmanager
    async def _open(
        self, choice: PolicyChoice, folder: Path
    ) -> AsyncIterator[tuple[RunGate, TokenPolicy]]:
        async with choice.open_tokens() as model:
            with open_gate(folder, self.tell) as gate:
                yield gate, gate.with_journal(model)

    async def _choice(self, checkpoint: Path | None) -> PolicyChoice:
        grpo, name = self.grpo, str(checkpoint or self.config.model)
        chosen = {"model": name, "base_url": grpo.base_url}
        if grpo.base_url:
            chosen["model"] = grpo.model
            if checkpoint is not None:
                told = await refresh_server(grpo.refresh, checkpoint, "[grpo]")
                chosen["model"] = told or grpo.model
        return in_tokens(model_of(self.settings.model_copy(update=chosen)))

    async def _pair(self, model: TokenPolicy, pair: ShownPair, seed: int) -> SampledPair | str:
        limit = self.grpo.max_tokens
        try:
            _, prefix = await fit_messages(model, pair.messages, limit)
        except (PolicyError, JudgeError) as error:
            return str(error)

        async def sample(number: int) -> Sample:
            sampling = Sampling(max_tokens=limit, seed=seed_of(seed, pair.id, number))
            return Sample.of(await model.complete(prefix, sampling, verdict_end), pair.better)

        with call_scope(pair.id):
            found = await together(outcome(sample(n)) for n in range(self.grpo.samples))
        if not any(isinstance(one, Sample) for one in found):
            return str(found[0])
        samples = tuple(one if isinstance(one, Sample) else Sample() for one in found)
        return SampledPair(pair, prefix, samples, model.version)


async def train_judge(
    config: EngineConfig,
    grpo: GrpoConfig,
    settings: Settings,
    tell: Tell,
    watch: Watch | None = None,
    stop: asyncio.Event | None = None,
) -> JudgeTrained:
    """Do the remaining rounds; the same call continues after an interruption.

    `watch`: receives each event; None: `tell`, with a line for each.

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
        config, folders, grpo.rounds, tell, settings.weights_dir, record, watch, METHOD
    ) as (updates, seen):
        before = after = None
        if updates.leads:
            rounds = JudgeRounds(
                config, grpo, settings, pairs, held_out, updates, folders, tell, stop, seen
            )
            before, after = await rounds.run()
        else:
            await in_thread(updates.follow)
        updates.dismiss()
        return JudgeTrained(updates.checkpoint, updates.done, before, after)


def round_rows(
    sampled: Sequence[SampledPair], number: int, max_row_tokens: int
) -> tuple[list[TrainRow], dict[str, float]]:
    """The rows and the numbers of a round; no rows if no sample was better than another.

    If the round teaches something, rows without an advantage are kept: the divergence from the
    reference applies to them.
    """
    rows, dropped = list[TrainRow](), Counter[str]()
    for one in sampled:
        found = one.rows(f"r{number:03d}-{one.pair.id}")
        kept = trainable(found.rows, max_row_tokens)
        rows += kept.rows
        dropped.update(found.dropped)
        dropped.update(kept.dropped)
    taught = any(row.moves for row in rows)
    numbers = {
        "round": float(number + 1),
        **_verdicts(sampled),
        "groups": float(len(sampled)),
        "groups/no_spread": float(sum(not any(one.advantages) for one in sampled)),
        "rows/judge": float(len(rows) if taught else 0),
        **{f"dropped/{reason}": float(count) for reason, count in dropped.items() if count},
    }
    return rows if taught else [], numbers


def _verdicts(sampled: Sequence[SampledPair]) -> dict[str, float]:
    """Shares of all scored samples; `unscored` of all; `reward` is their mean.

    If none was scored, `unscored` alone.
    """
    drawn = [(sample, one.pair.better) for one in sampled for sample in one.samples]
    scored = [(sample, better) for sample, better in drawn if not sample.unscored]
    unscored = {"unscored": 1 - len(scored) / max(len(drawn), 1)}
    if not (count := len(scored)):
        return unscored
    return unscored | {
        "reward": float(np.sum([s.reward for s, _ in scored])) / count,
        "right": sum(s.verdict == better for s, better in scored) / count,
        "malformed": sum(s.verdict is None for s, _ in scored) / count,
        "shown_first": sum(s.verdict == "A" for s, _ in scored) / count,
        "tokens/mean": sum(len(s.ids) for s, _ in scored) / count,
    }
