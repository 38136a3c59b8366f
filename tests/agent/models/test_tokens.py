"""Servers that die, lie about their ids, or leave out what they were asked for.

What each token wrote, told by its own text against the text of the whole reply.
"""

import asyncio
from typing import Any

import pytest

from rubricem.memory.errors import PolicyError
from rubricem.memory.interfaces import Completion, Sampling
from tests.support.token_servers import (
    CHAT,
    Events,
    Failure,
    Json,
    RecordedServer,
    changed,
    maybe_opened,
    opened,
    recorded,
    without,
)

COMPLETIONS = "POST /v1/completions"
PROMPT = (151644, 30)
SAMPLING = Sampling(max_tokens=40)
OWN_IDS = ((9, 8, 7), (0, 4, 7))
"""of the recorded tokeniser for `für ` and `<a>`, and where each of them ends"""


def choice(event: Json) -> Json:
    choices = event.get("choices") or [{}]
    first: Json = choices[0]
    return first


async def written_by(routes: dict[str, Any]) -> tuple[Completion, int, int]:
    """What a changed vLLM is made of; replies that were mismatched, and of unknown chance."""
    with RecordedServer(routes) as server:
        async with opened(server, "vllm") as policy:
            return await policy.complete(PROMPT, SAMPLING), policy.mismatched, policy.unknown


def vllm(change: Any = None, **routes: Any) -> dict[str, Any]:
    kept = recorded("vllm")
    events = kept[COMPLETIONS]
    assert isinstance(events, Events)
    return {**kept, COMPLETIONS: changed(events, change) if change else events, **routes}


def is_retokenised(reply: Completion) -> bool:
    ids = (reply.token_ids, reply.token_ends)
    return reply.retokenised and reply.logprobs is None and ids == OWN_IDS


async def test_ids_that_do_not_decode_to_the_text_are_replaced_and_marked(
    caplog: pytest.LogCaptureFixture,
):
    def one_higher(event: Json) -> None:
        if "token_ids" in choice(event):
            choice(event)["token_ids"] = [one + 1 for one in choice(event)["token_ids"]]

    def detokenised(asked: Json) -> Json:
        return {"prompt": "gür <b>"}

    routes = vllm(one_higher) | {"POST /detokenize": detokenised}
    reply, mismatched, unknown = await written_by(routes)
    assert reply.text == "für <a>" and is_retokenised(reply)
    assert (mismatched, unknown) == (1, 0)
    assert "a reply's ids are not its text's" in caplog.text


async def test_a_reply_without_ids_is_retokenised():
    def no_ids(event: Json) -> None:
        choice(event).pop("token_ids", None)

    reply, mismatched, _ = await written_by(vllm(no_ids))
    assert is_retokenised(reply) and mismatched == 1


async def test_a_token_too_few_is_found():
    def second_lost(event: Json) -> None:
        if choice(event).get("token_ids") == [127]:
            choice(event).update(token_ids=[], logprobs=None)

    routes = vllm(second_lost) | {"POST /detokenize": lambda asked: {"prompt": "f\ufffdr <a>"}}
    reply, mismatched, _ = await written_by(routes)
    assert is_retokenised(reply) and mismatched == 1


@pytest.mark.parametrize("left", [None, {"tokens": ["f"], "token_logprobs": [None]}])
async def test_ids_without_logprobs_stand_without_and_are_counted(left: Json | None):
    def nothing(event: Json) -> None:
        if choice(event).get("token_ids") == [69]:
            choice(event)["logprobs"] = left

    reply, mismatched, unknown = await written_by(vllm(nothing))
    assert reply.token_ids == (69, 127, 120, 81, 366, 64, 29)
    assert reply.logprobs is None and not reply.retokenised
    assert reply.token_ends == (1, 1, 2, 3, 5, 6, 7) or left is None
    assert (mismatched, unknown) == (0, 1)


async def test_a_server_that_cannot_decode_is_held_to_what_it_said_of_each_token():
    reply, mismatched, _ = await written_by(without(vllm(), "POST /detokenize"))
    assert reply.token_ids == (69, 127, 120, 81, 366, 64, 29) and mismatched == 0

    def other_words(event: Json) -> None:
        if choice(event).get("token_ids") == [64]:
            choice(event)["logprobs"]["tokens"] = ["z"]

    reply, mismatched, _ = await written_by(without(vllm(other_words), "POST /detokenize"))
    assert is_retokenised(reply) and mismatched == 1


async def test_a_server_that_says_nothing_of_its_ids_is_not_believed():
    def bare(event: Json) -> None:
        if "token_ids" in choice(event):
            choice(event)["logprobs"] = None

    reply, mismatched, _ = await written_by(without(vllm(bare), "POST /detokenize"))
    assert is_retokenised(reply) and mismatched == 1


async def test_a_server_that_dies_in_a_reply_is_asked_again_and_what_was_lost_is_counted():
    whole = vllm()[COMPLETIONS]
    tries = [Events(whole.events[:3], broken=True), whole]
    reply, *_ = await written_by(vllm() | {COMPLETIONS: lambda asked: tries.pop(0)})
    assert reply.token_ids == (69, 127, 120, 81, 366, 64, 29)
    assert (reply.usage.calls, reply.usage.completion_tokens) == (2, 3 + 8)


async def test_a_server_that_always_dies_is_told_with_what_it_cost():
    broken = Events(vllm()[COMPLETIONS].events[:3], broken=True)
    with pytest.raises(PolicyError, match="broke off in the middle of a reply") as raised:
        await written_by(vllm() | {COMPLETIONS: broken})
    assert raised.value.remedy
    assert raised.value.usage is not None
    assert (raised.value.usage.calls, raised.value.usage.completion_tokens) == (3, 9)


async def test_a_refusal_is_told_in_the_servers_words():
    refusal = Failure(400, "This model's maximum context length is 4096 tokens.")
    with pytest.raises(PolicyError, match="no longer fits the context length of qwen"):
        await written_by(vllm() | {COMPLETIONS: refusal})
    with pytest.raises(PolicyError, match=r"rejected the request \(400\): top_k is odd"):
        await written_by(vllm() | {COMPLETIONS: Failure(400, "top_k is odd")})


@pytest.mark.parametrize(
    "event",
    [
        {"object": "chat.completion.chunk"},
        {"choices": [{"text": "a", "token_ids": ["7"]}]},
        {"choices": [{"text": "a", "finish_reason": "abort"}]},
        {"choices": [{"text": None}]},
        ["a"],
    ],
)
async def test_events_of_another_kind_are_told_as_such(event: Any):
    with pytest.raises(PolicyError, match="is not what its kind of server sends") as raised:
        await written_by(vllm() | {COMPLETIONS: Events([event])})
    assert "--dialect openai" in raised.value.remedy


@pytest.mark.parametrize(
    ("field", "value"),
    [("text", "another text"), ("output_ids", [1, 2])],
)
async def test_an_sglang_event_that_contradicts_earlier_ones_is_refused(field: str, value: Any):
    routes = recorded("sglang")
    events = routes["POST /generate"]
    assert isinstance(events, Events)

    def contradict(event: Json) -> None:
        if event["meta_info"]["completion_tokens"] == 6:
            event[field] = value

    with RecordedServer(routes | {"POST /generate": changed(events, contradict)}) as server:
        async with opened(server) as policy:
            with pytest.raises(PolicyError, match="not what its kind of server sends"):
                await policy.complete(PROMPT, SAMPLING)


async def test_a_silent_tokeniser_is_not_waited_for_without_end():
    routes = recorded("vllm")
    with RecordedServer(routes) as server:
        async with maybe_opened(server, timeout=0.2) as policy:
            assert policy is not None
            server.routes["POST /tokenize"] = lambda asked: asyncio.run(asyncio.sleep(1.0)) or {}
            with pytest.raises(PolicyError, match=r"sent nothing for 0\.2 s"):
                await policy.render(CHAT)


async def test_endless_repetition_is_cut_off():
    again = {"choices": [{"text": "again ", "token_ids": [5]}]}
    detokenised = {"POST /detokenize": lambda asked: {"prompt": "again " * len(asked["tokens"])}}
    routes = vllm() | detokenised | {COMPLETIONS: Events([again] * 400)}
    reply, mismatched, _ = await written_by(routes)
    assert reply.stop_reason == "repetition" and mismatched == 0
    assert len(reply.token_ids or ()) * 6 == len(reply.text) < 500
