import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from judge.stage_judge import GroupJudgement
from memory.errors import PolicyError, SettingsError, StoreError
from memory.rubrics import RubricBuffer
from memory.schema import Stage, Status
from tests.collected import QUESTIONS, Failing, Opened, two_turns
from tests.fakes import ScriptedPolicy
from tests.flow import answer, plan
from training.collecting import SWEPT_EVERY
from training.groups import rollout_seed
from training.tally import tally


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    made.close()


async def test_every_question_gets_a_group_of_free_rollouts_with_ids_and_stages(opened: Opened):
    await opened.collector().collect()
    groups = list(opened.run.groups())
    assert [(g.step, g.question, len(g.trajectories)) for g in groups] == [
        (0, "What is one?", 2), (0, "What is two?", 2), (1, "What is three?", 2),
    ]  # fmt: skip
    first, second = list(opened.run.trajectories())[:2]
    assert first.transcript() != second.transcript(), "the members of a group differ by seed"
    stages = {s.stage for s in first.segments if s.logprobs is not None}
    assert stages == set(Stage)
    assert all(len(s.token_ids or ()) == len(s.text) for s in first.segments[1:])


async def test_all_groups_of_a_step_see_the_same_rubrics_and_bank(opened: Opened):
    await opened.collector().collect()
    assert sorted(opened.judge.seen) == [
        ("What is one?", 0, 0), ("What is three?", 1, 0), ("What is two?", 0, 0),
    ]  # fmt: skip
    assert opened.memory.pinned == [0, 2]
    assert [r.question for r in opened.memory.items] == [q.question for q in QUESTIONS]


async def test_a_question_that_comes_again_sees_the_rubrics_its_step_left(tmp_path: Path):
    again = (*QUESTIONS[:1], *QUESTIONS[:1])
    opened = Opened(tmp_path, questions=again)
    await opened.collector().collect()
    assert opened.judge.seen == [("What is one?", 0, 0), ("What is one?", 1, 1)]
    assert opened.buffers.load("What is one?").version == 2
    opened.close()


async def test_the_reflection_is_on_one_member_with_its_own_judgement(opened: Opened):
    await opened.collector().collect()
    scores = {"r0": 0.0, "r1": 0.1}
    assert len(opened.reflecting.seen) == 3
    for _, thread, score in opened.reflecting.seen:
        assert score == pytest.approx(scores[thread[-2:]])
    assert {g.reflected for g in opened.run.groups()} <= {t.id for t in opened.run.trajectories()}


async def test_without_judge_and_memory_there_are_rollouts_alone(opened: Opened):
    await opened.collector(judge=None, reflecting=None, memory=None).collect()
    assert tally(opened.run).finished == 6
    assert not list(opened.run.judgements()) and not list(opened.run.reflections())


async def test_garbage_is_sought_seldom_while_collecting_and_as_before_afterwards(opened: Opened):
    before, during = gc.get_threshold(), set[int]()

    def reached(milestone: str, group: str) -> None:
        during.add(gc.get_threshold()[0])

    await opened.collector(reached=reached).collect()
    assert during == {SWEPT_EVERY}
    assert gc.get_threshold() == before and not gc.get_freeze_count()


async def test_a_failed_rollout_is_named_in_its_group_and_in_nothing_else(tmp_path: Path):
    policy = Failing(ScriptedPolicy(two_turns), lambda asked: asked == 3)
    opened = Opened(tmp_path, policy=policy)
    await opened.collector(at_once=1).collect()
    groups = list(opened.run.groups())
    assert sum(len(g.trajectories) for g in groups) == 5
    assert [f for g in groups for f in g.failures] == ["The server is down. Start it."]
    assert all(t.status is Status.FINISHED for t in opened.run.trajectories())
    opened.close()


async def test_a_step_without_any_trajectory_is_not_committed_and_goes_on_later(tmp_path: Path):
    down = True
    policy = Failing(ScriptedPolicy(two_turns), lambda asked: down and asked > 4)
    opened = Opened(tmp_path, policy=policy, step_size=1)
    with pytest.raises(PolicyError, match=r"No rollout of step 1 .* The server is down"):
        await opened.collector(at_once=1).collect()
    assert opened.run.finished_steps() == 1
    down = False
    await opened.collector(at_once=1).collect()
    assert tally(opened.run).finished == 6
    assert tally(opened.run).failed == 0
    opened.close()


async def test_rubrics_that_somebody_else_changed_stand_and_the_run_says_so(opened: Opened):
    class Meanwhile:
        async def judge(self, group: object, buffer: RubricBuffer, step: int = 0) -> GroupJudgement:
            judged = await opened.judge.judge(group, buffer, step)  # type: ignore[arg-type]
            other = buffer.model_copy(update={"version": 5})
            opened.buffers.save(other)
            return judged

    await opened.collector(judge=Meanwhile()).collect()
    assert opened.buffers.load("What is one?").version == 5
    assert all("were not saved" in g.notes[0] for g in opened.run.groups())


async def test_a_finished_run_asks_for_nothing_more(opened: Opened):
    await opened.collector().collect()
    policy = opened.policy
    assert isinstance(policy, ScriptedPolicy)
    calls, judged = len(policy.calls), len(opened.judge.seen)
    await opened.collector().collect()
    assert (len(policy.calls), len(opened.judge.seen)) == (calls, judged)


async def test_a_run_is_not_gone_on_with_under_other_settings(opened: Opened, tmp_path: Path):
    opened.close()
    with pytest.raises(SettingsError, match=r"another group size, seed"):
        Opened(tmp_path, group_size=3, seed=8)


async def test_two_processes_cannot_collect_into_one_folder(opened: Opened, tmp_path: Path):
    with pytest.raises(StoreError, match="in use"):
        opened.run.journal()


async def test_a_retried_turn_is_kept_outside_the_transcript(tmp_path: Path):
    script = ["no tags at all", plan(), answer()]
    opened = Opened(tmp_path, ScriptedPolicy(script), QUESTIONS[:1], group_size=1)
    await opened.collector().collect()
    (trajectory,) = opened.run.trajectories()
    assert [s.text for s in trajectory.segments if not s.kept] == ["no tags at all"]
    assert (tally(opened.run).finished, tally(opened.run).first_try) == (1, 0)
    opened.close()


def test_seeds_differ_between_members_groups_and_runs():
    seeds = {rollout_seed(s, g, m) for s in (0, 1) for g in ("a", "b") for m in (0, 1)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**32 for seed in seeds)
