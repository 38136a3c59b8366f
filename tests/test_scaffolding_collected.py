"""A scaffold through a collecting run: what each member is shown, and what is kept of it."""

from pathlib import Path

from memory.rubrics import RubricBuffer
from memory.schema import Criterion, Stage, Trajectory
from tests.collected import QUESTIONS, Failing, Opened, two_turns
from tests.fakes import ScriptedPolicy
from training.run_directory import Question
from training.scaffolded_groups import criteria_of
from training.scaffolding import ScaffoldRule

RULE = ScaffoldRule()
ASKED = (Question(id="0", question="What is one?", criteria=("Says 1.", "Says 2.")),)


async def collected(folder: Path, **changed: object) -> list[Trajectory]:
    opened = Opened(folder, questions=ASKED, group_size=3, scaffold=RULE, **changed)
    try:
        await opened.collector().collect()
        return sorted(opened.run.trajectories(), key=lambda t: t.thread)
    finally:
        opened.close()


async def test_members_are_shown_less_and_less_and_the_last_one_nothing(tmp_path: Path):
    first, second, last = await collected(tmp_path)
    assert first.scaffold and second.scaffold and last.scaffold is None
    assert (first.scaffold.shown, second.scaffold.shown) == (2, 1)
    assert "1. Says 1.\n2. Says 2." in first.system
    assert first.system.endswith(first.scaffold.text)
    assert first.system.removesuffix(first.scaffold.text) == last.system


async def test_a_rollout_keeps_the_ids_of_its_prompt_with_and_without(tmp_path: Path):
    first, _, last = await collected(tmp_path)
    assert first.scaffold
    prompt = first.segments[0]
    assert prompt.token_ids == tuple(map(ord, first.system + prompt.text))
    assert first.scaffold.bare_ids == last.segments[0].token_ids


async def test_the_criteria_are_not_in_what_the_judge_reads(tmp_path: Path):
    first, *_ = await collected(tmp_path)
    assert "Says 1." not in first.transcript()


async def test_a_run_that_goes_on_shows_what_it_showed_at_first(tmp_path: Path):
    down = Failing(ScriptedPolicy(two_turns), lambda call: call > 3)
    opened = Opened(tmp_path, down, questions=ASKED, group_size=3, scaffold=RULE)
    await opened.collector(judge=None, reflecting=None, at_once=1).collect()
    # Meanwhile somebody judges the question; the failed rollouts are asked as they were.
    failed = opened.run.store.request("s000-q000-r1")["ask"]
    (opened.run.folder / "steps/000/done.json").unlink()
    grown = RubricBuffer(
        question="What is one?",
        version=1,
        active={Stage.ANSWER: (Criterion(title="new", description="New."),)},
    )
    opened.buffers.save(grown)
    opened.close()
    again = Opened(tmp_path, questions=ASKED, group_size=3, scaffold=RULE)
    await again.collector().collect()
    assert again.run.store.request("s000-q000-r1")["ask"] == failed
    assert len(list(again.run.trajectories())) == 3
    again.close()


async def test_a_question_without_criteria_is_asked_without_a_scaffold(tmp_path: Path):
    opened = Opened(tmp_path, questions=QUESTIONS[:1], scaffold=RULE)
    await opened.collector().collect()
    assert [t.scaffold for t in opened.run.trajectories()] == [None, None]
    opened.close()


def test_a_rubric_takes_the_place_of_what_stands_in_the_file():
    one, two = (Criterion(title=t, description=t) for t in ("kept", "new"))
    buffer = RubricBuffer(
        question="q",
        persistent={Stage.ANSWER: (one.model_copy(update={"persistent": True}),)},
        active={Stage.PLAN: (two,)},
        retired={Stage.PLAN: (Criterion(title="old", description="old"),)},
    )
    assert [c.title for c in criteria_of(buffer, ("file",))] == ["new", "kept"]
    assert [c.description for c in criteria_of(RubricBuffer(question="q"), ("file",))] == ["file"]
