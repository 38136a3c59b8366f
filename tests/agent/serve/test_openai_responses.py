"""The real `openai` package against `/v1/responses`: objects, events in order, threads."""

from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response
from openai.types.responses.response_stream_event import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.pages import QUESTION, REPORT, client, openai_served
from tests.support.policies import RUN, SUPPORTED, answer, contents, plan
from tests.support.scripted_server import Fault

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def test_a_response_holds_reasoning_message_citations_and_usage(tmp_path: Path) -> None:
    with client([*RUN, SUPPORTED], tmp_path) as made:
        done = made.responses.create(model="rubricem", input=QUESTION)
        again = made.responses.retrieve(done.id)
    Response.model_validate(done.model_dump())
    assert (done.status, done.object, done.model) == ("completed", "response", "rubricem")
    assert done.output_text.startswith(REPORT)
    reasoning, message = done.output
    assert reasoning.type == "reasoning"
    assert "\nStage: plan\nPlan: Read the documentation.\n" in reasoning.summary[0].text
    assert message.type == "message"
    [part] = message.content
    assert part.type == "output_text"
    [cited] = part.annotations
    assert cited.type == "url_citation" and cited.url.endswith("cache.md")
    assert part.text[cited.start_index : cited.end_index] == "[1]"
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.total_tokens) == (400, 480)
    assert (again.id, again.output_text) == (done.id, done.output_text)


def test_the_events_of_a_stream_come_in_the_order_of_the_interface(tmp_path: Path) -> None:
    with client([*RUN, SUPPORTED], tmp_path) as made:
        events: list[Any] = list(
            made.responses.create(model="rubricem", input=QUESTION, stream=True)
        )
    for event in events:
        EVENT.validate_python(event.model_dump())
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    order = list(dict.fromkeys(kinds))
    assert order == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "content_part.added",
        "output_text.delta",
        "output_text.annotation.added",
        "output_text.done",
        "content_part.done",
        "completed",
    ]
    assert kinds.count("output_item.added") == kinds.count("output_item.done") == 2
    whole = events[-1].response
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text and text.startswith(REPORT)
    thought = "".join(e.delta for e in events if e.type == "response.reasoning_summary_text.delta")
    assert whole.output[0].summary[0].text == thought


async def test_the_helper_of_the_asynchronous_client_puts_the_response_together(
    tmp_path: Path,
) -> None:
    with openai_served([*RUN, SUPPORTED], tmp_path) as here:
        async with (
            AsyncOpenAI(base_url=here.url, api_key="none", max_retries=0) as made,
            made.responses.stream(model="rubricem", input=QUESTION) as stream,
        ):
            async for _ in stream:
                pass
            done = await stream.get_final_response()
    assert done.output_text.startswith(REPORT)


def test_a_response_goes_on_with_the_thread_of_the_one_it_names(tmp_path: Path) -> None:
    script = [*RUN, SUPPORTED, plan("heapq"), answer(), SUPPORTED]
    with openai_served(script, tmp_path) as here:
        first = here.client.responses.create(model="rubricem", input=QUESTION)
        second = here.client.responses.create(
            model="rubricem", input="And with 0?", previous_response_id=first.id
        )
        assert second.previous_response_id == first.id
        runs = [each.id.removeprefix("resp_") for each in (first, second)]
        conversation = here.desk.conversations.of_run(runs[0])
        assert conversation is not None and list(conversation.runs) == runs
        assert "It is an unbounded cache [S1]." in contents(here.model.requests[4].body)[1][1]


def test_what_goes_on_from_an_earlier_response_is_a_branch(tmp_path: Path) -> None:
    more = [plan("heapq"), answer(), SUPPORTED]
    with openai_served([*RUN, SUPPORTED, *more, *more], tmp_path) as here:
        first = here.client.responses.create(model="rubricem", input=QUESTION)
        for question in ("And with 0?", "And with 1?"):
            here.client.responses.create(
                model="rubricem", input=question, previous_response_id=first.id
            )
        listed = here.desk.conversations.listed().conversations
    assert sorted(len(conversation.runs) for conversation in listed) == [2, 2]


def test_a_list_of_messages_is_read_as_a_dialogue(tmp_path: Path) -> None:
    asked: list[Any] = [
        {"role": "user", "content": "Who are you?"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "A stranger."}]},
        {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
    ]
    with openai_served([*RUN, SUPPORTED], tmp_path) as here:
        here.client.responses.create(model="rubricem", input=asked, instructions="Be brief.")
        said = contents(here.model.requests[0].body)[1][1]
    assert said.startswith(QUESTION) and "Assistant: A stranger." in said


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with client([], tmp_path_factory.mktemp("idle")) as made:
        yield made


@pytest.mark.parametrize(
    ("fields", "said", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools is not supported", "tools"),
        ({"background": True}, "background is not supported", "background"),
        ({"conversation": "conv_1"}, "use previous_response_id", "conversation"),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
            "must be text",
            "text.format",
        ),
        (
            {"previous_response_id": "resp_nothing"},
            "There is no response",
            "previous_response_id",
        ),
        ({"previous_response_id": "other"}, "There is no response", "previous_response_id"),
        ({"input": []}, "must be the user's", "input"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "only text is read",
            "input.0.content",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]},
            "'function_call_output' is not supported",
            "input.0",
        ),
    ],
)
def test_what_is_not_supported_is_a_clear_bad_request(
    fields: dict[str, Any], said: str, param: str, idle: OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        idle.responses.create(**{"model": "rubricem", "input": QUESTION, **fields})
    assert said in str(refused.value)
    assert refused.value.param == param


def test_a_response_that_there_is_not_is_not_found(idle: OpenAI) -> None:
    for name in ("resp_nothing", "other"):
        with pytest.raises(openai.NotFoundError, match="There is no response"):
            idle.responses.retrieve(name)


def test_a_run_that_failed_is_an_error_or_an_event(tmp_path: Path) -> None:
    with client([Fault(401), Fault(401)], tmp_path) as made:
        with pytest.raises(openai.InternalServerError, match="wants an API key"):
            made.responses.create(model="rubricem", input=QUESTION)
        events: list[Any] = list(
            made.responses.create(model="rubricem", input=QUESTION, stream=True)
        )
    assert events[-1].type == "response.failed"
    assert "wants an API key" in events[-1].response.error.message
    EVENT.validate_python(events[-1].model_dump())


def test_a_report_that_a_budget_cut_is_incomplete(tmp_path: Path) -> None:
    with client([*RUN, SUPPORTED], tmp_path) as made:
        cut = made.responses.create(
            model="rubricem",
            input=QUESTION,
            extra_body={"rubricem": {"max_total_tokens": 130}},
        )
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
