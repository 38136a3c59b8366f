"""The tools of an MCP server keep what is private to whoever they show it to."""

from pathlib import Path

import pytest

from rubricem.agent.mcp import workbench
from rubricem.agent.mcp.workbench import Workbench
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.sources.choice import Combined, Outward
from rubricem.agent.transcript.events import hush
from rubricem.memory.errors import SourceError
from rubricem.memory.schema import AnswerFormat, Passage
from tests.support.policies import FixedSearch

SECRET = "Project Zebrafish buys Orlivar; the board meets in the old mill."
PRIVATE = Passage("Notes", "notes.md", "", SECRET)
PUBLIC = Passage("Rules", "https://rules.example/mergers", "", "Mergers are notified.")


@pytest.fixture
def web() -> FixedSearch:
    made = FixedSearch([PUBLIC])
    made.name = "web"
    return made


@pytest.fixture
def bench(tmp_path: Path, web: FixedSearch) -> Workbench:
    settings = Settings(base_url="http://127.0.0.1:9/v1", model="m", source=("web",))
    made = Workbench(setup_of(settings.model_copy(update={"data_dir": tmp_path})), hush)
    made._tool = Combined([FixedSearch([PRIVATE]), Outward(web)])
    return made


async def test_what_was_private_leaves_by_no_later_call(bench: Workbench, web: FixedSearch):
    found, note = await bench.search("Which mergers does Helvetia plan?", 5)
    assert {passage.text for passage in found} == {PRIVATE.text, PUBLIC.text} and note == ""
    found, note = await bench.search("Orlivar mergers", 5)
    assert [passage.text for passage in found] == [PRIVATE.text]
    assert note.startswith("Not sent to web, since private text was read: orlivar")
    await bench.search("Helvetia: mergers, notified", 5)
    assert web.queries == ["Which mergers does Helvetia plan?", "helvetia mergers notified"]
    with pytest.raises(SourceError, match="stands in no public text"):
        await bench.open_page("https://rules.example/orlivar", "")
    with pytest.raises(SourceError, match="private text was read before: orlivar"):
        await bench.research("Who is Orlivar?", AnswerFormat.LONG, hush)


async def test_where_too_much_was_shown_to_compare_nothing_leaves(
    bench: Workbench, web: FixedSearch, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workbench, "MOST_SHOWN", 0)
    await bench.search("mergers", 5)
    _, note = await bench.search("mergers", 5)
    assert "too many to compare with" in note and web.queries == ["mergers"]
