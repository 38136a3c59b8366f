"""The groups of rollouts of a training by verl: judged together, reflected on, remembered.

verl runs and rewards each rollout by itself, in whichever process has room. What rollouts share is
kept once, in a Ray actor named `ACTOR`: rubrics, the bank, what each step sees of it, and the
groups that are not complete yet. A rollout asks here what it is shown, reports its end, and waits
until its group is judged (RubricEM, arXiv:2605.10899, 3.4 and appendix C).

All rollouts of a step see the bank as of the step's beginning; the best reflections enter it before
a later step begins or a checkpoint is saved, in the order of the questions. Held-out questions are
shown nothing and teach nothing. A trainer's steps must not overlap.
"""

import asyncio
import logging
import random
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rubricem.agent.learning.reflect import accept, mark_best
from rubricem.agent.learning.scoring import resolve_judge
from rubricem.agent.models.policy import KeptCalls, journal_calls
from rubricem.agent.research.recall import BankRecaller, Recall, out_of_scope
from rubricem.agent.research.setup import Setup
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import model_of, setup_of
from rubricem.judge.build import (
    NONE,
    Wanted,
    identify_judge,
    kind_of,
    reflection_judge,
)
from rubricem.judge.reflection import ReflectionJudge
from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.store import BankStore
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import ReplyStore
from rubricem.memory.schema import (
    SUPPORT,
    GroupJudge,
    Judgement,
    Reflection,
    ReflectionCandidate,
    Stage,
    Trajectory,
    TrajectoryGroup,
)
from rubricem.memory.text import seed_of
from rubricem.training.collect.collect_config import JudgedConfig
from rubricem.training.collect.collector import rubric_of
from rubricem.training.collect.questions import Question
from rubricem.training.collect.scaffolding import Scaffold, ScaffoldRule
from rubricem.training.collect.setup import supported_judge
from rubricem.training.rows.credit import SS_GRPO, RowRule, reflection_advantages
from rubricem.training.tables import check_table
from rubricem.training.verl.plugin import ADVANTAGES, REFLECTIONS, Told

ACTOR = "rubricem"
KEPT = "rubricem"
"""the folder in verl's checkpoints with rubrics and bank"""
_LOG = logging.getLogger(__name__)


class GroupOptions(JudgedConfig):
    """The options in verl's configuration under `rubricem`, as `+rubricem.judge=stage`."""

    seed: int = 0
    """of rollouts, reflections and random draws"""

    def rule(self, progress: float) -> ScaffoldRule | None:
        return ScaffoldRule(progress=progress) if self.scaffold else None

    def judge_options(self, settings: Settings) -> Wanted:
        """How the judge works; a file of standards is read. Raises SettingsError as that does."""
        kind = kind_of(self.judge)
        return resolve_judge(kind, self.rubric, settings.data_dir, self.seed)


def group_options(values: object) -> GroupOptions:
    """The options of a mapping. Raises SettingsError with every fault in a sentence."""
    options = check_table(values or {}, GroupOptions, "rubricem")
    if options.judge == NONE:
        raise SettingsError(
            "Without a judge there is nothing to learn from.", "Name one as +rubricem.judge."
        )
    identify_judge(options.judge)
    Wanted(kind_of(options.judge), rubric=str(options.rubric or "")).check()
    return options


@dataclass(frozen=True, slots=True)
class Member:
    """One rollout, by its place in verl's training."""

    group: str
    """verl's id of the question in its step"""
    number: int
    size: int
    """rollouts of the group"""
    question: str
    step: int
    place: int
    """index of the question in the data"""
    asked: Question | None = None
    """the question with its own criteria and facts; None: the data has no more on it"""
    progress: float = 0.0
    """of the training, in [0, 1]"""
    fresh: bool = False
    """is shown only what others taught, since its window asks it again"""
    held_out: bool = False

    @property
    def whole(self) -> Question:
        """The question with everything known about it."""
        return self.asked or Question(id="", question=self.question)

    def seed(self, seed: int) -> int:
        """Of the rollout; verl's own names differ in every run."""
        return seed_of(seed, self.step, self.place, self.number)

    def reflects(self, seed: int) -> bool:
        """Whether it is the member of its group to be reflected on, whatever its score."""
        drawn = random.Random(f"{seed}:{self.step}:{self.place}-reflected").randrange(self.size)
        return not self.held_out and self.number == drawn


@dataclass(frozen=True, slots=True)
class Shown:
    """What a rollout begins with."""

    scaffold: Scaffold = field(default_factory=Scaffold)
    recall: Recall = field(default_factory=Recall)


@dataclass(frozen=True, slots=True)
class EndedRollout:
    """A rollout and what its policy wrote about it."""

    member: Member
    trajectory: Trajectory
    candidates: tuple[ReflectionCandidate, ...] = ()


@dataclass
class _Group:
    """The members that have ended so far; all get their scores when the last one has."""

    ended: dict[int, EndedRollout | None] = field(default_factory=dict)
    told: "asyncio.Future[dict[int, Told]]" = field(default_factory=asyncio.Future)
    scaffolds: "asyncio.Task[list[Scaffold]] | None" = None
    settling: "asyncio.Task[None] | None" = None


class RolloutGroups:
    """All groups of one training, in one event loop."""

    def __init__(
        self, setup: Setup, options: GroupOptions, judge: GroupJudge, reflecting: ReflectionJudge,
        bank: RubricBank | None = None, rule: RowRule = SS_GRPO,
    ) -> None:  # fmt: skip
        """`bank`: None if the settings have no memory. `rule`: how scores become advantages."""
        self._rule = rule
        self._setup, self._options = setup, options
        self._judge, self._reflecting, self._bank = judge, reflecting, bank
        self._folder = setup.stores.data_dir
        self._buffers = BufferStore(self._folder / "buffers")
        self._groups: dict[str, _Group] = {}
        self._steps: dict[int, asyncio.Task[int]] = {}
        self._waiting: dict[tuple[int, int], Reflection] = {}
        """what is to enter the bank, by step and place of its question"""

    async def begin(self, member: Member) -> Shown:
        """What a rollout is shown of its rubric, and what earlier steps taught."""
        if member.held_out:
            return Shown()
        group = self._groups.setdefault(member.group, _Group())
        if group.scaffolds is None:
            group.scaffolds = asyncio.create_task(self._scaffolds(member))
        shown = (await group.scaffolds)[member.number]
        if self._bank is None:
            return Shown(shown)
        if member.step not in self._steps:
            self._steps[member.step] = asyncio.create_task(self._pin(member.step))
        recaller = self._recaller(await self._steps[member.step], own=not member.fresh)
        return Shown(shown, await recaller.recall(member.question))

    async def fail(self, member: Member) -> None:
        """It gave no trajectory; the others of its group are judged without it."""
        self._end(member, None)

    async def end(self, rollout: EndedRollout) -> Told:
        """A rollout's scores and advantages, when all of its group have ended."""
        group = self._end(rollout.member, rollout)
        return (await asyncio.shield(group.told))[rollout.member.number]

    async def keep(self, step: int, folder: Path) -> None:
        """Copy rubrics and bank into a checkpoint of a step, with everything that it taught."""
        await self._put(step + 1)
        await asyncio.to_thread(keep, self._folder, folder / KEPT)

    async def _pin(self, step: int) -> int:
        await self._put(step)
        assert self._bank is not None
        return await self._bank.generation()

    async def _put(self, before: int) -> None:
        """Add to the bank what earlier steps taught, in order."""
        for key in sorted(key for key in self._waiting if key[0] < before):
            reflection = self._waiting.pop(key)
            if self._bank is not None and self._setup.memory == "on":
                await self._bank.put(reflection)

    def _recaller(self, generation: int | None = None, *, own: bool = True) -> BankRecaller:
        assert self._bank is not None
        # The policy is verl's own: no server is sent a lesson.
        bars = partial(out_of_scope, server="", model="", asks=self._setup.sources.asks_others)
        return BankRecaller(
            self._bank, generation=generation, own=own, tell=_LOG.warning, bars=bars
        )

    async def _scaffolds(self, member: Member) -> list[Scaffold]:
        rule = self._options.rule(member.progress)
        if rule is None:
            return [Scaffold()] * member.size
        buffer = await asyncio.to_thread(rubric_of, self._buffers, member.whole)
        criteria = [criterion for stage in Stage for criterion in buffer.criteria(stage)]
        seed = f"{self._options.seed}:{member.step}:{member.place}"
        return rule.scaffolds(criteria, member.size, seed)

    def _end(self, member: Member, rollout: EndedRollout | None) -> _Group:
        group = self._groups.setdefault(member.group, _Group())
        if member.number in group.ended:
            return group
        group.ended[member.number] = rollout
        if len(group.ended) == member.size:
            del self._groups[member.group]
            group.settling = asyncio.create_task(self._settle(group))
        return group

    async def _settle(self, group: _Group) -> None:
        """Judge a whole group; an error goes to each of its members."""
        members = [rollout for _, rollout in sorted(group.ended.items()) if rollout]
        try:
            group.told.set_result(await self._score(members) if members else {})
        except Exception as error:  # its members are other processes, which would wait for ever
            group.told.set_exception(error)
            group.told.exception()  # where all have failed nobody asks for it

    async def _score(self, members: Sequence[EndedRollout]) -> dict[int, Told]:
        first = members[0].member
        runs = TrajectoryGroup(
            question=first.question,
            trajectories=tuple(r.trajectory for r in members),
            facts=first.whole.facts,
        )
        begun = await asyncio.to_thread(self._buffers.load, first.question)
        buffer = await asyncio.to_thread(rubric_of, self._buffers, first.whole)
        judged = await self._judge.judge(runs, buffer, first.step)
        for note in judged.notes:
            _LOG.warning("step %d, %s: %s", first.step, first.question, note)
        if not first.held_out or not begun.version:
            await asyncio.to_thread(self._buffers.save, judged.buffer)
        advantages, _ = self._rule.advantages(judged.judgements)
        found = {}
        for rollout, judgement, own in zip(members, judged.judgements, advantages, strict=True):
            # Every rollout has the same names, as verl requires; it leaves out None.
            told: Told = {stage.value: judgement.score(stage) for stage in Stage}
            answer = judgement.at(Stage.ANSWER)
            told[SUPPORT] = answer.components.get(SUPPORT) if answer else None
            told[ADVANTAGES] = _listed(own)
            told[REFLECTIONS] = (
                await self._reflect(rollout, judgement) if rollout.candidates else ""
            )
            found[rollout.member.number] = told
            if self._bank is not None and rollout.trajectory.recalled:
                await self._recaller().note_use(rollout.trajectory)
        return found

    async def _reflect(self, rollout: EndedRollout, judgement: Judgement) -> str:
        """Score a rollout's reflections, and keep the best for the bank."""
        member, run = rollout.member, rollout.trajectory
        seed = seed_of(self._options.seed, member.step, member.place, "reflections")
        try:
            scored = await self._reflecting.score(run, judgement, rollout.candidates, seed)
        except RubricemError as error:
            _LOG.warning("step %d, %s: %s", member.step, member.question, error)
            return ""
        marked = mark_best(scored, self._reflecting.minimum)
        read = dict.fromkeys(source.text for source in run.sources)
        best = accept(
            marked, run.policy, run.policy_version, judgement=judgement, source_texts=tuple(read)
        )
        if best is not None:
            known = {"private": run.private, "server": ""}
            self._waiting[member.step, member.place] = best.model_copy(update=known)
        return _listed(reflection_advantages(marked))


BANK, BUFFERS = "bank", "buffers"


def keep(data: Path, checkpoint: Path) -> None:
    """Copy the bank and the rubrics of a data directory into a checkpoint's folder.

    A policy and what it learnt in words belong together (RubricEM, arXiv:2605.10899, section 3.4).
    """
    BankStore(data / BANK).snapshot(checkpoint / BANK)
    BufferStore(data / BUFFERS).copy_to(checkpoint / BUFFERS)


def go_back(data: Path, checkpoint: Path) -> None:
    """Restore both as of a checkpoint. Raises SettingsError if the copy is of another bank."""
    if (checkpoint / BANK).is_dir():
        BankStore(data / BANK).restore(checkpoint / BANK)
    if (checkpoint / BUFFERS).is_dir():
        BufferStore(data / BUFFERS).go_back_to(checkpoint / BUFFERS)


def _listed(values: Iterable[float]) -> str:
    return ",".join(f"{value:.6f}" for value in values)


class GroupsActor(RolloutGroups):
    """The groups in a Ray process, opened once; errors are passed on unchanged."""

    def __init__(self) -> None:
        self._opened = AsyncExitStack()

    async def open(
        self, options: GroupOptions, settings: Settings, rule: RowRule, checkpoint: Path | None
    ) -> None:
        """`checkpoint`: the one that the training is resumed from."""
        setup = await asyncio.to_thread(setup_of, settings)
        stores = setup.stores
        if checkpoint is not None:
            await asyncio.to_thread(go_back, stores.data_dir, checkpoint / KEPT)
        model = await self._opened.enter_async_context(model_of(settings).open_judge())
        kept = journal_calls(model, KeptCalls(ReplyStore(stores.data_dir / "replies")))
        wanted = await asyncio.to_thread(options.judge_options, settings)
        super().__init__(
            setup,
            options,
            supported_judge(options.judge, kept, wanted, options.gated, options.support),
            reflection_judge(kept),
            None if setup.memory == "off" else stores.open_bank(),
            rule,
        )
