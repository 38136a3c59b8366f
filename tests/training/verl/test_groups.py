"""Groups of verl's rollouts in one process, as the actor has them: judged, reflected on, kept."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.judge.checklist import ChecklistItem
from rubricem.judge.reflection import ChatReflectionJudge
from rubricem.memory.errors import JudgeError, SettingsError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import Criterion, ReflectionCandidate, RubricBuffer, Stage
from rubricem.training.collect.questions import Question
from rubricem.training.rows.forms import write_verl
from rubricem.training.verl.groups import (
    KEPT,
    EndedRollout,
    GroupOptions,
    Member,
    RolloutGroups,
    go_back,
    group_options,
)
from rubricem.training.verl.plugin import ADVANTAGES, REFLECTIONS
from tests.support.banks import bank_in
from tests.support.collected import LengthJudge, candidate
from tests.support.collected import rollout as rollout_of

SCORES = (0.8, None, 0.2)


class Given(ChatReflectionJudge):
    """Gives each candidate the score that stands at its place."""

    minimum = 0.5

    def __init__(self) -> None:
        self.seen: list[float | None] = []

    async def score(
        self, trajectory: Any, judgement: Any, candidates: Any, seed: int = 0, **more: Any
    ) -> tuple[ReflectionCandidate, ...]:
        self.seen.append(judgement.score(Stage.ANSWER))
        return tuple(candidate(trajectory, score) for score in SCORES[: len(candidates)])


def groups(folder: Path, judge: Any = None, **told: Any) -> RolloutGroups:
    """Over a data directory, with a bank."""
    settings = load_settings(
        {
            "data_dir": folder, "memory": "on",
            "base_url": "http://127.0.0.1:9",
        }
    )  # fmt: skip
    options = GroupOptions(**told)
    judge = judge or LengthJudge()
    return RolloutGroups(setup_of(settings), options, judge, Given(), bank_in(folder))


def member(number: int, step: int = 1, place: int = 0, size: int = 3, **more: Any) -> Member:
    return Member(f"uid-{step}-{place}", number, size, f"question {place}", step, place, **more)


def ended(one: Member, reflects: bool = False) -> EndedRollout:
    run = rollout_of(f"{one.group}-{one.number}", question=one.question)
    return EndedRollout(one, run, tuple(candidate(run, None) for _ in SCORES) if reflects else ())


async def whole(found: RolloutGroups, step: int, place: int) -> list[Any]:
    """A group of three from its beginning to its end, one member reflected upon."""
    members = [member(n, step, place) for n in range(3)]
    for one in members:
        await found.begin(one)
    waiting = [found.end(ended(one, one.reflects(0))) for one in members]
    return await asyncio.gather(*waiting)


async def test_a_group_is_judged_once_when_its_last_rollout_has_ended(tmp_path: Path) -> None:
    judge = LengthJudge()
    found = groups(tmp_path, judge)
    first = asyncio.create_task(found.end(ended(member(0))))
    await found.fail(member(2))
    await asyncio.sleep(0.01)
    assert not first.done() and not judge.seen, "it waits for the one that still runs"
    second = await found.end(ended(member(1)))
    told = await first
    assert judge.seen == [("question 0", 1, 0)]
    assert told["answer"] == 0.0 and second["answer"] == 0.1, "each is told its own"
    assert told.keys() == second.keys() and told[REFLECTIONS] == ""
    for mine, sign in ((told, -1.0), (second, 1.0)):
        own = [float(one) for one in str(mine[ADVANTAGES]).split(",")]
        assert own == pytest.approx([sign] * 4, abs=1e-3), "each stage over the group's two"
    assert BufferStore(tmp_path / "buffers").load("question 0").version == 1, "rubrics evolve"


async def test_who_waits_for_a_judge_that_breaks_is_told_so(tmp_path: Path) -> None:
    class Broken:
        async def judge(self, *group: Any) -> Any:
            raise JudgeError("no place on the disk")

    found = groups(tmp_path, Broken())
    both = [found.end(ended(member(n, size=2))) for n in range(2)]
    for error in await asyncio.gather(*both, return_exceptions=True):
        assert isinstance(error, JudgeError)
    await asyncio.gather(*(found.fail(member(n, place=1)) for n in range(3)))
    await asyncio.sleep(0.01)


async def test_reflections_are_scored_with_the_verdict_and_the_best_enters_the_bank_in_order(
    tmp_path: Path,
) -> None:
    found, bank = groups(tmp_path), bank_in(tmp_path)
    later = await whole(found, 1, 1)
    first = await whole(found, 1, 0)
    for told in (later, first):
        assert sorted(scores[REFLECTIONS] for scores in told) == [
            "",
            "",
            "0.999997,0.000000,-0.999997",
        ]
    assert await bank.items() == [], "nothing before the next step"
    shown = await found.begin(member(0, step=2, place=0))
    assert shown.recall.own and "<reference_examples>" in shown.recall.block
    web = replace(found._setup.sources, tool_servers={"web": SimpleNamespace(public=True)})
    found._setup = replace(found._setup, sources=web)
    shown = await found.begin(member(1, step=2, place=0))
    assert shown.recall.block == "", "a private run's lesson precedes no public question"
    kept = sorted(await bank.items(), key=lambda item: item.since)
    assert [item.reflection.question for item in kept] == ["question 0", "question 1"]
    again = await found.begin(replace(member(1, step=2, place=0), fresh=True))
    assert not again.recall.own, "what a window asks again is met with what others taught"


async def test_what_is_held_out_is_shown_nothing_and_teaches_nothing(tmp_path: Path) -> None:
    judge = LengthJudge()
    found = groups(tmp_path, judge, scaffold="linear")
    await whole(found, 1, 0)
    one = member(0, step=2, size=1, held_out=True)
    shown = await found.begin(one)
    assert not shown.recall.block and not shown.scaffold.text
    assert not any(member(n, held_out=True).reflects(0) for n in range(3))
    await found.end(ended(one))
    buffers = BufferStore(tmp_path / "buffers")
    assert judge.seen[-1][2] == 1 and buffers.load("question 0").version == 1, "judged by them"
    await found.end(ended(member(0, 2, place=5, size=1, held_out=True)))
    assert buffers.load("question 5").version == 1, "made at the first asking"


async def test_a_scaffold_fades_with_the_steps_and_is_the_same_for_whoever_asks(
    tmp_path: Path,
) -> None:
    criteria = tuple(Criterion(title=f"{n}", description=f"It says {n}.") for n in range(8))
    buffers = BufferStore(tmp_path / "buffers")
    empty = RubricBuffer(question="question 0")
    buffers.save(empty.model_copy(update={"version": 1, "active": {Stage.ANSWER: criteria}}))

    async def counts(progress: float, step: int) -> list[int]:
        found = groups(tmp_path, scaffold="linear")
        members = [member(n, step=step, progress=progress) for n in range(3)]
        return [(await found.begin(one)).scaffold.shown for one in members]

    assert await counts(0.0, 1) == [8, 4, 0]
    assert await counts(0.2, 2) == [4, 2, 0]
    assert await counts(1.0, 3) == [0, 0, 0]
    texts = [
        (await groups(tmp_path, scaffold="linear").begin(member(1))).scaffold.text for _ in "ab"
    ]
    assert texts[0] == texts[1] and texts[0].count("It says") == 4


async def test_what_a_file_says_of_a_question_is_shown_and_scored(tmp_path: Path) -> None:
    """Its own criteria, with points, and what rubrics of one's own score by."""

    class Seen(LengthJudge):
        async def judge(self, group: Any, buffer: RubricBuffer, step: int = 0) -> Any:
            given.append((group.facts, buffer.criteria(Stage.ANSWER)))
            return await super().judge(group, buffer, step)

    given: list[Any] = []
    flaw = ChecklistItem(criterion="Names no source.", points=-6)
    asked = Question(id="0", question="question 0", criteria=("Says 3.", flaw), facts={"is": "3"})
    found = groups(tmp_path, Seen(), scaffold="linear")
    members = [replace(member(n), asked=asked) for n in range(3)]
    shown = [await found.begin(one) for one in members]
    assert all(text in shown[0].scaffold.text for text in ("Says 3.", "Names no source."))
    await asyncio.gather(*(found.end(ended(one)) for one in members))
    ((facts, criteria),) = given
    assert facts == {"is": "3"}
    assert [(c.description, c.weight, c.positive) for c in criteria] == [
        ("Says 3.", 0.5, True), ("Names no source.", 3.0, False),
    ]  # fmt: skip
    asked = asked.model_copy(update={"question": "question 1"})
    for step in (1, 2):
        one = member(0, step, place=1, size=1, held_out=True, asked=asked)
        await found.end(ended(one))
    assert BufferStore(tmp_path / "buffers").load("question 1").version == 2, "kept at the first"
    told = [tuple(c.title for c in criteria if not c.persistent) for _, criteria in given[1:]]
    assert told == [(), ("step 1",)], "later ones are judged by the rubrics of the first"


async def test_a_checkpoint_holds_rubrics_and_bank_with_all_that_its_step_taught(
    tmp_path: Path,
) -> None:
    data, checkpoint = tmp_path / "data", tmp_path / "global_step_1"
    found = groups(data)
    await whole(found, 1, 0)
    await found.keep(1, checkpoint)
    await found.begin(member(0, step=2, place=1))
    await whole(found, 2, 1)
    await found.keep(2, tmp_path / "global_step_2")
    bank = bank_in(data)
    assert len(await bank.items()) == 2
    go_back(data, checkpoint / KEPT)
    assert [item.reflection.question for item in await bank_in(data).items()] == ["question 0"]
    assert BufferStore(data / "buffers").load("question 1").version == 0


def test_seeds_follow_from_the_place_in_the_training_alone() -> None:
    places = [(step, place, number) for step in (1, 2) for place in (0, 1) for number in range(3)]
    made = [member(number, step, place).seed(7) for step, place, number in places]
    other = [replace(member(n, s, p), group="another").seed(7) for s, p, n in places]
    assert len(set(made)) == len(made) and made == other
    assert member(0).seed(8) != member(0).seed(7)
    drawn = [sum(member(n, step).reflects(0) for n in range(3)) for step in range(50)]
    assert drawn == [1] * 50, "one of each group"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"judgge": "stage"}, "did you mean judge"),
        ({"reflections": -1}, "reflections"),
        ({"rubric": "mine.md"}, "--rubric is nothing that a stage judge reads"),
        ({"judge": "none"}, "Without a judge there is nothing to learn from"),
        ({"judge": "rubric:own_rubrics:rubrics", "gated": True}, "a gate before a judge of ours"),
    ],
)
def test_options_that_are_none_are_refused_in_a_sentence(values: Any, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        group_options(values)
    assert group_options(None) == GroupOptions()


def asked(path: Path) -> Sequence[Any]:
    parquet = pytest.importorskip("pyarrow.parquet")
    return [row["extra_info"] for row in parquet.read_table(path).to_pylist()]


def test_windows_are_the_order_of_the_rows_and_each_says_whether_it_comes_again(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pyarrow")
    questions = [Question(id=f"q{n}", question=f"What is {n}?") for n in range(6)]
    path = tmp_path / "windows.parquet"
    assert write_verl(path, questions, size=2, windows=2) == 12
    rows = asked(path)
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 4, 5]
    assert [row["fresh"] for row in rows] == [True] * 4 + [False] * 4 + [True] * 2 + [False] * 2
    alike = [question.model_copy(update={"id": "1"}) for question in questions]
    assert write_verl(path, alike, size=2, windows=2) == 12
    told = ({k: v for k, v in row.items() if k not in ("id", "asked")} for row in rows)
    left = [{k: v for k, v in row.items() if k not in ("id", "asked")} for row in asked(path)]
    assert left == [*told], "an id may stand twice in a file"
    with pytest.raises(SettingsError, match="6 questions make no whole batches of 4"):
        write_verl(path, questions, size=4, windows=2)
    write_verl(path, questions, held_out=True)
    assert all(row["held_out"] for row in asked(path))


def test_a_row_for_verl_has_all_that_its_file_says_of_the_question(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    flaw = ChecklistItem(criterion="Names no source.", points=-6)
    full = Question(
        id="a", question="Who?", criteria=("Says 3.", flaw), answer_format="exact", facts={"is": 3}
    )  # fmt: skip
    questions = [Question(id="b", question="When?"), full]
    write_verl(tmp_path / "asked.parquet", questions)
    assert [
        Question.model_validate_json(row["asked"]) for row in asked(tmp_path / "asked.parquet")
    ] == questions
