"""Whole runs over real HTTP: what the policy writes well, badly, and not at all."""

import asyncio
from pathlib import Path

from agent.events import Event, StageStarted, ToolCalled, TurnRetried
from agent.reports.citations import cited_answer
from agent.reports.report import as_json, markdown
from memory.schema import Author, Stage, Status
from tests.fakes import PASSAGES, QUESTION, FixedSearch
from tests.flow import RUN, answer, asked, contents, plan, researching, search
from tests.scripted_server import Reply, ScriptedServer


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
