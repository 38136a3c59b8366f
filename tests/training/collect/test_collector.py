"""A run whose questions come again after each window, with what they taught.

Collecting over a poisoned page: what a rollout reflects with the page's words is held back.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.settings import load_settings
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import PolicyError, SettingsError, StoreError
from rubricem.memory.schema import GroupJudgement, RubricBuffer, Stage, Status
from rubricem.training.collect.directory import GroupRecord, RunDirectory
from rubricem.training.collect.questions import Selected
from rubricem.training.collect.setup import open_collector
from rubricem.training.show.collected import run_numbers
from tests.agent.research.test_injection import OBEYING, POISON
from tests.programs.killing import killed_runs
from tests.programs.runs_killed import products
from tests.support.collected import QUESTIONS, Failing, LengthJudge, Opened, collecting, two_turns
from tests.support.policies import ScriptedPolicy
from tests.support.scripted_server import Scripted, ScriptedServer
from tests.training.cli.test_collect import collect, scripted
from tests.training.collect.conftest import Open


async def test_every_question_gets_a_group_that_is_judged_and_reflected_on_by_its_step(
    opened: Opened,
):
    await opened.collector().collect()
    groups, runs = list(opened.run.groups()), list(opened.run.trajectories())
    assert [(g.step, g.question, len(g.trajectories)) for g in groups] == [
        (0, "What is one?", 2), (0, "What is two?", 2), (1, "What is three?", 2),
    ]  # fmt: skip
    assert runs[0].transcript() != runs[1].transcript(), "the members of a group differ by seed"
    assert {s.stage for s in runs[0].segments if s.logprobs is not None} == set(Stage)
    assert all(len(s.token_ids or ()) == len(s.text) for s in runs[0].segments[1:])
    # All groups of a step see the same rubrics and the same state of the bank.
    assert sorted(opened.judge.seen) == [
        ("What is one?", 0, 0), ("What is three?", 1, 0), ("What is two?", 0, 0),
    ]  # fmt: skip
    assert opened.memory.pinned == [0, 2]
    assert [r.question for r in opened.memory.items] == [q.question for q in QUESTIONS]
    # The reflection is on one member, with its own judgement.
    assert len(opened.reflecting.seen) == 3
    for _, thread, score in opened.reflecting.seen:
        assert score == pytest.approx({"r0": 0.0, "r1": 0.1}[thread[-2:]])
    assert {g.reflected for g in groups} <= {t.id for t in runs}
    with pytest.raises(StoreError, match="a run that goes on"):
        opened.run.journal()
    policy = opened.policy
    assert isinstance(policy, ScriptedPolicy)
    calls = len(policy.calls)
    await opened.collector().collect()
    assert (len(policy.calls), len(opened.judge.seen)) == (calls, 3), "nothing more is asked for"


async def test_a_lesson_is_as_private_as_the_runs_that_it_is_about(opened: Opened):
    opened.search.passages = [replace(one, public=True) for one in opened.search.passages]
    await opened.collector().collect()
    assert {lesson.private for lesson in opened.memory.items} == {False}


async def test_a_failed_rollout_is_named_in_its_group_and_in_nothing_else(open_run: Open):
    policy = Failing(ScriptedPolicy(two_turns), lambda asked: asked == 3)
    opened = open_run(policy=policy)
    await opened.collector(at_once=1).collect()
    groups = list(opened.run.groups())
    assert sum(len(g.trajectories) for g in groups) == 5
    assert [f for g in groups for f in g.failures] == ["The server is down. Start it."]
    assert all(t.status is Status.FINISHED for t in opened.run.trajectories())


async def test_a_group_that_was_judged_takes_in_no_rollout_that_failed_before(open_run: Open):
    class Killed(LengthJudge):
        async def judge(self, *given: Any) -> GroupJudgement:
            if self.seen:
                raise RuntimeError("killed")
            return await super().judge(*given)

    policy = Failing(ScriptedPolicy(two_turns), lambda asked: asked == 3)
    with pytest.raises(ExceptionGroup):
        await open_run(policy=policy).collector(at_once=1, judge=Killed()).collect()
    opened = open_run(policy=policy)
    await opened.collector(at_once=1).collect()
    first = next(opened.run.groups())
    assert (len(first.trajectories), len(first.failures)) == (1, 1)


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


def shown(groups: list[GroupRecord]) -> list[tuple[int, str, int | None]]:
    return [(group.step, group.question_id, group.replay_of) for group in groups]


WINDOWED = [
    (0, "0", None), (1, "1", None), (2, "0", 0), (3, "1", 1), (4, "2", None), (5, "2", 4),
]  # fmt: skip


async def test_a_windows_steps_come_again_by_their_own_names_with_what_the_first_taught(
    open_run: Open,
):
    opened = open_run(step_size=1, windows=2)
    await opened.collector().collect()
    assert shown(list(opened.run.groups())) == WINDOWED
    threads = [t.thread for t in opened.run.trajectories()]
    assert len(set(threads)) == len(threads) == 12
    assert "step 6 of 6 is kept" in opened.lines
    assert opened.judge.seen == [
        (QUESTIONS[int(number)].question, step, int(replay is not None))
        for step, number, replay in WINDOWED
    ]
    assert [opened.buffers.load(q.question).version for q in QUESTIONS] == [2, 2, 2]
    assert opened.memory.pinned == [0, 1, 2, 3, 4, 5]
    assert opened.memory.own == [replay is not None for _, _, replay in WINDOWED]


@pytest.mark.parametrize("ended", [1, 3])
async def test_a_step_without_any_trajectory_is_not_committed_and_goes_on_later(
    ended: int, open_run: Open
):
    down = True
    policy = Failing(ScriptedPolicy(two_turns), lambda asked: down and asked > 4 * ended)
    opened = open_run(policy=policy, step_size=1, windows=2)
    with pytest.raises(PolicyError, match=rf"No rollout of step {ended} .* The server is down"):
        await opened.collector(at_once=1).collect()
    assert opened.run.finished_steps() == ended
    down = False
    opened = open_run(policy=policy, step_size=1, windows=2)
    await opened.collector(at_once=1).collect()
    assert shown(list(opened.run.groups())) == WINDOWED
    assert (run_numbers(opened.run).finished, run_numbers(opened.run).failed) == (12, 0)


@pytest.mark.parametrize(
    ("memory", "judge", "reflections"),
    [("read-only", "stage", 8), ("on", "none", 8), ("on", "stage", 0)],
)
async def test_windows_without_anything_to_learn_from_are_refused(
    memory: str, judge: str, reflections: int, tmp_path: Path
):
    settings = load_settings({"base_url": "http://localhost:1/v1", "memory": memory})
    options = collecting(windows=3, judge=judge, reflections=reflections)
    asked = Selected(QUESTIONS)
    with pytest.raises(SettingsError, match="nothing is to be kept"):
        async with open_collector(settings, options, RunDirectory(tmp_path), asked, print):
            pass


def obeying(body: dict[str, Any], number: int) -> Scripted:
    said = body["messages"][1]["content"]
    return OBEYING if "<run>" in said and "Criteria" not in said else scripted(body, number)


def test_what_a_rollout_copies_from_its_page_is_put_in_quarantine(folder: Path):
    (folder / "documents" / "lru.md").write_text(f"# lru_cache\nIt has no bound. {POISON}\n")
    with ScriptedServer(obeying) as server:
        done = collect(folder, server, "--group-size", "2", "reflections=1", "settings.memory=on")
    assert done.exit_code == 0, done.output
    bank = RubricBank(folder / "data")
    assert asyncio.run(bank.items()) == []
    [item] = asyncio.run(bank.items(every=True))
    assert item.quarantined
    assert any("copied from what the run read" in flag for flag in item.reflection.flags)


@pytest.mark.slow
async def test_a_run_killed_at_random_moments_repeats_nothing_and_leaves_no_half_item(
    tmp_path: Path,
):
    whole, killed = killed_runs("runs_killed collect", tmp_path, 5)
    for one in killed:
        assert products(one.folder) == products(whole), one.told
        # One thing is done at a time, so each kill finds at most one reply not yet in the journal.
        assert one.repeated <= one.kills, f"finished calls were repeated {one.told}"
        kept = [i.reflection.question for i in await RubricBank(one.folder).items()]
        assert kept == [q.question for q in QUESTIONS], one.told
