"""The scripted model of `benchmarks.deep`, as gpt-researcher and open_deep_research ask it.

It reads which of their prompts it is given by the words that name its form, and says what the
scripted model says to ours: the lines in pairs, a query for each figure, every fact that a prompt
shows with its address, and one false number in what is written last. Search is also Tavily's
(`POST /search`, five whole pages), and embeddings are MiniLM's.

    python -m benchmarks.deep.peer_model --seconds 0.3      prints its port
"""

import argparse
import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from benchmarks.deep.model import (
    PLANTED,
    QUESTION,
    SEARCH_SECONDS,
    TOGETHER,
    Messages,
    Scripted,
    has,
    query_for,
    with_false_number,
)
from benchmarks.deep.world import FIGURES, LINES, Fact, Shown, World
from benchmarks.loopback import MODEL, Calls, json_response, serve_until_killed
from rubricem.agent.weights.store import WeightsStore, weights_dir
from rubricem.memory.schema import Embedder

ROWS = 5
"""pages that a search in Tavily's form brings"""
EXCERPT = 95
"""characters of a page that a search shows"""
_COUNT = re.compile(r"\d+")
_ADDRESS = re.compile(r"https?://[^\s\"'<>)\]]+")
Said = str | list[tuple[str, dict[str, Any]]]
"""a text, or calls of tools with their arguments"""


class PeerModel:
    """The replies; `kind` is "section" for whoever writes the report."""

    def __init__(self, world: World) -> None:
        self._facts = [
            (re.compile(r"\W+".join(map(re.escape, fact.text.split())), re.I), fact)
            for fact in world.facts
        ]

    def reply(self, request: Mapping[str, Any]) -> tuple[str, Said]:
        """Who is asked, and what is said."""
        messages: Messages = request["messages"]
        texts = [_text_of(message) for message in messages]
        form = ((request.get("response_format") or {}).get("json_schema") or {}).get("name")
        tools = {tool["function"]["name"] for tool in request.get("tools") or ()}
        turn = sum(message["role"] == "assistant" for message in messages)
        if form in ("ClarifyWithUser", "ResearchQuestion", "Summary"):
            return form, json.dumps(self._structured(form, texts[-1]))
        if "ConductResearch" in tools:
            return "supervisor", self._supervise("\n".join(texts), turn)
        if "tavily_search" in tools:
            return "researcher", self._search(texts, turn)
        return self._written(texts)

    def found(self, text: str) -> dict[Fact, str]:
        """The facts in a text, with the address that stands before each last."""
        found = dict[Fact, str]()
        for pattern, fact in self._facts:
            if place := pattern.search(text):
                before = _ADDRESS.findall(text, 0, place.start())
                found[fact] = before[-1] if before else ""
        return found

    def _structured(self, form: str, last: str) -> dict[str, Any]:
        if form == "ClarifyWithUser":
            return {"need_clarification": False, "question": "", "verification": "I begin."}
        if form == "ResearchQuestion":
            return {"research_brief": QUESTION}
        told = " ".join(f"{fact.text}." for fact in self.found(last))
        return {"summary": told or "A sheet without a figure of the line.", "key_excerpts": told}

    def _supervise(self, whole: str, turn: int) -> Said:
        known = self.found(whole)
        short = [n for n in LINES if sum(f.line == n for f in known) < len(FIGURES)]
        if not short or turn > 2:
            return [("ResearchComplete", {})]
        groups = [short[at : at + TOGETHER] for at in range(0, len(short), TOGETHER)]
        asked = "Find length, cost, opening, traffic and closed stations of the railway lines {}."
        return [
            ("ConductResearch", {"research_topic": asked.format(" and ".join(group))})
            for group in groups
        ]

    def _search(self, texts: Sequence[str], turn: int) -> Said:
        lines = [line for line in LINES if line in texts[1]]
        known = self.found("\n".join(texts))
        open_ = [(n, f) for n in lines for f in FIGURES if not has(known, n, f)]
        if not open_ or turn > 1:
            return "What was found stands above."
        return [("tavily_search", {"queries": [query_for(n, f, turn) for n, f in open_]})]

    def _written(self, texts: Sequence[str]) -> tuple[str, str]:
        first, last = texts[0], texts[-1]
        if "clean up these findings" in last:
            return "compress", self._listed("\n".join(texts))
        if "The server is determined by the field" in first:
            return "agent", json.dumps({"server": "Lines", "agent_role_prompt": "You know lines."})
        wanted = _COUNT.search(last)
        most = int(wanted[0]) if wanted else 3
        named = [line for line in LINES if line in last.partition("\n")[0]] or [*LINES]
        if last.startswith("Write ") and "search queries" in last[:60]:
            return "plan", json.dumps(_queries(named, most))
        if "unique search queries" in last[:200]:
            task = last.partition("for each pair:")[2]
            named = [line for line in LINES if line in task] or [*LINES]
            goals = (f"Query: {each}\nGoal: every figure" for each in _queries(named, most))
            return "queries", "\n".join(goals)
        if "unique questions" in last[:2000]:
            asked = (f"Question: Which figures are known of {each}?" for each in LINES)
            return "questions", "\n".join(asked)
        if "research results for the query" in last[:200]:
            learnt = (f"Learning [{at}]: {f.text}." for f, at in self.found(last).items())
            lacking = "\n".join(
                f"Question: What else is known of the {line} line?" for line in named
            )
            return "learn", "\n".join([*learnt, lacking])
        return "section", self._listed(last, planted=True)

    def _listed(self, text: str, *, planted: bool = False) -> str:
        told = []
        for fact, address in self.found(text).items():
            false = planted and fact.line == PLANTED and fact.figure == next(iter(FIGURES))
            told.append(f"- {with_false_number(fact) if false else fact.text}. ({address})")
        return "\n".join(told) or "Nothing was found."


class PeerServer(Scripted):
    """Also Tavily's search, calls of tools, and embeddings.

    Excerpts are short, since gpt-researcher takes one of over 100 characters for the whole page.
    """

    def __init__(self, seconds: float, world: World, embedder: Embedder) -> None:
        shown = {"all": Shown(world), "section": Shown(world)}
        super().__init__(seconds, None, shown, world)
        self._peer, self._embedder = PeerModel(world), embedder
        self.pages = world.pages

    def rows(self, query: str) -> list[dict[str, str]]:
        return [row | {"content": row["content"][:EXCERPT]} for row in super().rows(query)]

    def reply(self, request: Mapping[str, Any]) -> tuple[str, str, Calls]:
        kind, said = self._peer.reply(request)
        if isinstance(said, str):
            return kind, said, ()
        at = len(request["messages"])
        calls = [
            {"id": f"call_{at}_{n}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(said)
        ]  # fmt: skip
        return kind, "", calls

    async def answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path.endswith("/embeddings"):
            given = json.loads(body)["input"]
            texts = given if isinstance(given, list) else [given]
            vectors = await asyncio.to_thread(self._embedder.embed, texts)
            data = [
                {"object": "embedding", "index": at, "embedding": list(map(float, vector))}
                for at, vector in enumerate(vectors)
            ]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            writer.write(json_response({"object": "list", "model": MODEL, "data": data} | usage))
        elif path == "/search" and body:
            began, query = time.monotonic(), str(json.loads(body)["query"])
            whole = {self.root + path: page.text for path, page in self.pages.items()}
            rows = [
                {**row, "score": 0.9, "raw_content": whole[row["url"]]}
                for row in self.rows(query)[:ROWS]
            ]
            await asyncio.sleep(SEARCH_SECONDS)
            writer.write(json_response({"query": query, "results": rows, "response_time": 0.05}))
            self.note("search", began, query)
        else:
            await super().answer(path, body, writer)


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content)


def _queries(lines: Sequence[str], most: int) -> list[str]:
    """At most so many queries: of one line its figures, of several lines as many groups."""
    if len(lines) == 1:
        return [query_for(lines[0], figure, 0) for figure in FIGURES][:most]
    size = -(-len(lines) // most)
    groups = [lines[at : at + size] for at in range(0, len(lines), size)]
    return [
        f"length, cost, opening, traffic and closures of {' and '.join(g)} line" for g in groups
    ]


async def run(seconds: float) -> None:
    embedder = await WeightsStore(weights_dir()).embedder()
    await serve_until_killed(PeerServer(seconds, World(), embedder).serve)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.3, help="of a call")
    seconds = parser.parse_args().seconds
    with suppress(KeyboardInterrupt):
        asyncio.run(run(seconds))
