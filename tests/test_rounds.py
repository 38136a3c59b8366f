"""Rounds that overlap: what each samples from, trains on, recalls, and does not wait for."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.policy import Policy
from judge.stage_judge import GroupJudgement
from memory.errors import PolicyError
from memory.interfaces import Sampling
from memory.rubrics import RubricBuffer
from memory.schema import Judgement, Trajectory, TrajectoryGroup
from tests.collected import Failing, FixedReflections, LengthJudge, judgement, two_turns
from tests.fakes import ScriptedPolicy
from tests.rounds_parts import ASKED, ManyReflections, NamedMemory, Parts
from tests.waiting import wait_for
from training.curriculum import Curriculum
from training.flow import RunStopped
from training.groups import Reflected
from training.rounds.turns import recalls_after
from training.rounds.updating import Metrics
from training.rows import TrainRow

TURNS = 8
"""of a round: two each of two rollouts of two questions"""


@pytest.mark.parametrize(
    ("ahead", "sampled"),
    [(0, ["base", "1", "2"]), (1, ["base", "base", "1"])],
)
async def test_a_round_samples_from_the_checkpoint_so_many_updates_before_its_own(
    ahead: int, sampled: list[str], tmp_path: Path
):
    parts = Parts(tmp_path, 3, ahead)
    await parts.rounds().run()
    assert [parts.sampled[number] for number in range(3)] == sampled
    lags = [(line["staleness/mean"], line["staleness/max"]) for line in parts.updates.lines]
    # The first two have base rows alone; later the reflections lag one more than the rollouts.
    assert lags[0] == (0, 0) and lags[2] == (ahead + 0.5, ahead + 1)
    assert not any(parts.folders.policy(number).exists() for number in range(3))


async def test_an_update_trains_the_reflections_of_the_round_before_and_then_its_own_rollouts(
    tmp_path: Path,
):
    parts = Parts(tmp_path, 2)
    await parts.rounds().run()
    first, second = (line["taken"] for line in parts.updates.lines)
    rounds = [{t.id for t in parts.folders.round(n).trajectories()} for n in (0, 1)]
    assert first[0] == [] and {i.split(":")[0] for i in first[1]} == rounds[0]
    reflected = {i.split(":")[0] for i in second[0]}
    assert len(second[0]) == 4 and all(":reflect:" in i for i in second[0])
    assert reflected < rounds[0] and len(reflected) == 2, "one trajectory of each group"
    assert {i.split(":")[0] for i in second[1]} == rounds[1]
    assert [line["round"] for line in parts.updates.lines] == [1, 2]
    scores = [line.get("reflection/score/mean") for line in parts.updates.lines]
    assert scores == [None, 0.5], "of the reflections that the update trained"
    assert parts.held_out == [0, 1, 2]


def noting(asked: list[int]) -> Callable[[int], Policy]:
    """Policies that write down the round of each turn that they are asked for."""

    def policy(number: int) -> Policy:
        def turn(before: str, sampling: Sampling) -> str:
            asked.append(number)
            return two_turns(before, sampling)

        return ScriptedPolicy(turn)

    return policy


@pytest.mark.parametrize("ahead", [0, 1])
async def test_rollouts_begin_while_the_round_before_is_trained_if_they_are_ahead(
    ahead: int, tmp_path: Path
):
    asked: list[int] = []
    parts = Parts(tmp_path, 2, ahead, policy=noting(asked))
    train, seen = parts.updates.update, list[int]()

    def update(rows: Sequence[TrainRow]) -> Metrics:
        if ahead and rows and not seen:
            wait_for(lambda: asked.count(1) == TURNS)
        seen.extend([asked.count(1)] if rows else [])
        return train(rows)

    parts.updates.update = update  # type: ignore[method-assign]
    await parts.rounds().run()
    assert seen[0] == ahead * TURNS and seen[-1] == TURNS
    line = parts.updates.lines[0]
    assert line["seconds/train"] > 0
    assert 0 < line["seconds/judge_group/mean"] <= line["seconds/judge_group/max"]


class LateReflections(ManyReflections):
    """The first round's are written once that is there which they are not to hold up."""

    def __init__(self, there: Callable[[], bool]) -> None:
        super().__init__()
        self.there = there
        self.written: list[str] = []

    async def __call__(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected:
        while "0" in trajectory.question and not self.there():
            await asyncio.sleep(0.01)
        self.written.append(trajectory.question)
        return await super().__call__(trajectory, judgement, seed)


async def test_the_bank_is_filled_in_the_order_of_rounds_and_seen_as_it_was_at_their_beginning(
    tmp_path: Path,
):
    parts = Parts(tmp_path, 4, per_round=1)
    parts.reflecting = late = LateReflections(lambda: "What is 1?" in late.written)
    await parts.rounds().run()
    memory = parts.memory
    assert isinstance(memory, NamedMemory)
    assert [item.question for item in memory.items] == [f"What is {n}?" for n in range(4)]
    assert memory.pinned == [0, 0, 0, 1], "never what the two before taught meanwhile"


async def test_a_reflection_as_slow_as_two_rounds_holds_up_no_rollouts(tmp_path: Path):
    asked: list[int] = []
    parts = Parts(tmp_path, 3, per_round=1, policy=noting(asked))
    parts.reflecting = LateReflections(lambda: asked.count(2) == TURNS / 2)
    await parts.rounds().run()
    assert parts.updates.done == 3


async def test_a_slow_reflection_holds_up_no_update_of_its_own_round(tmp_path: Path):
    parts = Parts(tmp_path, 1, per_round=1)
    parts.reflecting = late = LateReflections(lambda: parts.updates.done == 1)
    await parts.rounds().run()
    assert late.written == ["What is 0?"]


def test_a_round_recalls_what_is_surely_over_and_waits_for_its_own_questions():
    fresh = Curriculum(ASKED, 1)
    assert [recalls_after(fresh, n, 0) for n in range(3)] == [-1, 0, 1]
    assert [recalls_after(fresh, n, 1) for n in range(5)] == [-1, -1, -1, 0, 1]
    again = Curriculum(ASKED, 2, window=1)
    assert [recalls_after(again, n, 1) for n in range(4)] == [-1, 0, 0, 2]


async def test_questions_asked_again_recall_their_own_reflection(tmp_path: Path):
    parts = Parts(tmp_path, 4, per_round=1, windows=1)
    await parts.rounds().run()
    assert isinstance(parts.memory, NamedMemory)
    assert parts.memory.pinned == [0, 1, 1, 2]
    asked = [[q.id for q in parts.folders.round(n).questions()] for n in range(4)]
    assert asked == [["0"], ["0"], ["1"], ["1"]]


async def test_what_ends_one_round_ends_all_in_its_own_words_and_nothing_is_lost(tmp_path: Path):
    down = True

    def policy(number: int) -> Failing:
        return Failing(ScriptedPolicy(two_turns), lambda asked: down and number == 1)

    parts = Parts(tmp_path, 3, policy=policy)
    with pytest.raises(PolicyError, match="No rollout of step 0 came to an end"):
        await parts.rounds().run()
    assert parts.updates.done <= 1
    kept = {t.id for t in parts.folders.round(0).trajectories()}
    down = False
    parts = Parts(tmp_path, 3, policy=policy)
    await parts.rounds().run()
    assert parts.updates.done == 3
    assert kept <= {t.id for t in parts.folders.round(0).trajectories()}


async def test_a_person_who_stops_it_waits_for_calls_in_flight_alone(tmp_path: Path):
    stop = asyncio.Event()

    class Stopping(ScriptedPolicy):
        async def write(self, *call: Any) -> Any:
            if number[0] == 1:
                stop.set()
                await asyncio.sleep(0.1)
            return await super().write(*call)

    number, made = [0], list[Stopping]()

    def policy(of: int) -> Stopping:
        number[0] = of
        made.append(Stopping(two_turns))
        return made[-1]

    with pytest.raises(RunStopped, match="interrupted"):
        await Parts(tmp_path, 3, policy=policy).rounds(stop).run()
    assert 0 < sum(len(one.calls) for one in made) < 24
    parts = Parts(tmp_path, 3, policy=policy)
    await parts.rounds().run()
    assert parts.updates.done == 3
    assert sum(len(one.calls) for one in made) == 24, "each of the turns was asked for once"


class Stuck(ManyReflections):
    """The reflection of the first round never ends; that of the second has the rounds stopped."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__()
        self.stop = stop

    async def __call__(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected:
        if "0" in trajectory.question:
            await asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.2, self.stop.set)
        return await super().__call__(trajectory, judgement, seed)


async def test_a_round_that_waits_for_its_turn_holds_up_nobody_who_stops_it(tmp_path: Path):
    stop = asyncio.Event()
    parts = Parts(tmp_path, 2, per_round=1)
    parts.reflecting = Stuck(stop)
    async with asyncio.timeout(60):
        with pytest.raises(RunStopped, match="interrupted"):
            await parts.rounds(stop).run()


async def test_more_rounds_go_on_where_fewer_ended(tmp_path: Path):
    await Parts(tmp_path, 2).rounds().run()
    before = Parts(tmp_path).updates.lines
    parts = Parts(tmp_path, 4)
    await parts.rounds().run()
    assert parts.updates.lines[:2] == before and parts.updates.done == 4
    assert parts.sampled == {2: "1", 3: "2"}
    assert [len(line["taken"][0]) for line in parts.updates.lines] == [0, 4, 4, 4]


async def test_a_server_that_was_not_refreshed_is_found_by_its_version(tmp_path: Path):
    parts = Parts(tmp_path, 4)
    open_round = parts.open_round

    def same(number: int, batch: Any) -> Any:
        # Its policy names itself as in the first round, whatever it was given.
        (parts.folders.policy(number) / "weights").unlink(missing_ok=True)
        return open_round(number, batch)

    parts.open_round = same  # type: ignore[method-assign]
    await parts.rounds().run()
    lines = parts.updates.lines
    assert [line["staleness/max"] for line in lines[:3]] == [0, 1, 2]
    assert [line["rows/policy"] for line in lines] == [4, 4, 4, 0], "three updates old"
    assert lines[3]["dropped/older than 2 updates"] == 8


class AlikeAtFirst(LengthJudge):
    """Three rounds whose members all score alike, so that they teach nothing."""

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        found = await super().judge(group, buffer, step)
        if int(group.question.split()[2][:-1]) >= 3:
            return found
        alike = tuple(judgement(t, [0.5] * 4) for t in group.trajectories)
        return found.model_copy(update={"judgements": alike})


async def test_rounds_that_trained_nothing_age_no_rows(tmp_path: Path):
    parts = Parts(tmp_path, 5, per_round=1)
    parts.judge = AlikeAtFirst()
    parts.reflecting = FixedReflections()  # one candidate has no group to be better than
    await parts.rounds().run()
    lines = parts.updates.lines
    assert [line["rows/policy"] for line in lines] == [0, 0, 0, 2, 2]
    assert lines[3]["staleness/max"] == 0, "no update came between: the policy is the first still"
    assert lines[4]["staleness/max"] == 1
