import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest

from rubricem.agent.models.http import EventStream, ModelServer, complaint_of
from rubricem.agent.models.limits import Endpoint, Server
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import PATIENCE


class Chunks:
    """A response whose body comes in these chunks; None: nothing more comes."""

    def __init__(self, chunks: Sequence[bytes | None]) -> None:
        self.left = list(chunks)
        self.content = self
        self.released = False

    async def readany(self) -> bytes:
        if not self.left:
            return b""
        if (chunk := self.left.pop(0)) is None:
            await asyncio.sleep(3600)
        return chunk or b""

    def release(self) -> None:
        self.released = True


async def read(*chunks: bytes | None) -> list[Any]:
    values: list[Any] = []
    async with EventStream(Chunks(chunks)) as stream:  # type: ignore[arg-type]
        while (value := await stream.following()) is not None:
            values.append(value)
        assert await stream.following() is None
    return values


WHOLE = b'data: {"a": 1}\n\ndata: {"a": 2}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_events_come_whole_however_the_bytes_are_cut(size: int):
    chunks = [WHOLE[i : i + size] for i in range(0, len(WHOLE), size)]
    assert await read(*chunks) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("sent", "values"),
    [
        (b'data:{"a": 1}\r\n\r\ndata: [DONE]\r\n\r\n', [{"a": 1}]),
        (b': still here\n\ndata: {"a": 1}\n\n: still here\n\n', [{"a": 1}]),
        (b'event: x\nid: 7\ndata: {"a": 1}\n\n', [{"a": 1}]),
        (b'data: {"a":\ndata: 1}\n\n', [{"a": 1}]),
        (b'data: {"a": 1}', [{"a": 1}]),
        (b'data: {"a": 1}\n\ndata: [DONE]\n\ndata: {"a": 2}\n\n', [{"a": 1}]),
        (b"", []),
        (b"not an event at all", []),
    ],
    ids=["crlf", "comments", "fields", "lines", "no end", "after the end", "empty", "no events"],
)
async def test_what_servers_send_is_read(sent: bytes, values: list[Any]):
    assert await read(sent) == values


async def test_a_server_that_leaves_the_response_open_after_its_end_is_not_waited_for():
    async with asyncio.timeout(PATIENCE):
        assert await read(WHOLE, None) == [{"a": 1}, {"a": 2}]


async def test_what_is_no_json_is_told_where_it_stands():
    stream = EventStream(Chunks([b'data: {"a": 1}\n\ndata: {no\n\n']))  # type: ignore[arg-type]
    assert await stream.following() == {"a": 1}
    with pytest.raises(ValueError):
        await stream.following()


async def test_a_stream_that_is_left_is_released():
    response = Chunks([WHOLE])
    with pytest.raises(aiohttp.ClientError):
        async with EventStream(response):  # type: ignore[arg-type]
            raise aiohttp.ClientError
    assert response.released


async def test_calls_that_end_share_one_connection():
    with ScriptedServer(["one", "two", "three"]) as server:
        http = ModelServer(Server(Endpoint.parse(server.base_url), "scripted", "KEY"))
        for _ in range(3):
            body = {"messages": [{"role": "user", "content": "?"}], "stream": True}
            async with await http.stream("/chat/completions", body) as stream:
                while await http.event(stream) is not None:
                    pass
        await http.aclose()
        assert (len(server.requests), server.connections) == (3, 1)


async def test_a_session_for_https_is_opened_with_certificates():
    server = ModelServer(Server(Endpoint.parse("https://models.invalid/v1"), "m", "KEY"))
    assert server._opened() is server._opened()
    await server.aclose()


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
