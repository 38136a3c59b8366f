"""Rounds in which the judge learns from its own verdicts: sample, reward, update, again.

A round asks the newest judge for several comparisons of each of its pairs, rewards each by its
verdict, and makes one update of them: GRPO with one stage, a clipped ratio and a divergence from
the judge that training began with (RM-R1, arXiv:2505.02387, section 3.3).

OUT/checkpoints, metrics.jsonl   the engine's, with one checkpoint for each round
OUT/rounds/NNN/journal.jsonl     the round's samples: none is made twice
OUT/rounds.jsonl                 one line of numbers for each round
OUT/held_out/NNN.json            the held-out pairs after NNN rounds, in both orders

The judge is sampled as the policy is: the embedded model with the newest adapter, or a server that
is given each checkpoint.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from rubricem.agent.models.opening import PolicyChoice
from rubricem.agent.settings.door import model_of
from rubricem.agent.weights.checkpoints import note_of
from rubricem.judge.base import fit_messages
from rubricem.judge.evaluation.data import LabelledComparison, LabelledPair
from rubricem.judge.evaluation.report import PairReport, pair_report
from rubricem.judge.evaluation.run import compare_all, tasks_of
from rubricem.judge.pairwise import ChainComparer, ChainForm, chain_messages, verdict_end
from rubricem.memory.errors import JudgeError, PolicyError, SettingsError, StoreError, boundary
from rubricem.memory.interfaces import Sampling, TokenPolicy
from rubricem.memory.runs import write_atomically
from rubricem.training.collect.gate import at_once
from rubricem.training.extras import in_thread
from rubricem.training.judge_training.judge_config import GrpoConfig
from rubricem.training.judge_training.pairs import (
    Gated,
    Sample,
    SampledPair,
    ShownPair,
    all_done,
    apart_from,
    batch_of,
    digest,
    failed_sample,
    gated,
    judge_rows,
    read_pairs,
    sample_of,
    settings_of,
    shown_once,
)
from rubricem.training.local.learner import moves
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.session import (
    Canary,
    Tell,
    compare_once,
    open_session,
)
from rubricem.training.rounds.rollouts import refresh_server
from rubricem.training.rounds.update import Metrics, RoundFolders, SessionUpdates, round_seed
from rubricem.training.rows.row import TrainRow
from rubricem.training.show.console import PlainTraining, with_event_files
from rubricem.training.show.events import (
    Phase,
    PhaseChanged,
    RoundTrained,
    Watch,
    check_possible_of_judge,
    unwatched,
)

MEND = "Mend that and run the same command again; what is finished is not repeated."


@dataclass(frozen=True, slots=True)
class JudgeSampler:
    """Where the judge is asked, with which weights."""

    config: EngineConfig
    grpo: GrpoConfig
    form: ChainForm
    tell: Tell
    stop: asyncio.Event | None = None

    async def sampled(
        self, folder: Path, pairs: Sequence[ShownPair], checkpoint: Path | None, seed: int
    ) -> list[SampledPair | str]:
        """For each pair its samples, or why there are none. Raises PolicyError for none at all."""
        async with self._open(await self._choice(checkpoint), folder) as (gate, model):
            work = all_done(self._pair(gate, model, pair, seed) for pair in pairs)
            found = await gate.flow.through(work, self.stop)
        if failed := [one for one in found if isinstance(one, str)]:
            self.tell(f"{len(failed)} of {len(found)} pairs were not sampled: {failed[0]}")
        if len(failed) == len(found):
            raise PolicyError(
                f"The judge could compare none of {len(found)} pairs: {failed[0]}",
                MEND,
            )
        return found

    async def compared(
        self, folder: Path, pairs: Sequence[LabelledPair], checkpoint: Path | None
    ) -> list[LabelledComparison]:
        """Every pair in both orders at temperature 0. Raises PolicyError where none is compared."""
        choice = await self._choice(checkpoint)
        async with self._open(choice, folder) as (gate, model):
            comparer = ChainComparer(model, self.form, self.grpo.max_tokens)
            tasks = tasks_of(pairs, "both", self.config.seed)
            with gate.scopes.scope("compare"):
                work = compare_all(comparer, tasks, at_once(choice), lambda comparison: None)
                found = await gate.flow.through(work, self.stop)
        if not any(comparison.text for comparison in found):
            # A judge that was asked in vain is not one that names no winner.
            raise PolicyError(
                f"The judge could compare none of the held-out pairs: {found[0].reason}", MEND
            )
        return found

    @asynccontextmanager
    async def _open(
        self, choice: PolicyChoice, folder: Path
    ) -> AsyncIterator[tuple[Gated, TokenPolicy]]:
        async with choice.open_tokens() as model:
            with gated(folder, self.tell) as gate:
                yield gate, gate.model(model)

    async def _choice(self, checkpoint: Path | None) -> PolicyChoice:
        grpo = self.grpo
        if not grpo.base_url:
            return model_of(settings_of(str(checkpoint or self.config.model), None))
        name = grpo.model
        if checkpoint is not None:
            name = await refresh_server(grpo.refresh, checkpoint, "[grpo]") or name
        return model_of(settings_of(name, grpo.base_url, dialect="auto"))

    async def _pair(
        self, gate: Gated, model: TokenPolicy, pair: ShownPair, seed: int
    ) -> SampledPair | str:
        asked = partial(chain_messages, self.form, pair.question, pair.first, pair.second)
        try:
            _, prefix = await fit_messages(model, asked, self.grpo.max_tokens)
        except (PolicyError, JudgeError) as error:
            return str(error)

        async def sample(number: int) -> Sample | str:
            drawn = _seed(seed, pair, number)
            sampling = Sampling(max_tokens=self.grpo.max_tokens, seed=drawn)
            try:
                said = await model.complete(prefix, sampling, verdict_end)
            except PolicyError as error:
                return str(error)
            return sample_of(said, pair.better, self.form, self.grpo.reward)

        with gate.scopes.scope(pair.id):
            found = await all_done(sample(n) for n in range(self.grpo.samples))
        samples = [one if isinstance(one, Sample) else failed_sample() for one in found]
        faults = [one for one in found if isinstance(one, str)]
        return (
            faults[0]
            if len(faults) == len(found)
            else SampledPair(pair, prefix, tuple(samples), model.version)
        )


def _seed(seed: int, pair: ShownPair, number: int) -> int:
    """Of 32 bits, another one for each sample."""
    return int(hashlib.sha256(f"{seed}\0{pair.id}\0{number}".encode()).hexdigest()[:8], 16)


METHOD = "judge-grpo"
CHANGEABLE = {"rounds", "base_url", "refresh", "pairs", "held_out", "limit"}
"""what may differ when the rounds of a folder go on; the pairs are compared by what they hold"""


@dataclass(frozen=True, slots=True)
class JudgeTrained:
    """What all rounds of a configuration led to."""

    checkpoint: Path | None
    """None: no round had a pair whose samples differed in reward"""
    rounds: int
    before: PairReport | None
    """on the held-out pairs; None: there are none"""
    after: PairReport | None
    canary: Canary | None
    """None: it was not compared, as where llama.cpp cannot serve what was trained"""


@dataclass(frozen=True, slots=True)
class JudgeRounds:
    """The rounds of one training, which are done one after another."""

    config: EngineConfig
    grpo: GrpoConfig
    pairs: Sequence[LabelledPair]
    held_out: Sequence[LabelledPair]
    sampler: JudgeSampler
    updates: SessionUpdates
    folders: RoundFolders
    watch: Watch = unwatched

    async def run(self) -> tuple[PairReport | None, PairReport | None]:
        """Do the rounds that are not done; what the held-out pairs say before and after."""
        before = await self._measured(0)
        while self.updates.done < self.grpo.rounds:
            await self._round(self.updates.done)
        return before, await self._measured(self.updates.done)

    async def _round(self, number: int) -> None:
        seed = round_seed(self.config.seed, number)
        pairs = batch_of(self.pairs, self.grpo.pairs_per_round, number, self.config.seed)
        folder = self.folders.round(number).folder
        with self._phase("collect", number + 1):
            found = await self.sampler.sampled(
                folder, shown_once(pairs, seed), self.updates.checkpoint, seed
            )
        sampled = [one for one in found if isinstance(one, SampledPair)]
        rows, numbers = round_rows(sampled, number, self.config.max_row_tokens)
        if not rows:
            self.sampler.tell(
                f"round {number + 1} had nothing to learn: no pair's samples differ in reward"
            )
        with self._phase("update", number + 1):
            metrics = await in_thread(partial(self._updated, rows, numbers))
        self.watch(RoundTrained(number + 1, self.grpo.rounds, metrics))

    def _updated(self, rows: Sequence[TrainRow], numbers: Mapping[str, float]) -> Metrics:
        """Update and save in one piece: whoever stops the training keeps an update begun."""
        metrics = {**numbers, **self.updates.update(rows)}
        self.updates.save(metrics)
        return metrics

    @contextmanager
    def _phase(self, phase: Phase, number: int) -> Iterator[None]:
        self.watch(PhaseChanged(phase, number, True))
        yield
        self.watch(PhaseChanged(phase, number, False))

    async def _measured(self, updates: int) -> PairReport | None:
        """The held-out pairs by the judge after so many rounds; once, also after a kill."""
        if not self.held_out:
            return None
        folder = self.config.out / "held_out"
        path = folder / f"{updates:03d}.json"
        if not path.exists():
            checkpoint = self.updates.checkpoint if updates else self.config.start_adapter
            with self._phase("held-out pairs", updates):
                comparisons = await self.sampler.compared(
                    folder / f"{updates:03d}", self.held_out, checkpoint
                )
            report = pair_report("held out", f"after {updates} rounds", self.held_out, comparisons)
            write_atomically(path, report.model_dump_json(indent=1))
            right = report.measures.accuracy
            self.sampler.tell(f"held-out pairs after {updates} rounds: {right.hits:g} of {right.n}")
        with boundary(StoreError, f"reading {path}"):
            return PairReport.model_validate_json(path.read_bytes())


async def train_judge(
    config: EngineConfig,
    grpo: GrpoConfig,
    tell: Tell,
    weights_dir: Path | None = None,
    stop: asyncio.Event | None = None,
    watch: Watch | None = None,
) -> JudgeTrained:
    """Do the rounds that are not done yet; the same call goes on after an interruption.

    `watch`: who is shown each event; None: `tell`, a line for each.

    Raises SettingsError for what does not fit, RunStopped at `stop`, PolicyError where no pair
    could be sampled, a server was away for too long, or a gradient is not finite.
    """
    check_possible_of_judge(config.best_by)
    pairs, held_out, left_out = await asyncio.to_thread(_pairs, config, grpo, tell)
    _check_start(config)
    claimed = grpo.model_dump(mode="json", exclude=CHANGEABLE)
    record = {f"grpo.{name}": value for name, value in claimed.items()}
    record |= {"judge": config.judge, "grpo.pairs": digest(pairs), "grpo.asked": digest(held_out)}
    async with open_session(config, "ss-grpo", tell, weights_dir, record) as session:
        if session.ranks.world > 1:
            raise SettingsError(
                "The judge is sampled by one process, and torchrun started several.",
                "Start it without torchrun.",
            )
        session.note = session.note.model_copy(update={"method": METHOD})
        session.trained_on = {
            "pairs": len(pairs), "pairs SHA-256": record["grpo.pairs"],
            "pairs held out": len(held_out), "pairs left out, as held out": left_out,
        }  # fmt: skip
        folders = RoundFolders(config.out, config.out / "data")
        shown = watch or PlainTraining(tell)
        updates = SessionUpdates(session, folders, grpo.rounds, shown)
        assert config.judge is not None
        sampler = JudgeSampler(config, grpo, config.judge, tell, stop)
        with with_event_files(shown, config.out, config.tensorboard) as seen:
            rounds = JudgeRounds(config, grpo, pairs, held_out, sampler, updates, folders, seen)
            before, after = await rounds.run()
        canary = await compare_once(session, updates.last)
        return JudgeTrained(updates.checkpoint, updates.done, before, after, canary)


def round_rows(
    sampled: Sequence[SampledPair], number: int, max_row_tokens: int
) -> tuple[list[TrainRow], dict[str, float]]:
    """What a round trains, and its numbers; no row where no sample was better than another.

    Of a round that teaches something the rows without an advantage are kept: they are held to the
    reference.
    """
    rows, dropped = [], Counter[str]()
    for one in sampled:
        found = judge_rows(one, f"r{number:03d}-{one.pair.id}")
        rows += [row for row in found.rows if len(row.ids) <= max_row_tokens]
        dropped.update(found.dropped)
        dropped["too long"] += sum(len(row.ids) > max_row_tokens for row in found.rows)
    taught = any(map(moves, rows))
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
    """Shares of all samples that were scored; `unscored` of all; `reward` is their mean.

    Where none was scored, `unscored` alone.
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
        "tokens/mean": sum(len(s.ids or ()) for s, _ in scored) / count,
    }


def _pairs(
    config: EngineConfig, grpo: GrpoConfig, tell: Tell
) -> tuple[list[LabelledPair], list[LabelledPair], int]:
    """Those to learn from, those held out, and how many of the former were left out for them."""
    found = read_pairs(grpo.pairs, grpo.limit, config.seed)
    held_out = read_pairs(grpo.held_out) if grpo.held_out else []
    left = apart_from(found, held_out)
    if not left:
        raise SettingsError("All pairs are held out.", "Name other `pairs` under [grpo].")
    if left_out := len(found) - len(left):
        tell(f"{left_out} pairs are held out, and not trained on")
    return left, held_out, left_out


def _check_start(config: EngineConfig) -> None:
    """A judge goes on in the form that it was begun in."""
    if config.start_adapter is None:
        return
    begun = note_of(config.start_adapter).judge
    if begun not in (None, config.judge):
        raise SettingsError(
            f"the judge in {config.start_adapter} writes the form {begun!r}, not {config.judge!r}.",
            f'Set judge = "{begun}", or begin with another checkpoint.',
        )
