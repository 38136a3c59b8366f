"""The real `openai` package against the served app: models and chat completions.

Also requests at their limits: long histories, refusals before any route; and that a program's reply
is not held up by the pace at which people are told of a run.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion

from rubricem.agent.research.question import LONGEST_QUESTION, checked
from rubricem.agent.serve.feed import FILE_NAME
from rubricem.agent.serve.openai import LONGEST_TURN, dialogue
from rubricem.agent.serve.security import Security
from tests.support.pages import (
    QUESTION,
    REPORT,
    client,
    openai_served,
    scripted_site,
)
from tests.support.policies import RUN, SUPPORTED, answer, contents, plan
from tests.support.scripted_server import Fault, Hang, Scripted
from tests.support.waiting import PATIENCE, wait_for

ASKED: list[Any] = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A client of a server whose model is never asked."""
    with client([], tmp_path_factory.mktemp("idle")) as made:
        yield made


def test_there_is_one_model(idle: OpenAI) -> None:
    assert [model.id for model in idle.models.list()] == ["rubricem"]
    assert idle.models.retrieve("rubricem").owned_by == "rubricem"
    with pytest.raises(openai.NotFoundError, match="'gpt-4o' does not exist"):
        idle.models.retrieve("gpt-4o")


def test_a_question_is_answered_with_its_sources_where_clients_look(tmp_path: Path) -> None:
    with client([*RUN, SUPPORTED], tmp_path) as made:
        done = made.chat.completions.create(model="rubricem", messages=ASKED)
    ChatCompletion.model_validate(done.model_dump())
    [choice] = done.choices
    content = choice.message.content or ""
    assert content.startswith(REPORT)
    assert choice.finish_reason == "stop"
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (400, 80)
    assert done.usage.total_tokens == 480
    [annotation] = choice.message.annotations or []
    cited = annotation.url_citation
    assert content[cited.start_index : cited.end_index] == "[1]"
    assert cited.title == "lru_cache" and cited.url.endswith("cache.md")
    more: Any = done.model_extra
    assert more["citations"] == [cited.url]
    assert more["rubricem"]["status"] == "finished"
    reasoning: Any = choice.message.model_extra
    assert "Stage: plan\n" in reasoning["reasoning_content"]
    assert "Call 1: folder: lru_cache maxsize None\n" in reasoning["reasoning_content"]


def test_a_stream_tells_of_its_progress_then_the_report_then_why_it_ends(tmp_path: Path) -> None:
    with client([*RUN, SUPPORTED], tmp_path) as made:
        chunks = list(
            made.chat.completions.create(
                model="rubricem",
                messages=ASKED,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    kinds = ["reasoning_content" in (d.model_extra or {}) for d in deltas[1:-1]]
    assert kinds == sorted(kinds, reverse=True) and kinds[0], "reasoning comes before the report"
    content = "".join(delta.content or "" for delta in deltas)
    assert content.startswith(REPORT)
    *parts, last = [chunk for chunk in chunks if chunk.choices]
    assert {chunk.choices[0].finish_reason for chunk in parts} == {None}
    assert last.choices[0].finish_reason == "stop"
    assert (last.model_extra or {})["citations"][0].endswith("cache.md")
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 480
    assert {chunk.usage for chunk in chunks[:-1]} == {None}
    assert len({chunk.id for chunk in chunks}) == 1


def test_usage_is_streamed_only_where_it_is_wanted(tmp_path: Path) -> None:
    with client([*RUN, SUPPORTED], tmp_path) as made:
        chunks = made.chat.completions.create(model="rubricem", messages=ASKED, stream=True)
        assert all(chunk.choices and chunk.usage is None for chunk in chunks)


async def test_the_asynchronous_client_streams_as_well(tmp_path: Path) -> None:
    with openai_served([*RUN, SUPPORTED], tmp_path) as here:
        async with AsyncOpenAI(base_url=here.url, api_key="none", max_retries=0) as made:
            done = await made.chat.completions.create(model="rubricem", messages=ASKED, stream=True)
            content = [c.choices[0].delta.content or "" async for c in done if c.choices]
    assert "".join(content).startswith(REPORT)


def test_a_second_question_goes_on_with_the_thread_of_the_first(tmp_path: Path) -> None:
    script = [*RUN, SUPPORTED, plan("heapq"), answer(), SUPPORTED]
    with openai_served(script, tmp_path) as here:
        first = here.client.chat.completions.create(model="rubricem", messages=ASKED)
        follow: list[Any] = [
            *ASKED,
            {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "And with maxsize 0?"},
        ]
        second = here.client.chat.completions.create(model="rubricem", messages=follow)
        told: Any = [first.model_extra, second.model_extra]
        threads = [each["rubricem"]["thread"] for each in told]
        assert threads[0] == threads[1]
        assert len(here.desk.conversations.get(threads[0]).runs) == 2
        said = contents(here.model.requests[4].body)[1][1]
        assert "Report 1:\nIt is an unbounded cache [S1]." in said
        assert said.count("And with maxsize 0?") == 1


def test_a_thread_that_is_not_known_is_told_as_text(tmp_path: Path) -> None:
    asked: list[Any] = [
        {"role": "system", "content": "Be funny."},
        {"role": "user", "content": "Who are you?"},
        {"role": "assistant", "content": "Somebody else's words."},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
    ]
    with openai_served([*RUN, SUPPORTED], tmp_path) as here:
        here.client.chat.completions.create(model="rubricem", messages=asked)
        said = contents(here.model.requests[0].body)[1][1]
    assert said.startswith(QUESTION)
    assert "User: Who are you?\n\nAssistant: Somebody else's words." in said
    assert "funny" not in said


@pytest.mark.parametrize(
    ("fields", "said", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not", "tools"),
        ({"n": 2}, "n must be 1", "n"),
        ({"logprobs": True}, "logprobs is not supported", "logprobs"),
        ({"response_format": {"type": "json_object"}}, "must be text", "response_format"),
        ({"messages": []}, "at least 1 item", "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "must be the user's", "messages"),
        ({"messages": [{"role": "user", "content": " "}]}, "There is no question", None),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "data:x"}}],
                    }
                ]
            },
            "only text is read",
            "messages.0.content",
        ),
        ({"extra_body": {"rubricem": {"source": ["/etc"]}}}, "no source '/etc'", None),
        ({"extra_body": {"rubricem": {"max_secs": 3}}}, "Extra inputs", "rubricem.max_secs"),
    ],
)
def test_what_is_not_supported_is_a_clear_bad_request(
    fields: dict[str, Any], said: str, param: str | None, idle: OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        idle.chat.completions.create(**{"model": "rubricem", "messages": ASKED, **fields})
    assert said in str(refused.value)
    assert refused.value.type == "invalid_request_error"
    assert refused.value.param == param


def test_what_a_run_may_be_given_besides_reaches_it(tmp_path: Path) -> None:
    with openai_served([*RUN, SUPPORTED], tmp_path) as here:
        options = {"rubricem": {"format": "short", "tool_calls": 3}}
        done = here.client.chat.completions.create(
            model="rubricem", messages=ASKED, temperature=0.1, extra_body=options
        )
        run: Any = done.model_extra
        asked = here.desk.store.request(run["rubricem"]["run"])["ask"]
    assert (asked["answer_format"], asked["tool_calls"]) == ("short", 3)


def test_a_run_that_failed_is_a_server_error_streamed_or_not(tmp_path: Path) -> None:
    with client([Fault(401), Fault(401)], tmp_path) as made:
        with pytest.raises(openai.InternalServerError, match="wants an API key") as failed:
            made.chat.completions.create(model="rubricem", messages=ASKED)
        assert (failed.value.status_code, failed.value.type) == (502, "server_error")
        with pytest.raises(openai.APIError, match="wants an API key"):
            list(made.chat.completions.create(model="rubricem", messages=ASKED, stream=True))


def test_a_report_that_a_budget_cut_ends_for_its_length(tmp_path: Path) -> None:
    with client([*RUN, SUPPORTED], tmp_path, max_total_tokens=1000) as made:
        cut = made.chat.completions.create(
            model="rubricem",
            messages=ASKED,
            extra_body={"rubricem": {"max_total_tokens": 130}},
        )
    assert cut.choices[0].finish_reason == "length"
    assert "Ended early" in (cut.choices[0].message.content or "")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_run_with_what_there_is(
    stream: bool, tmp_path: Path
) -> None:
    with openai_served([plan(), Hang()], tmp_path) as here:
        body = {"model": "rubricem", "messages": ASKED, "stream": stream}
        url = f"{here.url}/chat/completions"
        if stream:
            with httpx.stream("POST", url, json=body, timeout=PATIENCE) as reply:
                lines = reply.iter_lines()
                wait_for(lambda: "Found:" in next(lines))
                wait_for(lambda: len(here.model.requests) == 2)
        else:
            with closing(HTTPConnection(urlsplit(url).netloc)) as asking:
                asking.request("POST", url, json.dumps(body), {"Content-Type": "application/json"})
                wait_for(lambda: len(here.model.requests) == 2)
        wait_for(lambda: not here.desk.live)
        [run] = here.desk.store.threads()
        ended = here.desk.store.load(run)
    assert (ended.status, ended.ended_by) == ("partial", "interrupt")


def test_the_token_of_the_server_is_the_key_of_its_clients(tmp_path: Path) -> None:
    security = Security("127.0.0.1", token="t" * 40)
    with openai_served([*RUN, SUPPORTED], tmp_path, security) as here:
        with OpenAI(base_url=here.url, api_key="wrong", max_retries=0) as made:
            with pytest.raises(openai.AuthenticationError, match="asks for its token") as refused:
                made.models.list()
            assert refused.value.type == "invalid_request_error"
        with OpenAI(base_url=here.url, api_key="t" * 40, max_retries=0) as made:
            assert len(list(made.models.list())) == 1


def test_a_page_of_another_site_gets_nothing(tmp_path: Path) -> None:
    with openai_served([], tmp_path) as here:
        body = {"model": "rubricem", "messages": ASKED}
        foreign = {"Origin": "https://evil.example"}
        url = f"{here.url}/chat/completions"
        assert httpx.post(url, json=body, headers=foreign, timeout=PATIENCE).status_code == 403
        form = {"content-type": "text/plain"}
        reply = httpx.post(url, content=b"{}", headers=form, timeout=PATIENCE)
        assert reply.status_code == 415
        assert reply.json()["error"]["type"] == "invalid_request_error"
        form = {"content-type": "application/json"}
        bad = httpx.post(url, content=b"{", headers=form, timeout=PATIENCE)
        assert bad.status_code == 400
        assert bad.json()["error"]["message"] == "The body must be a JSON object."
        assert here.desk.store.threads() == []


def test_a_run_is_left_to_the_next_server_where_this_one_ends(tmp_path: Path) -> None:
    with openai_served([plan(), Hang()], tmp_path) as here:
        body = {"model": "rubricem", "messages": ASKED, "stream": True}
        url = f"{here.url}/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=PATIENCE) as reply:
            lines = reply.iter_lines()
            wait_for(lambda: "Found:" in next(lines))
            wait_for(lambda: len(here.model.requests) == 2)
            [work] = here.desk.live.values()
            assert work.task is not None
            work.task.get_loop().call_soon_threadsafe(here.desk.close)
            rest = "\n".join(lines)
    assert "the run goes on when it starts again" in rest
    [run] = here.desk.store.threads()
    assert not here.desk.store.ended(run), "nothing ended it: a server that comes takes it up"


def history(turns: int, words: str) -> list[dict[str, Any]]:
    return [
        {"role": ("user", "assistant")[at % 2], "content": f"turn {at} {words}"}
        for at in range(turns)
    ]


@pytest.mark.parametrize("characters", [10, 1500, 5000, LONGEST_QUESTION - 5, LONGEST_QUESTION])
def test_a_long_history_leaves_room_for_the_question(characters: int) -> None:
    question = "q" * characters
    messages = [*history(9, "w " * 4000), {"role": "user", "content": question}]
    told = dialogue(messages, "messages").as_question()
    assert checked(told).startswith(question)
    assert ("Assistant: turn 7 " in told) == (characters <= LONGEST_QUESTION - LONGEST_TURN - 100)


def test_of_a_short_history_everything_is_told_in_its_order() -> None:
    messages = [*history(3, "said"), {"role": "user", "content": QUESTION}]
    told = dialogue(messages, "messages").as_question()
    assert told.split("\n\n") == [
        QUESTION,
        "What was said before this question:",
        "User: turn 0 said",
        "Assistant: turn 1 said",
        "User: turn 2 said",
    ]


def test_what_is_refused_at_the_door_is_told_as_its_clients_read_it(tmp_path: Path) -> None:
    with (
        openai_served([], tmp_path, Security(token="t" * 40, most_body=2000)) as here,
        OpenAI(base_url=here.url, api_key="wrong", max_retries=0) as stranger,
        OpenAI(base_url=here.url, api_key="t" * 40, max_retries=0) as known,
    ):
        with pytest.raises(openai.AuthenticationError) as unknown:
            stranger.models.list()
        with pytest.raises(openai.APIStatusError) as large:
            known.chat.completions.create(
                model="rubricem", messages=[{"role": "user", "content": "x" * 3000}]
            )
    told: Any = unknown.value.body
    assert told["type"] == "invalid_request_error" and "asks for its token" in told["message"]
    told = large.value.body
    assert large.value.status_code == 413 and "too large" in told["message"]


PROGRAM = {"Content-Type": "application/json"}
CHAT = {"model": "rubricem", "messages": [{"role": "user", "content": QUESTION}]}
RESPONSE = {"model": "rubricem", "input": QUESTION}


class Blocking:
    """The usual turns; at the second one the run's events can no longer be written."""

    def __init__(self, data: Path) -> None:
        self.runs = data / "runs"

    def __call__(self, body: dict[str, Any], number: int) -> Scripted:
        if "check claims" in body["messages"][0]["content"]:
            return SUPPORTED
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn == 1:
            [events] = self.runs.glob(f"*/{FILE_NAME}")
            events.rename(events.with_name("aside"))
            events.mkdir()
        return RUN[turn]

    def unblock(self) -> None:
        [blocked] = self.runs.glob(f"*/{FILE_NAME}")
        blocked.rmdir()
        blocked.with_name("aside").rename(blocked)


@pytest.mark.parametrize(
    "path, asked", [("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)]
)
async def test_a_reply_comes_while_the_events_of_its_run_are_still_being_told(
    tmp_path: Path, path: str, asked: dict[str, Any]
):
    script = Blocking(tmp_path / "data")
    async with scripted_site(script, tmp_path) as here:
        reply = await here.http.post(path, json=asked, headers=PROGRAM, timeout=PATIENCE)
        [run] = here.desk.live
        assert (await here.one(run))["state"] == "running"
        if path.endswith("responses"):
            again = await here.http.get(f"/v1/responses/{reply.json()['id']}")
            assert again.json()["status"] == "completed"
        script.unblock()
        told = await asyncio.wait_for(here.ended(run), PATIENCE)
    assert reply.status_code == 200 and "unbounded cache [1]" in reply.text
    assert "Stage: research" in reply.text, "what was done is told as reasoning"
    assert [event.name for event in told][-2:] == ["finished", "end"]
    assert [event.id for event in told] == list(range(told[0].id, told[0].id + len(told)))


async def test_a_run_that_failed_is_told_without_waiting_for_its_events(tmp_path: Path):
    async with scripted_site([Fault(401)], tmp_path) as here:
        reply = await here.http.post(
            "/v1/chat/completions", json=CHAT, headers=PROGRAM, timeout=PATIENCE
        )
    assert reply.status_code >= 500 and "API key" in reply.json()["error"]["message"]
