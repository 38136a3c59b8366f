"""Going on after a run: a follow-up from what was found, and a run that is deepened."""

import json
from pathlib import Path

import pytest

from rubricem.agent.record.conversations import ConversationStore
from rubricem.agent.settings import load_settings
from rubricem.agent.transcript.question import Ask
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Status
from tests.conftest import rubricem
from tests.support.policies import QUESTION, RUN, answer, contents, researching
from tests.support.scripted_server import ScriptedServer

PLANNED = RUN[0].partition("<call_tool")[0]


@pytest.mark.parametrize("room", [6000, 40])
async def test_a_follow_up_is_answered_from_what_its_conversation_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
):
    monkeypatch.setattr("rubricem.agent.record.conversations.MOST_TOKENS", room)
    with ScriptedServer([*RUN, PLANNED + answer()]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            await researcher.ask(Ask(QUESTION), "one")
            after = await researcher.ask(Ask("And how large?", earlier=("one",)), "two")
        told = contents(server.requests[-1].body)[-1][1]
    assert "the first turn may go on from its plan" in told
    assert ("<snippet" in told) == (room > 40), "a report's ids can be cited without the passage"
    assert (after.status, after.tool_calls) == (Status.FINISHED, 0)
    assert len(server.requests) == len(RUN) + 1 and after.sources[0].id == "S1"


async def test_an_answer_without_a_source_is_no_follow_up_without_a_search(tmp_path: Path):
    script = [*RUN, PLANNED + "<answer>Large.</answer>", *RUN[1:]]
    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            await researcher.ask(Ask(QUESTION), "one")
            after = await researcher.ask(Ask("And how large?", earlier=("one",)), "two")
    assert after.tool_calls > 0 and "put aside" in after.transcript()


async def test_of_a_review_that_finds_nothing_the_answer_need_not_cite(tmp_path: Path):
    review = "<review><rubric_review>1. price: [missing]</rubric_review></review>"
    script = [RUN[0], review, RUN[1], f"{review}<answer>It is not said.</answer>"]
    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            ended = await researcher.ask(Ask(QUESTION), "one")
    assert (ended.status, ended.ended_by) == (Status.NO_EVIDENCE, "not_found")
    assert len(server.requests) == len(script) and "It is not said." in ended.transcript()


def test_a_run_is_deepened_over_its_sources_in_its_conversation(
    documents: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_VERIFY", "off")
    with ScriptedServer([*RUN, PLANNED + answer()]) as server:  # no lesson to be found in full
        where = ("--base-url", server.base_url, "--model", "scripted", "--source", documents)
        rubricem("ask", QUESTION, *where, "--run", "one", "--quiet")
        done = rubricem("ask", "--deepen", "one", "--run", "two", "--quiet", "--json")
        system = contents(server.requests[-1].body)[0][1]
    assert system.startswith("You lead a research")
    assert json.loads(done.stdout)["thread"] == "two"
    data = load_settings().data_dir
    [conversation] = ConversationStore(data).list_all().conversations
    assert conversation.runs == ("one", "two")


@pytest.mark.parametrize("of_a_copy", ["--deepen", "--resume"])
def test_a_run_of_a_copy_names_no_server_and_no_source(
    documents: Path, monkeypatch: pytest.MonkeyPatch, of_a_copy: str
):
    """As one that somebody made: its server would get the passages, and the key."""
    monkeypatch.setenv("RUBRICEM_VERIFY", "off")
    with ScriptedServer(RUN) as server, ScriptedServer([*RUN, *RUN]) as ours:
        where = ("--base-url", server.base_url, "--model", "scripted", "--source", documents)
        rubricem("ask", QUESTION, *where, "--run", "one", "--quiet")
        store, before = RunStore(load_settings().data_dir), len(server.requests)
        store.mark_restored()
        monkeypatch.setenv("RUBRICEM_API_KEY", "sk-of-ours")
        if of_a_copy == "--resume":
            (store.folder_of("one") / "trajectory.json").unlink()
            assert "another model" in rubricem("ask", of_a_copy, "one", code=1).output
            monkeypatch.setenv("RUBRICEM_BASE_URL", server.base_url)
            monkeypatch.setenv("RUBRICEM_MODEL", "scripted")
            refused = rubricem("ask", of_a_copy, "one", code=1).output
            assert f"/{documents.name}', which this" in refused and "in the settings" in refused
            monkeypatch.setenv("RUBRICEM_SOURCE", str(documents))
            assert not rubricem("ask", of_a_copy, "one", "--quiet").stderr
        else:
            monkeypatch.setenv("RUBRICEM_BASE_URL", ours.base_url)
            monkeypatch.setenv("RUBRICEM_MODEL", "scripted")
            monkeypatch.setenv("RUBRICEM_SOURCE", str(documents))
            rubricem("ask", of_a_copy, "one", "--effort", "standard", "--run", "two")
            assert ours.requests and store.request("two")["choices"]["base_url"] == ours.base_url
        assert len(server.requests) == before


def test_only_a_run_that_ended_is_deepened():
    said = rubricem("ask", "--deepen", "nope", code=2).output
    assert "nope" in said
    said = rubricem("ask", "--deepen", "a", "--resume", "b", code=2).output
    assert "not both" in said
