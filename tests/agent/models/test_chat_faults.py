import asyncio
import logging
import time
import traceback

import pytest

from rubricem.agent.models.limits import Limiter, Retry
from rubricem.agent.models.prices import Prices
from rubricem.memory.errors import PolicyError
from tests.support.policies import ASKED, KEY, SAMPLING, client
from tests.support.scripted_server import Fault, Hang, Reply, Script, ScriptedServer

CUT = Reply("half of a reply that never ends", cut_after=2)


async def failure(script: Script, **options: object) -> PolicyError:
    """The PolicyError that the script leads to."""
    with ScriptedServer(script) as server:
        async with client(server.base_url, **options) as chat:
            with pytest.raises(PolicyError) as caught:
                await chat.chat(ASKED, SAMPLING)
    return caught.value


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
async def test_a_passing_failure_is_tried_again(status: int) -> None:
    with ScriptedServer([Fault(status), Fault(status), "fine"]) as server:
        async with client(server.base_url) as chat:
            reply = await chat.chat(ASKED, SAMPLING)
    assert reply.text == "fine"
    assert reply.usage.calls == 1, "a refused try is no call"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_lasting_failure_is_not_tried_again(status: int) -> None:
    with ScriptedServer([Fault(status), "fine"]) as server:
        async with client(server.base_url) as chat:
            with pytest.raises(PolicyError):
                await chat.chat(ASKED, SAMPLING)
    assert len(server.requests) == 1


async def test_nothing_of_a_cut_attempt_is_kept_but_its_cost() -> None:
    spent = {"prompt_tokens": 10, "completion_tokens": 5}
    broken = Reply("half", usage=spent, error_after={"message": "worker died"})
    with ScriptedServer([CUT, broken, Reply("whole", usage=spent)]) as server:
        async with client(server.base_url, prices=Prices({"scripted": (1, 1, 1)})) as chat:
            reply = await chat.chat(ASKED, SAMPLING)
    assert reply.text == "whole"
    assert reply.usage.calls == 3
    # The two that broke off told nothing: 31 bytes were read each time, at 3 a token, and what
    # they wrote was "half of a reply " and "half".
    assert reply.usage.prompt_tokens == 11 + 11 + 10
    assert reply.usage.completion_tokens == 6 + 2 + 5
    assert reply.usage.cost == pytest.approx(45 / 1e6)


async def test_a_stream_without_an_end_is_cut_even_if_it_closes_cleanly() -> None:
    with ScriptedServer([Reply("half a", finish=None), "whole"]) as server:
        async with client(server.base_url) as chat:
            reply = await chat.chat(ASKED, SAMPLING)
    assert reply.text == "whole"
    assert reply.usage.prompt_tokens == 200, "what the cut try used is counted"


async def test_an_always_cut_stream_is_an_error() -> None:
    error = await failure([CUT] * 4)
    assert "broke off in the middle of a reply" in str(error)
    assert "also at try 4" in str(error)


async def test_an_empty_reply_is_tried_again_and_then_an_error() -> None:
    with ScriptedServer(["", " \n", "fine"]) as server:
        async with client(server.base_url) as chat:
            assert (await chat.chat(ASKED, SAMPLING)).text == "fine"
    assert "sent an empty reply" in str(await failure([""] * 4))


async def test_thinking_without_a_reply_is_told_as_such() -> None:
    error = await failure([Reply("", reasoning="hm " * 9, finish="length")])
    assert "spent all its 64 tokens on thinking" in str(error)
    assert "max_tokens" in error.remedy


async def test_a_withheld_reply_is_told_as_such() -> None:
    assert "content filter" in str(await failure([Reply("no", finish="content_filter")]))


async def test_retry_after_is_waited_out() -> None:
    with ScriptedServer([Fault(429, headers={"Retry-After": "0.3"}), "fine"]) as server:
        async with client(server.base_url) as chat:
            await chat.chat(ASKED, SAMPLING)
    assert server.requests[1].at - server.requests[0].at >= 0.3


async def test_a_retry_after_beyond_patience_is_an_error_at_once() -> None:
    start = time.monotonic()
    with ScriptedServer([Fault(429, headers={"Retry-After": "3600"}), "fine"]) as server:
        async with client(server.base_url) as chat:
            with pytest.raises(PolicyError, match=r"limits its callers \(429\)$"):
                await chat.chat(ASKED, SAMPLING)
            assert (await chat.chat(ASKED, SAMPLING)).text == "fine", "others are not held up"
    assert time.monotonic() - start < 60


async def test_one_429_makes_all_callers_wait() -> None:
    """The other calls, not yet begun, reach the server only after the pause."""

    def script(body: object, n: int) -> Reply | Fault:
        return Fault(429, headers={"retry-after-ms": "300"}) if n == 0 else Reply("fine")

    with ScriptedServer(script) as server:
        limiter = Limiter(1)
        async with client(server.base_url, limiter=limiter) as chat:
            await asyncio.gather(*(chat.chat(ASKED, SAMPLING) for _ in range(4)))
    first, *later = [request.at for request in server.requests]
    assert len(later) == 4
    assert min(later) - first >= 0.3


async def test_429_for_good_is_an_error_after_all_tries() -> None:
    error = await failure([Fault(429)] * 4)
    assert "limits its callers (429), also at try 4" in str(error)
    assert "fewer calls" in error.remedy


async def test_a_spent_quota_is_not_tried_again() -> None:
    error = await failure([Fault(429, "You exceeded your current quota", "insufficient_quota")])
    assert "no quota left" in str(error)


async def test_500_for_good_quotes_the_server() -> None:
    assert "failed: CUDA out of memory" in str(
        await failure([Fault(500, "CUDA out of memory")] * 4)
    )


async def test_a_server_that_is_down_is_named_without_its_password() -> None:
    with ScriptedServer([]) as server:
        address = server.base_url
    async with client(address.replace("//", "//ann:hunter2@"), retry=Retry(tries=1)) as chat:
        with pytest.raises(PolicyError) as caught:
            await chat.chat(ASKED, SAMPLING)
    assert str(caught.value) == f"no model server answers at {address}"
    assert "Start the server" in caught.value.remedy


@pytest.mark.parametrize("sent", [b"", b"nonsense\r\n\r\n"], ids=["nothing", "no HTTP"])
async def test_a_server_that_hangs_up_on_a_call_is_not_told_as_down(sent: bytes) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with client(address, retry=Retry(tries=1)) as chat:
            with pytest.raises(PolicyError, match=r"broke off .* \(no response\)$"):
                await chat.chat(ASKED, SAMPLING)


async def test_a_proxy_of_the_environment_is_not_asked_for_a_server_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedServer(["by proxy"]) as proxy, ScriptedServer(["directly"]) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url.removesuffix("/v1"))
        monkeypatch.setenv("NO_PROXY", "")
        async with client("http://models.invalid/v1") as far, client(server.base_url) as near:
            assert (await far.chat(ASKED, SAMPLING)).text == "by proxy"
            assert (await near.chat(ASKED, SAMPLING)).text == "directly"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_names_its_variable_and_never_the_key(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error = await failure([Fault(status, f"bad key {KEY}")], key_variable="JUDGE_API_KEY")
    assert "JUDGE_API_KEY" in str(error)
    shown = "".join(traceback.format_exception(error)) + error.remedy + caplog.text
    assert KEY not in shown


async def test_a_key_that_the_server_repeats_elsewhere_is_blanked() -> None:
    error = await failure([Fault(400, f"malformed header Bearer {KEY}")])
    assert "malformed header Bearer [key]" in str(error)
    assert KEY not in "".join(traceback.format_exception(error))


async def test_what_a_terminal_would_obey_is_not_quoted() -> None:
    split = f"{KEY[:5]}\x1b[0m{KEY[5:]}"
    error = await failure([Fault(400, f"\x1b]0;owned\x07no \x1b[31mred\u202e {split}")])
    assert str(error).endswith("rejected the request (400): no red [key]")


async def test_a_refusal_nested_beyond_reading_is_a_refusal() -> None:
    error = await failure([Fault(400, body="[" * 90_000)])
    assert "rejected the request (400): [[[" in str(error)


async def test_a_missing_key_is_told_as_missing() -> None:
    error = await failure([Fault(401)], api_key=None)
    assert "wants an API key and none is set" in str(error)


async def test_an_unknown_model_is_told_with_those_that_there_are() -> None:
    with ScriptedServer([Fault(404)], models=list("abcdefg")) as server:
        async with client(server.base_url) as chat:
            with pytest.raises(PolicyError, match="has no model 'scripted'") as caught:
                await chat.chat(ASKED, SAMPLING)
    assert caught.value.remedy == "It has: a, b, c, d, e, ...."


async def test_an_unknown_model_of_a_server_without_a_list_doubts_the_address_too() -> None:
    with ScriptedServer([Fault(404)], models=None) as server:
        async with client(server.base_url) as chat:
            with pytest.raises(PolicyError) as caught:
                await chat.chat(ASKED, SAMPLING)
    assert "/v1" in caught.value.remedy


@pytest.mark.parametrize(
    "fault",
    [
        Fault(400, "too long", "context_length_exceeded"),
        Fault(400, "This model's maximum context length is 8192 tokens."),
        Fault(400, "the request exceeds the available context size, try increasing it"),
        Reply("a", error_after={"message": "maximum context length is 4096", "code": 400}),
    ],
)
async def test_a_full_context_is_told_as_such(fault: Fault | Reply) -> None:
    error = await failure([fault])
    assert "no longer fits the context length" in str(error)


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


async def test_a_slow_but_steady_stream_never_times_out() -> None:
    slow = Reply(pieces=list("abcdefghijklmnopqrst"), piece_seconds=0.1)
    with ScriptedServer([slow]) as server:
        async with client(server.base_url, timeout=1.5) as chat:
            assert (await chat.chat(ASKED, SAMPLING)).text == "abcdefghijklmnopqrst"


async def test_what_is_no_chat_completion_is_told_as_such() -> None:
    error = await failure([Fault(200, body="data: <html>\n\n")] * 4)
    assert "no OpenAI-compatible chat completion" in str(error)


async def test_a_caller_that_fails_while_reading_gets_its_own_error() -> None:
    def broken(text: str) -> int | None:
        raise ValueError("a fault of the predicate")

    with ScriptedServer(["fine"]) as server:
        async with client(server.base_url) as chat:
            with pytest.raises(ValueError, match="a fault of the predicate"):
                await chat.chat(ASKED, SAMPLING, broken)
