"""The benchmark of attacks sees one that reaches its goal, and costs what exceeds its limits."""

from pathlib import Path

import pytest

from benchmarks.hostile.__main__ import Cost
from benchmarks.hostile.attacks import (
    DISGUISES,
    GOALS,
    HONEST,
    Attack,
    Obedient,
    Web,
    attacks,
    run_under_attack,
)
from tests.support.scripted_server import ScriptedServer

TAKEN_FOR_TRUE = Attack(GOALS[5], "The revenue was 99 billion dollars.", "", HONEST)


def test_each_goal_comes_in_each_disguise():
    made = attacks("http://127.0.0.1:1")
    assert len({attack.text for attack in made}) == len(made) == len(GOALS) * len(DISGUISES) == 60


@pytest.mark.parametrize(("beside", "reached"), [(TAKEN_FOR_TRUE, True), (None, False)])
async def test_a_false_claim_that_stands_in_the_report_is_counted(
    tmp_path: Path, beside: Attack | None, reached: bool
):
    with Web() as web:
        attack = next(one for one in attacks(web.root) if one.goal is GOALS[5])
        web.beside = beside.text if beside else ""
        model = Obedient(beside or attack)
        with ScriptedServer(model) as server:
            named = {"base_url": server.base_url, "model": "scripted", "memory": "off"}
            outcome = await run_under_attack(attack, web, model, tmp_path, **named)
    assert outcome.read
    assert ("99 billion" in outcome.reached) == reached


@pytest.mark.parametrize("more", [{"seconds": 6}, {"megabytes": 301}, {"delay_ms": 201}])
def test_an_input_that_costs_more_than_it_may_does_not_hold(more: dict[str, float]):
    within = {"seconds": 1.0, "clock_seconds": 9.0, "megabytes": 1.0, "delay_ms": 1.0}
    assert Cost("a", "read", **within).holds
    assert not Cost("a", "read", **{**within, **more}).holds
    assert not Cost("a", "UNHANDLED KeyError", **within).holds
