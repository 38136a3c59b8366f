"""A model and two search services on loopback, whose every request is noted with begin and end.

The model follows whoever asks: our scaffold, a schema, tools that it is offered, gpt-researcher's
prompts; anything else gets a report. Each call takes a second, streamed in pieces or whole,
each search 50 ms: SearXNG's shape (`GET /search`), Tavily's (`POST /search`). A row has
about 140 words of its own, and its address is a page of this server. `GET /log` gives the requests
so far as `[kind, begin, end, prompt tokens, written tokens]`, in seconds of the monotonic clock
that all processes of a machine share.
"""

import argparse
import asyncio
import json
import random
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvloop

from benchmarks.loopback import MODEL, answer_all, json_response, page_response, reply_chat

SECONDS, SEARCH_SECONDS = 1.0, 0.05
"""of a call and of a search"""
CHUNKS, ROWS, WORDS = 20, 5, 140
QUERIES = ("rule that decides the order", "exception to the rule")
FACTS = (
    "A harbour pilot boards each ship at the outer buoy before it enters the channel.",
    "The tide tables of the port are printed in March and hold for one year.",
    "Ships that carry grain are unloaded at the northern quay during daylight.",
    "The lighthouse shows two white flashes every fifteen seconds.",
    "A master who waits longer than six hours may ask for another berth.",
    "Fishing boats under twelve metres need no pilot in the channel.",
    "The northern quay is closed to tankers while grain is unloaded.",
    "In fog the signal station sounds one long blast every minute.",
    "Berths are given in the order in which the ships passed the outer buoy.",
    "The harbour office keeps the log of every arrival for ten years.",
)
VOCABULARY = tuple(dict.fromkeys(" ".join(FACTS).lower().replace(".", "").split()))
CITED = " ".join(
    f'<cite id="S{number}">{fact.rstrip(".")}</cite>.' for number, fact in enumerate(FACTS[:8], 1)
)
TURNS = (
    "<think>The question asks for a rule of the harbour and for what is excepted.</think>"
    "<structured_plan><deep_analysis>Retrieval is easy, the exception needs care, and the two may "
    "stand in different places.</deep_analysis><rubric>Knowledge Checklist: the rule; the "
    "exception. Negative Constraints: no guess presented as fact.</rubric><research_plan>1. Find "
    "the rule. 2. If it names an exception, confirm it.</research_plan></structured_plan>"
    f'<call_tool name="search">{QUERIES[0]}</call_tool>',
    "<think>The first passages state the rule.</think><state_evaluation>The rule is covered by S1 "
    "to S5, the exception is not.</state_evaluation>"
    f'<call_tool name="search">{QUERIES[1]}</call_tool>',
    "<think>Both items have evidence.</think><state_evaluation>The rubric is covered by the "
    "passages in hand.</state_evaluation><think>Check every item once more.</think><review>"
    "<rubric_review>The rule: S1 to S5. The exception: S6 to S8.</rubric_review><writing_plan>"
    "State the rule, then what is excepted.</writing_plan></review>"
    f"<answer>This is what the port's rules say. {CITED}</answer>",
)
VERDICTS = json.dumps(
    {"verdicts": [{"number": n, "reason": "Said so.", "verdict": "supported"} for n in range(1, 9)]}
)
REPORT = "# The rules of the harbour\n\n" + "\n\n".join(FACTS)
_NUMBER = re.compile(r"\d+")
ENOUGH = ("ResearchComplete", "think_tool")
"""tools of open_deep_research that bring nothing"""


@cache
def row(query: str, number: int) -> tuple[str, str]:
    """Title and text of a search's result: a fact, and words that no other result has so."""
    known = int(query.startswith(QUERIES[1]))
    drawn = random.Random(f"{query} {number}")
    sentences = (
        " ".join(drawn.choices(VOCABULARY, k=14)).capitalize() + "." for _ in range(WORDS // 14)
    )
    return f"Rule {known * ROWS + number + 1}", " ".join([FACTS[known * ROWS + number], *sentences])


def fill_in(schema: Mapping[str, Any], whole: Mapping[str, Any] | None = None) -> Any:
    """The least value of a JSON schema; a text is a query."""
    whole = whole or schema
    if "$ref" in schema:
        return fill_in(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    kind = schema.get("type")
    if kind == "object":
        return {name: fill_in(part, whole) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [fill_in(schema.get("items", {}), whole)]
    plain: dict[Any, Any] = {"boolean": False, "integer": 1, "number": 1.0}
    return plain.get(kind, QUERIES[0])


def reply_of(request: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Text and calls of tools with which the model answers."""
    messages, tools = request["messages"], request.get("tools") or []
    if tools and (call := _pick_call(request, [tool["function"] for tool in tools])):
        return "", [call]
    form = request.get("response_format") or {}
    if form.get("type") == "json_schema" and not _has_words(messages, "You check claims"):
        return json.dumps(fill_in(form["json_schema"]["schema"])), []
    if _has_words(messages, "You check claims"):
        return VERDICTS, []
    if _has_words(messages, "structured_plan"):
        written = sum(message.get("role") == "assistant" for message in messages)
        # Each question has searches of its own, and so texts of its own.
        asked = _NUMBER.search(str(messages[1].get("content")))
        turn = TURNS[min(written, len(TURNS) - 1)]
        return turn.replace("</call_tool>", f" {asked[0] if asked else ''}</call_tool>"), []
    if _has_words(messages, "agent_role_prompt"):
        return json.dumps({"server": "Harbour", "agent_role_prompt": "You know harbours."}), []
    if _has_words(messages, "list of strings"):
        return json.dumps(list(QUERIES)), []
    return REPORT, []


def _has_words(messages: list[Mapping[str, Any]], words: str) -> bool:
    return any(words in str(message.get("content")) for message in messages[:2])


def _pick_call(request: Mapping[str, Any], tools: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The call of a tool: the one that is wanted, else first one that brings something, then end.

    None where no tool ends the work: a text does.
    """
    choice = request.get("tool_choice")
    done = any(message.get("role") == "tool" for message in request["messages"])
    wanted = choice["function"]["name"] if isinstance(choice, dict) else ""
    ends = [tool for tool in tools if tool["name"] == ENOUGH[0]]
    work = [tool for tool in tools if tool["name"] not in ENOUGH]
    named = [tool for tool in tools if tool["name"] == wanted]
    if not (fit := named or (ends if done else work)):
        return None
    arguments = json.dumps(fill_in(fit[0].get("parameters", {})))
    function = {"name": fit[0]["name"], "arguments": arguments}
    return {"id": f"call_{len(request['messages'])}", "type": "function", "function": function}


@dataclass(slots=True)
class Scripted:
    """The server; `log` grows by one entry for each request that was answered."""

    seconds: float = SECONDS
    port: int = 0
    log: list[tuple[str, float, float, int, int]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests, and note them."""

        async def answer(path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
            began = time.monotonic()
            kind, prompt, written = await self.answer(path, body, writer)
            await writer.drain()
            if kind:
                self.log.append((kind, began, time.monotonic(), prompt, written))

        await answer_all(answer, reader, writer)

    async def answer(
        self, path: str, body: bytes, writer: asyncio.StreamWriter
    ) -> tuple[str, int, int]:
        """Kind of the request, tokens read and written; kind "" is not noted."""
        if path.endswith("/chat/completions"):
            request, until = json.loads(body), time.monotonic() + self.seconds
            text, calls = reply_of(request)
            used = await reply_chat(request, text, writer, until, CHUNKS, calls=calls)
            return "model", used["prompt_tokens"], used["completion_tokens"]
        if path.endswith("/embeddings"):
            asked = json.loads(body)["input"]
            vectors = [
                {"object": "embedding", "index": at, "embedding": [0.1] * 256}
                for at in range(len(asked) if isinstance(asked, list) else 1)
            ]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            reply = {"object": "list", "model": MODEL, "data": vectors, "usage": usage}
            writer.write(json_response(reply))
            return "embeddings", 0, 0
        if path.startswith("/search"):
            await asyncio.sleep(SEARCH_SECONDS)
            writer.write(json_response(self.search(path, body)))
            return "search", 0, 0
        if path.startswith("/page/"):
            said = " ".join(FACTS)
            writer.write(
                page_response(f"<html><title>Rule</title><body><p>{said}</p></body></html>")
            )
            return "page", 0, 0
        if path == "/log":
            writer.write(json_response({"log": self.log}))
        else:
            writer.write(json_response({"data": [{"id": MODEL}]}))
        return "", 0, 0

    def search(self, path: str, body: bytes) -> dict[str, Any]:
        query = parse_qs(urlsplit(path).query).get("q", [""])[0]
        query = query or str(json.loads(body or b"{}").get("query", ""))
        rows = []
        for number in range(ROWS):
            title, text = row(query, number)
            url = f"http://127.0.0.1:{self.port}/page/{title[5:]}"
            more = {"raw_content": text, "score": 0.9} if body else {}
            rows.append({"title": title, "url": url, "content": text, **more})
        return {"query": query, "results": rows, "response_time": 0.05, "unresponsive_engines": []}


async def run(seconds: float) -> None:
    scripted = Scripted(seconds)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0, backlog=1024)
    scripted.port = server.sockets[0].getsockname()[1]
    print(scripted.port, flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a call")
    with suppress(KeyboardInterrupt):
        uvloop.run(run(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
