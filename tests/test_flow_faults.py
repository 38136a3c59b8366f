"""Whole runs against servers that fail: each failure is one sentence, and nothing is lost."""

from pathlib import Path

import pytest

from memory.errors import StoreError
from memory.runs import RunStore
from memory.schema import Author, Status
from tests.fakes import FixedSearch
from tests.flow import RUN, answer, asked, plan
from tests.scripted_server import Fault, Reply, Scripted, ScriptedServer


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
