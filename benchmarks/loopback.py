"""An OpenAI-compatible server on loopback that follows the scaffold, for benchmarks.

It answers every chat with the next turn of one canned four-stage run, chosen by the number of
assistant messages in the request: plan and search, evaluate and search, review and answer.
Each turn is streamed in N chunks whose last arrives exactly `delay` seconds after the request,
so what a client needs beyond `turns * delay` is the client's own time.

    python -m benchmarks.loopback --delay 1.0 --chunks 20 --port 0

The first line it prints is its port. `GET /search` answers like a SearXNG instance. `GET /asked`
says how often each call and each search was asked for, in the order in which they first were, so
that a resume that repeats one is seen, and how many pieces were sent.
"""

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.scripted_judge import OPENINGS, judge_reply

MODEL = "loopback"
PASSAGE = "The rule decides the order, and its one exception is named beside it."

TURNS = (
    "<think>The question asks for a rule and its exception.</think>"
    "<structured_plan>"
    "<deep_analysis>Retrieval is easy, the exception needs care.</deep_analysis>"
    "<rubric>Knowledge Checklist: the rule; the exception. "
    "Negative Constraints: no guess presented as fact.</rubric>"
    "<research_plan>1. Find the rule. 2. If it names an exception, confirm it.</research_plan>"
    "</structured_plan>"
    '<call_tool name="search">rule that decides the order</call_tool>',
    "<think>The first passage states the rule.</think>"
    "<state_evaluation>The rule is covered, the exception is not.</state_evaluation>"
    '<call_tool name="search">exception to the rule</call_tool>',
    "<think>Both items have evidence.</think>"
    "<state_evaluation>The rubric is covered by the passages in hand.</state_evaluation>"
    "<think>Check every item once more before writing.</think>"
    "<review><rubric_review>The rule: S1. The exception: S1. Nothing is guessed.</rubric_review>"
    "<writing_plan>State the rule, then the exception.</writing_plan></review>"
    '<answer>In short: <cite id="S1">the rule decides the order</cite>.</answer>',
)
CHECKED = '{"verdicts": [{"number": 1, "reason": "It says so.", "verdict": "supported"}]}'


@dataclass(slots=True)
class Counts:
    """What was asked so far: calls by the hash of their bodies, searches by their paths."""

    pieces: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    searches: Counter[str] = field(default_factory=Counter)

    def call(self, body: bytes) -> None:
        self.calls[hashlib.sha256(body).hexdigest()] += 1


def next_turn(messages: list[Mapping[str, Any]]) -> str:
    """The canned turn that follows the assistant's messages so far; the last one repeats.

    A call that checks the answer's one citation gets its verdict.
    """
    if any(str(m.get("content", "")).startswith("You check claims") for m in messages[:1]):
        return CHECKED
    written = sum(message.get("role") == "assistant" for message in messages)
    return TURNS[min(written, len(TURNS) - 1)]


def reply_to(request: Mapping[str, Any]) -> str:
    """What a stage judge is answered where it asks, else the next turn of the run.

    Runs differ by their seeds in how the answer begins, and so do their scores.
    """
    messages = request["messages"]
    if verdicts := judge_reply(str(messages[-1].get("content"))):
        return verdicts
    opening = OPENINGS[(request.get("seed") or 0) % len(OPENINGS)]
    return next_turn(messages).replace(OPENINGS[0], opening)


def pieces(text: str, count: int) -> list[str]:
    """`count` pieces of nearly equal length; fewer when the text is shorter than that."""
    count = min(count, len(text))
    bounds = [round(i * len(text) / count) for i in range(count + 1)]
    return [text[a:b] for a, b in pairwise(bounds)]


def usage_of(request: Mapping[str, Any], text: str) -> dict[str, int]:
    """Token counts at about four characters a token, as a real server would report them."""
    prompt = sum(len(message.get("content") or "") for message in request["messages"]) // 4
    written = len(text) // 4
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
    }


def event(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return frame({"object": "chat.completion.chunk", "model": MODEL, "choices": [choice]})


def frame(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def ending(request: Mapping[str, Any], text: str) -> bytes:
    last = event({}, "stop")
    if (request.get("stream_options") or {}).get("include_usage"):
        last += frame({"model": MODEL, "choices": [], "usage": usage_of(request, text)})
    return last + b"data: [DONE]\n\n"


def json_response(value: Mapping[str, Any], status: str = "200 OK") -> bytes:
    return page_response(json.dumps(value), "application/json", status)


def page_response(text: str, kind: str = "text/html", status: str = "200 OK") -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


Calls = Sequence[Mapping[str, Any]]


@cache
def _streamed(text: str, count: int) -> tuple[bytes, ...]:
    return tuple(chunk(event({"content": piece})) for piece in pieces(text, count))


async def reply_chat(
    request: Mapping[str, Any],
    text: str,
    writer: asyncio.StreamWriter,
    until: float,
    count: int,
    *,
    calls: Calls = (),
    on_piece: Callable[[], None] = lambda: None,
) -> dict[str, int]:
    """Send a reply, whole or in `count` pieces spread over the time `until` the clock shows that.

    Returns the token counts. A reply that calls tools is always whole.
    """
    usage = usage_of(request, text or json.dumps(calls))
    if calls or not request.get("stream"):
        await asyncio.sleep(until - time.monotonic())
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        message |= {"tool_calls": [*calls]} if calls else {}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if calls else "stop",
        }
        whole = {"id": "c", "object": "chat.completion", "created": 0, "model": MODEL}
        writer.write(json_response({**whole, "choices": [choice], "usage": usage}))
        return usage
    began, parts = time.monotonic(), _streamed(text, count)
    writer.write(STREAM_HEAD)
    for number, part in enumerate(parts, 1):
        at = began + (until - began) * number / len(parts)
        await asyncio.sleep(at - time.monotonic())
        writer.write(part)
        on_piece()
        await writer.drain()
    writer.write(chunk(ending(request, text)) + b"0\r\n\r\n")
    return usage


Answer = Callable[[str, bytes, asyncio.StreamWriter], Awaitable[None]]
"""path and body of a request, and where the answer goes"""
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""answers one connection"""


async def answer_all(
    answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer one connection's requests until the client closes it, or is killed."""
    gone = (asyncio.IncompleteReadError, ConnectionError, RuntimeError, asyncio.CancelledError)
    try:
        with suppress(*gone):
            while True:
                await answer(*await read_request(reader), writer)
                await writer.drain()
    finally:
        writer.close()


@dataclass(frozen=True, slots=True)
class Loopback:
    """The server: what it replies, by default one canned run, its pace, and what it counted."""

    delay: float
    chunks: int
    reply: Callable[[Mapping[str, Any]], str] = reply_to
    counts: Counts = field(default_factory=Counts)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_all(self.answer, reader, writer)

    async def answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path.endswith("/chat/completions"):
            await self.complete(json.loads(body), body, writer)
        elif path == "/asked":
            told = self.counts
            asked = {"pieces": told.pieces, "calls": told.calls, "searches": told.searches}
            writer.write(json_response(asked))
        elif path.startswith("/search?"):
            await asyncio.sleep(self.delay / 4)
            self.counts.searches[path] += 1
            row = {"title": "Rules", "url": "http://127.0.0.1/rules", "content": PASSAGE}
            writer.write(json_response({"results": [row], "unresponsive_engines": []}))
        elif path.endswith("/models"):
            writer.write(json_response({"object": "list", "data": [{"id": MODEL}]}))
        else:
            writer.write(json_response({"error": {"message": path}}, "404 Not Found"))

    async def complete(
        self, request: Mapping[str, Any], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        self.counts.call(body)
        until = time.monotonic() + self.delay

        def on_piece() -> None:
            self.counts.pieces += 1

        text = self.reply(request)
        await reply_chat(request, text, writer, until, self.chunks, on_piece=on_piece)


async def read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Path and body of the next request; raises IncompleteReadError at the connection's end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    request_line, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return request_line.split(" ")[1], body


@contextmanager
def started(module: str, *options: object) -> Iterator[list[str]]:
    """A server in a process of its own, which prints its ports; gives its addresses."""
    command = [sys.executable, "-m", module, *map(str, options)]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield [f"http://127.0.0.1:{int(port)}" for port in process.stdout.readline().split()]
        finally:
            process.terminate()


@contextmanager
def serving(delay: float, chunks: int, port: int = 0) -> Iterator[str]:
    """The address of a server in a process of its own, which ends in /v1."""
    options = ("--delay", delay, "--chunks", chunks, "--port", port)
    with started("benchmarks.loopback", *options) as (address,):
        yield f"{address}/v1"


async def serve_until_killed(serve: Serve, port: int = 0) -> None:
    """Serve at a port of loopback, which is printed; 0 takes a free one."""
    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--delay", type=float, default=1.0, help="seconds per turn")
    parser.add_argument("--chunks", type=int, default=20, help="streamed pieces per turn")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        server = Loopback(options.delay, options.chunks)
        asyncio.run(serve_until_killed(server.serve, options.port))


if __name__ == "__main__":
    main()
