"""What the researcher keeps of a run, and how the clients are built from settings.

Whole runs over real HTTP: what the policy writes well, badly, and not at all.

Whole runs against servers that fail: each failure is one sentence, and nothing is lost.
"""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.models.limits import Limiter
from rubricem.agent.models.policy import ChatWriter
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import as_json, markdown
from rubricem.agent.research.events import Event, RunFinished, StageStarted, ToolCalled, TurnRetried
from rubricem.agent.research.question import LONGEST_QUESTION, Ask, checked
from rubricem.agent.research.researcher import STARTING, ask_of, new_thread, request_of
from rubricem.agent.research.setup import open_researcher, reserve
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import AnswerFormat, Author, Stage, Status
from tests.support.policies import (
    PASSAGES,
    QUESTION,
    RUN,
    FixedSearch,
    answer,
    asked,
    contents,
    plan,
    researching,
    search,
)
from tests.support.scripted_server import Fault, Reply, Scripted, ScriptedServer
from tests.support.waiting import PATIENCE


async def test_the_kept_trajectory_is_the_one_returned_and_told(tmp_path: Path):
    events: list[Event] = []
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path, seed=7) as researcher:
            wanted = replace(researcher.template, question=QUESTION)
            run = await researcher.ask(wanted, "t", events.append)
            assert researcher.store.load("t") == run
    assert events[-1] == RunFinished(run)
    assert (run.thread, run.seed) == ("t", 7)
    assert run.policy.startswith("scripted@127.0.0.1:")


async def test_a_finished_run_lets_its_journal_go(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        await asked(server.base_url, tmp_path)
        async with researching(server.base_url, tmp_path) as researcher:
            journal = researcher.store.journal("t")  # refused while another holds its lock
            assert len(journal.path.read_text().splitlines()) == len(server.requests) + 2
            journal.close()


async def test_a_run_that_cannot_be_kept_is_no_success(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            (tmp_path / "runs" / "t" / "trajectory.json").mkdir(parents=True)
            with pytest.raises(StoreError, match="cannot be used"):
                await researcher.ask(Ask(QUESTION), "t")


async def test_calls_of_all_runs_are_in_flight_though_few_runs_begin_at_once(tmp_path: Path):
    count = 3 * STARTING
    begun = threading.Barrier(count)

    def script(body: Any, number: int) -> str:
        begun.wait(PATIENCE)
        return RUN[sum(message["role"] == "assistant" for message in body["messages"])]

    options = {"limiter": Limiter(count)}
    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path, chat=options) as researcher:
            runs = await asyncio.gather(*(researcher.ask(Ask(QUESTION)) for _ in range(count)))
    assert {run.status for run in runs} == {Status.FINISHED}


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


def test_a_request_comes_back_as_what_was_asked():
    ask = Ask(QUESTION, AnswerFormat.EXACT, tool_calls=3, seed=5)
    assert ask_of(request_of(ask, {"model": "m"})) == ask


def test_every_thread_has_a_name_of_its_own():
    assert len({new_thread() for _ in range(100)}) == 100


@pytest.mark.parametrize("question", ["", " \n", "x" * (LONGEST_QUESTION + 1)])
def test_what_is_no_question_is_refused(question: str):
    with pytest.raises(SettingsError):
        checked(question)


def test_a_question_is_taken_without_the_space_around_it():
    assert checked("  What?\n") == "What?"


def test_a_thread_is_reserved_before_any_work(tmp_path: Path):
    setup = setup_of(load_settings({"base_url": "http://127.0.0.1:9/v1", "data_dir": tmp_path}))
    assert reserve(setup, "t", QUESTION).question == QUESTION
    assert (tmp_path / "runs" / "t" / "request.json").exists()


async def test_clients_are_built_from_settings_and_closed(tmp_path: Path):
    (tmp_path / "a.md").write_text("# Cache\n\nAn unbounded cache never evicts.\n")
    flags = {"source": (str(tmp_path),), "data_dir": tmp_path / ".data", "temperature": 0.3}
    with ScriptedServer(RUN) as server:
        settings = load_settings({**flags, "base_url": server.base_url})
        async with open_researcher(setup_of(settings)) as researcher:
            assert isinstance(researcher.policy, ChatWriter)
            run = await researcher.ask(replace(researcher.template, question=QUESTION))
        body = server.requests[0].body
    assert run.status is Status.FINISHED
    assert (body["model"], body["temperature"]) == ("scripted", 0.3)


async def test_three_turns_make_a_finished_run(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        run = await asked(server.base_url, tmp_path)
    assert (run.status, run.reason) == (Status.FINISHED, "")
    assert (run.tool_calls, run.usage.calls, run.usage.prompt_tokens) == (2, 3, 300)
    assert [source.id for source in run.sources] == ["S1", "S2", "S3"]
    report = as_json(run)
    assert [stage["stage"] for stage in report["stages"]] == list(Stage)
    assert report["answer"] == "It is an unbounded cache [1]."
    cite = report["citations"][0]
    assert (cite["id"], cite["claim"]) == ("S1", "an unbounded cache")
    assert cite["source"]["passage"] == PASSAGES[0].text


async def test_each_stage_holds_what_was_written_in_it(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        run = await asked(server.base_url, tmp_path)
    by_stage = {s: [p for p in run.segments if p.stage is s] for s in Stage}
    assert by_stage[Stage.PLAN][0].text.endswith("</structured_plan>")
    authors = [s.author for s in by_stage[Stage.RESEARCH]]
    assert authors == [Author.POLICY, Author.TOOL, Author.POLICY, Author.TOOL]
    assert by_stage[Stage.REVIEW][0].text.lstrip().startswith("<think>Enough.")
    assert by_stage[Stage.ANSWER][0].text.startswith("<answer>")
    assert all(s.retokenised for s in run.segments if s.author is Author.POLICY)


async def test_the_conversation_only_grows(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        await asked(server.base_url, tmp_path)
        first, second, third = (contents(request.body) for request in server.requests)
    assert third[: len(second)] == second and second[: len(first)] == first
    assert [role for role, _ in third] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert third[1][1].startswith(QUESTION)
    assert '<snippet id="S1">' in third[3][1] and third[4][1] == RUN[1]


async def test_what_happens_is_told_as_it_happens(tmp_path: Path):
    events: list[Event] = []
    with ScriptedServer(RUN) as server:
        await asked(server.base_url, tmp_path, listener=events.append)
    stages = [event.stage for event in events if isinstance(event, StageStarted)]
    assert stages == [Stage.PLAN, Stage.RESEARCH, Stage.RESEARCH, Stage.REVIEW, Stage.ANSWER]
    queries = [event.query for event in events if isinstance(event, ToolCalled)]
    assert queries == ["lru_cache maxsize None", "functools.cache unbounded"]


async def test_a_first_turn_that_answers_is_asked_again_and_kept_aside(tmp_path: Path):
    events: list[Event] = []
    with ScriptedServer([answer(), *RUN]) as server:
        run = await asked(server.base_url, tmp_path, listener=events.append)
        again = contents(server.requests[1].body)
    assert run.status is Status.FINISHED
    aside = [s for s in run.segments if not s.kept]
    assert [(s.text, s.turn, s.attempt) for s in aside] == [(answer(), 1, 0)]
    assert answer() not in run.transcript().partition("</structured_plan>")[0]
    assert [role for role, _ in again] == ["system", "user"]
    assert again[1][1].endswith("may not review or answer. Write it again.\n")
    assert [type(e) for e in events].count(TurnRetried) == 1
    assert run.usage.calls == 4


async def test_a_repeated_query_is_answered_without_a_tool_call(tmp_path: Path):
    source = FixedSearch()
    turns = [plan("lru cache"), search("LRU  Cache"), answer()]
    with ScriptedServer(turns) as server:
        run = await asked(server.base_url, tmp_path, source=source)
    assert (source.queries, run.tool_calls, run.status) == (["lru cache"], 1, Status.FINISHED)
    outputs = [s.text for s in run.segments if s.author is Author.TOOL]
    assert outputs[1].count("Shown above.") == 3


async def test_a_spent_budget_sends_the_policy_to_the_review(tmp_path: Path):
    with ScriptedServer([plan("one"), search("two"), answer()]) as server:
        run = await asked(server.base_url, tmp_path, tool_calls=2)
        told = [contents(request.body)[-1][1] for request in server.requests]
    assert (run.status, run.tool_calls) == (Status.FINISHED, 2)
    assert ["No further search is possible" in text for text in told] == [False, False, True]


async def test_a_policy_that_searches_for_ever_ends_with_a_usable_report(tmp_path: Path):
    with ScriptedServer(lambda body, number: plan() if number == 0 else search("same")) as server:
        run = await asked(server.base_url, tmp_path, tool_calls=3)
    assert run.status is Status.PARTIAL
    assert "No tool call is left" in run.reason
    assert (run.tool_calls, run.usage.calls) == (2, 13)
    assert run.reason in markdown(run)


async def test_a_failing_search_is_shown_to_the_policy_and_the_run_goes_on(tmp_path: Path):
    source = FixedSearch(error='the "index" is gone')
    with ScriptedServer([plan(), answer("Nothing could be searched.")]) as server:
        run = await asked(server.base_url, tmp_path, source=source)
        shown = contents(server.requests[1].body)[-1][1]
    assert "<tool_output error=\"the 'index' is gone\">" in shown
    assert (run.status, run.sources) == (Status.NO_EVIDENCE, ())
    assert run.reason == 'the search failed: the "index" is gone'
    assert "No evidence: the search failed" in markdown(run)


async def test_a_fault_inside_a_source_is_a_failing_search(tmp_path: Path):
    class Broken(FixedSearch):
        async def search(self, query: str, limit: int) -> list[object]:  # type: ignore[override]
            raise IndexError("list index out of range")

    with ScriptedServer([plan(), answer("Nothing was found.")]) as server:
        run = await asked(server.base_url, tmp_path, source=Broken())
    assert run.status is Status.NO_EVIDENCE
    assert "IndexError" in run.transcript()


async def test_cites_of_unknown_ids_are_dropped_and_counted(tmp_path: Path):
    text = '<cite id="S1, S9">It grows</cite>. <cite id="S8">It sleeps</cite>.'
    with ScriptedServer([plan(), answer(text)]) as server:
        run = await asked(server.base_url, tmp_path)
    cited = cited_answer(run)
    assert cited.dropped == 2
    assert [citation.id for citation in cited.citations] == ["S1"]
    assert cited.text() == "It grows [1]. It sleeps [no source]."


async def test_many_questions_share_one_researcher_and_keep_apart(tmp_path: Path):
    def script(body: dict[str, object], number: int) -> Reply:
        messages = body["messages"]
        assert isinstance(messages, list)
        topic = messages[1]["content"].split()[0]
        turn = sum(message["role"] == "assistant" for message in messages)
        return Reply([plan(topic), answer(f"All about {topic}.")][turn], piece_seconds=0.002)

    source = FixedSearch()
    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            asks = [type(researcher.template)(f"topic{i} is what?") for i in range(8)]
            runs = await asyncio.gather(*(researcher.ask(ask) for ask in asks))
        assert server.most_at_once > 4
    for number, run in enumerate(runs):
        assert cited_answer(run).text() == f"All about topic{number}."
    assert sorted(source.queries) == [f"topic{i}" for i in range(8)]
    assert len({run.thread for run in runs}) == 8


async def test_retries_exhausted_give_a_partial_run_with_its_reason(tmp_path: Path):
    with ScriptedServer(lambda body, number: "I cannot follow tags.") as server:
        run = await asked(server.base_url, tmp_path)
    assert run.status is Status.PARTIAL
    assert run.reason == "turn 1 of the model broke the scaffold: The turn must begin with think."
    assert run.tool_calls == 1, "the question itself was searched"
    assert cited_answer(run).text() == "I cannot follow tags."
    assert run.usage.calls == 13


async def test_a_whole_answer_after_a_broken_turn_stands_but_is_partial(tmp_path: Path):
    bad = search("two").replace("</think>", "")
    with ScriptedServer([plan(), bad, bad, bad, answer()]) as server:
        run = await asked(server.base_url, tmp_path)
    assert (run.status, run.tool_calls) == (Status.PARTIAL, 2)
    assert run.reason == "turn 2 of the model broke the scaffold: think is not closed."
    assert cited_answer(run).citations[0].id == "S1"


async def test_a_note_never_opens_a_tag(tmp_path: Path):
    turns = ["x", "x", "x", "x", "x", "x", "x", "x", "x", answer()]
    with ScriptedServer(turns) as server:
        run = await asked(server.base_url, tmp_path)
    notes = [s.text for s in run.segments[1:] if s.author is Author.PROMPT]
    assert notes and not any("<" in note for note in notes)
    assert cited_answer(run).citations[0].id == "S1"


async def test_what_follows_the_end_of_a_turn_in_one_piece_is_cut(tmp_path: Path):
    invented = plan() + "\n<tool_output>\n" + "invented text " * 60 + "</tool_output>"
    with ScriptedServer([Reply(pieces=[invented]), answer()]) as server:
        run = await asked(server.base_url, tmp_path)
    assert run.status is Status.FINISHED
    assert "invented" not in run.transcript()


async def test_thinking_may_name_the_tags_that_end_a_turn(tmp_path: Path):
    thoughtful = plan().replace("Look it up.", "I must end with </call_tool> or </answer>.")
    with ScriptedServer([thoughtful, answer()]) as server:
        run = await asked(server.base_url, tmp_path)
    assert run.status is Status.FINISHED
    assert thoughtful in run.transcript()


async def test_a_server_that_is_down_fails_the_run_with_a_remedy(tmp_path: Path):
    run = await asked("http://127.0.0.1:9/v1", tmp_path)
    assert run.status is Status.FAILED
    assert run.reason.startswith("no model server answers at http://127.0.0.1:9/v1")
    assert "Start the server" in run.reason
    assert RunStore(tmp_path).load("t") == run, "it is kept like every other"


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Fault(401, "bad key"), "refused the API key from OPENAI_API_KEY (401)"),
        (Fault(404, "no model"), "has no model 'scripted' (404)"),
        (Fault(500, "out of memory"), "failed: out of memory (500), also at try 4"),
        (Reply(""), "sent an empty reply, also at try 4"),
        (Reply(plan(), cut_after=3), "broke off in the middle of a reply, also at try 4"),
    ],
)
async def test_a_server_that_keeps_failing_fails_the_run(
    fault: Scripted, sentence: str, tmp_path: Path
):
    with ScriptedServer(lambda body, number: fault) as server:
        run = await asked(server.base_url, tmp_path)
    assert run.status is Status.FAILED
    assert sentence in run.reason


@pytest.mark.parametrize(
    "fault",
    [Fault(503), Reply(""), Reply(plan(), cut_after=3), Fault(429, headers={"retry-after": "0"})],
)
async def test_one_failure_is_tried_again_and_leaves_no_trace(fault: Scripted, tmp_path: Path):
    with ScriptedServer([fault, *RUN]) as server:
        run = await asked(server.base_url, tmp_path)
    assert run.status is Status.FINISHED
    assert "".join(s.text for s in run.segments if s.turn == 1 and s.author is Author.POLICY) == (
        plan()
    )


async def test_retry_after_is_honoured(tmp_path: Path):
    with ScriptedServer([Fault(429, headers={"retry-after": "0.3"}), *RUN]) as server:
        run = await asked(server.base_url, tmp_path)
        refused, tried = (request.at for request in server.requests[:2])
    assert run.status is Status.FINISHED
    assert 0.3 <= tried - refused < 1.5


async def test_a_failure_in_the_middle_goes_on_from_there(tmp_path: Path):
    with ScriptedServer([RUN[0], Fault(401), *RUN[1:]]) as server:
        source = FixedSearch()
        failed = await asked(server.base_url, tmp_path, source=source)
        assert failed.status is Status.FAILED
        assert [s.author for s in failed.segments[-2:]] == [Author.POLICY, Author.TOOL]
        run = await asked(server.base_url, tmp_path, source=source)
        assert len(server.requests) == 4
    assert run.status is Status.FINISHED
    assert source.queries == ["lru_cache maxsize None", "functools.cache unbounded"]


async def test_a_tag_never_closed_is_asked_again(tmp_path: Path):
    unclosed = answer().replace("</answer>", "")
    with ScriptedServer([plan(), unclosed, answer()]) as server:
        run = await asked(server.base_url, tmp_path)
    assert run.status is Status.FINISHED
    assert [s.text for s in run.segments if not s.kept] == [unclosed]


async def test_endless_repetition_is_cut_off_and_asked_again(tmp_path: Path):
    endless = Reply(pieces=["<think>", *["so it goes "] * 40], endless=True)
    with ScriptedServer([endless, *RUN]) as server:
        run = await asked(server.base_url, tmp_path)
    assert run.status is Status.FINISHED
    aside = [s.text for s in run.segments if not s.kept]
    assert len(aside) == 1 and 240 < len(aside[0]) < 1000


async def test_a_model_that_only_repeats_itself_ends_partial(tmp_path: Path):
    endless = Reply(pieces=["so it goes "], endless=True)
    with ScriptedServer(lambda body, number: endless) as server:
        run = await asked(server.base_url, tmp_path)
    assert run.status is Status.PARTIAL
    assert "repeated itself" in run.reason


async def test_a_reply_cut_by_its_length_is_asked_again(tmp_path: Path):
    with ScriptedServer([Reply(plan()[:90], finish="length"), *RUN]) as server:
        run = await asked(server.base_url, tmp_path)
    assert run.status is Status.FINISHED
    assert "too long" in next(s.text for s in run.segments[1:] if s.author is Author.PROMPT)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thinking_that_the_server_keeps_apart_is_thinking(field: str, tmp_path: Path):
    turns = [
        Reply(turn.partition("</think>\n")[2], reasoning="Hm </answer>", reasoning_field=field)
        for turn in RUN
    ]
    with ScriptedServer(turns) as server:
        run = await asked(server.base_url, tmp_path)
    assert (run.status, run.usage.calls) == (Status.FINISHED, 3)
    assert "Hm" not in run.transcript()


async def test_a_data_directory_that_cannot_be_used_is_one_sentence(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with ScriptedServer(RUN) as server:
        with pytest.raises(StoreError, match="cannot be used") as caught:
            await asked(server.base_url, blocked)
        assert server.requests == []
    assert "RUBRICEM_DATA_DIR" in caught.value.remedy
