"""Advantages and returns by hand, every credit over one judged group, and the rows of it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricem.judge.stage import score_unread
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import (
    NO_CRITERIA,
    Author,
    Decoding,
    Judgement,
    Message,
    RubricBuffer,
    ScaffoldedPrompt,
    Segment,
    Stage,
    Trajectory,
)
from rubricem.training.objective.batch import window_weights
from rubricem.training.rows.credit import (
    CREDITS,
    NO_IDS,
    NO_RATIO,
    NO_SPREAD,
    PAPER,
    UNJUDGED,
    UNSCORED,
    UNSCORED_REFLECTION,
    Dependence,
    Floats,
    absent_stages,
    policy_rows,
    reflection_rows,
    row_rule,
    stage_advantages,
    trainable,
)
from rubricem.training.rows.row import TrainRow
from tests.support.collected import (
    IDENTITY,
    ONE,
    TWO,
    candidate,
    group,
    judgement,
    policy_segment,
    rollout,
)

TOOL = Author.TOOL
ANSWER_ONLY = CREDITS["answer-only"]


def test_each_token_of_the_policy_gets_the_advantage_of_its_stage():
    # Scores differ at the plan and at the review; with the identity each stage stands alone.
    judged = [judgement(ONE, [1.0, 0.5, 0.0, 0.5]), judgement(TWO, [0.0, 0.5, 1.0, 0.5])]
    row, other = policy_rows(group(ONE, TWO), judged, IDENTITY, name="g").rows
    assert row.ids == (1, 2, ord("a"), ord("b"), 3, ord("c"), ord("d"))
    assert row.loss_mask == (0, 0, 1, 1, 0, 1, 1)
    assert row.stages == (-1, -1, 0, 1, 1, 2, 3)
    np.testing.assert_allclose(row.advantages, (0, 0, 1, 0, 0, -1, 0), atol=1e-5)
    np.testing.assert_allclose(other.advantages, (0, 0, -1, 0, 0, 1, 0), atol=1e-5)
    np.testing.assert_allclose(row.behaviour_logprobs, (0, 0, -0.97, -0.98, 0, -0.99, -1.0))
    named = (row.id, row.group, row.trajectory, row.policy_version)
    assert named == ("one:policy", "g", "one", "v1")
    assert row.ratio_allowed and row.objective == "policy"


def test_a_stage_whose_return_is_unknown_is_masked():
    judged = [judgement(ONE, [1.0, None, 0.0, 0.5]), judgement(TWO, [0.0, 0.2, 1.0, 0.5])]
    first, second = policy_rows(group(ONE, TWO), judged, IDENTITY).rows
    assert first.loss_mask == (0, 0, 1, 0, 0, 1, 1)
    assert second.loss_mask == (0, 0, 1, 1, 0, 1, 1)
    assert second.advantages[3] == 0, "one known member is no baseline"


def long_group(*values: tuple[float, int], stages: tuple[int, ...] = (0, 0)) -> list[TrainRow]:
    """Rows of one group by their advantage and length; two trained tokens end each."""
    return [
        TrainRow(
            id=f"row{n}", group="g", trajectory=f"row{n}", objective="policy", policy_version="",
            ids=tuple(range(length)), prompt_tokens=1,
            loss_mask=(0,) * (length - 2) + (1, 1), advantages=(0.0,) * (length - 2) + (a, a),
            behaviour_logprobs=(-1.0,) * length, stages=(-1,) * (length - 2) + stages,
        )
        for n, (a, length) in enumerate(values)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "most", "cut"),
    [
        ([(1.15, 9), (0.82, 9), (-0.82, 5), (-1.15, 5)], 8, [1, 1, 0, 0]),
        ([(1.0, 5), (-1.0, 6)], 6, [0, 0]),
        ([(1.0, 5), (-1.0, 9)], 1, [4, 8]),
    ],
)
def test_of_rows_that_are_too_long_the_first_tokens_are_trained_as_the_whole_was_scored(
    values: list[tuple[float, int]], most: int, cut: list[int]
):
    rows = long_group(*values)
    found = trainable(rows, most)
    if most == 1:
        assert found.dropped == {"longer than 1 tokens": 2}, "no trained token is among them"
        return
    assert not found.dropped and [row.cut_tokens for row in found.rows] == cut
    for row, whole in zip(found.rows, rows, strict=True):
        assert TrainRow.model_validate(row.model_dump()) == row
        assert row.ids == whole.ids[:most] and row.advantages == whole.advantages[:most]
    imitated = [row.model_copy(update={"objective": "sft"}) for row in rows]
    left = trainable(imitated, most).dropped
    assert sum(left.values()) == sum(map(bool, cut)), "what is imitated is imitated whole"


def test_an_unscored_answer_makes_every_return_that_needs_it_unknown():
    judged = [judgement(ONE, [1.0, 0.5, 0.0, None]), judgement(TWO, [0.0, 0.5, 1.0, 0.5])]
    compiled = policy_rows(group(ONE, TWO), judged)
    assert compiled.rows == ()
    assert compiled.dropped == {UNSCORED: 1, NO_SPREAD: 1}, "the second is alone in its baseline"


def test_a_stage_without_criteria_is_left_out_of_the_sums():
    nothing = score_unread(ONE, Stage.PLAN, RubricBuffer(question="q"))
    assert nothing is not None and nothing.unscored_reason == NO_CRITERIA
    judged = [judgement(ONE, [None, 1.0, 0.5, 0.5]), judgement(TWO, [None, 0.0, 0.5, 0.5])]
    judged = [j.model_copy(update={"stages": (nothing, *j.stages[1:])}) for j in judged]
    assert absent_stages(judged).tolist() == [[True, False, False, False]] * 2
    row, _ = policy_rows(group(ONE, TWO), judged).rows
    # The plan is credited with what came of the research it laid out, and so is the research.
    np.testing.assert_allclose(row.advantages, (0, 0, 1, 1, 0, 0, 0), atol=1e-5)


def test_a_trajectory_without_a_judgement_is_no_baseline():
    three = rollout("three")
    judged = [judgement(ONE, [0.0] * 4), None, judgement(three, [1.0] * 4)]
    compiled = policy_rows(group(ONE, TWO, three), judged, IDENTITY)
    assert [row.trajectory for row in compiled.rows] == ["one", "three"]
    assert compiled.rows[1].advantages[2] == pytest.approx(1, abs=1e-5)
    assert compiled.dropped == {UNJUDGED: 1}


def test_who_is_as_good_as_the_mean_counts_in_what_a_token_weighs():
    three = rollout("three")
    judged = [judgement(t, [score] * 4) for t, score in ((ONE, 1.0), (TWO, 0.5), (three, 0.0))]
    rows = policy_rows(group(ONE, TWO, three), judged, ANSWER_ONLY).rows
    assert rows[1].advantages == (0.0,) * 7 and sum(rows[1].loss_mask) == 4
    assert window_weights(rows).weights(rows[0])[2] == pytest.approx(1 / 12), "12 tokens compared"
    listed = reflection_rows([candidate(ONE, score) for score in (1.0, 0.5, 0.0)])
    assert [row.advantages[2] for row in listed.rows] == pytest.approx([1.22, 0, -1.22], abs=0.01)
    alike = reflection_rows([candidate(ONE, 0.5)] * 2)
    assert alike.rows == () and alike.dropped == {NO_SPREAD: 2}


def test_alike_members_and_text_without_ids_give_no_row():
    bare = rollout("bare", Segment(author=TOOL, stage=Stage.ANSWER, text="x"))
    judged = [judgement(ONE, [0.5] * 4), judgement(TWO, [0.5] * 4), judgement(bare, [0.5] * 4)]
    assert policy_rows(group(ONE, TWO, bare), judged).dropped == {NO_SPREAD: 2, NO_IDS: 1}
    assert policy_rows(group(), []).rows == ()


@pytest.mark.parametrize(
    "other",
    [
        rollout("two", policy_segment("e", Stage.ANSWER, retokenised=True)),
        rollout("two", policy_segment("e", Stage.ANSWER, logprobs=None)),
        rollout("two", policy_segment("e", Stage.ANSWER, logprobs=(-math.inf,))),
        rollout("two", decoding=Decoding.FORCED),
    ],
    ids=["trimmed", "without log-probabilities", "one that is no number", "forced"],
)
def test_what_was_not_sampled_as_it_stands_forms_no_ratio(other: Trajectory):
    judged = [judgement(ONE, [1.0] * 4), judgement(other, [0.0] * 4)]
    found = policy_rows(group(ONE, other), judged)
    assert len(found.rows) == 1 and found.dropped == {NO_RATIO: 1}


def test_reflections_are_normalised_among_those_that_have_a_score():
    listed = [candidate(ONE, 0.9), candidate(ONE, 0.5), candidate(ONE, None)]
    compiled = reflection_rows(listed, policy_version="v1")
    assert compiled.dropped == {UNSCORED_REFLECTION: 1}
    best, worst = compiled.rows
    np.testing.assert_allclose(best.advantages, (0, 0, 1, 1), atol=1e-4)
    np.testing.assert_allclose(worst.advantages, (0, 0, -1, -1), atol=1e-4)
    assert (best.ids, best.loss_mask, best.stages) == ((9, 9, 1, 2), (0, 0, 1, 1), (-1,) * 4)
    assert best.behaviour_logprobs == (0, 0, -0.1, -0.2)
    assert best.id != worst.id and best.objective == "reflect" and best.policy_version == "v1"


def test_a_reflection_of_wrong_form_scores_0_but_one_that_was_cut_off_is_unknown():
    wrong = candidate(ONE, None, fault="no takeaways")
    cut = wrong.model_copy(update={"unscored_reason": "it was cut off"})
    compiled = reflection_rows([candidate(ONE, 1.0), wrong, cut])
    np.testing.assert_allclose([row.advantages[2] for row in compiled.rows], [1, -1], atol=1e-4)
    assert compiled.dropped == {UNSCORED_REFLECTION: 1}
    assert reflection_rows([]).rows == ()


def test_a_reflection_that_a_grammar_held_to_its_form_is_in_no_baseline():
    held = candidate(ONE, 0.3).model_copy(update={"held": True})
    wrong = [candidate(ONE, None, "no form")] * 2
    assert reflection_rows([*wrong, held]).rows == ()
    compiled = reflection_rows([candidate(ONE, 0.2), candidate(ONE, 0.8), held])
    assert [row.advantages[-1] for row in compiled.rows] == pytest.approx([-1.0, 1.0], abs=1e-4)
    assert compiled.dropped == {"its reflection was held to its form, for the bank": 1}


class Characters:
    """One token for each character; a chat prompt begins with 0, a turn of the policy ends in 3."""

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        said = (m.content + "\3" * (m.role == "assistant") for m in messages)
        return (0, *map(ord, "".join(said)))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))


def test_a_row_of_a_scaffolded_rollout_has_the_prompt_without():
    scaffold = ScaffoldedPrompt(text="!", shown=1, bare_ids=(7, 8, 9))
    shown = rollout("one", scaffold=scaffold, system="s!")
    row, other = policy_rows(
        group(shown, TWO), [judgement(shown, [1.0] * 4), judgement(TWO, [0.0] * 4)], IDENTITY
    ).rows
    assert row.ids == (7, 8, 9, ord("a"), ord("b"), 3, ord("c"), ord("d"))
    assert (row.prompt_tokens, row.recompute_logprobs) == (3, True)
    assert row.loss_mask == (0, 0, 0, 1, 1, 0, 1, 1)
    np.testing.assert_allclose(row.behaviour_logprobs[3:5], (-0.97, -0.98))
    assert (other.prompt_tokens, other.recompute_logprobs) == (2, False)


NAN = float("nan")
MANY = settings(max_examples=40, deadline=None)
SCORES = st.lists(
    st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) for _ in range(4)]),
    min_size=2,
    max_size=8,
).map(np.array)


@pytest.mark.parametrize(
    ("returns", "more", "values"),
    [
        # mean 0.5; variance (0.25 + 0.25 + 0 + 0) / 4 = 0.125, not / 3
        ([[1.0], [0.0], [0.5], [0.5]], {"eps": 0.0}, [[2**0.5], [-(2**0.5)], [0.0], [0.0]]),
        ([[1.0], [0.0]], {"eps": 0.5}, [[0.5], [-0.5]]),
        ([[1.0], [0.0], [NAN]], {"eps": 0.0}, [[1.0], [-1.0], [0.0]]),
        ([[1.0, NAN], [NAN, NAN], [NAN, NAN]], {}, np.zeros((3, 2))),
        ([[0.5, 0.0], [0.5 + 1e-7, 0.002]], {"minimum_spread": 1e-3, "eps": 0.0},
         [[0.0, -1.0], [0.0, 1.0]]),
        ([[100.0, 0.0], [101.0, 0.5]], {"eps": 0.0}, [[-1.0, -1.0], [1.0, 1.0]]),
    ],
    ids=["population standard deviation", "eps is added to it", "unknown is in no baseline",
         "a lone known return has no baseline", "below the minimum spread is noise, at it is not",
         "each stage has its own baseline"],
)  # fmt: skip
def test_advantages_by_hand(returns: Any, more: dict[str, Any], values: Any) -> None:
    np.testing.assert_allclose(stage_advantages(np.array(returns), **more), values)


def grpo(rewards: Floats) -> Floats:
    """The group-relative advantage of scalar rewards, written out apart from the code."""
    deviation = float(np.sqrt(np.mean((rewards - np.mean(rewards)) ** 2)))
    if deviation < 1e-3:
        return np.zeros_like(rewards)
    return (rewards - np.mean(rewards)) / (deviation + 1e-6)


@MANY
@given(SCORES)
def test_identity_is_grpo_stage_by_stage(scores: Floats) -> None:
    found = stage_advantages(IDENTITY.dependence.returns(scores))
    expected = np.stack([grpo(scores[:, k]) for k in range(4)], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@MANY
@given(SCORES)
def test_one_stage_is_grpo_and_broadcast_is_it_everywhere(scores: Floats) -> None:
    answer = grpo(scores[:, 3])
    lone = stage_advantages(Dependence(weights=((1.0,),)).returns(scores[:, 3:]))
    everywhere = stage_advantages(ANSWER_ONLY.dependence.returns(scores))
    np.testing.assert_allclose(lone[:, 0], answer, atol=1e-9)
    for k in range(4):
        np.testing.assert_allclose(everywhere[:, k], answer, atol=1e-9)


@MANY
@given(
    st.lists(
        st.tuples(*[st.sampled_from([NAN, 0.0, 0.0, 0.5, 1.0]) for _ in range(4)]),
        min_size=1,
        max_size=6,
    ).map(np.array)
)
def test_a_stage_teaches_two_members_or_none_and_no_nan_gets_out(scores: Floats) -> None:
    returns = PAPER.returns(scores)
    found = stage_advantages(returns)
    assert np.isfinite(found).all() and not found[np.isnan(returns)].any()
    np.testing.assert_allclose(found.sum(axis=0), 0.0, atol=1e-9)
    assert not (np.count_nonzero(found, axis=0) == 1).any()


TWO_OF_FOUR = [[False, False, True, True], [False] * 4]
NO_REVIEW, NO_ANSWER = [[False, False, True, False]], [[False, False, False, True]]


@pytest.mark.parametrize(
    ("scores", "dependence", "absent", "returns"),
    [
        # 1 + .4*0 + .6*.5 + .8*1, 0 + .4*.5 + .8*1, .5 + .8*1, 1
        ([[1.0, 0.0, 0.5, 1.0]], PAPER, None, [[2.1, 1.0, 1.3, 1.0]]),
        # .5 + .4*1 + .6*0 + .8*.25, 1 + .4*0 + .8*.25, 0 + .8*.25, .25
        ([[0.5, 1.0, 0.0, 0.25]], PAPER, None, [[1.1, 1.2, 0.2, 0.25]]),
        ([[1.0, 0.0, 0.25, 0.5]], IDENTITY.dependence, None, [[1.0, 0.0, 0.25, 0.5]]),
        ([[1.0, NAN, 0.5, 1.0], [1.0, 0.0, 0.5, NAN]], PAPER, None,
         [[NAN, NAN, 1.3, 1.0], [NAN] * 4]),
        ([[1.0, NAN, 0.5, 1.0]], IDENTITY.dependence, None, [[1.0, NAN, 0.5, 1.0]]),
        ([[1.0, 0.0, 0.5, NAN]], IDENTITY.dependence, None, [[1.0, 0.0, 0.5, NAN]]),
        ([[1.0, NAN, 0.5, 1.0], [1.0, 0.0, 0.5, NAN]], ANSWER_ONLY.dependence, None,
         [[1.0] * 4, [NAN] * 4]),
        # a missing stage counts as the zero it is given
        ([[1.0, 0.0, 0.0, 0.0]], PAPER, None, [[1.0, 0.0, 0.0, 0.0]]),
        # left out of every sum: 1 + .4*.5 + .8*.25, .5 + .8*.25, its downstream term .8*.25, .25
        ([[1.0, 0.5, NAN, 0.25]], PAPER, NO_REVIEW, [[1.4, 0.7, 0.2, 0.25]]),
        # with no term left a return is unknown
        ([[1.0, 0.5, 0.5, NAN]], PAPER, NO_ANSWER, [[1.5, 0.7, 0.5, NAN]]),
        ([[1.0, 0.5, 0.5, NAN]], ANSWER_ONLY.dependence, NO_ANSWER, [[NAN] * 4]),
        # what some lack is in no sum compared with theirs: 1 + .4*.5; .5 + .4*.25
        ([[1.0, 0.5, NAN, NAN], [0.5, 0.25, 1.0, 0.5]], PAPER, TWO_OF_FOUR,
         [[1.2, 0.5, NAN, NAN], [0.6, 0.25, NAN, NAN]]),
    ],
)  # fmt: skip
def test_returns_by_hand(scores: Any, dependence: Dependence, absent: Any, returns: Any) -> None:
    left_out = None if absent is None else np.array(absent)
    found = dependence.returns(np.array(scores), left_out)
    np.testing.assert_allclose(found, returns, atol=1e-12)


FOUND = ([0.0, 0.5, 0.5, 1.0], [1.0, 0.5, 0.5, 0.0])
JUDGED = [judgement(run, scores) for run, scores in zip((ONE, TWO), FOUND, strict=True)]
MATRIX = [[1, 0, 0, 1], [0, 1, 0, 0.5], [0, 0, 1, 0], [0, 0, 0, 1]]


def stages(credit: Any, judged: Sequence[Judgement] = JUDGED) -> list[float]:
    """The advantages of the first rollout's plan, research, review and answer."""
    row, _ = policy_rows(group(ONE, TWO), judged, row_rule(credit)).rows
    return [a for a, on in zip(row.advantages, row.loss_mask, strict=True) if on]


@pytest.mark.parametrize(
    ("credit", "advantages"),
    [
        # The plan's returns are 0 + 0.2 + 0.3 + 0.8 and 1 + 0.2 + 0.3 + 0.
        ("ss-grpo", [-1, 1, 1, 1]),
        ("answer-only", [1, 1, 1, 1]),
        # The plan's are 1 and 1, the review's own are alike.
        (MATRIX, [0, 1, 0, 1]),
    ],
    ids=["ss-grpo", "answer-only", "matrix"],
)
def test_credits_of_the_same_group_by_hand(credit: Any, advantages: list[float]):
    np.testing.assert_allclose(stages(credit), advantages, atol=1e-4)


def test_a_whole_run_that_left_a_stage_out_is_in_its_baseline():
    without = [s for s in TWO.segments if s.stage is not Stage.REVIEW]
    runs = [ONE, rollout("two", segments=tuple(without))]
    judged = [
        judgement(run, [0.5, 0.5, score, 0.5]) for run, score in zip(runs, (1, 0), strict=True)
    ]
    row, _ = policy_rows(group(*runs), judged, IDENTITY).rows
    assert dict(zip(row.stages, row.advantages, strict=True))[2] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("credit", "fault"),
    [
        ("paper", "There is no credit 'paper'"),
        ([[1.0, 0.0], [0.0, 1.0]], "it has 2 rows"),
        ([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], "credits an earlier stage"),
        ([[-1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], "negative or not finite"),
        ([[1, 2], [3]], "square and not empty"),
        (3, "should be a valid tuple"),
    ],
)
def test_what_is_no_credit_is_told_with_those_that_are(credit: Any, fault: str):
    with pytest.raises(SettingsError, match=fault) as told:
        row_rule(credit)
    assert "ss-grpo, answer-only, sum" in told.value.remedy
