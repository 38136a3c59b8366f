import math
from datetime import UTC, datetime

import numpy as np
import pytest
from pydantic import ValidationError

from rubricem.judge.base import NO_CRITERIA, settled
from rubricem.memory.rubrics import RubricBuffer
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    ScaffoldedPrompt,
    Segment,
    Stage,
    Status,
    Trajectory,
    TrajectoryGroup,
)
from rubricem.training.objective.batch import window_weights
from rubricem.training.rows.compile import (
    NO_IDS,
    NO_SPREAD,
    UNJUDGED,
    UNSCORED_REFLECTION,
    absent_stages,
    policy_rows,
    reflection_rows,
)
from rubricem.training.rows.credit import CREDITS
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import retokenised, token_sequence
from tests.support.collected import candidate, judgement

POLICY, TOOL, PROMPT = Author.POLICY, Author.TOOL, Author.PROMPT


def written(text: str, stage: Stage, **changed: object) -> Segment:
    ids = tuple(map(ord, text))
    fields = {"token_ids": ids, "logprobs": tuple(-0.01 * n for n in ids), **changed}
    return Segment(author=POLICY, stage=stage, turn=1, text=text, **fields)  # type: ignore[arg-type]


def rollout(name: str, *extra: Segment, **changed: object) -> Trajectory:
    """Prompt 1 2, plan a, research b, tool output 3, a rejected attempt, review c, answer d."""
    segments = (
        Segment(author=PROMPT, text="question", token_ids=(1, 2)),
        written("a", Stage.PLAN),
        written("b", Stage.RESEARCH),
        Segment(author=TOOL, stage=Stage.RESEARCH, text="t", token_ids=(3,)),
        written("zz", Stage.REVIEW, kept=False),
        written("c", Stage.REVIEW),
        written("d", Stage.ANSWER),
        *extra,
    )
    fields: dict[str, object] = {
        "id": name, "thread": name, "question": "q", "answer_format": AnswerFormat.LONG,
        "decoding": Decoding.FREE, "segments": segments, "status": Status.FINISHED,
        "policy": "p", "policy_version": "v1", "system": "s", "started_at": datetime.now(UTC),
        "seconds": 1.0,
    }  # fmt: skip
    return Trajectory(**{**fields, **changed})  # type: ignore[arg-type]


def group(*trajectories: Trajectory) -> TrajectoryGroup:
    return TrajectoryGroup(question="q", trajectories=trajectories)


IDENTITY, ANSWER_ONLY = CREDITS["identity"], CREDITS["answer-only"]
ONE, TWO = rollout("one"), rollout("two")


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


def test_an_unscored_answer_makes_every_return_that_needs_it_unknown():
    judged = [judgement(ONE, [1.0, 0.5, 0.0, None]), judgement(TWO, [0.0, 0.5, 1.0, 0.5])]
    compiled = policy_rows(group(ONE, TWO), judged)
    assert compiled.rows == ()
    assert compiled.dropped == {NO_SPREAD: 2}


def test_answer_only_credit_reaches_every_stage():
    judged = [judgement(ONE, [0.0, 0.0, 0.0, 1.0]), judgement(TWO, [1.0, 1.0, 1.0, 0.0])]
    row, _ = policy_rows(group(ONE, TWO), judged, ANSWER_ONLY).rows
    np.testing.assert_allclose([a for a in row.advantages if a], [1, 1, 1, 1], atol=1e-5)


def test_a_stage_without_criteria_is_left_out_of_the_sums():
    nothing = settled(ONE, Stage.PLAN, RubricBuffer(question="q"))
    assert nothing is not None and nothing.unscored_reason == NO_CRITERIA
    judged = [judgement(ONE, [None, 1.0, 0.5, 0.5]), judgement(TWO, [None, 0.0, 0.5, 0.5])]
    judged = [j.model_copy(update={"stages": (nothing, *j.stages[1:])}) for j in judged]
    assert absent_stages(judged).tolist() == [[True, False, False, False]] * 2
    row, _ = policy_rows(group(ONE, TWO), judged).rows
    # The plan is credited with what came of the research it laid out, and so is the research.
    np.testing.assert_allclose(row.advantages, (0, 0, 1, 1, 0, 0, 0), atol=1e-5)


def test_judgements_are_found_by_name_and_a_trajectory_without_one_is_no_baseline():
    three = rollout("three")
    judged = [judgement(three, [1.0] * 4), judgement(ONE, [0.0] * 4)]
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
        rollout("two", written("e", Stage.ANSWER, retokenised=True)),
        rollout("two", written("e", Stage.ANSWER, logprobs=None)),
        rollout("two", written("e", Stage.ANSWER, logprobs=(-math.inf,))),
        rollout("two", decoding=Decoding.FORCED),
    ],
    ids=["trimmed", "without log-probabilities", "one that is no number", "forced"],
)
def test_what_was_not_sampled_as_it_stands_forms_no_ratio(other: Trajectory):
    judged = [judgement(ONE, [1.0] * 4), judgement(other, [0.0] * 4)]
    sampled, not_sampled = policy_rows(group(ONE, other), judged).rows
    assert (sampled.ratio_allowed, not_sampled.ratio_allowed) == (True, False)
    assert all(map(math.isfinite, not_sampled.behaviour_logprobs))


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
    """One token for each character; a chat prompt begins with 0."""

    async def render(self, messages: object) -> tuple[int, ...]:
        return (0, *(ord(c) for m in messages for c in m.content))  # type: ignore[attr-defined]

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))


async def test_text_of_a_chat_server_gets_ids_but_never_a_ratio():
    plain = [s.model_copy(update={"token_ids": None, "logprobs": None}) for s in ONE.segments]
    chat = ONE.model_copy(update={"segments": tuple(plain)})
    assert token_sequence(chat.segments) is None
    tokens = token_sequence((await retokenised(chat, Characters())).segments)
    assert tokens is not None and not tokens.sampled
    assert bytes(tokens.ids) == b"\0squestionabtcd"
    assert [chr(i) for i, own in zip(tokens.ids, tokens.written, strict=True) if own] == list(
        "abcd"
    )


def test_a_row_of_a_scaffolded_rollout_has_the_prompt_without_and_keeps_the_one_with():
    scaffold = ScaffoldedPrompt(text="!", shown=1, bare_ids=(7, 8, 9))
    shown = rollout("one", scaffold=scaffold, system="s!")
    row, other = policy_rows(
        group(shown, TWO), [judgement(shown, [1.0] * 4), judgement(TWO, [0.0] * 4)], IDENTITY
    ).rows
    assert row.ids == (7, 8, 9, ord("a"), ord("b"), 3, ord("c"), ord("d"))
    assert (row.prompt_tokens, row.scaffolded_prompt, row.recompute_logprobs) == (3, (1, 2), True)
    assert row.loss_mask == (0, 0, 0, 1, 1, 0, 1, 1)
    np.testing.assert_allclose(row.behaviour_logprobs[3:5], (-0.97, -0.98))
    unshown = (other.prompt_tokens, other.scaffolded_prompt, other.recompute_logprobs)
    assert unshown == (2, (), False)
    with pytest.raises(ValidationError, match="of another prompt for its own"):
        TrainRow(**{**row.model_dump(), "recompute_logprobs": False})
