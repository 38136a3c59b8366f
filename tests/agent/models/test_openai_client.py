import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rubricem.agent.models.limits import Endpoint, Server
from rubricem.agent.models.openai_client import ModelServer, complaint_of
from rubricem.agent.models.replies import Reading
from tests.support.scripted_server import Answering, LoopbackServer
from tests.support.token_servers import http_to
from tests.support.waiting import PATIENCE

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
WHOLE = b'data: {"a": 1}\n\ndata: {"a": 2}\n\ndata: [DONE]\n\n'


class Values(Reading):
    """Whatever comes; complete from the start, so that its end is never a broken reply."""

    def __init__(self) -> None:
        super().__init__(finish="stop")
        self.taken: list[Any] = []

    def take(self, event: Any) -> None:
        self.taken.append(event)


@asynccontextmanager
async def sending(chunks: Sequence[bytes | None]) -> AsyncIterator[ModelServer]:
    """A client of a server whose reply comes in these chunks; None: nothing more comes."""

    answering: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        for chunk in (HEAD, *chunks):
            if chunk is None:
                await reader.read()
                break
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield http_to(address)
        await asyncio.gather(*filter(None, answering))


async def heard(*chunks: bytes | None) -> list[Any]:
    values = Values()
    async with sending(chunks) as http:
        await http.read_reply(
            values, http.stream("/chat/completions", {}), lambda event: event, PATIENCE
        )
    return values.taken


@pytest.mark.parametrize("end", [[], [None]], ids=["closed", "left open after its end"])
@pytest.mark.parametrize("size", [1, 3, 100])
async def test_events_come_whole_however_the_bytes_are_cut_and_no_more_is_waited_for(
    size: int, end: list[None]
):
    chunks = [WHOLE[i : i + size] for i in range(0, len(WHOLE), size)]
    async with asyncio.timeout(PATIENCE):
        assert await heard(*chunks, *end) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("sent", "values"),
    [
        (b'data:{"a": 1}\r\n\r\ndata: [DONE]\r\n\r\n', [{"a": 1}]),
        (b': still here\n\ndata: {"a": 1}\n\n: still here\n\n', [{"a": 1}]),
        (b'event: x\nid: 7\ndata: {"a": 1}\n\n', [{"a": 1}]),
        (b'data: {"a":\ndata: 1}\n\n', [{"a": 1}]),
        (b'data: {"a": 1}\n\ndata: [DONE]\n\ndata: {"a": 2}\n\n', [{"a": 1}]),
        (b"", []),
        (b"not an event at all", []),
    ],
    ids=["crlf", "comments", "fields", "lines", "after the end", "empty", "no events"],
)
async def test_what_servers_send_is_read(sent: bytes, values: list[Any]):
    assert await heard(sent) == values


class Echoing(Answering):
    """Answers with what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.read_json()
        self.send_json(200, {"body": body, "key": self.headers.get("Authorization")})


async def test_callers_that_share_a_client_send_their_own_keys():
    with LoopbackServer(Echoing) as server:
        mine, yours = (
            ModelServer(Server(Endpoint.parse(server.root), "m", key)) for key in ("a", "b")
        )
        replies = [await one.beside("/plain", {"n": "\u00fc"}) for one in (mine, yours, mine)]
    assert [reply["key"] for reply in replies] == ["Bearer a", "Bearer b", "Bearer a"]
    assert {reply["body"]["n"] for reply in replies} == {"\u00fc"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "no", "code": "bad_thing", "param": "n"}}, "no bad_thing n"),
        ({"error": {"message": "no", "code": 400}}, "no"),
        ({"error": "just words"}, "just words"),
        ({"object": "error", "message": "no", "code": 404}, "no"),
        ({"detail": "not here"}, "not here"),
        ("<html>Bad gateway</html>", "<html>Bad gateway</html>"),
        ([1, 2], "[1, 2]"),
        ({}, ""),
    ],
)
def test_a_servers_words_are_found_wherever_it_puts_them(body: Any, words: str):
    assert complaint_of(body) == words
