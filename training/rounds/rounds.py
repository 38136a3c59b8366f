"""Rounds of collecting and training, one round ahead, driven by a configuration.

    rollouts     N+1 ---------->  N+2 ---------->
    judge         N  -->          N+1 -->
    reflect            N  ------>      N+1 ------>
    update        N-1's reflections, N's rollouts     N's reflections, N+1's rollouts

Rollouts of N+1 are sampled from the policy before the update of N (unless `ahead` is 0). The number
of a round alone determines its checkpoint and the state of the bank that it sees: results do not
depend on which round was faster, or on where a run was killed (RubricEM, arXiv:2605.10899, 3.4 and
appendix D). Under torchrun the first process does everything but the updates (`rounds.update`).
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from rubricem.agent.settings import Settings
from rubricem.agent.transcript.events import Tell
from rubricem.training.collect.collector import Collector, Milestone
from rubricem.training.collect.directory import StepMemory, hash_of
from rubricem.training.collect.gate import Purse, RunStopped
from rubricem.training.collect.questions import (
    Curriculum,
    QuestionBatch,
    Selected,
    apart_from,
    select_questions,
)
from rubricem.training.collect.remote import connect
from rubricem.training.extras import in_thread
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.rounds.numbers import numbers_of, reflection_numbers, rows_numbers
from rubricem.training.rounds.rollouts import RoundCollectors
from rubricem.training.rounds.rounds_config import CHANGEABLE, TABLE, RoundsConfig
from rubricem.training.rounds.update import (
    RoundFolders,
    RoundGroup,
    RoundRows,
    RoundsEnded,
    SessionUpdates,
    groups_of_round,
    open_updates,
)
from rubricem.training.rows.credit import Compiled, RowRule, policy_rows, reflection_rows, trainable


class Milestones:
    """The milestones that a round of so many groups has passed."""

    def __init__(self, groups: int) -> None:
        self._groups, self._reached = groups, Counter[Milestone]()
        self.rolled, self.judged, self.kept = (asyncio.Event() for _ in range(3))

    def reach(self, milestone: Milestone) -> None:
        self._reached[milestone] += 1
        if self._reached[milestone] == self._groups:
            (self.rolled if milestone == "rolled" else self.judged).set()

    def all_kept(self) -> None:
        """Pass all milestones; also for a round that was kept before a restart."""
        for event in (self.rolled, self.judged, self.kept):
            event.set()


def recalls_after(curriculum: Curriculum, number: int, ahead: int) -> int:
    """The round after which the bank is in the state that round `number` sees; -1: the initial one.

    A round that runs ahead does not wait for the reflections of the two rounds before it, which may
    take as long as two rounds, unless one of them asked the same questions: what it taught about
    them must be there. No round sees less than the one before it.
    """
    asked = [{q.question for q in curriculum.batch(n).questions} for n in range(number + 1)]

    def of_round(n: int) -> int:
        over = max(n - 1 - 2 * ahead, -1)
        return next((m for m in range(n - 1, over, -1) if asked[n] & asked[m]), over)

    return max(map(of_round, range(number + 1)))


async def all_of(
    tasks: Sequence["asyncio.Task[None]"],
    stop: asyncio.Event | None,
    ending: Collection[asyncio.Event],
) -> None:
    """Wait until all are done; an exception in one cancels the others and is raised.

    Setting `stop` raises RunStopped, as spent money does in a task. Before the tasks are cancelled
    then, all events of `ending` are awaited, so that calls in flight finish and are kept.
    """

    async def wait_for_stop() -> None:
        await (stop or asyncio.Event()).wait()
        raise RunStopped("The training was interrupted.", by_person=True)

    stopped, left = asyncio.ensure_future(wait_for_stop()), set(tasks)
    try:
        while left:
            over, _ = await asyncio.wait({*left, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(task.exception(), RunStopped) for task in over):
                await asyncio.gather(*(event.wait() for event in ending))
            for task in over:
                task.result()
            left -= over
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)


OpenRound = Callable[[int, QuestionBatch], AbstractAsyncContextManager[Collector]]
KEPT = "kept"
"""the part of a round that records the state of the bank after it"""


@dataclass
class Rounds:
    """The rounds of one training run that are not done yet."""

    config: RoundsConfig
    rule: RowRule
    max_row_tokens: int
    curriculum: Curriculum
    folders: RoundFolders
    open_round: OpenRound
    updates: SessionUpdates
    held_out: Callable[[int], Awaitable[None]]
    """asks the held-out questions after so many updates, if there are any and they are due"""
    tell: Callable[[str], None] = lambda line: None
    stop: asyncio.Event | None = None
    """once set, no new call begins, and the run ends when those in flight are kept"""
    _collecting: set[asyncio.Event] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Do every round that is not done. Raises what ended it early: RunStopped at `stop`."""
        done = self.updates.done
        rounds = range(max(done - 1, 0), self.config.rounds)
        self._at = {n: Milestones(len(self.curriculum.batch(n).questions)) for n in rounds}
        self._trained = [asyncio.Event() for _ in range(max(done, self.config.rounds) + 1)]
        for updates in range(done):
            self._trained[updates].set()
        await self._let_sample(done)
        tasks = [asyncio.ensure_future(self._train())]
        tasks += [asyncio.ensure_future(self._collect(number)) for number in rounds]
        await all_of(tasks, self.stop, self._collecting)

    async def _let_sample(self, updates: int) -> None:
        """Release the rounds that sample from the checkpoint after so many updates."""
        last, checkpoint = updates + self.config.ahead, self.updates.checkpoint
        if checkpoint is not None:
            for number in range(last if updates else 0, last + 1):
                await asyncio.to_thread(self.folders.keep_policy, number, checkpoint)
        self._trained[updates].set()

    async def _collect(self, number: int) -> None:
        """One round: rollouts, judgements, reflections, and adding these to the bank."""
        at, run = self._at[number], self.folders.round(number)
        if run.part(0, KEPT, StepMemory) is None:
            await self._its_turn(number)
            async with self.open_round(number, self.curriculum.batch(number)) as collector:
                await self._collect_round(number, collector)
        # What is kept samples no more.
        await asyncio.to_thread(shutil.rmtree, self.folders.policy(number), ignore_errors=True)
        at.all_kept()
        self.tell(f"round {number + 1} of {self.config.rounds} is collected")

    async def _its_turn(self, number: int) -> None:
        """Wait until the round may begin."""
        before = self._at.get(number - 1)
        if before is not None:
            await before.rolled.wait()
        await self._trained[max(number - self.config.ahead, 0)].wait()
        for earlier in range(recalls_after(self.curriculum, number, self.config.ahead) + 1):
            if earlier in self._at:
                await self._at[earlier].kept.wait()

    async def _collect_round(self, number: int, collector: Collector) -> None:
        at, run = self._at[number], self.folders.round(number)
        before = self._at.get(number - 1)
        collector.reached = at.reach
        collector.fresh = self.curriculum.batch(number).fresh
        # The state of the bank from which it recalls; None: as it is when round 0 begins.
        after, seen = recalls_after(self.curriculum, number, self.config.ahead), None
        if after >= 0:
            seen = self.folders.round(after).part(0, KEPT, StepMemory)
        elif number:
            seen = self.folders.round(0).part(0, "snapshot", StepMemory)
        if collector.memory is not None and seen is not None:
            run.save_part(0, "snapshot", seen)
        with self._await_at_stop() as idle:
            if before is not None:
                collector.before_put = partial(_wait_idly, idle, before.kept)
            await collector.collect(self.stop)
        if before is not None:
            await before.kept.wait()
        generation = await collector.memory.generation() if collector.memory is not None else 0
        run.save_part(0, KEPT, StepMemory(generation=generation))

    async def _ask_held_out(self, updates: int) -> None:
        with self._await_at_stop():
            await self.held_out(updates)

    @contextmanager
    def _await_at_stop(self) -> Iterator[asyncio.Event]:
        """An event for which a stop waits; it is set at the end of the block at the latest."""
        idle = asyncio.Event()
        self._collecting.add(idle)
        try:
            yield idle
        finally:
            idle.set()

    async def _train(self) -> None:
        """Do every update that is not saved yet, each as soon as its rows are there."""
        for number in range(self.updates.done, self.config.rounds):
            await self._ask_held_out(number)
            await self._update(number)
        await self._ask_held_out(self.updates.done)

    async def _update(self, number: int) -> None:
        """The two updates of a round, saved as one; once the second begins, a stop waits for it."""
        began, waited = monotonic(), 0.0
        before, reflections = list[RoundGroup](), RoundRows()
        if number:
            waited = await _wait_for(self._at[number - 1].kept)
            before, reflections = await asyncio.to_thread(self._reflections, number - 1)
        reflected = await in_thread(partial(self.updates.update, reflections.rows))
        waited += await _wait_for(self._at[number].judged)
        with self._await_at_stop():
            groups, rollouts = await asyncio.to_thread(self._rollouts, number)
            trained = await in_thread(partial(self.updates.update, rollouts.rows))
            metrics = {
                "round": float(number + 1),
                **reflected,
                **trained,
                **await asyncio.to_thread(numbers_of, groups, self.rule),
                **reflection_numbers(before),
                **rows_numbers(rollouts, reflections),
                "seconds/wait": waited,
                "seconds/train": monotonic() - began - waited,
            }
            await in_thread(partial(self.updates.save, metrics))
            await self._let_sample(number + 1)
            self.updates.progress.step(number + 1, self.config.rounds, metrics)

    def _reflections(self, number: int) -> tuple[list[RoundGroup], RoundRows]:
        """Reflection rows of a round, normalised over all on the same trajectory."""
        run, found = self.folders.round(number), Compiled()
        groups, version = groups_of_round(run, number), run.manifest().policy_version
        for one in groups:
            candidates = one.reflected.candidates if one.reflected else ()
            found += reflection_rows(candidates, policy_version=version)
        return groups, self._usable(found, number, number + 1)

    def _rollouts(self, number: int) -> tuple[list[RoundGroup], RoundRows]:
        """Policy rows of a round; groups are complete, since they are judged only then."""
        groups, found = groups_of_round(self.folders.round(number), number), Compiled()
        for one in groups:
            found += policy_rows(one.group, one.judged, self.rule, name=one.name)
        return groups, self._usable(found, number, number)

    def _usable(self, found: Compiled, number: int, updates: int) -> RoundRows:
        """The rows of a round on which a policy with so many updates may be trained.

        Rollouts lag by `ahead` updates at most, and reflections by one more.
        """
        changes = self.updates.changes
        lag = changes(updates) - changes(max(number - self.config.ahead, 0))
        kept = trainable(found.each(), self.max_row_tokens)
        return RoundRows(kept.rows, kept.dropped, (lag,) * len(kept.rows))


async def _wait_idly(idle: asyncio.Event, before: asyncio.Event) -> None:
    """Wait for the round before, with no call in flight, as is told first."""
    idle.set()
    await before.wait()


async def _wait_for(event: asyncio.Event) -> float:
    began = monotonic()
    await event.wait()
    return monotonic() - began


async def run_rounds(
    config: EngineConfig, rounds: RoundsConfig, rule: RowRule, settings: Settings, tell: Tell,
    stop: asyncio.Event | None = None,
) -> RoundsEnded:  # fmt: skip
    """Do the rounds that are not done yet; the same call resumes after an interruption.

    `settings`: of rollouts, as for a question.

    Raises SettingsError for an invalid combination, RunStopped at `stop` and if `max_run_cost` is
    spent, PolicyError if a server was away for too long, a whole round failed, or a gradient is
    not finite.
    """
    asked, held_out = await asyncio.to_thread(questions_of, rounds, tell)
    folders = RoundFolders(config.out, config.out / "data")
    record = _record(rounds, rule, asked, held_out)
    purse = Purse(rounds.max_run_cost, f"max_run_cost under [{TABLE}]")
    async with open_updates(
        config, folders, rounds.rounds, tell, settings.weights_dir, record
    ) as updates:
        # The cost of rounds before a stop is in their journals.
        if purse.most is not None and updates.leads:
            await asyncio.to_thread(purse.count, folders.journals())
            tell(f"the rounds have cost {purse.describe()} so far")
        collectors = RoundCollectors(rounds, config, settings, folders, tell, purse)

        async def ask(after: int) -> None:
            if held_out is not None:
                newest = updates.checkpoint
                await collectors.ask_held_out(held_out, after, newest, rule, updates.progress, stop)

        curriculum = Curriculum(
            asked.questions, rounds.questions_per_round, rounds.windows, config.seed
        )
        made = Rounds(
            rounds, rule, updates.longest, curriculum, folders, collectors.round, updates, ask,
            tell=tell, stop=stop,
        )  # fmt: skip
        workers = rounds.ray_workers if updates.leads else 0
        async with connect(workers) if workers else nullcontext():
            await (made.run() if updates.leads else in_thread(updates.follow))
        cost = None if purse.most is None else purse.spent
        return RoundsEnded(updates.checkpoint, updates.done, cost)


def _record(
    rounds: RoundsConfig, rule: RowRule, asked: Selected, held_out: Selected | None
) -> dict[str, Any]:
    """What must be unchanged when the rounds of a folder are resumed.

    Questions are identified by their content, and folders by absolute paths: the directory from
    which the configuration was run does not matter.
    """
    claimed = rounds.model_dump(mode="json", exclude=CHANGEABLE | {"questions", "held_out"})
    record: dict[str, Any] = {f"rounds.{name}": value for name, value in claimed.items()}

    def whole(named: str) -> str:
        return str(Path(named).absolute()) if Path(named).is_dir() else named

    record["rounds.source"] = [whole(name) for name in record["rounds.source"]]
    record["rounds.judge_model"] = rounds.judge_model and whole(rounds.judge_model)
    if rounds.scaffold is not None:
        record["rounds.rounds"] = rounds.rounds  # by which the scaffold fades
    return record | {
        "rounds.asked": hash_of(asked.questions),
        "rounds.asked_held_out": held_out and hash_of(held_out.questions),
        "rule": rule.model_dump(mode="json"),
    }


def questions_of(rounds: RoundsConfig, tell: Tell) -> tuple[Selected, Selected | None]:
    """The questions to train on, without the held-out ones, and the held-out questions."""
    asked = select_questions(rounds.questions)
    if rounds.held_out is None:
        return asked, None
    held_out = select_questions(rounds.held_out)
    left = apart_from(
        asked.questions, held_out.questions, lambda question: question.question, "questions", tell
    )
    return replace(asked, questions=tuple(left)), held_out
