"""A run through its gate: servers waited for, ended by money or a person, gone on with.

Rubrics that ask models of their own, in a collecting run: asked once, waited for, counted.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.models.chat_server import OpenAIChat
from rubricem.agent.models.limits import Limiter, Retry
from rubricem.judge.composed import ComposedJudge
from rubricem.judge.rubrics import LLMJudge
from rubricem.memory.errors import JudgeError, PolicyError, SettingsError
from rubricem.memory.runs import Journal
from rubricem.memory.schema import NO_USAGE, Completion, Message, Sampling, Stage, Usage
from rubricem.training.collect.gate import GatedPolicy, Meter, Patience, RunGate, RunStopped
from rubricem.training.show.collected import run_numbers
from tests.support.collected import QUESTIONS, LengthJudge, Opened, two_turns
from tests.support.policies import ScriptedPolicy
from tests.support.scripted_server import Fault, Reply, ScriptedServer
from tests.support.waiting import PATIENCE
from tests.training.collect.conftest import Open

PATIENT = Patience(longest=PATIENCE, alone=PATIENCE, first=0.01, most=0.05)
SHORT = replace(PATIENT, longest=0.5, alone=0.1)
"""where a server is to be given up"""
WRITES = 2 * 2 * len(QUESTIONS)
"""two turns of two rollouts of each question"""


def away(usage: Usage = NO_USAGE) -> PolicyError:
    error = PolicyError("no model server answers at http://there", "Start it.", usage)
    error.away = True
    return error


class Unsteady(ScriptedPolicy):
    """Costs a tenth of a dollar a call; `fault` says what a call of a number raises."""

    def __init__(self, fault: Callable[[int, str], Exception | None] = lambda n, said: None):
        super().__init__(two_turns)
        self.fault = fault
        self.asked = self.now = self.most = 0

    async def write(self, *call: Any) -> Completion:
        self.asked = number = self.asked + 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.002)
        self.now -= 1
        if error := self.fault(number, call[1][0].text):
            raise error
        completion = await super().write(*call)
        return replace(completion, usage=Usage(calls=1, completion_tokens=5, cost=0.1))


class Gated(Opened):
    """An opened run whose rollouts pass its gate, and that soon asks a server again."""

    def __init__(self, folder: Path, policy: Unsteady, **changed: Any) -> None:
        super().__init__(folder, policy, **changed)
        self.gate.patience = PATIENT
        self.gate.tell = self.lines.append
        self.policy = GatedPolicy(policy, self.gate)


@pytest.fixture
def opened_with(open_run: Open) -> Open:
    return partial(open_run, kind=Gated)


async def test_a_server_that_is_away_for_a_while_is_waited_for_and_no_rollout_fails(
    opened_with: Open,
):
    policy = Unsteady(lambda number, said: away() if 3 <= number <= 8 else None)
    opened = opened_with(policy)
    await opened.collector().collect()
    assert (run_numbers(opened.run).finished, run_numbers(opened.run).failed) == (6, 0)
    assert len(policy.calls) == WRITES
    told = [line for line in opened.lines if "waited for" in line or "answers again" in line]
    assert told[0].startswith("no model server answers at http://there; it is waited for")
    assert told[1] == "scripted answers again"


async def test_a_server_away_for_good_ends_the_run_and_it_goes_on_when_it_is_back(
    opened_with: Open,
):
    dying = Unsteady(lambda number, said: away() if number > 5 else None)
    opened = opened_with(dying)
    opened.gate.patience = SHORT
    with pytest.raises(PolicyError, match=r"no model server .*; it was waited for") as ended:
        await opened.collector().collect()
    assert "The same command continues" in ended.value.remedy
    assert opened.run.finished_steps() == 0 and not list(opened.run.groups())
    back = Unsteady()
    opened = opened_with(back)
    await opened.collector().collect()
    assert len(dying.calls) + len(back.calls) == WRITES, "no finished call was made again"
    assert (run_numbers(opened.run).finished, run_numbers(opened.run).failed) == (6, 0)


async def test_a_call_that_fails_alone_while_others_succeed_fails_its_rollout_with_its_cost(
    opened_with: Open,
):
    def one_is_too_much(number: int, said: str) -> Exception | None:
        return away(Usage(calls=1, cost=0.25)) if "What is two?" in said else None

    opened = opened_with(Unsteady(one_is_too_much), step_size=3)
    opened.gate.patience = replace(PATIENT, alone=0.1)
    beside = asyncio.create_task(keep_answering(opened))
    await opened.collector(at_once=4).collect()
    beside.cancel()
    groups = {group.question: group for group in opened.run.groups()}
    assert [len(group.trajectories) for group in groups.values()] == [2, 0, 2]
    failed = groups["What is two?"]
    assert failed.failures == ("no model server answers at http://there. Start it.",) * 2
    assert (failed.lost.calls, failed.lost.cost) == (2, 0.5), "of its last tries"
    assert opened.gate.meter.cost >= 8 * 0.1 + 2 * 0.25, "every try that cost something is counted"


async def keep_answering(opened: Gated) -> None:
    """Other calls of the same server, which succeed."""
    while True:
        await opened.gate.call("scripted", partial(asyncio.sleep, 0.01))


@pytest.mark.parametrize(
    ("most", "begun"), [(0.55, 5), (0.05, 1)], ids=["known", "while nobody knows a call's cost"]
)
async def test_the_cap_is_not_passed_and_a_larger_one_goes_on(
    most: float, begun: int, opened_with: Open
):
    policy = Unsteady()
    opened = opened_with(policy)
    opened.gate.purse.most = most
    told = rf"{begun / 10:.2f} of {most} US dollars"
    with pytest.raises(RunStopped, match=told) as stopped:
        await opened.collector(at_once=4).collect()
    assert "max_run_cost" in stopped.value.remedy
    assert policy.asked == begun
    opened = opened_with(again := Unsteady())
    assert opened.gate.meter.cost == pytest.approx(begun / 10), "its journal says what it has cost"
    opened.gate.purse.most = 2.0
    await opened.collector(at_once=4).collect()
    assert policy.asked + again.asked == WRITES
    assert opened.gate.meter.cost == pytest.approx(1.2)


async def test_rollouts_in_flight_and_tasks_do_not_grow_with_the_step(
    opened_with: Open,
):
    tasks: list[int] = []
    policy = Unsteady(lambda number, said: tasks.append(len(asyncio.all_tasks())))
    opened = opened_with(policy, group_size=16, step_size=3)
    await opened.collector(at_once=4, judge=None, reflecting=None).collect()
    assert 2 <= policy.most <= 4
    assert max(tasks) < 40, "of 48 rollouts"
    assert run_numbers(opened.run).finished == 48


async def test_a_call_that_is_cut_off_is_counted_and_stays_counted(tmp_path: Path) -> None:
    path, meter, heard = tmp_path / "journal.jsonl", Meter(), asyncio.Event()
    journal = Journal(path)
    gate = RunGate(journal, meter)
    script = [Fault(503), Reply("a b c d ", hang_after=1)]
    with ScriptedServer(script) as server:
        prices = {"scripted": (1.0, 1.0, 2.0)}
        quick = Retry(tries=3, first=0.01, longest=0.02, total=1.0)
        limiter = Limiter(4)
        chat = OpenAIChat("scripted", server.base_url, None, limiter=limiter, prices=prices,
                          retry=quick)  # fmt: skip
        asked = [Message("user", "x" * 300)]
        said = gate.call("there", lambda: chat.chat(asked, Sampling(), None, lambda t: heard.set()))
        call = asyncio.create_task(said)
        await asyncio.wait_for(heard.wait(), PATIENCE)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    # As its server told nothing: 300 bytes read and 8 written, three to a token.
    assert meter.calls == 1
    assert meter.cost == pytest.approx((100 * 1.0 + 3 * 2.0) / 1e6)
    journal.close()
    again = Meter()
    Journal(path, again.hear).close()
    assert (again.calls, again.cost) == (meter.calls, meter.cost)


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


def one_group(folder: Path, size: int) -> Opened:
    """A run of one question; its gate tells what it waits for."""
    opened = Opened(folder, questions=QUESTIONS[:1], group_size=size, step_size=1, reflections=0)
    opened.gate.tell = opened.lines.append
    return opened


def graded(model: Model) -> ComposedJudge:
    return ComposedJudge(Named(), {Stage.ANSWER: lambda: LLMJudge("Rate {action}", model)})


def answers(opened: Opened) -> dict[str, float | None]:
    return {j.trajectory_id: j.stages[-1].score for j in opened.run.judgements()}


async def test_a_run_that_goes_on_asks_a_rubrics_model_nothing_again(tmp_path: Path):
    model = Model(down=3)
    with one_group(tmp_path, 5) as opened:
        opened.gate.patience = Patience(longest=0.0)
        with pytest.raises(PolicyError, match="Asking the grader failed"):
            await opened.collector(judge=graded(model)).collect()
        assert (len(model.prompts), opened.run.finished_steps()) == (3, 0)
    model.down = 1000
    with one_group(tmp_path, 5) as opened:
        await opened.collector(judge=graded(model)).collect()
    assert len(set(model.prompts)) == len(model.prompts) == 5
    assert sorted(answers(opened).values()) == [0.1, 0.2, 0.3, 0.4, 0.5]  # type: ignore[type-var]


async def test_a_rubrics_model_of_unknown_price_ends_a_run_of_limited_money(tmp_path: Path):
    with one_group(tmp_path, 2) as opened:
        opened.gate.purse.most = 5.0
        with pytest.raises(SettingsError, match="max_run_cost cannot be kept: a rubric asks"):
            await opened.collector(judge=graded(Model())).collect()
