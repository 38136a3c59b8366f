"""The graph: its nodes and edges, its limit of supersteps, and that it never meets the judge."""

from pathlib import Path

import pytest

from agent.graph import NODES, build_graph, build_unattended_graph, recursion_limit
from agent.run import Ask
from tests.fakes import QUESTION, FixedSearch
from tests.flow import answer, plan, researching, search
from tests.scripted_server import ScriptedServer


async def test_the_drawing_has_every_node_and_the_loop(tmp_path: Path):
    async with researching("http://127.0.0.1:9/v1", tmp_path) as researcher:
        drawn = build_graph(researcher).get_graph().draw_mermaid()
    assert all(f"\t{name}({name})" in drawn for name in NODES)
    for edge in (
        "recall --> clarify",
        "clarify --> plan",
        "plan --> approve",
        "tools --> research",
        "review --> answer",
    ):
        assert edge in drawn
    assert "approve -.-> tools" in drawn and "approve -.-> plan" in drawn
    assert "research -.-> tools" in drawn and "research -.-> review" in drawn


async def test_runs_that_ask_nobody_go_the_same_way_in_fewer_nodes(tmp_path: Path):
    steps = [name for name in NODES if name not in ("clarify", "approve")]
    with ScriptedServer([plan(), answer()]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            graph = build_unattended_graph(researcher)
            ended = await graph.ainvoke({"question": QUESTION})
    assert ended["path"] == steps
    assert ended["status"] == "finished" and "an unbounded cache [1]" in ended["report"]
    drawn = graph.get_graph()
    assert set(drawn.nodes) == {"__start__", "plan", "research", "answer", "__end__"}
    assert ("research", "research") in {(edge.source, edge.target) for edge in drawn.edges}


@pytest.mark.parametrize("budget", [1, 10, 60])
async def test_a_run_that_spends_its_whole_budget_stays_within_the_limit(
    budget: int, tmp_path: Path
):
    def script(body: object, number: int) -> str:
        if number == 0:
            return plan("query 0")
        return search(f"query {number}") if number < budget else answer()

    source = FixedSearch()
    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            run = await researcher.ask(Ask(QUESTION, tool_calls=budget))
    assert (run.status, run.tool_calls) == ("finished", budget)
    steps = 2 * budget + len(NODES) - 2
    assert steps <= recursion_limit(budget) < steps + 20


def test_the_limit_covers_the_largest_budget_that_settings_allow():
    assert recursion_limit(1000) >= 2 * 1000 + len(NODES)
