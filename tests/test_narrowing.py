"""Year and field on their way from the policy's call to the service."""

from pathlib import Path

from agent.free import system_prompt
from agent.sources.scholar import Scholar
from memory.schema import Status
from tests.fakes import FixedSearch
from tests.flow import RUN, asked
from tests.json_site import json_site
from tests.scripted_server import ScriptedServer
from tests.test_sources_scholar import PAPER, reply

CALL = '<call_tool name="search" year="2017-2020" field="computer science">attention</call_tool>'


def narrowing() -> list[str]:
    """A run whose first turn narrows its search; it cites S1 afterwards."""
    first, *later = RUN
    return [first[: first.index("<call_tool")] + CALL, *later]


async def test_year_and_field_of_a_call_reach_the_service(tmp_path: Path) -> None:
    with json_site(reply(PAPER)) as site, ScriptedServer(narrowing()) as server:
        run = await asked(server.base_url, tmp_path, source=Scholar(url=site.url))
        system = server.requests[0].body["messages"][0]["content"]
    params = site.asked[0].params
    assert run.status is Status.FINISHED
    assert (params["query"], params["year"]) == ("attention", "2017-2020")
    assert params["fieldsOfStudy"] == "Computer Science"
    assert run.sources[0].query == 'attention year:2017-2020 field:"Computer Science"'
    assert run.sources[0].location == "https://arxiv.org/pdf/1706.03762"
    assert 'year="2019-2021"' in system


async def test_narrowing_is_told_of_only_where_papers_are_searched(tmp_path: Path) -> None:
    with ScriptedServer(RUN) as server:
        await asked(server.base_url, tmp_path, source=FixedSearch())
        assert "narrowed by the year" not in server.requests[0].body["messages"][0]["content"]
    lines = system_prompt(10).count("\n")
    assert system_prompt(10, papers=True).count("\n") == lines + 1
