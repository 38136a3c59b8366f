import asyncio
import json
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent.servers.openai_chat import OpenAIChat
from benchmarks.loopback import TURNS, Counts, Loopback, next_turn, pieces
from memory.interfaces import Message
from tests.chat_clients import SAMPLING, client

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
