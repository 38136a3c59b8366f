"""Groups judged in pairs: shares won, and what becomes of copies, absent and failed runs."""

import pytest

from judge.pairwise import PairwiseJudge
from judge.pairwise_chat import ChatComparer
from judge.pairwise_choice import ChoiceComparer
from judge.pairwise_groups import GroupwisePairs
from judge.scoring import NO_CRITERIA
from memory.rubrics import RubricBuffer
from memory.schema import Judgement, Stage, Status, Trajectory
from tests.chains import RuledComparer, ScriptedChat, longer
from tests.judged import QUESTION, WHOLE, group_of, run_of, varied
from tests.readers import FixedReader

BUFFER = RubricBuffer(question=QUESTION)
NO_ANSWER = {stage: text for stage, text in WHOLE.items() if stage is not Stage.ANSWER}
A, B, C = varied("a", "It goes."), varied("b", "The oldest goes."), varied("c", "None.")


async def judged(comparer: RuledComparer, *runs: Trajectory) -> tuple[Judgement, ...]:
    judge = GroupwisePairs(PairwiseJudge(comparer))
    return (await judge.judge(group_of(*runs), BUFFER)).judgements


def scores(judgements: tuple[Judgement, ...]) -> list[float | None]:
    return [judgement.score(Stage.ANSWER) for judgement in judgements]


async def test_a_score_is_the_share_of_comparisons_won():
    comparer = RuledComparer(longer)
    assert scores(await judged(comparer, A, B, C)) == [0.5, 1, 0]
    assert len(comparer.shown) == 6, "three pairs in both orders"


async def test_a_contradicted_pair_is_one_win_of_two():
    assert scores(await judged(RuledComparer(lambda first, second: "A"), A, B)) == [0.5, 0.5]


async def test_a_reading_without_a_winner_counts_for_nobody():
    rule = RuledComparer(lambda first, second: None if "None." in (first, second) else "A")
    result = await judged(rule, A, B, C)
    assert scores(result) == [0.5, 0.5, None]
    assert result[2].stages[-1].unscored_reason == "the judge failed: it names no winner"


async def test_a_probability_is_a_part_of_a_win():
    def rule(text: str) -> tuple[float, float]:
        return (0.9, 0.1) if text.index("It goes.") < text.index("The oldest") else (0.5, 0.5)

    judge = GroupwisePairs(PairwiseJudge(ChoiceComparer(FixedReader(rule))))
    result = await judge.judge(group_of(A, B), BUFFER)
    assert scores(result.judgements) == [pytest.approx(1.4 / 2), pytest.approx(0.6 / 2)]
    said = result.judgements[1].stages[-1].justification
    assert said.startswith("Won 0.6 of 2 comparisons. Lost: ") and "Drawn: " in said


async def test_only_the_answer_is_scored_and_says_why():
    first = (await judged(RuledComparer(longer), B, C))[0]
    assert [s.unscored_reason for s in first.stages[:3]] == [NO_CRITERIA] * 3
    assert first.stages[-1].justification.startswith("Won 2 of 2 comparisons. Won: A is better")


async def test_a_group_of_one_and_one_of_copies_have_nothing_to_compare():
    comparer = RuledComparer(longer)
    for runs in ((A,), (A, varied("b", "It goes."))):
        result = await judged(comparer, *runs)
        assert scores(result) == [None] * len(runs)
        assert result[0].stages[-1].unscored_reason == "no other answer to compare"
    assert comparer.shown == []


async def test_copies_are_read_once_and_share_their_score():
    comparer = RuledComparer(longer)
    assert scores(await judged(comparer, A, varied("b", "It goes."), B)) == [0, 0, 1]
    assert len(comparer.shown) == 2


async def test_an_absent_answer_loses_unread_and_one_cut_off_is_not_compared():
    comparer = RuledComparer(longer)
    absent = run_of(NO_ANSWER, "absent")
    failed = run_of(NO_ANSWER, "failed", status=Status.FAILED, reason="the server is down")
    result = await judged(comparer, A, absent, failed)
    assert scores(result) == [1, 0, None]
    assert result[1].stages[-1].missing
    assert "the server is down" in result[2].stages[-1].unscored_reason
    assert comparer.shown == []


async def test_an_absent_answer_counts_beside_what_was_read():
    assert scores(await judged(RuledComparer(longer), A, B, run_of(NO_ANSWER))) == [1 / 3, 1, 0]


async def test_a_judge_that_is_down_leaves_answers_unscored_and_says_so():
    comparer = ChatComparer(ScriptedChat(lambda asked: None))
    result = await GroupwisePairs(PairwiseJudge(comparer)).judge(group_of(A, B), BUFFER)
    assert scores(result.judgements) == [None, None]
    assert "the server is down" in result.judgements[0].stages[-1].unscored_reason
    assert result.notes == ("2 of 2 readings named no winner: the server is down Start it.",)


async def test_the_group_bears_the_cost_and_the_buffer_is_left_alone():
    judge = GroupwisePairs(PairwiseJudge(RuledComparer(longer)))
    result = await judge.judge(group_of(A, B, C), BUFFER)
    assert (result.usage.calls, result.usage.cost, result.buffer) == (6, 3.0, BUFFER)
    assert result.judgements[0].usage.calls == 0
    assert result.notes[0].startswith("3 of 3 pairs had the same winner")
