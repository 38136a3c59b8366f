"""Labelled pairs as a judge is shown them, what teachers and the judge write of them, and rows.

A pair is shown in an order drawn from the seed, the right one known. Imitation takes the trace of a
first teacher, who compares a pair as any judge does. Where its verdict is wrong, or there is none,
a second one is shown the right verdict and the wrong trace, and writes it anew; what is still not
right is dropped (RM-R1, arXiv:2505.02387, section 3.2). The trace becomes a row in the ids of the
judge's own tokeniser.

The policy gradient takes ids exactly as they were sampled: the samples of one pair are a group,
whose rewards are normalised like the returns of one stage (GRPO, arXiv:2402.03300). Prompts are
masked, reasoning and verdict trained.

Calls are journaled in one file and pass one gate, as those of collecting do: what is finished is
never asked again, a server that serves nobody is waited for, and money is kept to its limit.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rubricem.agent.models.policy import JournaledCalls
from rubricem.agent.settings import Settings, load_settings
from rubricem.judge.base import CHARACTERS, fit_messages
from rubricem.judge.build import JudgeModel
from rubricem.judge.evaluation.data import LabelledPair, read_labelled
from rubricem.judge.evaluation.run import sample, tasks_of
from rubricem.judge.pairwise import (
    CHAIN_TOKENS,
    ChainForm,
    Side,
    chain_messages,
    reward,
    verdict_end,
    verdict_of,
    well_formed,
    without_tags,
)
from rubricem.memory.errors import JudgeError, PolicyError, SettingsError
from rubricem.memory.interfaces import Completion, LocalModel, Message, Sampling, TokenPolicy
from rubricem.memory.journal import Journal
from rubricem.memory.schema import Value
from rubricem.memory.text import cut, fenced, fill, prompt
from rubricem.training.collect.gate import Flow, Meter, Purse
from rubricem.training.collect.questions import normal
from rubricem.training.judge_training.judge_config import RewardRule
from rubricem.training.local.session import Tell
from rubricem.training.rows.compile import Compiled, compiled
from rubricem.training.rows.credit import stage_advantages
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import NO_STAGE


@dataclass(frozen=True, slots=True)
class ShownPair:
    """Two replies in the order of showing; A is the first."""

    id: str
    question: str
    first: str
    second: str
    better: Side


def read_pairs(
    paths: Sequence[Path], limit: int | None = None, seed: int = 0
) -> list[LabelledPair]:
    """The labelled pairs of all files, or so many of them.

    Raises SettingsError for a file that is empty or holds no labelled pairs, StoreError for a row
    that is broken.
    """
    found: list[LabelledPair] = []
    for number, path in enumerate(paths):
        pairs = read_labelled(path).pairs
        if not pairs:
            raise SettingsError(
                f"{path} holds single answers, and this judge learns to compare two.",
                "Name files of pairs whose better answer is known.",
            )
        named = len(paths) > 1
        found += [p.model_copy(update={"id": f"{number}:{p.id}"}) if named else p for p in pairs]
    return sample(found, limit, seed)


def shown_once(pairs: Iterable[LabelledPair], seed: int) -> list[ShownPair]:
    """Each pair in the order that the seed draws for it."""
    shown = []
    for pair, swapped in tasks_of(pairs, "one", seed):
        first, second = (pair.second, pair.first) if swapped else (pair.first, pair.second)
        better: Side = "A" if (pair.better == "first") != swapped else "B"
        shown.append(ShownPair(pair.id, pair.prompt, first, second, better))
    return shown


def apart_from(
    pairs: Sequence[LabelledPair], held_out: Sequence[LabelledPair]
) -> list[LabelledPair]:
    """The pairs whose request, however it is spaced and written, is not among those held out.

    Answers to it may be shared.
    """
    asked = {normal(pair.prompt) for pair in held_out}
    return [pair for pair in pairs if normal(pair.prompt) not in asked]


def batch_of(
    pairs: Sequence[LabelledPair], size: int, number: int, seed: int
) -> list[LabelledPair]:
    """The pairs of a round: all of them in a drawn order, then all of them in another."""
    size, chosen = min(size, len(pairs)), []
    for place in range(number * size, (number + 1) * size):
        epoch, at = divmod(place, len(pairs))
        order = list(pairs)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        chosen.append(order[at])
    return list({pair.id: pair for pair in chosen}.values())


def digest(pairs: Sequence[LabelledPair]) -> str:
    """The SHA-256 of all that the pairs hold, in their order."""
    lines = "\n".join(pair.model_dump_json() for pair in pairs)
    return hashlib.sha256(lines.encode()).hexdigest()


FAILED = "the teacher failed"
WRONG_CHARACTERS = 20_000
"""of a wrong trace that is shown to the second teacher"""
MessagesOf = Callable[[int], Sequence[Message]]
"""From the characters that there is room for to what is asked."""


class Trace(Value):
    """A comparison that arrives at the right verdict."""

    pair: str
    better: Side
    text: str
    teacher: str
    redone: bool = False
    """written by the second teacher, who knew the verdict"""


@dataclass(frozen=True, slots=True)
class Teacher:
    """A model that writes comparisons: one that answers messages, or continues token ids."""

    model: JudgeModel
    max_tokens: int

    async def write(self, messages_of: MessagesOf) -> Completion:
        """Raises PolicyError where the model fails, JudgeError where the pair is too long."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=0.0, seed=0)
        model = self.model
        if isinstance(model, LocalModel):
            _, prefix = await fit_messages(model, messages_of, self.max_tokens)
            return await model.complete(prefix, sampling, verdict_end)
        return await model.chat(messages_of(CHARACTERS), sampling)


@dataclass(frozen=True, slots=True)
class Teachers:
    """Who writes traces, and in which form."""

    form: ChainForm
    first: Teacher
    second: Teacher | None = None

    async def trace(self, pair: ShownPair) -> Trace | str:
        """The trace of a pair, or the reason why there is none."""
        asked = partial(chain_messages, self.form, pair.question, pair.first, pair.second)
        try:
            said = await self.first.write(asked)
            if not (wrong := _wrong(said, pair.better)):
                return _trace(pair, said, self.first)
            if self.second is None:
                return wrong
            said = await self.second.write(partial(_redoing, asked, said.text, wrong, pair.better))
        except (PolicyError, JudgeError) as error:
            return f"{FAILED}: {error}"
        if still := _wrong(said, pair.better):
            return f"{still}, also when it was redone"
        return _trace(pair, said, self.second, redone=True)


def _wrong(said: Completion, better: Side) -> str:
    """What is wrong with a trace, as the end of a sentence about it; empty where nothing is."""
    if said.stop_reason == "length":
        return "was cut off by its limit of tokens"
    verdict = verdict_of(said.text)
    if verdict is None:
        return "named no winner"
    return "" if verdict == better else "named the other reply"


def _trace(pair: ShownPair, said: Completion, by: Teacher, redone: bool = False) -> Trace:
    text = said.text[: verdict_end(said.text)].rpartition("</think>")[2].strip()
    return Trace(pair=pair.id, better=pair.better, text=text, teacher=by.model.name, redone=redone)


def _redoing(
    asked: MessagesOf, trace: str, fault: str, better: Side, characters: int
) -> list[Message]:
    """The pair as before, the wrong trace, and what is known of it."""
    # The wrong trace takes its share of the room: a part of what there is, at most.
    room = min(characters // 4, WRONG_CHARACTERS)
    system, user = asked(characters - room)
    earlier = fenced({"earlier comparison": cut(without_tags(trace), room)})
    told = fill(prompt("training", "redo_trace"), {"fault": fault, "better": better})
    return [system, Message("user", f"{user.content}\n\n{earlier}\n\n{told}")]


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
        _, prefix = await fit_messages(student, asked, CHAIN_TOKENS)
    except JudgeError as error:
        return f"too long for the student: {error}"
    written = (*await student.encode(trace.text), *await _end_of_turn(student))
    before = len(prefix)
    mask = (0,) * before + (1,) * len(written)
    stages = (NO_STAGE,) * len(mask)
    return TrainRow.imitation(pair.id, trace.teacher, (*prefix, *written), before, mask, stages)


async def _end_of_turn(student: TokenPolicy) -> tuple[int, ...]:
    """The id that the chat template puts behind an assistant's text; nothing where none is seen."""
    asked = Message("user", "Which?")
    before = (*await student.render([asked]), *await student.encode("A"))
    # Behind an assistant's text that stands last, templates may leave the turn open.
    whole = await student.render([asked, Message("assistant", "A"), asked])
    return whole[len(before) : len(before) + 1] if whole[: len(before)] == before else ()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gated:
    """The gate of one folder's calls."""

    flow: Flow
    scopes: JournaledCalls
    """names whose calls are made, by `scope`"""

    def model(self, model: Any) -> Any:
        """The same model behind the gate."""
        return self.flow.journaled(model)


@contextmanager
def gated(folder: Path, tell: Tell, most_cost: float | None = None) -> Iterator[Gated]:
    """The gate of the calls that are kept in a folder's journal.jsonl; raises StoreError."""
    meter = Meter()
    journal = Journal(folder / "journal.jsonl", meter.hear)
    try:
        purse = Purse(most_cost, "max_run_cost under [distil]")
        flow = Flow(journal, meter, purse, tell=tell, name="The training of the judge")
        yield Gated(flow, JournaledCalls(journal))
    finally:
        journal.close()


async def all_done(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them give, in their order; what one raises ends the others."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
    return [task.result() for task in running]


def settings_of(model: str | None, base_url: str | None, **chosen: Any) -> Settings:
    """The settings in force, with exactly this model and server, whatever else they name."""
    settings = load_settings({"model": model, **chosen})
    return settings.model_copy(update={"model": model, "base_url": base_url})
