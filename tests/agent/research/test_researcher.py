"""Whole runs over real HTTP: what the policy writes well and badly, and servers that fail."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.models.limits import Limiter
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import as_json, markdown
from rubricem.agent.research.researcher import STARTING
from rubricem.agent.transcript.events import (
    BudgetSet,
    Event,
    RunFinished,
    SourceProgress,
    StageStarted,
    ToolCalled,
    TurnRetried,
)
from rubricem.agent.transcript.question import LONGEST_QUESTION, Ask, check_question
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Author, Stage, Status
from tests.support.policies import (
    PASSAGES,
    QUESTION,
    RUN,
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
from tests.support.scripted_server import Reply, Scripted, ScriptedServer
from tests.support.waiting import PATIENCE


async def test_a_finished_run_is_told_kept_returned_and_lets_its_journal_go(tmp_path: Path):
    events: list[Event] = []
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path, seed=7) as researcher:
            wanted = replace(researcher.template, question=QUESTION)
            run = await researcher.ask(wanted, "t", events.append)
            assert researcher.store.load("t") == run
            journal = researcher.store.journal("t")  # refused while another holds its lock
            # Of the three kinds before, and twice what is left of the limits.
            assert journalled(tmp_path) == len(server.requests) + 3 + 2
            journal.close()
    assert events[-1] == RunFinished(run)
    stages = [event.stage for event in events if isinstance(event, StageStarted)]
    assert stages == [Stage.PLAN, Stage.RESEARCH, Stage.RESEARCH, Stage.REVIEW, Stage.ANSWER]
    queries = [event.query for event in events if isinstance(event, ToolCalled)]
    assert queries == ["lru_cache maxsize None", "functools.cache unbounded"]
    assert (run.thread, run.seed, run.status, run.reason) == ("t", 7, Status.FINISHED, "")
    assert run.policy.startswith("scripted@127.0.0.1:")
    assert (run.tool_calls, run.usage.calls, run.usage.prompt_tokens) == (2, 3, 300)
    assert [source.id for source in run.sources] == ["S1", "S2", "S3"]


async def test_a_conversation_only_grows_and_each_stage_holds_what_was_written_in_it(
    tmp_path: Path,
):
    with ScriptedServer(RUN) as server:
        run = await asked(server.base_url, tmp_path)
        first, second, third = (contents(request.body) for request in server.requests)
    assert third[: len(second)] == second and second[: len(first)] == first
    assert [role for role, _ in third] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert third[1][1].startswith(QUESTION)
    assert '<snippet id="S1">' in third[3][1] and third[4][1] == RUN[1]
    by_stage = {s: [p for p in run.segments if p.stage is s] for s in Stage}
    assert by_stage[Stage.PLAN][0].text.endswith("</structured_plan>")
    authors = [s.author for s in by_stage[Stage.RESEARCH]]
    turn = [Author.POLICY, Author.TOOL, Author.PROMPT]
    assert authors == [*turn, *turn], "a call, what it found, and what is left of the limits"
    assert "Left: 8 of 10 calls" in third[5][1]
    assert by_stage[Stage.REVIEW][0].text.lstrip().startswith("<think>Enough.")
    assert by_stage[Stage.ANSWER][0].text.startswith("<answer>")
    assert all(s.retokenised for s in run.segments if s.author is Author.POLICY)
    report = as_json(run)
    assert [stage["stage"] for stage in report["stages"]] == list(Stage)
    assert report["answer"] == "It is an unbounded cache [1]."
    cite = report["citations"][0]
    assert (cite["id"], cite["claim"]) == ("S1", "an unbounded cache")
    assert cite["source"]["passage"] == PASSAGES[0].text


async def test_a_run_that_cannot_be_kept_is_no_success(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            (tmp_path / "runs" / "t" / "trajectory.json").mkdir(parents=True)
            with pytest.raises(StoreError, match="cannot be used"):
                await researcher.ask(Ask(QUESTION), "t")


async def test_all_runs_are_in_flight_though_few_begin_at_once_and_they_keep_apart(tmp_path: Path):
    count = 3 * STARTING
    begun, source = threading.Barrier(count), FixedSearch()

    def script(body: Any, number: int) -> str:
        begun.wait(PATIENCE)
        topic = body["messages"][1]["content"].split()[0]
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return [plan(topic), answer(f"All about {topic}.")][turn]

    options = {"limiter": Limiter(count)}
    topics = [f"topic{number:02}" for number in range(count)]
    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path, source, chat=options) as researcher:
            asked = (researcher.ask(Ask(f"{topic} is what?")) for topic in topics)
            runs = await asyncio.gather(*asked)
    assert [cited_answer(run).text() for run in runs] == [f"All about {t}." for t in topics]
    assert sorted(source.queries) == topics and len({run.thread for run in runs}) == count


async def test_runs_that_cannot_begin_hold_up_no_other(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            (tmp_path / "runs").mkdir(exist_ok=True)
            (tmp_path / "runs" / "bad").write_text("no folder")
            for _ in range(STARTING):
                with pytest.raises(StoreError):
                    await researcher.ask(Ask(QUESTION), "bad")
            async with asyncio.timeout(PATIENCE):
                assert (await researcher.ask(Ask(QUESTION), "t")).status is Status.FINISHED


@pytest.mark.parametrize("kind", [SourceProgress, BudgetSet])
async def test_a_run_that_broke_off_while_it_began_can_be_asked_again(
    kind: type[Event], tmp_path: Path
):
    def hear(event: Event) -> None:
        if isinstance(event, kind):
            raise asyncio.CancelledError

    (tmp_path / "runs" / "old" / "trajectory.json").mkdir(parents=True)
    ask = Ask(QUESTION, earlier=("old",))
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            with pytest.raises(asyncio.CancelledError) as kept:  # with all that its frames hold
                await researcher.ask(ask, "t", hear)
            assert (await researcher.ask(ask, "t")).status is Status.FINISHED, kept


@pytest.mark.parametrize("question", ["", " \n", "x" * (LONGEST_QUESTION + 1)])
def test_what_is_no_question_is_refused_and_space_around_one_goes(question: str):
    with pytest.raises(SettingsError):
        check_question(question)
    assert check_question("  What?\n") == "What?"


def for_ever(body: object, number: int) -> str:
    return search("same") if number else plan()


@pytest.mark.parametrize(
    ("script", "reason", "searches", "text"),
    [
        (for_ever, "No tool call is left", 2, ""),
        (
            lambda body, number: Reply(pieces=["so it goes "], endless=True),
            "repeated itself",
            1,
            "",
        ),
        (
            [plan(), "Hm.", "Hm.", "Hm.", answer()],
            "did not keep to the form in turn 2: It holds neither",
            1,
            "It is an unbounded cache [1].",
        ),
    ],
    ids=["searches for ever", "repetition", "a broken turn"],
)
async def test_a_turn_that_stays_broken_ends_the_run_partial_with_its_reason(
    script: Any, reason: str, searches: int, text: str, tmp_path: Path
):
    run = await ran(tmp_path, script, tool_calls=3)
    assert run.status is Status.PARTIAL
    assert reason in run.reason and run.reason in markdown(run)
    assert "A larger model may" in run.reason
    assert (run.tool_calls, run.usage.calls) == (searches, 5 if isinstance(script, list) else 13)
    assert cited_answer(run).text() == text or not text


class Broken(FixedSearch):
    async def search(self, query: str, limit: int) -> list[object]:  # type: ignore[override]
        raise IndexError("list index out of range")


@pytest.mark.parametrize(
    ("source", "shown", "reason"),
    [
        (FixedSearch([]), "Nothing was found.", "nothing was found"),
        (
            FixedSearch(error='the "index" is gone'),
            "<tool_output error=\"the 'index' is gone\">",
            'the search failed: the "index" is gone',
        ),
        (Broken(), "IndexError: list index", "the search failed: the search in search failed"),
    ],
    ids=["empty", "failing", "broken"],
)
async def test_what_no_search_found_is_an_honest_end(
    source: FixedSearch, shown: str, reason: str, tmp_path: Path
):
    run = await ran(tmp_path, [plan(), answer("Nothing on this.")], source=source)
    assert any(shown in s.text for s in run.segments if s.author is Author.TOOL)
    assert (run.status, run.sources) == (Status.NO_EVIDENCE, ())
    assert run.reason.startswith(reason)
    assert bool(run.missed) == (run.reason != "nothing was found")
    assert f"No evidence: {run.reason.rstrip('.')}; what follows rests on no source" in markdown(
        run
    )


async def test_a_server_that_is_down_fails_the_run_with_a_remedy(tmp_path: Path):
    run = await asked("http://127.0.0.1:9/v1", tmp_path)
    assert run.status is Status.FAILED
    assert run.reason.startswith("no model server answers at http://127.0.0.1:9/v1")
    assert "Start the server" in run.reason
    assert RunStore(tmp_path).load("t") == run, "it is kept like every other"


ENDLESS = Reply(pieces=["<think>", *["so it goes "] * 40], endless=True)


@pytest.mark.parametrize(
    ("at", "script", "aside", "note"),
    [
        (0, ["I <think> not.", *RUN], "I <think> not.", "I \u2039think> not.\nWrite it"),
        (1, [plan(), "Well.", answer()], "Well.", "nor a review and an answer, in their tags. It"),
        (0, [ENDLESS, *RUN], "<think>so it goes so it goes", "It repeated itself without end."),
    ],
    ids=["no plan", "no action", "repetition"],
)
async def test_a_turn_that_does_not_hold_is_asked_again_and_kept_aside(
    at: int, script: list[Scripted], aside: str, note: str, tmp_path: Path
):
    events: list[Event] = []
    with ScriptedServer(script) as server:
        run = await asked(server.base_url, tmp_path, listener=events.append)
        again = contents(server.requests[at + 1].body)
    (left,) = [s for s in run.segments if not s.kept]
    assert left.text.startswith(aside) and len(left.text) < 1000 and left.attempt == 0
    assert left.turn == at + 1 and left.text not in [s.text for s in run.segments if s.kept]
    end = "Write it again.\n</tool_response>" if at else "Write it again.\n"
    assert note in again[-1][1] and again[-1][1].endswith(end)
    assert [role for role, _ in again[:2]] == ["system", "user"]
    assert [type(e) for e in events].count(TurnRetried) == 1
    assert (run.status, run.usage.calls) == (Status.FINISHED, len(script))
