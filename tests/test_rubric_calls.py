"""Rubrics that ask models of their own, in a collecting run: asked once, waited for, counted."""

import copy
from pathlib import Path
from typing import Any

import pytest

from judge.composed_judge import ComposedJudge
from judge.rubrics import LLMJudge, OpenAIClient, WeightedSum
from judge.rubrics.llm_client import asked, asking_through, noted
from memory.errors import JudgeError, PolicyError, SettingsError
from memory.schema import Stage, Usage
from tests.collected import QUESTIONS, LengthJudge, Opened
from tests.scripted_server import Fault, ScriptedServer
from training.flow import Patience


class Model:
    """Grades by how often it was asked; serves nobody from call `down` on."""

    usage = Usage(prompt_tokens=7, completion_tokens=1, calls=1)

    def __init__(self, down: int = 1000) -> None:
        self.down = down
        self.prompts: list[str] = []

    async def complete(self, prompt: str, **kwargs: Any) -> str:
        if len(self.prompts) >= self.down:
            error = JudgeError("Asking the grader failed.", usage=Usage(calls=1))
            error.away = True
            raise error
        self.prompts.append(prompt)
        return f"0.{len(self.prompts)}"


class Named(LengthJudge):
    name = "length"


def graded(model: Model) -> ComposedJudge:
    return ComposedJudge(Named(), {Stage.ANSWER: lambda: LLMJudge("Rate {action}", model)})


def answers(opened: Opened) -> dict[str, float | None]:
    return {j.trajectory_id: j.stages[-1].score for j in opened.run.judgements()}


async def test_a_run_that_goes_on_asks_a_rubrics_model_nothing_again(tmp_path: Path):
    model = Model(down=3)
    opened = Opened(tmp_path, questions=QUESTIONS[:1], group_size=5, step_size=1, reflections=0)
    opened.flow.patience = Patience(longest=0.0)
    with pytest.raises(PolicyError, match="Asking the grader failed"):
        await opened.collector(judge=graded(model)).collect()
    assert (len(model.prompts), opened.run.finished_steps()) == (3, 0)
    opened.close()

    model.down = 1000
    opened = Opened(tmp_path, questions=QUESTIONS[:1], group_size=5, step_size=1, reflections=0)
    await opened.collector(judge=graded(model)).collect()
    assert len(set(model.prompts)) == len(model.prompts) == 5
    assert sorted(answers(opened).values()) == [0.1, 0.2, 0.3, 0.4, 0.5]  # type: ignore[type-var]
    opened.close()


async def test_a_rubrics_model_that_is_away_is_waited_for(tmp_path: Path):
    class Once(Model):
        async def complete(self, prompt: str, **kwargs: Any) -> str:
            try:
                return await super().complete(prompt)
            finally:
                self.down = 1000

    opened = Opened(tmp_path, questions=QUESTIONS[:1], group_size=2, step_size=1, reflections=0)
    opened.flow.patience = Patience(longest=60.0, first=0.01, most=0.01)
    opened.flow.tell = opened.lines.append
    await opened.collector(judge=graded(Once(down=0))).collect()
    assert sorted(answers(opened).values()) == [0.1, 0.2]  # type: ignore[type-var]
    assert any("the model that a rubric asks answers again" in line for line in opened.lines)
    opened.close()


async def test_a_rubrics_model_of_unknown_price_ends_a_run_of_limited_money(tmp_path: Path):
    opened = Opened(tmp_path, questions=QUESTIONS[:1], group_size=2, step_size=1, reflections=0)
    opened.flow.purse.most = 5.0
    with pytest.raises(SettingsError, match="--max-run-cost cannot be kept: a rubric asks"):
        await opened.collector(judge=graded(Model())).collect()
    opened.close()


async def test_a_kept_reply_counts_as_it_did_when_it_was_asked_for():
    kept: dict[str, Any] = {}

    async def through(call: str, ask: Any) -> Any:
        if call not in kept:
            kept[call] = await ask()
        return kept[call]

    with ScriptedServer(["0.5", "0.25"]) as server:
        endpoint, _, port = server.base_url.removesuffix("/v1").rpartition(":")
        one, other = (OpenAIClient(endpoint, int(port), model=name) for name in ("a", "b"))
        for _ in range(2):
            with asking_through(through), noted() as used:
                assert await asked(one, "Rate it.") == "0.5"
                assert await asked(other, "Rate it.") == "0.25", "each model has its own"
            assert used == [Usage(prompt_tokens=100, completion_tokens=20, calls=1)] * 2
        assert len(server.requests) == 2
        await one.aclose()
        await other.aclose()


@pytest.mark.parametrize(("status", "away"), [(503, True), (429, True), (400, False)])
async def test_a_server_that_may_come_back_is_away_and_one_that_refuses_is_not(
    status: int, away: bool
):
    with ScriptedServer(lambda *_: Fault(status, headers={"retry-after-ms": "1"})) as server:
        endpoint, _, port = server.base_url.removesuffix("/v1").rpartition(":")
        client = OpenAIClient(endpoint, int(port), model="m")
        with pytest.raises(JudgeError) as raised:
            await client.complete("Rate it.")
        await client.aclose()
    assert raised.value.away is away


async def test_rubrics_that_are_copied_share_their_client():
    client = OpenAIClient("http://localhost", 1, model="m")
    first = WeightedSum(
        [LLMJudge("Rate {action}", client), LLMJudge("{action}", client)], [0.5, 0.5]
    )
    second = copy.deepcopy(first)
    judges = [*first.children(), *second.children()]
    assert len({id(judge) for judge in judges}) == 4
    assert {id(judge._client) for judge in judges if isinstance(judge, LLMJudge)} == {id(client)}
    second.load_state_dict({"rubric_0.scale": 10.0})
    assert [judge.scale for judge in judges if isinstance(judge, LLMJudge)] == [1, 1, 10, 1]
    await client.aclose()
