"""The tools of an MCP server keep what is private to whoever they show it to."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from rubricem.agent.mcp import workbench
from rubricem.agent.mcp.workbench import Workbench
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.sources.choice import Combined, Outward
from rubricem.agent.sources.documents import Folder
from rubricem.agent.transcript.events import hush
from rubricem.memory.errors import RubricemError, SourceError
from rubricem.memory.schema import AnswerFormat, Passage, Stage, Status
from tests.support.policies import FixedSearch
from tests.support.values import run_of

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


async def report(bench: Workbench) -> None:
    """Research whose private text is no source: a tool's error."""
    run = run_of({Stage.ANSWER: f"<answer>{SECRET}</answer>"}, sources=())
    bench._answer = AsyncMock(return_value=run)
    assert await bench.research("What is planned?", AnswerFormat.LONG, hush)


async def failures(bench: Workbench) -> None:
    """What private sources say of a failure, and the reason of a run that failed."""
    kept, bench._tool = bench._tool, Combined([FixedSearch(error="Zebrafish.docx is damaged.")])
    with pytest.raises(SourceError, match="Zebrafish"):
        await bench.search("What is planned?", 5)
    bench._tool = kept
    run = run_of({Stage.ANSWER: ""}, sources=(), status=Status.FAILED, reason="Orlivar.pdf")
    bench._answer = AsyncMock(return_value=run)
    with pytest.raises(RubricemError, match="Orlivar"):
        await bench.research("What is planned?", AnswerFormat.LONG, hush)


async def files(bench: Workbench) -> None:
    """A folder with a file that is called as a module of the libraries is."""
    folder = bench._setup.stores.data_dir / "pf"
    folder.mkdir()
    (folder / "python:memo.md").write_text(SECRET)
    bench._tool = Combined([Folder(folder, folder / "cache"), *bench._tool.searched[1:]])
    assert (await bench.search("project", 5))[0][0].location == "python:memo.md"


@pytest.mark.parametrize("show", [report, failures, files])
async def test_whatever_told_private_text_it_leaves_by_no_later_call(
    show: Callable[[Any], Awaitable[None]], bench: Workbench, web: FixedSearch
):
    await show(bench)
    asked = [*web.queries]
    _, note = await bench.search("Zebrafish Orlivar", 5)
    assert note.startswith("Not sent to web, since private text was read: zebrafish, orlivar")
    assert web.queries == asked
    with pytest.raises(SourceError, match="stands in no public text"):
        await bench.open_page("http://example.org/?the-plan-of-Zebrafish", "")


async def test_where_too_much_was_shown_to_compare_nothing_leaves(
    bench: Workbench, web: FixedSearch, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workbench, "MOST_SHOWN", 0)
    await bench.search("mergers", 5)
    _, note = await bench.search("mergers", 5)
    assert "too many to compare with" in note and web.queries == ["mergers"]
