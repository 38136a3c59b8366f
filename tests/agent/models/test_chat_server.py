"""One model on one server: what is asked, what is heard, what is told of what goes wrong."""

import asyncio
import json
import logging
import threading
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from rubricem.agent.models import model_server
from rubricem.agent.models.chat_server import OpenAIChat
from rubricem.agent.models.limits import Limiter, Retry
from rubricem.agent.models.opening import ServerChoice
from rubricem.agent.models.turns import own_functions
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.schema import Completion, Message, OnText, Sampling, StopPredicate, Usage
from tests.support.policies import ASKED, KEY, SAMPLING, client
from tests.support.scripted_server import Fault, Hang, Reply, Script, Scripted, ScriptedServer
from tests.support.waiting import PATIENCE

OWN_PRICE = {"scripted": (1.0, 0.5, 4.0)}
CUT = Reply("half of a reply that never ends", cut_after=2)


@asynccontextmanager
async def serving(
    script: Script, **options: Any
) -> AsyncIterator[tuple[ScriptedServer, OpenAIChat]]:
    with ScriptedServer(script) as server:
        async with client(server.base_url, **options) as chat:
            yield server, chat


async def replied(
    script: Script,
    sampling: Sampling = SAMPLING,
    stop: StopPredicate | None = None,
    on_text: OnText | None = None,
    **options: Any,
) -> Completion:
    """The one reply that the script leads to."""
    async with serving(script, **options) as (_, chat):
        return await chat.chat(ASKED, sampling, stop, on_text)


async def failure(script: Script, **options: Any) -> PolicyError:
    """The PolicyError that the script leads to."""
    with pytest.raises(PolicyError) as caught:
        await replied(script, **options)
    return caught.value


def after(tag: str) -> StopPredicate:
    """A predicate that ends the text right after `tag`."""
    return lambda text: text.index(tag) + len(tag) if tag in text else None


async def test_a_reply_arrives_whole_and_piece_by_piece() -> None:
    pieces: list[str] = []
    reply = await replied(["The least recently used entry."], on_text=pieces.append)
    assert (reply.text, reply.stop_reason) == ("The least recently used entry.", "eos")
    assert pieces == ["The leas", "t recent", "ly used ", "entry."]
    for told in ("length", "MAX_TOKENS", "model_length"):
        cut = await replied([Reply("The least", finish=told)])
        assert cut.stop_reason == "length", "a spent limit of tokens is told"


async def test_the_request_carries_messages_and_sampling_but_no_stop() -> None:
    async with serving(["fine"]) as (server, chat):
        await chat.chat(ASKED, Sampling(max_tokens=7, temperature=0.2, top_p=0.9, seed=3))
    sent = server.requests[0].body
    assert sent["messages"][1] == {"role": "user", "content": "What is evicted first?"}
    assert (sent["max_tokens"], sent["temperature"], sent["top_p"]) == (7, 0.2, 0.9)
    assert sent["seed"] == 3
    assert not {"stop", "min_p", "grammar", "dry_multiplier", "logprobs"} & sent.keys()
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_without_a_key_none_is_sent_not_even_one_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-another-server")
    async with serving(["fine"], api_key=None) as (server, chat):
        await chat.chat(ASKED, SAMPLING)
    assert "authorization" not in server.requests[0].headers


async def test_a_password_in_the_address_is_sent_as_a_header_and_shown_nowhere() -> None:
    with ScriptedServer(["fine"]) as server:
        address = server.base_url.replace("//", "//ann:hunter2@")
        async with client(address, api_key=None) as chat:
            await chat.chat(ASKED, SAMPLING)
            assert "hunter2" not in repr(chat) + chat.name
    assert server.requests[0].headers["authorization"] == "Basic YW5uOmh1bnRlcjI="
    async with client("http://LOCALHOST:8080/v1/") as chat:
        assert chat.name == "scripted@localhost:8080"


@pytest.mark.parametrize(
    ("fault", "away"),
    [(Fault(503), True), (Fault(429), True), (Fault(401), False), (Fault(400), False), ("", False)],
)
async def test_a_server_that_serves_nobody_is_told_from_one_that_refuses_a_call(
    fault: Scripted, away: bool
) -> None:
    assert (await failure([fault] * 4)).away == away


async def test_the_predicate_ends_the_text_at_its_offset_also_inside_a_piece() -> None:
    pieces: list[str] = []
    script = [Reply(pieces=["<call>", "evict</ca", "ll> and a made-up result"])]
    reply = await replied(script, stop=after("</call>"), on_text=pieces.append)
    assert (reply.text, reply.stop_reason) == ("<call>evict</call>", "stop")
    assert "".join(pieces) == reply.text


@pytest.mark.parametrize(
    "rest",
    [
        {"pieces": ["done</call>", *(f"and {n} " for n in range(100_000))], "piece_seconds": 0.002},
        {"pieces": ["done</call>"], "hang_after": 1},
    ],
    ids=["writes on", "falls silent"],
)
async def test_a_model_is_not_waited_for_once_the_predicate_was_met(rest: dict[str, Any]) -> None:
    start = time.monotonic()
    got = await replied([Reply(**rest)], stop=after("</call>"))
    assert time.monotonic() - start < 60
    assert got.text == "done</call>"
    used = Usage(prompt_tokens=11, completion_tokens=4, calls=1)
    assert got.usage == used, "usage that never came is estimated, and its cost unknown"


async def test_endless_repetition_is_cut_off() -> None:
    reply = await replied([Reply(pieces=["the same again, "], endless=True)])
    assert reply.stop_reason == "repetition"
    assert 240 <= len(reply.text) < 400


async def test_usage_and_cost_are_those_of_the_server_and_the_table() -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 600},
    }
    got = (await replied([Reply("fine", usage=usage)], prices=OWN_PRICE)).usage
    assert (got.prompt_tokens, got.cached_tokens, got.completion_tokens) == (1000, 600, 50)
    assert got.cost == pytest.approx((400 * 1.0 + 600 * 0.5 + 50 * 4.0) / 1e6)
    assert got.calls == 1
    unknown = await replied([Reply("fine", usage=None)])
    assert unknown.usage == Usage(prompt_tokens=11, completion_tokens=2, calls=1)


@pytest.mark.parametrize(
    "ends",
    [
        Reply("fine", usage=None),
        Reply("fine", pieces=["fine"] * 999),
        Reply("fine", usage={"prompt_tokens": -9000, "completion_tokens": -1}),
        Reply("fine", usage={"prompt_tokens": None, "completion_tokens": 0}),
        Reply("fine", usage={"prompt_tokens": 1e300, "completion_tokens": "2"}),
        Reply("fine", usage=[1, 2]),
    ],
)
async def test_what_costs_money_and_is_not_told_is_reckoned_at_three_bytes_a_token(
    ends: Reply,
) -> None:
    # The messages have 9 and 22 bytes, the reply 4: 11 tokens and 2.
    got = await replied([ends], stop=after("fine"), prices=OWN_PRICE)
    assert got.text == "fine"
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (11, 2)
    assert got.usage.cost == pytest.approx((11 * 1.0 + 2 * 4.0) / 1e6)


@pytest.mark.parametrize(
    ("fault", "dropped", "instead"),
    [
        (Fault(400, "Unknown parameter: 'stream_options'."), "stream_options", {}),
        (Fault(400, "unrecognized: include_usage"), "stream_options", {}),
        (Fault(422, body='{"detail":[{"loc":["body","seed"],"msg":"Extra inputs"}]}'), "seed", {}),
        (
            Fault(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            "max_tokens",
            {"max_completion_tokens": 64},
        ),
    ],
)
async def test_a_refused_parameter_is_left_out_or_renamed_at_once_and_from_then_on(
    fault: Fault, dropped: str, instead: dict[str, int]
) -> None:
    async with serving([fault, "first", "second"]) as (server, chat):
        asking = Sampling(max_tokens=64, seed=1)
        replies = [(await chat.chat(ASKED, asking)).text for _ in range(2)]
    assert replies == ["first", "second"]
    assert [dropped in request.body for request in server.requests] == [True, False, False]
    assert all(instead.items() <= request.body.items() for request in server.requests[1:])


async def test_think_in_the_text_is_the_scaffolds_own_unless_told_otherwise() -> None:
    thought = "<think>Which one?</think>\n\nLRU."
    shown: list[str] = []
    own = await replied([thought])
    apart = await replied([thought], on_text=shown.append, think_is_reasoning=True)
    assert (own.text, own.reasoning) == (thought, "")
    assert (apart.text, apart.reasoning) == ("LRU.", "Which one?")
    assert "".join(shown) == "LRU."


async def test_the_limiter_bounds_the_calls_in_flight() -> None:
    three = threading.Barrier(3, timeout=PATIENCE)

    def script(body: Any, number: int) -> str:
        three.wait()
        return "fine"

    async with serving(script, limiter=Limiter(3)) as (server, chat):
        await asyncio.gather(*(chat.chat(ASKED, SAMPLING) for _ in range(9)))
    assert server.most_at_once == 3


async def test_a_cancelled_call_frees_its_place() -> None:
    script = [Reply(pieces=["a", "b"], hang_after=1), "fine"]
    async with serving(script, limiter=Limiter(1)) as (_, chat):
        begun = asyncio.Event()
        asking = asyncio.create_task(chat.chat(ASKED, SAMPLING, on_text=lambda _: begun.set()))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await chat.chat(ASKED, SAMPLING)).text == "fine"


async def test_the_only_model_that_a_server_lists_is_asked_and_of_several_one_must_be_named() -> (
    None
):
    with ScriptedServer([], models=["lone"]) as server:
        async with ServerChoice(None, server.base_url).open_chat() as chat:
            assert chat.model == "lone"
    with ScriptedServer([], models=["a", "b"]) as server:
        with pytest.raises(SettingsError, match="lists 2 models: a, b") as told:
            async with ServerChoice(None, server.base_url).open_chat():
                pass
        assert "--model" in told.value.remedy
    with ScriptedServer([], models=None) as server:
        with pytest.raises(SettingsError, match="lists no models") as told:
            async with ServerChoice(None, server.base_url).open_chat():
                pass
        assert "--model" in told.value.remedy


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 400, 401, 403, 404, 422])
async def test_only_a_passing_failure_is_tried_again(status: int) -> None:
    async with serving([Fault(status), Fault(status), "fine"]) as (server, chat):
        if status in (400, 401, 403, 404, 422):
            with pytest.raises(PolicyError):
                await chat.chat(ASKED, SAMPLING)
            assert len(server.requests) == 1
        else:
            reply = await chat.chat(ASKED, SAMPLING)
            assert (reply.text, reply.usage.calls) == ("fine", 1), "a refused try is no call"


async def test_nothing_of_a_cut_attempt_is_kept_but_its_cost() -> None:
    spent = {"prompt_tokens": 10, "completion_tokens": 5}
    broken = Reply("half", usage=spent, error_after={"message": "worker died"})
    script = [CUT, broken, Reply("whole", usage=spent)]
    reply = await replied(script, prices={"scripted": (1, 1, 1)})
    assert reply.text == "whole"
    assert reply.usage.calls == 3
    # The two that broke off told nothing: 31 bytes were read each time, at 3 a token, and what
    # they wrote was "half of a reply " and "half".
    assert reply.usage.prompt_tokens == 11 + 11 + 10
    assert reply.usage.completion_tokens == 6 + 2 + 5
    assert reply.usage.cost == pytest.approx(45 / 1e6)


WORDS = tuple(f"word{number * 7919 % 100_003} " for number in range(20_000))
"""no loop, however long"""


@pytest.mark.parametrize(
    "pieces", [WORDS, [" ".join(WORDS)] * 9, list("".join(WORDS))], ids=["words", "huge", "letters"]
)
async def test_a_turn_ends_where_its_server_heeds_no_limit(pieces: list[str]) -> None:
    reply = await replied([Reply(pieces=pieces, endless=True)])
    assert (reply.stop_reason, reply.usage.calls) == ("length", 1)
    assert len(reply.text) <= 8 * (SAMPLING.max_tokens + 512)


@pytest.mark.parametrize(
    ("script", "told", "remedy"),
    [
        ([CUT] * 4, "broke off in the middle of a reply, after 4 tries", "server's log"),
        ([""] * 4, "sent an empty reply", ""),
        (
            [Reply("", reasoning="hm " * 9, finish="length")],
            "spent all its 64 tokens on thinking",
            "max_tokens",
        ),
        ([Reply("no", finish="content_filter")], "content filter", ""),
        ([Fault(429, "at noon")] * 4, "limits its callers (429): at noon, after 4", "fewer calls"),
        ([Fault(429, "You exceeded your current quota", "insufficient_quota")], "no quota", ""),
        ([Fault(500, "CUDA out of memory")] * 4, "failed: CUDA out of memory", ""),
        ([Fault(500, body="")] * 4, "failed: for no reason that it tells (500)", ""),
        ([Fault(403, body="<html>Who are you?")], "sent a web page", "a proxy"),
        ([Fault(200, body="data: <html>\n\n")] * 4, "not an OpenAI-compatible", "/v1"),
        ([Fault(200, body="x" * 5000)] * 4, "not an OpenAI-compatible", "/v1"),
        ([Fault(200, body="No seat is left")] * 4, "completion: No seat is left, after 4", "/v1"),
        ([Fault(200, body='{"code": 1113, "msg": "no balance"}')] * 4, "no balance", ""),
        ([Fault(404, "You have no access")], "rejected the request (404): You have no", ""),
        ([Fault(502, body="<html><h1>502 Bad Gateway</h1>")] * 4, "failed: 502 Bad Gateway (", ""),
        *(
            ([full], "no longer fits the context length", "longer context")
            for full in (
                Fault(400, "too long", "context_length_exceeded"),
                Fault(400, "the request exceeds the available context size, try increasing it"),
                Reply("a", error_after={"message": "maximum context length is 4096", "code": 400}),
            )
        ),
    ],
)
async def test_a_failure_is_told_by_what_it_stands_for(
    script: Script, told: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_server, "MOST_BYTES", 4000)
    error = await failure(script)
    assert told in str(error) and remedy in error.remedy


async def test_a_pause_that_is_asked_for_is_waited_out_by_all_callers() -> None:
    """The other calls, not yet begun, reach the server only after the pause."""

    def script(body: object, n: int) -> Reply | Fault:
        return Fault(429, headers={"retry-after-ms": "300"}) if n == 0 else Reply("fine")

    async with serving(script, limiter=Limiter(1)) as (server, chat):
        await asyncio.gather(*(chat.chat(ASKED, SAMPLING) for _ in range(4)))
    first, *later = [request.at for request in server.requests]
    assert len(later) == 4
    assert min(later) - first >= 0.3


async def test_a_retry_after_beyond_patience_is_an_error_at_once() -> None:
    start = time.monotonic()
    async with serving([Fault(429, headers={"Retry-After": "3600"}), "fine"]) as (_, chat):
        with pytest.raises(PolicyError, match=r"(?m)limits its callers \(429\): scripted fault$"):
            await chat.chat(ASKED, SAMPLING)
        assert (await chat.chat(ASKED, SAMPLING)).text == "fine", "others are not held up"
    assert time.monotonic() - start < 60


async def test_a_proxy_of_the_environment_is_not_asked_for_a_server_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedServer(["by proxy"]) as proxy, ScriptedServer(["directly"]) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url.removesuffix("/v1"))
        monkeypatch.setenv("NO_PROXY", "")
        async with client("http://models.invalid/v1") as far, client(server.base_url) as near:
            assert (await far.chat(ASKED, SAMPLING)).text == "by proxy"
            assert (await near.chat(ASKED, SAMPLING)).text == "directly"


@pytest.mark.parametrize(
    ("fault", "key", "told"),
    [
        (Fault(401, f"bad key {KEY}"), KEY, "refused the API key"),
        (Fault(401), None, "requires an API key and none is set"),
        (Fault(400, f"malformed header Bearer {KEY}"), KEY, "malformed header Bearer [key]"),
        (
            Fault(400, f"\x1b]0;owned\x07no \x1b[31mred\u202e {KEY[:5]}\x1b[0m{KEY[5:]}"),
            KEY,
            "rejected the request (400): no red [key]",
        ),
    ],
    ids=["refused", "missing", "repeated", "what a terminal would obey"],
)
async def test_a_refusal_is_quoted_without_the_key_and_names_its_variable_where_that_helps(
    fault: Fault, key: str | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error = await failure([fault], api_key=key)
    assert told in str(error)
    shown = "".join(traceback.format_exception(error)) + error.remedy + caplog.text
    assert KEY not in shown and not {"\x1b", "\x07", "\u202e"} & set(str(error))


@pytest.mark.parametrize(
    "reply",
    [Hang(), Reply("abc", hang_after=0), Reply("abc", hang_after=0, comments_every=0.02)],
    ids=["no response", "no token", "only comments"],
)
async def test_a_silent_server_is_given_up_after_the_timeout(reply: Hang | Reply) -> None:
    start = time.monotonic()
    error = await failure([reply], timeout=0.2, retry=Retry(tries=1))
    assert 0.2 <= time.monotonic() - start < 60
    assert "sent nothing for 0.2 s" in str(error)


def whole(message: dict[str, Any], **more: Any) -> Fault:
    """A completion in one JSON value, of a server that does not stream."""
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return Fault(200, body=json.dumps({"choices": [choice], **more}, indent=1))


def body(*lines: str, kind: str = "text/event-stream") -> Fault:
    """A reply of exactly these lines."""
    return Fault(200, body="\n".join(lines), headers={"Content-Type": kind})


BEES = '{"choices": [{"delta": {"content": "Bees."}}]}'
END = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}'
CALLED = {"function": {"name": "search", "arguments": {"query": "bees"}}}
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"text": "Bees."}]


@pytest.mark.parametrize(
    ("reply", "text", "reasoning"),
    [
        (whole({"content": "Bees."}), "Bees.", ""),
        (whole({"content": "Bees.", "reasoning": "Hm."}), "Bees.", "Hm."),
        (whole({"content": None, "refusal": "Bees."}), "Bees.", ""),
        (whole({"content": PARTS}), "Bees.", "Hm."),
        (Reply(pieces=[PARTS[:1], PARTS[1:]]), "Bees.", "Hm."),
        (Reply(pieces=["Be", [{"type": "text", "text": "es."}], None]), "Bees.", ""),
        (body(f"data: {BEES}", "data: [DONE]"), "Bees.", ""),
        (body(": hm", "event: message\r", f"data:{BEES}\r", "\r", "data:[DONE]\r"), "Bees.", ""),
        (body("data: null", "data: [3]", "data: hello", f"data: {BEES}", END), "Bees.", ""),
        (body(BEES, END.removeprefix("data: ")), "Bees.", ""),
        (body("\ufeffdata: " + BEES, END, kind="application/json"), "Bees.", ""),
        (body(json.dumps(json.loads(whole({"content": "Bees."}).body), indent=1)), "Bees.", ""),
        (whole({"content": None, "tool_calls": [CALLED]}), "bees", ""),
        (Reply(calls=[{"index": 0, **CALLED}], finish="tool_calls"), "bees", ""),
    ],
)
async def test_a_reply_is_read_in_whatever_shape_it_comes(
    reply: Scripted, text: str, reasoning: str
) -> None:
    got = await replied([reply])
    if text == "bees":
        call = json.loads(got.text.strip().removeprefix("<tool_call>").removesuffix("</tool_call>"))
        assert call["name"] == "search" and json.loads(call["arguments"]) == {"query": "bees"}
    else:
        assert (got.text, got.stop_reason, got.reasoning) == (text, "eos", reasoning)


HTML = Fault(200, body="<!DOCTYPE html><p>Log in", headers={"Content-Type": "text/html"})


@pytest.mark.parametrize(
    ("fault", "told", "tries"),
    [
        (HTML, "sent a web page", 1),
        (Fault(200, "the model is not supported"), "the model is not supported", 1),
        (Fault(200, "worker lost its mind"), "worker lost its mind", 4),
        (Reply(error_after={"message": "invalid prompt"}, pieces=[]), "invalid prompt", 1),
        (Fault(200, body='{"detail": "no such adapter: invalid"}'), "no such adapter", 1),
        (Fault(200, body='{"error": {"message": "who?", "code": 401}}'), "refused the API key", 1),
        (Fault(429, "Request too large: Limit 10, Requested 90"), "Limit 10, Requested 90", 1),
        (Fault(413, "Payload"), "Payload", 1),
    ],
)
async def test_what_comes_in_place_of_a_reply_is_quoted_and_asked_again_only_if_it_may_help(
    fault: Scripted, told: str, tries: int
) -> None:
    async with serving([fault] * 4) as (server, chat):
        with pytest.raises(PolicyError, match=told):
            await chat.chat(ASKED, SAMPLING)
        assert len(server.requests) == tries


@pytest.mark.parametrize(
    "said", ["jinja: System role not supported", "Developer instruction is not enabled for gemma"]
)
async def test_a_template_without_a_system_role_gets_it_in_the_first_user_message(
    said: str,
) -> None:
    def script(body: Any, number: int) -> Scripted:
        named = [message["role"] for message in body["messages"]]
        return Fault(500, said) if "system" in named else "fine"

    async with serving(script) as (server, chat):
        for _ in range(2):
            assert (await chat.chat(ASKED, SAMPLING)).text == "fine"
        assert len(server.requests) == 3, "it is learnt once"
    [sent] = server.requests[-1].body["messages"]
    assert sent["content"] == "Be brief.\n\nWhat is evicted first?"


LONG = [Message("system", "Be brief."), Message("user", "word " * 800)]


@pytest.mark.parametrize(
    ("complaint", "least", "most"),
    [
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5100 tokens"
            " (1100 in the messages, 4000 in the completion).", 2900, 2996,
        ),
        (
            "'max_tokens' is too large: 4000. This model's maximum context length is 4096 tokens "
            "and your request has 1,100 input tokens (4000 > 4096 - 1100).", 2900, 2996,
        ),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 1100 `inputs` tokens and 4000"
         " `max_new_tokens`", 2900, 2996),
        ("input length and `max_tokens` exceed context limit: 1100 + 4000 > 4096", 2900, 2996),
        ("max_tokens is too large: 4000. This model supports at most 2048 completion tokens, "
         "whereas you provided 4000.", 2048, 2048),
        ("`max_tokens` must be less than or equal to `2048`", 2048, 2048),
        ("the request exceeds the context window of 4096", 2900, 3100),
    ],
)  # fmt: skip
async def test_a_reply_that_may_not_be_so_long_is_asked_for_shorter_once(
    complaint: str, least: int, most: int
) -> None:
    def script(body: Any, number: int) -> Scripted:
        return Fault(400, complaint) if body["max_tokens"] > 3100 else "fine"

    async with serving(script) as (server, chat):
        for _ in range(2):
            await chat.chat(LONG, Sampling(max_tokens=4000))
        sent = [request.body["max_tokens"] for request in server.requests]
    assert len(sent) == 3 and sent[0] == 4000 and sent[1] == sent[2]
    assert least <= sent[1] <= most


async def test_a_prompt_that_fills_the_window_is_asked_once_more_at_most() -> None:
    complaint = "maximum context length is 900 tokens, your prompt has 1000"
    async with serving([Fault(400, complaint)] * 3) as (server, chat):
        with pytest.raises(PolicyError, match="900 tokens") as failed:
            await chat.chat(LONG, Sampling(max_tokens=4000))
        assert failed.value.kind == "context" and len(server.requests) <= 2


async def test_what_a_user_adds_stands_in_every_body_until_it_is_refused() -> None:
    extra = {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}
    script = [Fault(400, "unknown parameter: reasoning_effort"), "fine", "fine"]
    async with serving(script, extra_body=extra) as (server, chat):
        for _ in range(2):
            await chat.chat(ASKED, SAMPLING)
        first, *later = [request.body for request in server.requests]
    assert extra.items() <= first.items()
    assert all("reasoning_effort" not in body for body in later)
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in later)


TOOLS = json.dumps(own_functions(pages=True))
LISTED = {"id": "scripted", "supported_parameters": ["max_tokens", "tools"]}


@pytest.mark.parametrize(
    ("listed", "props", "sent"),
    [
        (LISTED, None, True),
        ({"id": "scripted", "capabilities": {"function_calling": True}}, None, True),
        ({"id": "scripted", "capabilities": ["tool_use"]}, None, True),
        ({"id": "scripted", "owned_by": "llamacpp"}, {"supports_tool_calls": True}, True),
        ({"id": "scripted", "owned_by": "llamacpp"}, {"supports_tool_calls": False}, False),
        ({"id": "scripted", "owned_by": "llamacpp"}, None, False),
        ({"id": "scripted", "capabilities": {"function_calling": False}}, None, False),
        ({"id": "another", "supported_parameters": ["tools"]}, None, False),
        ({"id": "scripted", "capabilities": 7}, None, False),
        ("scripted", None, False),
        (None, None, False),
    ],
)
async def test_tools_are_sent_where_the_server_says_that_it_calls_some(
    listed: Any, props: dict[str, bool] | None, sent: bool
) -> None:
    told = props and {"chat_template_caps": props}
    with ScriptedServer(["one", "two"], listed and [listed], told) as server:
        async with client(server.base_url) as chat:
            await chat.chat(ASKED, replace(SAMPLING, tools=TOOLS))
            await chat.chat(ASKED, replace(SAMPLING, tools=TOOLS))
            looked_up = list(server.looked_up)
    named = [tool["function"]["name"] for tool in server.requests[1].body.get("tools", ())]
    assert named == (["search", "open_page"] if sent else [])
    assert looked_up.count("/v1/models") == 1, "it is asked once"


@pytest.mark.parametrize(
    "words",
    [
        "scripted does not support tools",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "Unable to generate parser for this template.",
    ],
)
async def test_tools_that_a_server_refuses_are_left_out_from_then_on(words: str) -> None:
    with ScriptedServer([Fault(400, words), "one", "two"], [LISTED]) as server:
        async with client(server.base_url) as chat:
            for text in ("one", "two"):
                assert (await chat.chat(ASKED, replace(SAMPLING, tools=TOOLS))).text == text
    assert ["tools" in request.body for request in server.requests] == [True, False, False]


@pytest.mark.parametrize(
    ("told", "cached"),
    [
        ({"prompt_tokens": 200}, (0, 88, 0)),
        ({"prompt_tokens": 200, "prompt_tokens_details": None}, (0, 88, 0)),
        ({"prompt_tokens": 200, "prompt_cache_hit_tokens": 0}, (0, 0, 0)),
        ({"prompt_tokens": 200, "prompt_tokens_details": {"cached_tokens": 5}}, (5, 5, 5)),
        (None, (0, 14, 0)),
    ],
)
async def test_what_was_sent_before_counts_as_cached_where_the_server_does_not_say(
    told: dict[str, Any] | None, cached: tuple[int, ...]
) -> None:
    first = [Message("system", "s" * 22), Message("user", "u" * 22)]
    then = [*first, Message("assistant", "a" * 28), Message("user", "v" * 28)]
    async with serving([Reply("x", usage=told)] * 3, prices={"scripted": (3.0, 1.0, 0.0)}) as (
        _,
        chat,
    ):
        used = [(await chat.chat(each, SAMPLING)).usage for each in (first, then, then[1:])]
    assert tuple(each.cached_tokens for each in used) == cached
    # What is not said to be cached is paid for in full.
    saved = 2.0 * (cached[0] and cached[1])
    assert used[1].cost == pytest.approx((3.0 * used[1].prompt_tokens - saved) / 1e6)
