"""Preference pairs: the best and the worst of a group, and the groups that have none."""

import math

import pytest

from memory.schema import Judgement, ScaffoldedPrompt, Trajectory
from tests.collected import judgement
from tests.test_compiling import group, rollout
from training.export_judged import JudgedGroup
from training.export_pairs import (
    OTHER_PROMPT,
    TOO_FEW,
    TOO_NEAR,
    PreferencePair,
    best_and_worst,
    compared,
    preference_pair,
)
from training.returns import PAPER
from training.run_directory import GroupRecord

MEMBERS = [rollout("one"), rollout("two"), rollout("three")]


def judged(*scores: list[float | None], members: list[Trajectory] | None = None) -> JudgedGroup:
    chosen = (members or MEMBERS)[: len(scores)]
    record = GroupRecord(
        id="s000-q000", step=2, question_id="q7", question="q", rubric_version="1-abc",
        trajectories=tuple(t.id for t in chosen),
    )  # fmt: skip
    each: list[Judgement] = [judgement(t, s) for t, s in zip(chosen, scores, strict=True)]
    return JudgedGroup(record, group(*chosen), tuple(each))


def pair(*arguments: object, **more: object) -> PreferencePair:
    made = preference_pair(*arguments, **more)  # type: ignore[arg-type]
    assert isinstance(made, PreferencePair), made
    return made


def test_the_best_and_the_worst_by_the_return_of_their_first_stage():
    # 0.5 + 0.4 * 0.5 + 0.6 * 0.5 + 0.8 * answer: 1.0 + 0.8 * answer
    made = pair(judged([0.5, 0.5, 0.5, 0.25], [0.5, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 0.5]))
    assert (made.chosen_trajectory, made.rejected_trajectory) == ("two", "one")
    assert (made.chosen_value, made.rejected_value) == (pytest.approx(1.8), pytest.approx(1.2))
    assert (made.id, made.step, made.question_id, made.judge) == ("s000-q000", 2, "q7", "fake")
    assert [m.content for m in made.prompt] == ["s", "question"]
    assert made.chosen[0].role == "assistant" and made.chosen[0].content == "abtcd"
    assert made.chosen_untrained == ((2, 3),)


def test_by_one_stage_alone():
    one = judged([0.9, 0.5, 0.5, 0.2], [0.1, 0.5, 0.5, 0.8])
    assert pair(one, "plan").chosen_trajectory == "one"
    assert pair(one, "answer").chosen_trajectory == "two"


def test_who_lacks_what_is_compared_is_in_no_pair():
    some = judged([0.5, 0.5, 0.5, None], [0.5, 0.5, 0.5, 0.1], [0.5, 0.5, 0.5, 0.9])
    assert math.isnan(compared(some, "return", PAPER)[0])
    assert pair(some).rejected_trajectory == "two"
    assert preference_pair(some, "plan") == TOO_NEAR
    assert preference_pair(judged([0.5] * 4, [None] * 4)) == TOO_FEW
    assert preference_pair(judged()) == TOO_FEW


def test_a_margin_is_reached_or_there_is_no_pair():
    near = judged([0.5] * 4, [0.5, 0.5, 0.5, 0.75])
    assert preference_pair(near, "answer", 0.25) != TOO_NEAR
    assert preference_pair(near, "answer", 0.26) == TOO_NEAR
    assert preference_pair(judged([0.5] * 4, [0.5] * 4), "answer", 0.0) == TOO_NEAR


def test_scaffolds_make_no_other_prompt_but_other_words_do():
    shown = ScaffoldedPrompt(text=" Say 1.", shown=1)
    members = [rollout("one", system="s Say 1.", scaffold=shown), rollout("two")]
    assert [m.content for m in pair(judged([0.1] * 4, [0.9] * 4, members=members)).prompt] == [
        "s", "question",
    ]  # fmt: skip
    other = [rollout("one", system="else"), rollout("two")]
    assert preference_pair(judged([0.1] * 4, [0.9] * 4, members=other)) == OTHER_PROMPT


def test_of_equal_ones_the_first_is_named():
    assert best_and_worst([0.5, 0.9, math.nan, 0.9, 0.5]) == (1, 0)
