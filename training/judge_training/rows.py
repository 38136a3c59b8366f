"""What a judge wrote, or is to write, as rows: its prompt masked, reasoning and verdict trained.

Imitation takes a teacher's trace in the ids of the judge's own tokeniser. The policy gradient
takes ids exactly as they were sampled: the samples of one pair are a group, whose rewards are
normalised like the returns of one stage (GRPO, arXiv:2402.03300).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from judge.fitting import fitted
from judge.pairwise_chain import CHAIN_TOKENS
from judge.pairwise_forms import ChainForm, chain_messages, well_formed
from judge.pairwise_parsing import Side, reward, verdict_of
from memory.errors import JudgeError
from memory.interfaces import Completion, Message, TokenPolicy
from training.advantages import stage_advantages
from training.compiling import Compiled, compiled
from training.judge_training.config import RewardRule
from training.judge_training.pairs import ShownPair
from training.judge_training.traces import Trace
from training.rows import TrainRow
from training.sequences import NO_STAGE

NO_LOGPROBS = "without the ids or log-probabilities of its tokens"
NOTHING = "nothing was written"
CUT_OFF = "unscored: cut off by its limit of tokens"
NOT_SAMPLED = "unscored: the model failed"


@dataclass(frozen=True, slots=True)
class Sample:
    """One comparison that the judge in training wrote."""

    text: str
    verdict: Side | None
    reward: float
    """NaN where it is unscored"""
    unscored: str = ""
    """why"""
    ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class SampledPair:
    """All samples of one pair, which were asked for by the same ids."""

    pair: ShownPair
    prefix: tuple[int, ...]
    samples: tuple[Sample, ...]
    version: str
    """of the judge that wrote them"""

    @property
    def advantages(self) -> Sequence[float]:
        """In standard deviations of the group; 0 where nothing is learnt."""
        rewards = np.array([[sample.reward] for sample in self.samples])
        values: list[float] = stage_advantages(rewards).values[:, 0].tolist()
        return values


def sample_of(said: Completion, better: Side, form: ChainForm, rule: RewardRule) -> Sample:
    """What was written, rewarded: no verdict is wrong, but one that had no room is unscored."""
    cut_off = said.stop_reason == "length"
    whole = not said.retokenised and said.logprobs is not None
    return Sample(
        text=said.text,
        verdict=verdict_of(said.text),
        reward=np.nan if cut_off else rewarded(said.text, better, form, rule),
        unscored=CUT_OFF if cut_off else "",
        ids=said.token_ids if whole else None,
        logprobs=said.logprobs if whole else None,
    )


def failed_sample() -> Sample:
    """In the place of a sample that could not be had."""
    return Sample("", None, np.nan, NOT_SAMPLED)


def rewarded(text: str, better: Side, form: ChainForm, rule: RewardRule) -> float:
    """-1 or 1 by the verdict alone; or 0, 1 or 2 by verdict and form."""
    right = reward(text, better)
    return right if rule == "answer" else float(right > 0) + float(well_formed(text, form))


def judge_rows(sampled: SampledPair, name: str) -> Compiled:
    """A row for each sample that was scored and is known by its ids; `name` is the group's."""
    pairs = zip(sampled.samples, sampled.advantages, strict=True)
    return compiled(
        _judge_row(sampled, sample, advantage, f"{name}:{number}", name)
        for number, (sample, advantage) in enumerate(pairs)
    )


def _judge_row(
    sampled: SampledPair, sample: Sample, advantage: float, name: str, group: str
) -> TrainRow | str:
    if sample.unscored:
        return sample.unscored
    if sample.ids is None or sample.logprobs is None:
        return NO_LOGPROBS
    if not sample.ids:
        return NOTHING
    before, written = len(sampled.prefix), len(sample.ids)
    return TrainRow(
        id=name,
        group=group,
        trajectory=name,
        objective="judge",
        policy_version=sampled.version,
        ids=(*sampled.prefix, *sample.ids),
        prompt_tokens=before,
        loss_mask=(0,) * before + (1,) * written,
        advantages=(0.0,) * before + (advantage,) * written,
        behaviour_logprobs=(0.0,) * before + sample.logprobs,
        stages=(NO_STAGE,) * (before + written),
    )


async def trace_row(
    student: TokenPolicy, form: ChainForm, pair: ShownPair, trace: Trace
) -> TrainRow | str:
    """The trace as the student would have written it, and then ended its turn."""
    asked = partial(chain_messages, form, pair.question, pair.first, pair.second)
    try:
        _, prefix = await fitted(student, asked, CHAIN_TOKENS)
    except JudgeError as error:
        return f"too long for the student: {error}"
    written = (*await student.encode(trace.text), *await _end_of_turn(student))
    before, length = len(prefix), len(prefix) + len(written)
    mask = (0,) * before + (1,) * len(written)
    return TrainRow(
        id=f"{pair.id}:sft",
        group=pair.id,
        trajectory=pair.id,
        objective="sft",
        policy_version=trace.teacher,
        ids=(*prefix, *written),
        prompt_tokens=before,
        loss_mask=mask,
        advantages=tuple(map(float, mask)),
        behaviour_logprobs=(0.0,) * length,
        stages=(NO_STAGE,) * length,
        ratio_allowed=False,
    )


async def _end_of_turn(student: TokenPolicy) -> tuple[int, ...]:
    """The id that the chat template puts behind an assistant's text; nothing where none is seen."""
    asked = Message("user", "Which?")
    before = (*await student.render([asked]), *await student.encode("A"))
    # Behind an assistant's text that stands last, templates may leave the turn open.
    whole = await student.render([asked, Message("assistant", "A"), asked])
    return whole[len(before) : len(before) + 1] if whole[: len(before)] == before else ()
