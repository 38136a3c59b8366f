"""Slips of models and servers in whole runs: the turns that each costs, and how the run ends.

A turn is a request; a run without a slip takes two.
"""

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import notes
from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.agent.research.free import join_pieces
from rubricem.agent.transcript.question import Ask
from rubricem.memory.schema import Author, Passage, Status
from tests.support.policies import (
    PASSAGES,
    QUESTION,
    FixedSearch,
    answer,
    asked,
    contents,
    journalled,
    plan,
    ran,
    researching,
    search,
)
from tests.support.scripted_server import Fault, Reply, Scripted, ScriptedServer

FIRST, LAST = plan(), answer()
PLANNED = FIRST.partition("<call_tool")[0]
HERMES = '<tool_call>{"name": "search", "arguments": {"query": "lru_cache maxsize"}}</tool_call>'
NATIVE = [
    {"index": 0, "id": "a", "function": {"name": "search", "arguments": '{"query": "lru_'}},
    {"index": 0, "function": {"arguments": 'cache"}'}},
]
ENDLESS = Reply(reasoning=" ".join(map(str, range(200))), finish="length")
CLAIM = 'It is <cite id="S1">an unbounded cache</cite>'
OK, EARLY = Status.FINISHED, Status.PARTIAL
PLAIN = "## Caches\n\nIt is an unbounded cache [S1]."
UNREVIEWED = LAST[: LAST.index("<review>")] + LAST[LAST.index("<answer>") :]


@pytest.mark.parametrize(
    ("script", "turns", "status", "said"),
    [
        ([FIRST, LAST], 2, OK, "It is an unbounded cache [1]."),
        ([f"```\n{FIRST}\n```", f"Enough now.\n\n{LAST}"], 2, OK, "It is an unbounded cache [1]."),
        ([FIRST.replace("<think>", ""), LAST.replace("think>", "b>")], 2, OK, "cache [1]"),
        ([Reply(calls=NATIVE), LAST], 2, OK, "unbounded cache [1]"),
        ([Reply(PLANNED, calls=NATIVE), LAST], 2, OK, "unbounded cache [1]"),
        ([Reply(PLANNED, calls=NATIVE, finish="tool_calls"), LAST], 2, OK, "unbounded cache [1]"),
        ([Reply(reasoning=FIRST), LAST], 2, OK, "unbounded cache [1]"),
        ([PLANNED + HERMES, LAST], 2, OK, "unbounded cache [1]"),
        ([PLANNED, LAST], 2, OK, "unbounded cache [1]"),
        ([Reply(pieces=[[{"type": "text", "text": FIRST}]]), LAST], 2, OK, "unbounded cache [1]"),
        ([LAST, LAST], 2, OK, "unbounded cache [1]"),
        ([FIRST, UNREVIEWED], 2, OK, "unbounded cache [1]"),
        ([FIRST, LAST.replace("state_evaluation", "p")], 2, OK, "unbounded cache [1]"),
        ([FIRST, LAST.removesuffix("</answer>")], 2, OK, "unbounded cache [1]"),
        ([FIRST, PLAIN], 2, OK, "It is an unbounded cache [1]."),
        ([FIRST, LAST.partition("<answer>")[0], f"<answer>{CLAIM}.</answer>"], 3, OK, "[1]."),
        ([FIRST, LAST.partition("<answer>")[0], PLAIN], 3, OK, "unbounded cache [1]."),
        ([FIRST, "**Review**\n\n- size: S1 met\n- plan: S1", LAST], 3, OK, "unbounded cache [1]"),
        ([FIRST, "**Review**\n\n- the size [met: S1]\n\nPlan: [S1]", PLAIN], 3, OK, "cache [1]"),
        ([FIRST, "<answer>It grows.[^1]\n\n[^1]: S1\n</answer>"], 2, OK, "It grows [1]."),
        ([FIRST, "<answer>It is unbounded.</answer>", LAST], 3, OK, "unbounded cache [1]"),
        ([FIRST, *["<answer>It is unbounded.</answer>"] * 2], 3, EARLY, "It is unbounded."),
        (["No.", FIRST, LAST], 3, OK, "unbounded cache [1]"),
        (["", "", FIRST, LAST], 4, OK, "unbounded cache [1]"),
        ([*[""] * 4, LAST], 5, EARLY, "unbounded cache [1]"),
        ([FIRST, *[""] * 4], 5, EARLY, "quoted:"),
        ([FIRST, ENDLESS, LAST], 3, OK, "unbounded cache [1]"),
        ([FIRST, ENDLESS, ENDLESS], 3, EARLY, "quoted:"),
        ([FIRST, Fault(401)], 2, EARLY, "quoted:"),
        ([FIRST, Fault(400, "content policy")], 2, EARLY, "quoted:"),
        ([FIRST, *["No."] * 12], 11, EARLY, "No."),
        ([FIRST, Reply(LAST[:-40], finish="length"), LAST[-40:]], 3, OK, "cache [1]"),
        ([FIRST, Reply(LAST[:-40], finish="length"), LAST], 3, OK, "unbounded cache [1]"),
        ([FIRST, *[Reply(LAST[:-20], finish="length")] * 2], 3, EARLY, "breaks off here"),
        ([Reply(FIRST[:90], finish="length"), FIRST[90:], LAST], 3, OK, "unbounded cache [1]"),
    ],
)  # fmt: skip
async def test_a_slip_costs_so_many_turns_and_ends_so(
    script: list[Scripted], turns: int, status: Status, said: str, tmp_path: Path
):
    with ScriptedServer(script) as server:
        run = await asked(server.base_url, tmp_path, max_tokens=16_000)
        assert len(server.requests) == turns
    assert (run.status, run.tool_calls) == (status, 1)
    assert said in cited_answer(run).text()
    assert run.failed == (run.ended_by == "failure")
    assert run.usage.calls >= turns - sum(isinstance(each, Fault) for each in script)


@pytest.mark.parametrize(
    ("verdicts", "ended"),
    [
        (["unsupported"], (EARLY, "unsupported")),
        (["unsupported", "supported"], (OK, "")),
        ([], (OK, "")),
    ],
    ids=["none holds", "one holds", "by rules, which know words only"],
)
async def test_an_answer_of_whose_claims_none_holds_is_not_finished(
    verdicts: list[str], ended: tuple[Status, str], tmp_path: Path
):
    claims = f"{CLAIM}. " + 'The <cite id="S1">size is not bounded</cite>.' * (len(verdicts) > 1)
    last = LAST.partition("<answer>")[0] + f"<answer>{claims}</answer>"
    said = [{"number": n, "reason": "", "verdict": v} for n, v in enumerate(verdicts, start=1)]
    with ScriptedServer([FIRST, last, json.dumps({"verdicts": said})]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            checker = researcher.policy if verdicts else None
            researcher.verifier = AnswerVerifier("mark", checker)
            run = await researcher.ask(replace(researcher.template, question=QUESTION), "t")
    assert (run.status, run.ended_by) == ended
    assert ("[1: not supported]" in cited_answer(run).text()) == bool(verdicts)


async def test_a_server_that_calls_tools_is_given_them_as_long_as_a_call_is_left(tmp_path: Path):
    listed = [{"id": "scripted", "supported_parameters": ["tools"]}]
    script = [Reply(PLANNED, calls=NATIVE), Reply(calls=NATIVE), UNREVIEWED]
    with ScriptedServer(script, listed) as server:
        run = await asked(server.base_url, tmp_path, max_tokens=16_000, tool_calls=2)
    told = [[t["function"]["name"] for t in r.body.get("tools", ())] for r in server.requests]
    assert told == [["search"], ["search"], []]
    assert (run.status, run.tool_calls) == (OK, 1)
    assert "unbounded cache [1]" in cited_answer(run).text()


async def test_what_a_server_does_without_is_said(tmp_path: Path):
    run = await ran(tmp_path, [FIRST, UNREVIEWED])
    [said] = notes(run, cited_answer(run))
    assert "rubric" in said
    whole = await ran(tmp_path / "whole", [FIRST, LAST])
    assert notes(whole, cited_answer(whole)) == []


class Slow(FixedSearch):
    """The first query is answered last."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def search(self, query: str, limit: int) -> list[Passage]:
        if query == "one":
            await self.gate.wait()
        if query == "three":
            self.gate.set()
        self.queries.append(query)
        number = ["one", "two", "three"].index(query)
        return [PASSAGES[number]]


THREE = PLANNED + "".join(
    f'<call_tool name="search">{q}</call_tool>\n' for q in ("one", "two", "three")
)


async def test_the_calls_of_a_turn_run_at_once_and_are_answered_in_their_order(tmp_path: Path):
    source = Slow()
    with ScriptedServer([THREE, LAST]) as server:
        run = await asked(server.base_url, tmp_path, source=source)
        shown = contents(server.requests[1].body)[-1][1]
    assert source.queries == ["two", "three", "one"]
    assert [s.title for s in run.sources] == [p.title for p in PASSAGES]
    outputs = [s.text for s in run.segments if s.author is Author.TOOL]
    assert [f"S{n}" in text for n, text in enumerate(outputs, 1)] == [True] * 3
    assert shown.index("S1") < shown.index("S2") < shown.index("S3")
    assert (run.tool_calls, run.status) == (3, OK)


async def test_calls_beyond_the_limit_are_refused_in_their_place(tmp_path: Path):
    run = await ran(tmp_path, [THREE, LAST], source=FixedSearch(), tool_calls=2)
    outputs = [s.text for s in run.segments if s.author is Author.TOOL]
    assert len(outputs) == 3 and "no call is left of 2" in outputs[2]
    assert (run.tool_calls, run.status, run.ended_by) == (2, OK, "tool_calls")


async def test_a_killed_turn_of_several_calls_repeats_none_that_finished(tmp_path: Path):
    source = Slow()
    with ScriptedServer([THREE, Fault(401), LAST]) as server:
        before = await asked(server.base_url, tmp_path, source=source)
        after = await asked(server.base_url, tmp_path, source=source)
        assert len(server.requests) == 3
    assert len(source.queries) == 3 and before.failed and after.status is OK
    assert after.sources == before.sources


@dataclass
class Window:
    """A server whose context holds so many characters."""

    most: int
    turn: int = 0

    def __call__(self, body: dict[str, Any], number: int) -> Scripted:
        if sum(len(m["content"]) for m in body["messages"]) > self.most:
            return Fault(400, "This model's maximum context length is 900 tokens.")
        turns = [FIRST, search("heapq"), search("cache"), LAST]
        self.turn += 1
        return turns[self.turn - 1]


class Pages(FixedSearch):
    async def search(self, query: str, limit: int) -> list[Passage]:
        return [Passage(query, query, "", f"{query} grows without bound. " * 90)]


async def test_results_that_no_longer_fit_are_left_out_and_it_is_said(tmp_path: Path):
    with ScriptedServer(Window(11_000)) as server:
        run = await asked(server.base_url, tmp_path, source=Pages())
        last = server.requests[-1].body["messages"]
    assert (run.status, run.tool_calls, run.left_out) == (OK, 3, 2)
    text = "".join(message["content"] for message in last)
    assert text.count("Left out for lack of room.") == 2 and "cache grows" in text
    assert len(run.sources) == 3, "what was found can be cited all the same"
    assert any("the oldest 2" in line for line in notes(run, cited_answer(run)))


async def test_a_window_that_holds_nothing_ends_in_a_report_of_what_was_found(tmp_path: Path):
    def script(body: dict[str, Any], number: int) -> Scripted:
        return Fault(400, "prompt is too long") if number else FIRST

    run = await ran(tmp_path, script)
    assert (run.status, run.ended_by) == (EARLY, "failure")
    assert "prompt is too long" in run.reason and "[1]" in cited_answer(run).text()


async def test_an_answer_is_as_long_as_its_limit_and_a_resume_goes_on_with_it(tmp_path: Path):
    claims = [f"{CLAIM}, in wording {n} of many." for n in range(60)]
    report = LAST.partition("<answer>")[0] + "<answer>" + "\n\n".join(claims)
    pieces = [Reply(report[at : at + 1500], finish="length") for at in range(0, len(report), 1500)]
    script = [FIRST, *pieces[:-1], replace(pieces[-1], finish="stop")]
    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path, max_tokens=500) as researcher:
            short = await researcher.ask(Ask(QUESTION, max_tokens=500), "t")
            asked_then = len(server.requests)
            whole = await researcher.ask(Ask(QUESTION, max_tokens=16_000), "t")
        assert len(server.requests) == len(script), "no piece was paid for twice"
        later = contents(server.requests[-1].body)
    assert (short.status, short.ended_by, asked_then) == (EARLY, "max_tokens", 3)
    assert later[-1][0] == "user" and later[-2] == ("assistant", report[: -len(pieces[-1].text)])
    assert whole.status is OK and cited_answer(whole).text().count("[1]") == 60
    assert journalled(tmp_path) == len(script) + 3


@pytest.mark.parametrize(
    ("more", "joined"),
    [
        ("and on.", "A long beginning, and on."),
        ("beginning, and on.", "A long beginning, and on."),
        ("<think>Go on.</think>and on.", "A long beginning, and on."),
        ("A long beginning, and on.", "A long beginning, and on."),
        ("A long beginning, ", "A long beginning, "),
    ],
)
def test_what_is_gone_on_with_is_not_doubled(more: str, joined: str):
    long = "said before at some length, so that there is enough of it to know it again. " * 2
    begun = f"<answer>{long}A long beginning, "
    whole = long + more if more.startswith("A") else more
    assert join_pieces(begun, whole) == f"<answer>{long}{joined}"
    assert join_pieces(begun, begun) == begun


async def test_the_day_is_told_and_stays_that_of_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with ScriptedServer([FIRST, Fault(401), LAST]) as server:
        await asked(server.base_url, tmp_path)
        path = tmp_path / "runs" / "t" / "journal.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        days = [line["reply"]["today"] for line in lines if "today" in line["reply"]]
        assert len(days) == 1
        await asked(server.base_url, tmp_path)
        systems = {contents(request.body)[0][1] for request in server.requests}
    assert len(systems) == 1 and days[0][:4] in systems.pop().splitlines()[-1]


async def test_a_server_that_cuts_prompts_unsaid_is_told_of(tmp_path: Path):
    def script(body: dict[str, Any], number: int) -> Scripted:
        size = sum(len(m["content"]) for m in body["messages"]) // 4
        usage = {"prompt_tokens": min(size, 2050), "completion_tokens": 9}
        turns = [FIRST, search("heapq"), search("cache"), LAST]
        return Reply(turns[number], usage=usage)

    run = await ran(tmp_path, script, source=Pages())
    assert run.cut_prompt is not None and run.cut_prompt[0] == 2050
    size = sum(len(s.text) for s in run.segments) + len(run.system)
    assert 0.8 < run.cut_prompt[1] / (size / 4) < 1.2
    assert any("2,050" in line for line in notes(run, cited_answer(run)))


@pytest.mark.parametrize(
    "mark",
    ["[S1]", "(S1)", "[^S1]", "\u3010S1\u3011", "\u3010S1\u2020L3-L9\u3011", "<cite>S1</cite>",
     '<cite source="S1"/>', "<cite>[S1]</cite>"],
)  # fmt: skip
async def test_a_mark_is_one_in_any_form(mark: str, tmp_path: Path):
    text = f"<answer>It is an unbounded cache {mark}.\n\n[^S1]: the documentation\n</answer>"
    run = await ran(tmp_path, [FIRST, LAST.partition("<answer>")[0] + text])
    assert cited_answer(run).text() == "It is an unbounded cache [1]."
    assert run.sources[0].id == "S1" and cited_answer(run).dropped == 0


class About(FixedSearch):
    """Passages that say what was sought, behind an aside."""

    async def search(self, query: str, limit: int) -> list[Passage]:
        said = f"In short, an aside on size.\n\nThis tells of {query}"
        return [Passage("T", f"{query} {n}", "p", f"{said} {n}.") for n in range(limit)]


async def test_a_run_that_is_cut_quotes_what_it_named_and_then_some_of_every_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rubricem.agent.research.graph.QUOTED", 3)
    more = search("bees").replace("Size is open.", "Settled by S3.")
    with ScriptedServer([plan("ants"), more, Fault(401)]) as server:
        run = await asked(server.base_url, tmp_path, source=About())
    quoted = [line for line in cited_answer(run).text().splitlines() if line.startswith("- ")]
    assert [line[2:].partition(" [")[0].rstrip(".") for line in quoted] == [
        "This tells of ants 2", "This tells of ants 0", "This tells of bees 0",
    ]  # fmt: skip
