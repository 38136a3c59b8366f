"""Asking for JSON: what is read, what is said back, and what is counted."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

from rubricem.memory.asking import (
    Numbered,
    Verdicts,
    ask_json,
    json_objects,
    parse_reply,
    unbounded_schema,
    usage_of_error,
)
from rubricem.memory.errors import JudgeError, PolicyError
from rubricem.memory.schema import Completion, Message
from tests.support.policies import chatting
from tests.support.scripted_server import Fault, Reply


class Item(BaseModel):
    name: str = Field(min_length=1, max_length=9)
    points: int = Field(ge=0, le=2)


class Items(BaseModel):
    """What is asked for."""

    items: list[Item]


GOOD = json.dumps({"items": [{"name": "a", "points": 2}]})
ASKED = [Message("system", "Judge."), Message("user", "It.")]


def of(text: str) -> Items:
    return parse_reply(Completion(text, "eos"), Items)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Let me think {{aloud}}. {GOOD} That is all {{really}}.",
        f'I was told to write {{"items": "..."}} so: {GOOD}',
    ],
)
def test_json_is_read_whatever_stands_around_it(text: str):
    assert of(text).items[0].points == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no JSON object"),
        (GOOD[:-3], "malformed"),
        (GOOD.replace("2", "NaN"), "NaN is no number"),
        (GOOD.replace("2", "3"), "items.0.points: Input should be less than or equal to 2"),
        ("[]", "no JSON object"),
        ('{"a":' * 5000, "malformed|recursion"),
    ],
)
def test_what_is_wrong_is_said(text: str, fault: str):
    with pytest.raises(ValueError, match=fault):
        of(text)


def test_a_list_of_names_of_fields_in_a_wrapper_holds_no_fields():
    with pytest.raises(ValueError, match="valid dictionary"):
        parse_reply(Completion('{"reply": ["verdicts", "id"]}', "eos"), Verdicts[Numbered])


def test_a_whole_object_is_the_reply_and_one_cut_off_is_told_to_be_shorter():
    with pytest.raises(ValueError, match="write less"):
        parse_reply(Completion(GOOD[:-3], "length"), Items)
    assert list(json_objects('{"a": {"b": 1}} {x} {"c": 2}')) == [{"a": {"b": 1}}, {"c": 2}]


async def test_the_model_is_told_its_fault_and_every_call_is_counted():
    async with chatting(["none", GOOD]) as (chat, server):
        value, used = await ask_json(chat, ASKED, Items)
    assert value.items[0].name == "a"
    assert (used.calls, used.prompt_tokens, used.completion_tokens) == (2, 200, 40)
    first, second = (request.body for request in server.requests)
    assert first["response_format"]["json_schema"]["schema"] == json.loads(unbounded_schema(Items))
    assert [m["content"] for m in second["messages"][2:]] == [
        "none",
        "That reply cannot be used (there is no JSON object in it). "
        "Write the whole JSON object again.",
    ]
    assert first["seed"] != second["seed"]


async def test_every_call_is_paid_for_whatever_becomes_of_it():
    async with chatting(lambda body, number: "no") as (chat, server):
        with pytest.raises(JudgeError, match="no usable JSON in 3 tries") as caught:
            await ask_json(chat, ASKED, Items)
    assert len(server.requests) == 3
    assert usage_of_error(caught.value).prompt_tokens == 300
    async with chatting(["no", Fault(400, "gone")]) as (chat, _):
        with pytest.raises(PolicyError, match="gone") as caught:
            await ask_json(chat, ASKED, Items)
    assert (usage_of_error(caught.value).calls, usage_of_error(caught.value).prompt_tokens) == (
        1,
        100,
    )
    async with chatting([Reply(""), GOOD]) as (chat, _):
        _, used = await ask_json(chat, ASKED, Items)
    assert used.prompt_tokens == 200


@pytest.mark.parametrize(
    "complaint", ["response_format is not supported", "Invalid schema for response_format 'reply'"]
)
async def test_a_server_that_refuses_schemas_is_asked_without(complaint: str):
    def answer(body: dict[str, Any], number: int) -> Fault | str:
        return Fault(400, complaint) if "response_format" in body else GOOD

    async with chatting(answer) as (chat, server):
        value, _ = await ask_json(chat, ASKED, Items)
        await ask_json(chat, ASKED, Items)
    assert value.items[0].points == 2
    assert len(server.requests) == 3, "it is refused once, not at every call"
