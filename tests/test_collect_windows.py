"""A run whose questions come again after each window, with what they taught."""

from pathlib import Path
from typing import Any

import pytest

from agent.settings import load_settings
from memory.errors import PolicyError, SettingsError
from memory.interfaces import Completion
from tests.collected import QUESTIONS, Failing, Opened, two_turns
from tests.fakes import ScriptedPolicy
from training.opening import CollectOptions, open_collector
from training.questions_selecting import Selected
from training.run_directory import GroupRecord, RunDirectory
from training.tally import tally


def shown(groups: list[GroupRecord]) -> list[tuple[int, str, int | None]]:
    return [(group.step, group.question_id, group.replay_of) for group in groups]


WINDOWED = [
    (0, "0", None), (1, "1", None), (2, "0", 0), (3, "1", 1), (4, "2", None), (5, "2", 4),
]  # fmt: skip


async def test_without_windows_every_step_recalls_its_questions_own_reflections(tmp_path: Path):
    opened = Opened(tmp_path, step_size=1)
    await opened.collector().collect()
    assert opened.memory.own == [True, True, True]
    opened.close()


async def test_a_fresh_batch_of_rounds_recalls_nothing_of_its_own_questions(tmp_path: Path):
    opened = Opened(tmp_path, step_size=3)
    collector = opened.collector()
    collector.fresh = True
    await collector.collect()
    assert opened.memory.own == [False]
    opened.close()


async def test_steps_of_a_window_come_again_under_names_of_their_own(tmp_path: Path):
    opened = Opened(tmp_path, step_size=1, windows=2)
    await opened.collector().collect()
    assert shown(list(opened.run.groups())) == WINDOWED
    threads = [t.thread for t in opened.run.trajectories()]
    assert len(set(threads)) == len(threads) == 12
    assert "step 6 of 6 is kept" in opened.lines
    opened.close()


async def test_rubrics_grow_over_both_passes_and_the_second_sees_what_the_first_taught(
    tmp_path: Path,
):
    opened = Opened(tmp_path, step_size=1, windows=2)
    await opened.collector().collect()
    assert opened.judge.seen == [
        (QUESTIONS[int(number)].question, step, int(replay is not None))
        for step, number, replay in WINDOWED
    ]
    assert [opened.buffers.load(q.question).version for q in QUESTIONS] == [2, 2, 2]
    assert opened.memory.pinned == [0, 1, 2, 3, 4, 5]
    assert opened.memory.own == [replay is not None for _, _, replay in WINDOWED]
    opened.close()


@pytest.mark.parametrize("ended", range(1, 6))
async def test_a_run_goes_on_in_the_middle_of_a_window(ended: int, tmp_path: Path):
    down = True
    policy = Failing(ScriptedPolicy(two_turns), lambda asked: down and asked > 4 * ended)
    opened = Opened(tmp_path, policy=policy, step_size=1, windows=2)
    with pytest.raises(PolicyError):
        await opened.collector(at_once=1).collect()
    assert opened.run.finished_steps() == ended
    opened.close()
    down = False
    opened = Opened(tmp_path, policy=policy, step_size=1, windows=2)
    await opened.collector(at_once=1).collect()
    assert shown(list(opened.run.groups())) == WINDOWED
    assert tally(opened.run).finished == 12
    opened.close()


async def test_a_step_that_is_kept_is_no_longer_held_in_memory(tmp_path: Path):
    opened = Opened(tmp_path, step_size=1)
    seen: list[int] = []

    class Counting(ScriptedPolicy):
        async def write(self, *call: Any) -> Completion:
            seen.append(len(opened.journal._replies))
            return await super().write(*call)

    opened.policy = Counting(two_turns)
    await opened.collector(at_once=1).collect()
    assert max(seen) == 1, "but for the rollout that goes on"
    opened.close()


@pytest.mark.parametrize(
    ("memory", "judge", "reflections"),
    [("read-only", "stage", 8), ("on", "none", 8), ("on", "stage", 0)],
)
async def test_windows_without_anything_to_learn_from_are_refused(
    memory: str, judge: str, reflections: int, tmp_path: Path
):
    settings = load_settings({"base_url": "http://localhost:1/v1", "memory": memory})
    options = CollectOptions(windows=3, judge=judge, reflections=reflections)
    asked = Selected(QUESTIONS)
    with pytest.raises(SettingsError, match=r"--windows .* nothing is to be kept"):
        async with open_collector(settings, options, RunDirectory(tmp_path), asked, print):
            pass
