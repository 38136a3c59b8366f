"""Runs that open pages: a web of a search's results and a loopback site, without a model server."""

from collections.abc import Callable, Sequence
from pathlib import Path

from agent.free import FreeDecoder
from agent.researcher import Researcher
from agent.run import Ask
from memory.interfaces import PageReader, Passage, Sampling, SearchTool
from memory.runs import RunStore
from memory.schema import Decoding, Trajectory
from tests.fakes import FixedSearch, ScriptedPolicy
from tests.flow import answer, plan

QUESTION = "What was the revenue of Acme in 2023?"


def opening(wanted: str) -> str:
    """A turn that opens a page."""
    return (
        "<think>The snippet breaks off.</think>\n<state_evaluation>Revenue is open."
        f'</state_evaluation>\n<call_tool name="open_page">{wanted}</call_tool>'
    )


def result(address: str, text: str = "Acme reports its revenue for 2023 here.") -> Passage:
    """A row that a search of the web returns."""
    return Passage("Acme results", address, "", text)


async def browsed(
    folder: Path,
    script: Sequence[str] | Callable[[str, Sampling], str],
    results: Sequence[Passage],
    pages: PageReader | None,
    question: str = QUESTION,
    source: SearchTool | None = None,
    **limits: int,
) -> Trajectory:
    """One question, answered by a script over what a search and pages bring."""
    researcher = Researcher(
        policy=ScriptedPolicy(script),
        decoder=FreeDecoder(),
        decoding=Decoding.FREE,
        search_tool=source or FixedSearch(results),
        store=RunStore(folder),
        template=Ask(""),
        pages=pages,
        beyond=pages is not None,
    )
    return await researcher.ask(Ask(question, **limits), "t")


def turns(*middle: str, last: str = 'It was <cite id="S1">reported</cite>.') -> list[str]:
    """A plan, the turns between, an answer."""
    return [plan("Acme revenue 2023"), *middle, answer(last)]


def tool_texts(trajectory: Trajectory) -> list[str]:
    """What the tools brought, in order, as the policy read it."""
    return [s.text.strip() for s in trajectory.segments if s.author == "tool" and s.kept]
