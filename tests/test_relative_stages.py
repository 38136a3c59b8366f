"""The relative judge stage by stage: lists that are held against one another, and their rows."""

import re

import numpy as np
import pytest

from judge.building import Wanted, group_judge
from judge.relative import Attempts, Read, RelativeJudge
from judge.relative_groups import RelativeGroups
from memory.errors import JudgeError
from memory.rubrics import RubricBuffer
from memory.schema import Stage, Status, TrajectoryGroup, Usage
from tests.chat_clients import client
from tests.judged import QUESTION, WHOLE, group_of, run_of
from tests.scripted_server import ScriptedServer
from tests.test_compiling import rollout
from training.compiling import policy_rows
from training.judges import known_judge
from training.row_rule import CREDITS

BUFFER = RubricBuffer(question=QUESTION)


class MarkReader:
    """An attempt's score is the number in its text; what it was asked is kept."""

    name, rubric_version, characters = "marks", "1", 10_000

    def __init__(self, fails: str = "") -> None:
        self.asked: list[tuple[str, int]] = []
        self._fails = fails

    async def read(self, attempts: Attempts, seed: int) -> Read:
        self.asked.append((attempts.question, len(attempts.texts)))
        if self._fails and f"its {self._fails}" in attempts.question:
            raise JudgeError("It said nothing.")
        marks = (re.search(r"0\.\d", text) for text in attempts.texts)
        scores = tuple((float(mark[0]) if mark else 0.0, "why") for mark in marks)
        return Read(scores, Usage(calls=1))


def marked(name: str, *marks: float, **more: object) -> object:
    """A run whose stages, as many as there are marks, say their score."""
    texts = {stage: f"{stage} {mark}" for stage, mark in zip(Stage, marks, strict=False)}
    return run_of(texts, name, **more)  # type: ignore[arg-type]


async def scores(group: TrajectoryGroup, reader: MarkReader) -> list[list[float | None]]:
    judged = await RelativeGroups(RelativeJudge(reader), by_stage=True).judge(group, BUFFER)
    return [[stage.score for stage in one.stages] for one in judged.judgements]


async def test_each_stage_has_a_list_of_its_own():
    group = group_of(marked("a", 0.1, 0.2, 0.3, 0.4), marked("b", 0.9, 0.8, 0.7, 0.6))  # type: ignore[arg-type]
    reader = MarkReader()
    judged = await RelativeGroups(RelativeJudge(reader), seed=3, by_stage=True).judge(
        group, BUFFER, step=2
    )
    assert [[s.score for s in one.stages] for one in judged.judgements] == [
        [0.1, 0.2, 0.3, 0.4],
        [0.9, 0.8, 0.7, 0.6],
    ]
    assert (judged.usage.calls, judged.judgements[0].rubric_version) == (4, "1 seed 5")
    asked = sorted(question.split("its ")[1].split(".")[0] for question, _ in reader.asked)
    assert asked == ["answer", "plan", "research", "review"]
    assert all(question.endswith(QUESTION) and n == 2 for question, n in reader.asked)


async def test_a_stage_that_was_left_out_is_0_and_one_that_was_cut_off_is_unscored():
    short = marked("short", 0.5, 0.5)
    cut = marked("cut", 0.4, 0.4, status=Status.PARTIAL, reason="time is over")
    cut = cut.model_copy(update={"cut_in": Stage.REVIEW})  # type: ignore[attr-defined]
    whole = marked("whole", 0.9, 0.9, 0.9, 0.9)
    reader = MarkReader()
    found = await scores(group_of(short, cut, whole), reader)  # type: ignore[arg-type]
    assert found == [[0.5, 0.5, 0.0, 0.0], [0.4, 0.4, None, None], [0.9] * 4]
    assert sorted(count for _, count in reader.asked) == [1, 1, 3, 3], "who has none is not read"


async def test_a_stage_that_the_judge_failed_on_is_unscored_alone():
    group = group_of(marked("a", *[0.1] * 4), marked("b", *[0.2] * 4))  # type: ignore[arg-type]
    found = await scores(group, MarkReader(fails="review"))
    assert found == [[0.1, 0.1, None, 0.1], [0.2, 0.2, None, 0.2]]


async def test_the_lists_become_advantages_stage_by_stage():
    one, two = rollout("one"), rollout("two")
    marks = dict(zip(Stage, (0.9, 0.1, 0.9, 0.1), strict=True))
    segments = (
        s.model_copy(update={"text": f"{marks[s.stage]}"}) if s.stage and s.kept else s
        for s in one.segments
    )
    one = one.model_copy(update={"segments": tuple(segments)})
    two = two.model_copy(
        update={"segments": tuple(
            s.model_copy(update={"text": "0.5"}) if s.stage and s.kept else s
            for s in two.segments
        )}
    )  # fmt: skip
    group = TrajectoryGroup(question="q", trajectories=(one, two))
    judged = await RelativeGroups(RelativeJudge(MarkReader()), by_stage=True).judge(group, BUFFER)
    row, _ = policy_rows(group, judged.judgements, CREDITS["identity"]).rows
    trained = [a for a, on in zip(row.advantages, row.loss_mask, strict=True) if on]
    np.testing.assert_allclose(trained, [1, -1, 1, -1], atol=1e-4)


async def test_runs_can_be_collected_under_it():
    assert known_judge("relative-stages") == "relative-stages"
    with ScriptedServer(lambda body, number: "") as server:
        async with client(server.base_url) as chat:
            judge = group_judge(chat, Wanted("relative-stages", both_orders=True))
    assert isinstance(judge, RelativeGroups) and judge.name == chat.name


async def test_what_the_order_did_is_told_for_each_stage_and_of_whole_runs_without_one():
    class Leaning(MarkReader):
        async def read(self, attempts: Attempts, seed: int) -> Read:
            return Read(((0.8, "first"), (0.4, "second")), Usage(calls=1))

    group = group_of(marked("a", *[0.1] * 4), marked("b", *[0.2] * 4))  # type: ignore[arg-type]
    told = "The order shown moved scores by 0.40."
    for by_stage, expected in ((True, [f"{stage}: {told}" for stage in Stage]), (False, [told])):
        both = RelativeGroups(RelativeJudge(Leaning(), 2), by_stage=by_stage)
        assert list((await both.judge(group, BUFFER)).notes) == expected


@pytest.mark.parametrize("stage", list(Stage))
async def test_a_stage_is_shown_without_the_others(stage: Stage):
    seen: list[str] = []

    class Kept(MarkReader):
        async def read(self, attempts: Attempts, seed: int) -> Read:
            if f"its {stage}." in attempts.question:
                seen.extend((attempts.shared, *attempts.texts))
            return await super().read(attempts, seed)

    other = run_of({**WHOLE, stage: "Something else."}, "b")
    await scores(group_of(run_of(name="a"), other), Kept())
    shown = "".join(seen)
    assert "Something else." in shown and WHOLE[stage] in shown
    assert not any(WHOLE[s] in shown for s in Stage if s is not stage)
