"""Repeated scoring: the mean, its spread, and scorings that fail."""

import json
from typing import Any

import pytest

from judge.building import relative_judge, stage_judge
from judge.choice_judge import ChoiceScorer
from judge.repeating import RepeatedScorer
from judge.scoring import Scored, Standard
from memory.errors import JudgeError, SettingsError
from memory.rubrics import RubricBuffer
from memory.schema import Stage, Trajectory, Usage, Verdict
from tests.chat_clients import client
from tests.judged import QUESTION, group_of, item, run_of
from tests.scripted_server import ScriptedServer
from tests.test_kept_replies import Counted

RULE, SIZE = item("Names the rule.", 3), item("Names the size.", 1)


class Fixed:
    """Gives the same points for every criterion; None: it fails, having cost a call."""

    name = "fixed"

    def __init__(self, *points: float | None) -> None:
        self.points = points

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored:
        points = iter(self.points)
        verdicts = {
            stage: tuple(self._verdict(c, next(points)) for c in criteria)
            for stage, criteria in standard.items()
        }
        return Scored(verdicts, Usage(calls=1))

    def _verdict(self, criterion: Any, points: float | None) -> Verdict:
        if points is None:
            raise JudgeError("no", "", Usage(calls=2))
        return Verdict(criterion=criterion, points=points, justification=f"gave {points}")


async def test_points_are_means_and_the_spread_is_of_the_stages_score():
    scorer = RepeatedScorer([Fixed(2, 0), Fixed(2, 2), Fixed(1, 1)])
    scored = await scorer.score(run_of(), {Stage.ANSWER: (RULE, SIZE)})
    rule, size = scored.verdicts[Stage.ANSWER]
    assert (rule.points, size.points) == (pytest.approx(5 / 3), 1)
    assert (rule.justification, size.justification) == ("gave 2", "gave 1")
    # The stage scored 3/4, 1 and 1/2.
    assert scored.spread[Stage.ANSWER] == pytest.approx((1 / 24) ** 0.5)
    assert scored.usage.calls == 3


async def test_scorings_that_fail_are_left_out_but_paid_for():
    scored = await RepeatedScorer([Fixed(None, 0), Fixed(2, 2)]).score(
        run_of(), {Stage.ANSWER: (RULE, SIZE)}
    )
    assert scored.verdicts[Stage.ANSWER][0].points == 2
    assert (scored.spread, scored.usage.calls) == ({}, 3)


async def test_no_scoring_at_all_is_an_error_with_the_whole_bill():
    with pytest.raises(JudgeError) as caught:
        await RepeatedScorer([Fixed(None), Fixed(None)]).score(run_of(), {Stage.ANSWER: (RULE,)})
    assert caught.value.usage == Usage(calls=4)


async def test_a_server_scores_each_run_as_often_as_asked_with_other_seeds():
    def answer(body: dict[str, Any], number: int) -> str:
        points = body["seed"] // 3
        given = {"number": 1, "justification": "so", "points": points}
        return json.dumps({"verdicts": [given]})

    buffer = RubricBuffer(question=QUESTION, persistent={Stage.ANSWER: (RULE,)})
    with ScriptedServer(answer) as server:
        async with client(server.base_url) as chat:
            result = await stage_judge(chat, repeat=3).judge(group_of(run_of()), buffer)
    answer_score = result.judgements[0].stages[-1]
    assert answer_score.score == 0.5
    assert answer_score.spread == pytest.approx((1 / 6) ** 0.5)
    assert {request.body["temperature"] for request in server.requests} == {0.7}
    assert result.judgements[0].usage.calls == 3


class Points(Counted):
    async def weigh(self, prefix: Any, options: Any) -> tuple[float, ...]:
        assert options == ("0", "1", "2")
        return (0.25, 0.5, 0.25)


async def test_graded_points_are_expected_values():
    scored = await ChoiceScorer(Points(), graded=True).score(run_of(), {Stage.ANSWER: (RULE,)})
    assert scored.verdicts[Stage.ANSWER][0].points == 1


async def test_what_a_model_cannot_do_is_refused():
    local = Counted()
    with pytest.raises(SettingsError, match="repeating tells nothing"):
        stage_judge(local, repeat=2)
    with pytest.raises(SettingsError, match="without a rubric"):
        relative_judge(local, "- mine")
    async with client("http://127.0.0.1:9/v1") as chat:
        with pytest.raises(SettingsError, match="embedded"):
            stage_judge(chat, graded=True)
