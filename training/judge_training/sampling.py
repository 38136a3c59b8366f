"""The judge in training, asked as it stands: samples to learn from, and held-out pairs.

It is sampled as the policy is: the embedded model with the newest adapter, or a server that is
given each checkpoint. Calls are kept in the journal of the round that makes them, so a round that
was killed goes on from the samples it has.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent.choice import EmbeddedChoice, choose_policy
from agent.clients import connect_tokens, load_embedded
from agent.events import ignore
from agent.settings import Settings
from judge.evaluation.comparing import compare_all, tasks_of
from judge.evaluation.labelled import Comparison, Pair
from judge.fitting import fitted
from judge.pairwise_chain import ChainComparer
from judge.pairwise_forms import ChainForm, chain_messages, verdict_end
from memory.errors import JudgeError, PolicyError, SettingsError
from memory.interfaces import Sampling, TokenPolicy
from training.judge_training.config import GrpoConfig
from training.judge_training.gated import Gated, all_done, gated, settings_of
from training.judge_training.pairs import ShownPair
from training.judge_training.rows import Sample, SampledPair, failed_sample, sample_of
from training.local.config import EngineConfig
from training.local.session import Tell
from training.opening_flow import at_once
from training.refreshing import refreshed

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
        async with self._opened(folder, checkpoint) as (gate, model, _):
            work = all_done(self._pair(gate, model, pair, seed) for pair in pairs)
            found = await gate.through(work, self.stop)
        if failed := [one for one in found if isinstance(one, str)]:
            self.tell(f"{len(failed)} of {len(found)} pairs were not sampled: {failed[0]}")
        if len(failed) == len(found):
            raise PolicyError(
                f"The judge could compare none of {len(found)} pairs: {failed[0]}",
                MEND,
            )
        return found

    async def compared(
        self, folder: Path, pairs: Sequence[Pair], checkpoint: Path | None
    ) -> list[Comparison]:
        """Every pair in both orders at temperature 0. Raises PolicyError where none is compared."""
        async with self._opened(folder, checkpoint) as (gate, model, settings):
            comparer = ChainComparer(model, self.form, self.grpo.max_tokens)
            tasks = tasks_of(pairs, "both", self.config.seed)
            with gate.scopes.scope("compare"):
                work = compare_all(comparer, tasks, at_once(settings), lambda comparison: None)
                found = await gate.through(work, self.stop)
        _check_compared(found)
        return found

    @asynccontextmanager
    async def _opened(
        self, folder: Path, checkpoint: Path | None
    ) -> AsyncIterator[tuple[Gated, TokenPolicy, Settings]]:
        settings = await self._settings(checkpoint)
        model = await opened_tokens(settings)
        try:
            with gated(folder, self.tell) as gate:
                yield gate, gate.model(model), settings
        finally:
            await model.aclose()

    async def _settings(self, checkpoint: Path | None) -> Settings:
        grpo = self.grpo
        if not grpo.base_url:
            return settings_of(str(checkpoint) if checkpoint else self.config.model, None)
        name = grpo.model
        if checkpoint is not None:
            name = await refreshed(grpo.refresh, checkpoint, "[grpo]") or name
        return settings_of(name, grpo.base_url, dialect="auto")

    async def _pair(
        self, gate: Gated, model: TokenPolicy, pair: ShownPair, seed: int
    ) -> SampledPair | str:
        asked = partial(chain_messages, self.form, pair.question, pair.first, pair.second)
        try:
            _, prefix = await fitted(model, asked, self.grpo.max_tokens)
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


def _check_compared(found: Sequence[Comparison]) -> None:
    """A judge that was asked in vain is not one that names no winner."""
    if not any(comparison.text for comparison in found):
        raise PolicyError(
            f"The judge could compare none of the held-out pairs: {found[0].reason}", MEND
        )


async def opened_tokens(settings: Settings) -> Any:
    """The model that the settings name, asked in token ids; the caller closes it."""
    choice = choose_policy(settings)
    if isinstance(choice, EmbeddedChoice):
        return await load_embedded(settings, choice, ignore)
    served = await connect_tokens(settings, choice)
    if served is None:
        raise SettingsError(
            f"{choice.base_url} gives no token ids, and without them no ratio can be formed.",
            "Sample from vLLM, SGLang or llama.cpp's server, or from the embedded model.",
        )
    return served


def _seed(seed: int, pair: ShownPair, number: int) -> int:
    """Of 32 bits, another one for each sample."""
    return int(hashlib.sha256(f"{seed}\0{pair.id}\0{number}".encode()).hexdigest()[:8], 16)
