"""Rollouts in other processes: as in one process, whoever of them dies; workers without Ray."""

import asyncio
import pickle
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from agent.recalling import Recall
from memory.errors import PolicyError, StoreError
from memory.interfaces import Completion
from memory.schema import Recollection, Trajectory, Usage
from tests.collected import Failing, Opened, two_turns
from tests.fakes import ScriptedPolicy
from tests.remote import Remote, left, remote
from tests.test_collect_flow import PATIENT, WRITES, Unsteady, away
from tests.waiting import PATIENCE
from training.flow import RunStopped
from training.gated_policy import GatedPolicy
from training.run_directory import RunDirectory
from training.tally import tally

UNJUDGED = {"judge": None, "reflecting": None}


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    made = Opened(tmp_path)
    made.flow.patience = PATIENT
    yield made
    made.close()


async def undisturbed(folder: Path, **options: Any) -> dict[str, Any]:
    """What a run in one process leaves."""
    opened = Opened(folder)
    await opened.collector(**options).collect()
    opened.close()
    return await left(opened.run)


async def test_a_run_leaves_the_same_rows_as_in_one_process(opened: Opened, tmp_path: Path):
    policy = ScriptedPolicy(two_turns)
    async with remote(opened, policy) as made:
        await made.collector.collect()
        assert all(worker.begun for worker in made.hired) and len(made.hired) == 2
    whole = await undisturbed(tmp_path / "whole")
    assert '"objective": "policy"' in whole["rows"]
    assert await left(opened.run) == whole
    assert len(policy.calls) == WRITES
    assert sum(len(opened.journal.held(f"s000-q00{q}-r{r}")) for q in (0, 1) for r in (0, 1)) == 0


class Held(ScriptedPolicy):
    """Tells of each call before it answers."""

    def __init__(self, heard: Callable[[int], None]) -> None:
        super().__init__(two_turns)
        self.heard = heard
        self.asked = 0

    async def write(self, *call: Any) -> Completion:
        self.asked = number = self.asked + 1
        self.heard(number)
        await asyncio.sleep(0.002)
        return await super().write(*call)


async def test_a_killed_workers_rollouts_go_on_elsewhere_from_their_finished_calls(
    opened: Opened, tmp_path: Path
):
    killed: list[Remote] = []

    def kill_at(number: int) -> None:
        if number in (3, 6):
            killed[0].hired[number // 3 - 1].kill()

    policy = Held(kill_at)
    async with remote(opened, policy, at_once=4) as made:
        killed.append(made)
        await made.collector.collect()
        assert len(made.hired) == 4, "each was replaced"
    assert await left(opened.run) == await undisturbed(tmp_path / "whole")
    # A reply that was on its way to a worker when it died was not finished, and is made again.
    assert len(set(policy.calls)) == WRITES
    assert len(policy.calls) <= WRITES + 2 * 4, "at most those in flight at the two kills"
    assert policy.asked > WRITES, "what was in flight was made again"
    told = [line for line in opened.lines if "ended: killed. Another takes its place" in line]
    assert len(told) == 2 and told[0].startswith("worker 1 ended")


class Interrupted(Unsteady):
    """Sets an event at its fourth call."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        super().__init__(lambda number, said: self.stop.set() if number == 4 else None)


async def collected(folder: Path, policy: Unsteady, *, elsewhere: bool) -> RunDirectory:
    """Collect by workers or in this process until the policy interrupts it, if it does."""
    opened = Opened(folder)
    opened.policy = GatedPolicy(policy, opened.flow)
    stop = policy.stop if isinstance(policy, Interrupted) else None
    ends = pytest.raises(RunStopped, match="interrupted") if stop else nullcontext()
    async with AsyncExitStack() as stack:
        stack.callback(opened.close)
        collector = opened.collector()
        if elsewhere:
            collector = (await stack.enter_async_context(remote(opened, policy))).collector
        with ends:
            await collector.collect(stop)
    return opened.run


@pytest.mark.parametrize("first", ["workers", "this process"])
async def test_what_one_engine_began_the_other_finishes(first: str, tmp_path: Path):
    begun, finished = Interrupted(), Unsteady()
    await collected(tmp_path, begun, elsewhere=first == "workers")
    run = await collected(tmp_path, finished, elsewhere=first != "workers")
    assert len(begun.calls) + len(finished.calls) == WRITES and begun.calls
    assert begun.asked == len(begun.calls), "what was in flight was finished and kept"
    assert tally(run).finished == 6


async def test_an_ended_run_does_not_wait_for_workers_that_are_to_come(opened: Opened):
    policy = Interrupted()

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    async with remote(opened, policy, at_once=4, coming=never) as made:
        with pytest.raises(RunStopped, match="interrupted"):
            await asyncio.wait_for(made.collector.collect(policy.stop), PATIENCE)
        assert len(made.hired) == 1, "two rollouts had no worker"
    assert policy.asked == len(policy.calls) == opened.flow.meter.calls


async def test_the_cap_on_money_holds_for_all_workers_together(opened: Opened):
    policy = Unsteady()
    opened.flow.purse.most = 0.55
    async with remote(opened, policy, at_once=4) as made:
        with pytest.raises(RunStopped, match=r"0\.50 of 0\.55 US dollars"):
            await made.collector.collect()
    assert (policy.asked, opened.flow.meter.priced) == (5, 5)


async def test_a_server_that_is_away_for_a_while_is_waited_for(opened: Opened):
    policy = Unsteady(lambda number, said: away() if 3 <= number <= 8 else None)
    async with remote(opened, policy) as made:
        await made.collector.collect()
    assert (tally(opened.run).finished, len(policy.calls)) == (6, WRITES)


async def test_a_rollout_that_fails_is_kept_with_its_reason_and_cost(opened: Opened):
    def two_fails(number: int, said: str) -> Exception | None:
        spent = Usage(calls=1, cost=0.25)
        return PolicyError("It broke.", "Mend it.", spent) if "What is two?" in said else None

    async with remote(opened, Unsteady(two_fails)) as made:
        await made.collector.collect()
    groups = {group.question: group for group in opened.run.groups()}
    assert groups["What is two?"].failures == ("It broke. Mend it.",) * 2
    assert groups["What is two?"].lost.cost == 0.5
    assert opened.flow.meter.cost == pytest.approx(2 * 0.25 + 8 * 0.1)


async def test_a_journal_that_cannot_be_written_fails_the_run_not_a_rollout(opened: Opened):
    async def full(key: object, reply: object) -> None:
        raise StoreError("the disk is full", "Make room.")

    opened.journal.append = full  # type: ignore[method-assign]
    async with remote(opened, ScriptedPolicy(two_turns)) as made:
        with pytest.raises(ExceptionGroup) as failed:
            await made.collector.collect()
    (error, *_) = failed.value.exceptions
    assert isinstance(error, StoreError)
    assert (str(error), error.remedy) == ("the disk is full", "Make room.")
    assert opened.run.finished_steps() == 0


class OneLesson:
    """A `Recaller` that recalls one thing, and is told which runs were given it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.told: list[str] = []

    async def recall(self, question: str) -> Recall:
        self.asked.append(question)
        item = Recollection(id="r1", question="What is nought?")
        return Recall((item,), "<reference_examples>\nMind nought.\n</reference_examples>\n\n")

    async def used(self, trajectory: Trajectory) -> None:
        self.told.append(trajectory.thread)


async def test_workers_recall_from_the_runs_own_bank(opened: Opened):
    lesson = OneLesson()
    async with remote(opened, ScriptedPolicy(two_turns), recalls=True) as made:
        made.researcher.recaller = lesson
        await made.collector.collect()
    assert len(lesson.asked) == len(lesson.told) == len(set(lesson.told)) == 6
    for trajectory in opened.run.trajectories():
        assert trajectory.recalled == ("r1",) and "Mind nought." in trajectory.segments[0].text


async def test_a_rollout_that_ends_every_worker_ends_the_run(opened: Opened):
    workers: list[Remote] = []

    def kill_all(number: int) -> None:
        for worker in workers[0].hired:
            worker.kill()

    async with remote(opened, Held(kill_all), at_once=1, **UNJUDGED) as made:
        workers.append(made)
        with pytest.raises(ExceptionGroup) as failed:
            await made.collector.collect()
    (error,) = failed.value.exceptions
    assert isinstance(error, PolicyError)
    assert str(error) == "3 workers ended, one after another, while they wrote s000-q000-r0."
    assert "The same command goes on" in error.remedy


async def test_a_worker_that_cannot_begin_is_missed_and_the_others_go_on(opened: Opened):
    bad = PolicyError("there are no weights", "Fetch them.")
    policy = ScriptedPolicy(two_turns)
    async with remote(opened, policy, cannot=lambda n: bad if n == 1 else None) as made:
        await made.collector.collect()
        assert len(made.hired) == 1
    assert "worker 1 cannot begin: there are no weights" in opened.lines
    assert tally(opened.run).finished == 6


async def test_without_any_worker_the_run_says_what_is_missing(opened: Opened):
    bad = PolicyError("there are no weights", "Fetch them.")
    async with remote(opened, ScriptedPolicy(two_turns), cannot=lambda n: bad) as made:
        with pytest.raises(
            PolicyError, match=r"No worker could begin\. The last: there are"
        ) as none:
            await made.pool.ready()
    assert none.value.remedy == "Fetch them."


async def test_what_breaks_in_a_worker_that_is_no_error_of_ours_is_raised_here(opened: Opened):
    policy = Failing(ScriptedPolicy(two_turns), lambda number: 1 // 0 > 0)
    async with remote(opened, policy, **UNJUDGED) as made:
        with pytest.raises(ExceptionGroup) as failed:
            await made.collector.collect()
    assert isinstance(failed.value.exceptions[0], ZeroDivisionError)


def test_errors_keep_their_remedy_and_cost_on_the_way_between_processes():
    error = replace_away(PolicyError("It broke.", "Mend it.", Usage(calls=1, cost=0.1)))
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.remedy, back.usage, back.away) == (
        "It broke.", "Mend it.", error.usage, True,
    )  # fmt: skip
    store = pickle.loads(pickle.dumps(StoreError("It is full.", "Make room.")))
    assert (str(store), store.remedy) == ("It is full.", "Make room.")


def replace_away(error: PolicyError) -> PolicyError:
    error.away = True
    return error
