"""Asking for JSON: what is read, what is said back, and what is counted."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

from rubricem.memory.asking import ask_json, json_objects, parsed, spent, written_schema
from rubricem.memory.errors import JudgeError, PolicyError
from rubricem.memory.interfaces import Completion, Message
from tests.support.policies import client
from tests.support.scripted_server import Fault, Reply, ScriptedServer


class Item(BaseModel):
    name: str = Field(min_length=1, max_length=9)
    points: int = Field(ge=0, le=2)


class Items(BaseModel):
    """What is asked for."""

    items: list[Item]


GOOD = json.dumps({"items": [{"name": "a", "points": 2}]})
ASKED = [Message("system", "Judge."), Message("user", "It.")]


def of(text: str) -> Items:
    return parsed(Completion(text, "eos"), Items)


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
        ("I cannot help with that.", "no JSON object"),
        ("Bewertung: zwei Punkte", "no JSON object"),
        (GOOD[:-3], "malformed"),
        (GOOD.replace('"a"', "a"), "malformed"),
        (GOOD.replace("2", "NaN"), "NaN is no number"),
        (GOOD.replace("2", "3"), "items.0.points: Input should be less than or equal to 2"),
        ("[]", "no JSON object"),
        ('{"a":' * 5000, "malformed|recursion"),
    ],
)
def test_what_is_wrong_is_said(text: str, fault: str):
    with pytest.raises(ValueError, match=fault):
        of(text)


def test_a_reply_cut_off_by_its_length_is_told_so():
    with pytest.raises(ValueError, match="write less"):
        parsed(Completion(GOOD[:-3], "length"), Items)


def test_objects_inside_others_are_not_taken_for_the_reply():
    assert list(json_objects('{"a": {"b": 1}} {x} {"c": 2}')) == [{"a": {"b": 1}}, {"c": 2}]


def test_the_schema_names_fields_and_types_but_no_bounds():
    assert json.loads(written_schema(Items)) == {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/Item"}}},
        "required": ["items"],
        "$defs": {
            "Item": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "points": {"type": "integer"}},
                "required": ["name", "points"],
            }
        },
    }


async def test_the_model_is_told_its_fault_and_every_call_is_counted():
    with ScriptedServer(["none", GOOD]) as server:
        async with client(server.base_url) as chat:
            value, used = await ask_json(chat, ASKED, Items)
    assert value.items[0].name == "a"
    assert (used.calls, used.prompt_tokens, used.completion_tokens) == (2, 200, 40)
    first, second = (request.body for request in server.requests)
    assert first["response_format"]["json_schema"]["schema"] == json.loads(written_schema(Items))
    assert [m["content"] for m in second["messages"][2:]] == [
        "none",
        "That reply cannot be used (there is no JSON object in it). "
        "Write the whole JSON object again.",
    ]
    assert first["seed"] != second["seed"]


async def test_failure_after_bounded_tries_carries_what_was_paid():
    with ScriptedServer(lambda body, number: "no") as server:
        async with client(server.base_url) as chat:
            with pytest.raises(JudgeError, match="no usable JSON in 3 tries") as caught:
                await ask_json(chat, ASKED, Items)
    assert len(server.requests) == 3
    assert spent(caught.value).prompt_tokens == 300


async def test_a_server_that_goes_down_between_tries_still_leaves_a_bill():
    with ScriptedServer(["no", Fault(400, "gone")]) as server:
        async with client(server.base_url) as chat:
            with pytest.raises(PolicyError, match="gone") as caught:
                await ask_json(chat, ASKED, Items)
    assert (spent(caught.value).calls, spent(caught.value).prompt_tokens) == (1, 100)


async def test_an_empty_reply_is_paid_for_and_tried_again_by_the_client():
    with ScriptedServer([Reply(""), GOOD]) as server:
        async with client(server.base_url) as chat:
            _, used = await ask_json(chat, ASKED, Items)
    assert used.prompt_tokens == 200


@pytest.mark.parametrize(
    "complaint", ["response_format is not supported", "Invalid schema for response_format 'reply'"]
)
async def test_a_server_that_refuses_schemas_is_asked_without(complaint: str):
    def answer(body: dict[str, Any], number: int) -> Fault | str:
        return Fault(400, complaint) if "response_format" in body else GOOD

    with ScriptedServer(answer) as server:
        async with client(server.base_url) as chat:
            value, _ = await ask_json(chat, ASKED, Items)
            await ask_json(chat, ASKED, Items)
    assert value.items[0].points == 2
    assert len(server.requests) == 3, "it is refused once, not at every call"
