"""Forced decoding with tools of MCP servers: a search first, a tool where it is wanted."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.forced import ForcedDecoder, fitting
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.sources.mcp_client import Equipped
from rubricem.agent.sources.offers import Offer
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.transcript.question import UNLIMITED, Ask, Budgets
from rubricem.agent.transcript.scaffold import parse, turn_faults
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Author, Decoding, Passage, Sampling, Status, Trajectory
from tests.agent.research.gbnf import accepts
from tests.conftest import ROOT
from tests.support.policies import QUESTION, FixedSearch, ScriptedPolicy, new_run
from tests.support.slots import Filling, Library, SmallModel, page
from tests.support.tool_servers import serving_http, shop

PRICED = "What is the unit price of a blue widget?"
NEAR = "How heavy is one item, the blue widget?"
"""one word of it stands in a tool's description"""
WIDGETS = [Passage("Blue widget", "widgets.md", "", "The blue widget weighs 12 grams.")]
PAGES = [
    page("Blue widget", "The blue widget weighs 12 grams."),
    page("Red widget", "The red widget weighs 12 grams, as the blue widget."),
]
ITEM = '{"item": "blue widget"}'
OFFERS = [
    Offer("shop", "unit_price", "The unit price of an item of the catalogue.", {}),
    Offer("shop", "opening_hours", "When the shop is open on a day of the week.", {}),
    Offer("wiki", "search_pages", "Search the wiki for pages, and return a list.", {}),
    Offer("wiki", "page", "The text of a page of the wiki by its title.", {}),
    Offer("tickets", "find", "Find issue tickets by text, status and order of date.", {}),
]
CALL = f'<call_tool name="shop.unit_price">{ITEM}</call_tool>'
TOLD_LAST = '"The unit price of an item of the catalogue."\n'
CLAIM = "The unit price of a blue widget is 4.20 EUR."


class Writer(Filling):
    """Fills slots, calls by script where a tool is offered, and reads and claims what is asked.

    What it writes for a tool is checked against the grammar, as llama.cpp would hold it to that.
    """

    def __init__(self, *calls: str, claim: str = CLAIM, bound: bool = True, plan: str = "") -> None:
        super().__init__(plan=plan, reading=f" {claim}", claims=[claim])
        self.told: list[str] = []
        self.otherwise: list[str] = []
        self._calls, self._bound = iter(calls), bound

    def __call__(self, before: str, sampling: Sampling) -> str:
        if sampling.grammar and "call_tool" in sampling.grammar:
            return self._called(sampling.grammar)
        return super().__call__(before, sampling)

    def _called(self, grammar: str) -> str:
        self.told += re.findall(r'"(\w+\.\w+)\\">"', grammar)
        last = grammar.splitlines()[0].rpartition(" | ")[2]
        otherwise = json.loads(last) if last.startswith('"<') else ""
        self.otherwise.append(otherwise)
        written = next(self._calls, otherwise)
        assert not self._bound or accepts(grammar, written), written
        return written


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_http(shop().streamable_http_app()) as address:
        yield f"{address}/mcp"


@asynccontextmanager
async def equipped(search: FixedSearch, address: str, *tools: str) -> AsyncIterator[Equipped]:
    named = tools or ("unit_price", "opening_hours")
    made = Equipped(search, {"shop": ToolServer(url=address, tools=named, seconds=60)})
    try:
        assert await made.prepare() == ()
        yield made
    finally:
        await made.aclose()


async def asked(
    folder: Path,
    writer: Writer,
    search: FixedSearch,
    address: str,
    question: str = PRICED,
    *,
    tool_calls: int = 10,
    budgets: Budgets = UNLIMITED,
) -> tuple[Trajectory, SmallModel]:
    policy = SmallModel(writer)
    async with equipped(search, address) as tools:
        researcher = Researcher(
            policy, ForcedDecoder(), Decoding.FORCED, tools, RunStore(folder), Ask("")
        )
        ask = replace(Ask(question), tool_calls=tool_calls, budgets=budgets)
        return await researcher.ask(ask), policy


async def test_a_tool_is_called_after_the_search_and_what_it_says_is_cited(
    tmp_path: Path, address: str
):
    writer, search = Writer(CALL), FixedSearch(WIDGETS)
    run, _ = await asked(tmp_path, writer, search, address)
    assert run.status is Status.FINISHED
    assert search.queries == [PRICED]
    assert [(use.tool, use.asked) for use in run.searched][1:] == [("shop.unit_price", ITEM)]
    found = run.sources[-1]
    assert (found.tool, found.place) == ("shop.unit_price", "item: blue widget")
    assert found.text == "The unit price of a blue widget is 4.20 EUR."
    assert cited_answer(run).text() == "The unit price of a blue widget is 4.20 EUR [1]."


async def test_the_scaffold_stays_whole_and_the_call_is_the_policys(tmp_path: Path, address: str):
    run, _ = await asked(tmp_path, Writer(CALL), FixedSearch(WIDGETS), address)
    document = parse(run.transcript())
    assert all(block.closed for block in document.root.walk()) and document.orphans == ()
    first = "".join(s.text for s in run.segments[1:] if s.turn == 1 and s.author is not Author.TOOL)
    assert turn_faults(first, 1) == []
    calls = [document.inner(block) for block in document.find("call_tool")]
    assert calls[1:] == [ITEM]
    written = [s.text for s in run.segments if s.author is Author.POLICY]
    assert f'shop.unit_price">{ITEM}' in written


async def test_a_tool_that_is_about_something_else_is_not_offered(tmp_path: Path, address: str):
    writer, search = Writer(), FixedSearch()
    run, policy = await asked(tmp_path, writer, search, address, QUESTION)
    assert writer.told == [] and "Tools that can be called" not in run.transcript()
    bare = SmallModel(Writer())
    researcher = Researcher(
        bare, ForcedDecoder(), Decoding.FORCED, FixedSearch(), RunStore(tmp_path / "b"), Ask("")
    )
    without = await researcher.ask(Ask(QUESTION))
    assert run.transcript() == without.transcript(), "it costs nothing where it is of no use"
    assert len(policy.calls) == len(bare.calls)


async def test_where_a_tool_is_due_the_policy_chooses_among_those_and_must_call_one(
    tmp_path: Path, address: str
):
    writer = Writer(CALL)
    await asked(tmp_path, writer, FixedSearch(WIDGETS), address)
    assert (writer.told[0], writer.otherwise[0]) == ("shop.unit_price", "")
    assert "" not in writer.otherwise[1:], "once"


async def test_a_tool_whose_words_were_all_read_is_not_due(tmp_path: Path, address: str):
    told = "The blue widget is a unit of the catalogue; its price is 4.20 EUR."
    writer = Writer(claim=told)
    found = FixedSearch([Passage("Blue widget", "widgets.md", "", told)])
    await asked(tmp_path, writer, found, address)
    assert writer.otherwise == ["<review>"] and writer.told == ["shop.unit_price"]


async def test_all_are_offered_where_the_search_found_nothing(tmp_path: Path, address: str):
    writer = Writer()
    run, _ = await asked(tmp_path, writer, FixedSearch([]), address, "Wann gibt es Kuchen?")
    assert set(writer.told) == {"shop.unit_price", "shop.opening_hours"}
    assert writer.otherwise[-1] == "<review>" and run.status is Status.NO_EVIDENCE


async def test_a_policy_that_wants_no_tool_goes_on_as_if_there_were_none(
    tmp_path: Path, address: str
):
    writer, search = Writer(), FixedSearch(WIDGETS)
    run, _ = await asked(tmp_path, writer, search, address, NEAR)
    assert writer.otherwise == ["<review>"]
    assert len(run.searched) == 1 and len(search.queries) == 1
    chosen, _ = await asked(tmp_path / "chosen", Writer(CALL), search, address, NEAR)
    assert [use.tool for use in chosen.searched] == ["search", "shop.unit_price"]


def test_of_questions_on_other_things_no_tool_is_due(tmp_path: Path):
    rows = (ROOT / "benchmarks" / "embedded_questions.jsonl").read_text().splitlines()
    due = []
    for number, row in enumerate(rows):
        tools = Equipped(FixedSearch(), {})
        tools.offers = {offer.name: offer for offer in OFFERS}
        run = new_run(tmp_path / str(number), ScriptedPolicy([]))
        run.search_tool, run.ask = tools, Ask(json.loads(row)["question"])
        due += [row] if fitting(run).due else []
    assert len(rows) == 24 and due == [], "though nothing at all was read"


TWO = " How heavy is one item, the Blue Widget?\n2. How heavy is one item, the Red Widget?"
WEIGHED = "How heavy is one item of the Blue Widget, and of the Red Widget?"


async def test_a_look_up_that_is_left_is_what_comes_without_a_call(tmp_path: Path, address: str):
    writer, search = Writer(claim="The blue widget weighs 12 grams.", plan=TWO), Library(PAGES)
    run, _ = await asked(tmp_path, writer, search, address, WEIGHED)
    assert writer.otherwise[0] == '<call_tool name="search">'
    assert search.queries[:2] == [line.partition(" ")[2] for line in f"1.{TWO}".splitlines()]
    assert run.status is Status.FINISHED


async def test_a_look_up_whose_place_a_tool_took_is_searched_where_the_tool_does_not_answer_it(
    tmp_path: Path, address: str
):
    called = f'<call_tool name="shop.unit_price">{ITEM}</call_tool>'
    writer = Writer(called, claim="The blue widget weighs 12 grams.", plan=TWO)
    search = Library(PAGES)
    run, _ = await asked(tmp_path, writer, search, address, WEIGHED)
    used = [use.tool for use in run.searched]
    assert used[:3] == ["search", "shop.unit_price", "search"]
    assert search.queries[1] == TWO.partition("2. ")[2]


async def test_a_policy_that_would_call_for_ever_ends(tmp_path: Path, address: str):
    again = [CALL.replace("blue", colour) for colour in ("red", "green", "white", "black")]
    run, _ = await asked(tmp_path, Writer(*again), FixedSearch(WIDGETS), address, tool_calls=4)
    assert run.tool_calls == 4
    same, _ = await asked(tmp_path / "same", Writer(*[CALL] * 9), FixedSearch(WIDGETS), address)
    assert same.tool_calls == 2, "what was asked is not asked again"
    one, _ = await asked(
        tmp_path / "one", Writer(CALL), FixedSearch(WIDGETS), address, tool_calls=1
    )
    assert one.tool_calls == 1, "the search is the only one that is left"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (f'<call_tool name="shop.unit_price">{{"item": "{"wid" * 60}', "takes a JSON object"),
        ('<call_tool name="shop.unit_price">{"item": 3}</call_tool>', "failed: "),
        ('<call_tool name="shop.unit_price">{"item": "moon"}</call_tool>', "no item"),
        ('<call_tool name="shop.unit_price">[]</call_tool>', "failed: "),
    ],
    ids=["cut off", "of another type", "refused by the tool", "no object"],
)
async def test_arguments_that_do_not_fit_are_told_to_the_model(
    tmp_path: Path, address: str, call: str, said: str
):
    run, _ = await asked(tmp_path, Writer(call, bound=False), FixedSearch(WIDGETS), address)
    shown = [s.text for s in run.segments if s.author is Author.TOOL]
    assert shown[1].startswith('<tool_output error="') and said in shown[1]
    assert run.status is Status.NO_EVIDENCE
    assert parse(run.transcript()).orphans == ()


@pytest.mark.parametrize("call", ["", '<call_tool name="shop.un', '<call_tool name="x.y">{}'])
async def test_what_is_no_call_is_none(tmp_path: Path, address: str, call: str):
    run, _ = await asked(tmp_path, Writer(call, bound=False), FixedSearch(WIDGETS), address)
    assert run.tool_calls == 1 and run.status is not Status.FAILED


async def test_a_budget_that_ends_at_the_call_leaves_a_whole_transcript(
    tmp_path: Path, address: str
):
    _, policy = await asked(tmp_path / "whole", Writer(CALL), FixedSearch(WIDGETS), address)
    offered = (i for i, (before, _) in enumerate(policy.calls) if before.endswith(TOLD_LAST))
    spent = sum(len(before) for before, _ in policy.calls[: next(offered) + 1])
    budgets = Budgets(tokens=spent + 20)
    run, _ = await asked(
        tmp_path / "cut", Writer(CALL), FixedSearch(WIDGETS), address, budgets=budgets
    )
    assert (run.status, run.ended_by, run.tool_calls) == (Status.PARTIAL, "tokens", 1)
    assert parse(run.transcript()).find("answer")[-1].closed


async def test_an_embedded_model_gets_the_tools_of_the_settings(tmp_path: Path, address: str):
    (tmp_path / "documents").mkdir()
    servers = {"shop": ToolServer(url=address, tools=("unit_price",))}
    settings = Settings(
        model="0.5b",
        retrieval="lexical",
        source=(str(tmp_path / "documents"),),
        data_dir=tmp_path / "data",
        mcp_servers=servers,
    )
    setup = setup_of(settings)
    async with setup.open_sources() as tools:
        assert isinstance(tools, Equipped) and tools.allowed == {"shop.unit_price"}
