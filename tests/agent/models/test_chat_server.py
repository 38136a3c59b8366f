import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchmarks.loopback import TURNS, Counts, Loopback, next_turn, pieces
from rubricem.agent.models.chat_server import (
    OpenAIChat,
    delta_of,
    only_model,
)
from rubricem.agent.models.limits import Limiter
from rubricem.agent.models.prices import Prices
from rubricem.agent.models.reading import Delta
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.interfaces import Message, Sampling, StopPredicate
from rubricem.memory.schema import Usage
from tests.support.policies import ASKED, KEY, SAMPLING, client
from tests.support.scripted_server import Fault, Reply, ScriptedServer
from tests.support.waiting import PATIENCE

OWN_PRICE = {"scripted": (1.0, 0.5, 4.0)}


def after(tag: str) -> StopPredicate:
    """A predicate that ends the text right after `tag`."""
    return lambda text: text.index(tag) + len(tag) if tag in text else None


async def test_a_reply_arrives_whole_and_piece_by_piece() -> None:
    pieces: list[str] = []
    with ScriptedServer(["The least recently used entry."]) as server:
        async with client(server.base_url) as chat:
            reply = await chat.chat(ASKED, SAMPLING, on_text=pieces.append)
    assert reply.text == "The least recently used entry."
    assert reply.stop_reason == "eos"
    assert pieces == ["The leas", "t recent", "ly used ", "entry."]


async def test_the_request_carries_messages_and_sampling_but_no_stop() -> None:
    with ScriptedServer(["fine"]) as server:
        async with client(server.base_url) as chat:
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
    with ScriptedServer(["fine"]) as server:
        async with client(server.base_url, api_key=None) as chat:
            await chat.chat(ASKED, SAMPLING)
    assert "authorization" not in server.requests[0].headers


async def test_a_password_in_the_address_is_sent_as_a_header_and_shown_nowhere() -> None:
    with ScriptedServer(["fine"]) as server:
        address = server.base_url.replace("//", "//ann:hunter2@")
        async with client(address, api_key=None) as chat:
            await chat.chat(ASKED, SAMPLING)
            assert "hunter2" not in repr(chat) + chat.name
    assert server.requests[0].headers["authorization"] == "Basic YW5uOmh1bnRlcjI="


async def test_the_name_is_model_at_host() -> None:
    async with client("http://LOCALHOST:8080/v1/") as chat:
        assert chat.name == "scripted@localhost:8080"


async def test_the_predicate_ends_the_text_at_its_offset_also_inside_a_piece() -> None:
    pieces: list[str] = []
    script = [Reply(pieces=["<call>", "evict</ca", "ll> and a made-up result"])]
    with ScriptedServer(script) as server:
        async with client(server.base_url) as chat:
            reply = await chat.chat(ASKED, SAMPLING, after("</call>"), pieces.append)
    assert reply.text == "<call>evict</call>"
    assert reply.stop_reason == "stop"
    assert "".join(pieces) == reply.text


async def test_a_model_that_ends_where_the_predicate_does_tells_its_usage() -> None:
    with ScriptedServer(["<call>evict</call>", "again</call>"]) as server:
        async with client(server.base_url, prices=Prices(OWN_PRICE)) as chat:
            reply = await chat.chat(ASKED, SAMPLING, after("</call>"))
            await chat.chat(ASKED, SAMPLING, after("</call>"))
    assert reply.usage.completion_tokens == 20
    assert server.connections == 1, "a stream read to its end leaves the connection open"


async def test_a_model_that_writes_on_is_closed_soon_after_the_predicate() -> None:
    on = [f"and {n} " for n in range(100_000)]
    reply = Reply(pieces=["done</call>", *on], piece_seconds=0.002)
    with ScriptedServer([reply]) as server:
        async with client(server.base_url) as chat:
            start = time.monotonic()
            got = await chat.chat(ASKED, SAMPLING, after("</call>"))
            assert time.monotonic() - start < 60
    assert got.text == "done</call>"
    assert got.usage == Usage(calls=1), "usage that never came is a call of unknown cost"


async def test_a_model_that_falls_silent_after_the_predicate_is_not_waited_for() -> None:
    with ScriptedServer([Reply(pieces=["done</call>"], hang_after=1)]) as server:
        async with client(server.base_url) as chat:
            start = time.monotonic()
            got = await chat.chat(ASKED, SAMPLING, after("</call>"))
            assert time.monotonic() - start < 60
    assert got.text == "done</call>"


async def test_endless_repetition_is_cut_off() -> None:
    with ScriptedServer([Reply(pieces=["the same again, "], endless=True)]) as server:
        async with client(server.base_url) as chat:
            reply = await chat.chat(ASKED, SAMPLING)
    assert reply.stop_reason == "repetition"
    assert 240 <= len(reply.text) < 400


async def test_a_spent_token_limit_is_told() -> None:
    with ScriptedServer([Reply("The least", finish="length")]) as server:
        async with client(server.base_url) as chat:
            assert (await chat.chat(ASKED, SAMPLING)).stop_reason == "length"


async def test_usage_and_cost_are_those_of_the_server_and_the_table() -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 600},
    }
    with ScriptedServer([Reply("fine", usage=usage)]) as server:
        async with client(server.base_url, prices=Prices(OWN_PRICE)) as chat:
            got = (await chat.chat(ASKED, SAMPLING)).usage
    assert (got.prompt_tokens, got.cached_tokens, got.completion_tokens) == (1000, 600, 50)
    assert got.cost == pytest.approx((400 * 1.0 + 600 * 0.5 + 50 * 4.0) / 1e6)
    assert got.calls == 1


async def test_a_server_without_usage_is_a_call_of_unknown_cost_where_no_price_is_known() -> None:
    with ScriptedServer([Reply("fine", usage=None)]) as server:
        async with client(server.base_url) as chat:
            assert (await chat.chat(ASKED, SAMPLING)).usage == Usage(calls=1)


@pytest.mark.parametrize("ends", [Reply("fine", usage=None), Reply("fine", pieces=["fine"] * 999)])
async def test_what_costs_money_and_is_not_told_is_reckoned_at_three_bytes_a_token(
    ends: Reply,
) -> None:
    # The messages have 9 and 22 bytes, the reply 4: 11 tokens and 2.
    with ScriptedServer([ends]) as server:
        async with client(server.base_url, prices=Prices(OWN_PRICE)) as chat:
            got = await chat.chat(ASKED, SAMPLING, after("fine"))
    assert got.text == "fine"
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (11, 2)
    assert got.usage.cost == pytest.approx((11 * 1.0 + 2 * 4.0) / 1e6)


@pytest.mark.parametrize(
    ("fault", "dropped"),
    [
        (Fault(400, "Unknown parameter: 'stream_options'."), "stream_options"),
        (Fault(400, "unrecognized: include_usage"), "stream_options"),
        (Fault(422, body='{"detail":[{"loc":["body","seed"],"msg":"Extra inputs"}]}'), "seed"),
    ],
)
async def test_a_refused_parameter_is_left_out_at_once_and_from_then_on(
    fault: Fault, dropped: str
) -> None:
    with ScriptedServer([fault, "first", "second"]) as server:
        async with client(server.base_url) as chat:
            replies = [await chat.chat(ASKED, Sampling(seed=1)) for _ in range(2)]
    assert [reply.text for reply in replies] == ["first", "second"]
    assert [dropped in request.body for request in server.requests] == [True, False, False]


async def test_a_model_that_wants_the_new_name_of_max_tokens_gets_it() -> None:
    told = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    with ScriptedServer([Fault(400, told), "fine"]) as server:
        async with client(server.base_url) as chat:
            await chat.chat(ASKED, SAMPLING)
    assert "max_tokens" not in server.requests[1].body
    assert server.requests[1].body["max_completion_tokens"] == 64


@pytest.mark.parametrize("named", ["reasoning_content", "reasoning"])
async def test_reasoning_that_the_server_keeps_apart_stays_apart(named: str) -> None:
    with ScriptedServer([Reply("LRU.", reasoning="Which one?", reasoning_field=named)]) as server:
        async with client(server.base_url) as chat:
            reply = await chat.chat(ASKED, SAMPLING)
    assert (reply.text, reply.reasoning) == ("LRU.", "Which one?")


async def test_think_in_the_text_is_the_scaffolds_own_unless_told_otherwise() -> None:
    thought = "<think>Which one?</think>\n\nLRU."
    shown: list[str] = []
    with ScriptedServer([thought, thought]) as server:
        async with client(server.base_url) as chat:
            own = await chat.chat(ASKED, SAMPLING)
        async with client(server.base_url, think_is_reasoning=True) as chat:
            apart = await chat.chat(ASKED, SAMPLING, on_text=shown.append)
    assert (own.text, own.reasoning) == (thought, "")
    assert (apart.text, apart.reasoning) == ("LRU.", "Which one?")
    assert "".join(shown) == "LRU."


async def test_the_limiter_bounds_the_calls_in_flight() -> None:
    three = threading.Barrier(3, timeout=PATIENCE)

    def script(body: Any, number: int) -> str:
        three.wait()
        return "fine"

    with ScriptedServer(script) as server:
        async with client(server.base_url, limiter=Limiter(3)) as chat:
            await asyncio.gather(*(chat.chat(ASKED, SAMPLING) for _ in range(9)))
    assert server.most_at_once == 3


async def test_a_cancelled_call_frees_its_place() -> None:
    with ScriptedServer([Reply(pieces=["a", "b"], hang_after=1), "fine"]) as server:
        async with client(server.base_url, limiter=Limiter(1)) as chat:
            begun = asyncio.Event()
            asking = asyncio.create_task(chat.chat(ASKED, SAMPLING, on_text=lambda _: begun.set()))
            await begun.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert (await chat.chat(ASKED, SAMPLING)).text == "fine"


async def test_the_only_model_that_a_server_lists_is_found() -> None:
    with ScriptedServer([], models=["lone"]) as server:
        assert await only_model(server.base_url, None) == "lone"


async def test_a_server_that_lists_several_models_wants_one_named() -> None:
    with (
        ScriptedServer([], models=["a", "b"]) as server,
        pytest.raises(SettingsError, match="lists 2 models: a, b") as told,
    ):
        await only_model(server.base_url, None)
    assert "--model" in told.value.remedy


async def test_a_server_that_is_down_lists_no_model() -> None:
    with ScriptedServer([]) as server:
        gone = server.base_url
    with pytest.raises(PolicyError, match="no model server answers"):
        await only_model(gone, None)


def test_an_event_of_usage_alone_adds_no_text() -> None:
    assert delta_of({"choices": [], "usage": {"prompt_tokens": 1}}).usage == {"prompt_tokens": 1}


def test_missing_and_null_fields_add_nothing() -> None:
    assert delta_of({}) == Delta()
    assert delta_of({"choices": [{"delta": {"content": None, "role": "assistant"}}]}) == Delta()


@pytest.mark.parametrize(
    "event", ["text", 3, [], {"choices": 1}, {"choices": ["x"]}, {"choices": [{"delta": "x"}]}]
)
def test_what_is_no_chunk_is_refused(event: Any) -> None:
    with pytest.raises(ValueError, match="not a chunk of a chat completion"):
        delta_of(event)


QUESTION = [Message("system", "s"), Message("user", "q")]


@asynccontextmanager
async def loopback(delay: float, chunks: int) -> AsyncIterator[str]:
    server = await asyncio.start_server(Loopback(delay, chunks).serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def counted(address: str) -> dict[str, int]:
    def ask() -> Any:
        with urllib.request.urlopen(f"{address}/count") as response:
            return json.load(response)

    counts: dict[str, int] = await asyncio.to_thread(ask)
    return counts


async def test_the_turns_of_a_run_follow_one_another() -> None:
    messages = list(QUESTION)
    async with loopback(0.0, 5) as address, client(f"{address}/v1") as chat:
        for turn in TURNS:
            reply = await chat.chat(messages, SAMPLING)
            assert reply.text == turn
            messages += [Message("assistant", reply.text), Message("user", "<tool_output>")]
        assert reply.usage.completion_tokens == len(TURNS[2]) // 4
        shown = await counted(address)
    assert shown | {"calls": 3, "distinct": 3, "finished": 3} == shown


async def test_a_repeated_call_shows_in_the_counts() -> None:
    async with loopback(0.0, 5) as address, client(f"{address}/v1") as chat:
        await chat.chat(QUESTION, SAMPLING)
        await chat.chat(QUESTION, SAMPLING)
        shown = await counted(address)
    assert shown | {"calls": 2, "distinct": 1, "finished": 2, "pieces": 12} == shown


async def test_a_turn_takes_its_delay_spread_over_its_pieces() -> None:
    async with loopback(0.4, 4) as address, client(f"{address}/v1") as chat:
        turns = [await arrivals(chat) for _ in range(5)]
    assert all(after[i] >= 0.1 * (i + 1) for after in turns for i in range(4))
    # A busy machine delays some of them.
    assert min(after[0] for after in turns) < 0.3


async def arrivals(chat: OpenAIChat) -> list[float]:
    """Seconds from the beginning of a turn to each of its pieces."""
    arrived: list[float] = []
    start = time.monotonic()
    await chat.chat(QUESTION, SAMPLING, on_text=lambda _: arrived.append(time.monotonic() - start))
    return arrived


def test_the_first_turn_plans_and_searches_and_the_last_one_answers() -> None:
    assert [turn.count("</call_tool>") for turn in TURNS] == [1, 1, 0]
    assert "<structured_plan>" in TURNS[0]
    assert '<cite id="S1">' in TURNS[2]
    assert TURNS[2].endswith("</answer>")
    assert next_turn([{"role": "assistant"}] * 9) == TURNS[2]


def test_pieces_join_to_the_text_in_nearly_equal_lengths() -> None:
    assert pieces("abcdefghij", 4) == ["ab", "cde", "fgh", "ij"]
    assert pieces("ab", 9) == ["a", "b"]


def test_the_same_body_is_one_distinct_call() -> None:
    counts = Counts()
    for body in (b"a", b"b", b"a"):
        counts.begin(body)
    shown = counts.report()
    assert shown | {"calls": 3, "distinct": 2, "finished": 0} == shown


def test_searches_are_answered_and_counted_apart() -> None:
    counts = Counts()
    for query in ("/search?q=a", "/search?q=b", "/search?q=a"):
        assert counts.search(query)["results"][0]["content"]
    shown = counts.report()
    assert shown | {"calls": 0, "searches": 3, "distinct_searches": 2} == shown
