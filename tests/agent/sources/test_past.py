"""The source `history`: what earlier runs of a data directory found."""

from pathlib import Path

import pytest

from rubricem.agent.sources.past import PastRuns
from rubricem.agent.transcript.question import Ask
from rubricem.memory.errors import SourceError
from rubricem.memory.runs import RunStore
from tests.support.policies import PASSAGES, QUESTION, RUN, researching
from tests.support.scripted_server import ScriptedServer


async def test_what_a_run_cited_and_reported_is_found_by_the_next(tmp_path: Path):
    past = PastRuns(tmp_path, tmp_path / "index")
    with pytest.raises(SourceError, match="No earlier run"):
        await past.search("unbounded cache", 5)
    with ScriptedServer([*RUN, *RUN]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            await researcher.ask(Ask(QUESTION), "one")
            found = await past.search("unbounded cache", 5)
            await researcher.ask(Ask("What of eviction?"), "two")
    report, cited = sorted(found, key=lambda passage: passage.location != "run:one")
    assert (cited.location, cited.text) == (PASSAGES[0].location, PASSAGES[0].text)
    assert (report.location, report.text) == ("run:one", "It is an unbounded cache.")
    assert QUESTION in report.title
    # The next run is in it as soon as it has ended, and what both cite stands there once.
    again = await past.search("unbounded cache", 9)
    assert "run:two" in {p.location for p in again}
    assert sum(p.text == PASSAGES[0].text for p in again) == 1


async def test_a_damaged_run_holds_up_no_search(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            await researcher.ask(Ask(QUESTION), "one")
    folder = RunStore(tmp_path).folder / "broken"
    folder.mkdir()
    for name in ("request.json", "trajectory.json"):
        (folder / name).write_text("{")
    assert await PastRuns(tmp_path, tmp_path / "index").search("unbounded cache", 5)
