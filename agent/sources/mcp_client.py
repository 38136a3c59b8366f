"""Calling the tools of MCP servers beside a search; the extra `mcp` brings the SDK.

A server that fails or hangs when the sources are prepared is told once, and asked again when the
next question begins or one of its tools is called. All waits are bounded; every failure is a
SourceError of one sentence. The SDK's client is closed by the task that opened it.

Over HTTP every request goes to a checked number: the host in the settings may be private, but must
not resolve to a link-local address or a metadata service, unless that exact address was named.

Of a list of results (objects with a text, perhaps a title and an address) each becomes a passage or
more; any other text is cut into passages. Images and sounds are left out, and a note says so.
"""

import asyncio
import errno
import json
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from rubricem.agent.sources.fetch import AddressGuard, Pinned, leave, normal
from rubricem.agent.sources.index import around, of_kind, page, services
from rubricem.agent.sources.offers import Offer
from rubricem.agent.sources.readers.passages import split_passages
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.transcript.question import PUBLIC
from rubricem.memory.errors import RubricemError, SourceError, import_extra
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import NOT_SHOWN, Passage, SearchTool, ShownTexts
from rubricem.memory.text import one_line, printable

if TYPE_CHECKING:
    from mcp import Client


@asynccontextmanager
async def open_client(name: str, server: ToolServer) -> "AsyncIterator[Client]":
    """A client connected to the server. Raises whatever error occurred."""
    # It takes 0.6 s of a core, and other runs have the event loop.
    await asyncio.to_thread(import_extra, "mcp", "mcp", f"The MCP server {name}")
    from mcp import Client, Implementation

    # What it logs of a reply that it cannot read would run across the terminal; we say a sentence.
    logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
    told = Implementation(name="rubricem", version="1")
    transport: Any = _program(server) if server.command else _http(server)
    async with Client(transport, client_info=told, cache=None) as client:
        # Held against the server's own schema, whose patterns may take time without end, a reply
        # would stop the event loop; what is read of it here needs no schema.
        client.session.validate_tool_result = _accept  # type: ignore[method-assign]
        yield client


async def _accept(name: str, result: Any) -> None:
    """Validate nothing: the result is taken as it is."""


@asynccontextmanager
async def _program(server: ToolServer) -> AsyncIterator[Any]:
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    env = {key: value.get_secret_value() for key, value in server.env.items()}
    if shutil.which(server.command or "", path=env.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), server.command)
    program = StdioServerParameters(command=server.command or "", args=[*server.args], env=env)
    # What a program writes beside the protocol would run across the terminal.
    with Path(os.devnull).open("w", encoding="utf-8") as log:
        async with stdio_client(program, errlog=log) as streams:
            yield streams


@asynccontextmanager
async def _http(server: ToolServer) -> AsyncIterator[Any]:
    from mcp.client.streamable_http import streamable_http_client

    # No proxy of the environment stands between, as there is a transport.
    client = httpx2.AsyncClient(
        transport=Bounded(AddressGuard.of(server.url or "")),
        headers={name: value.get_secret_value() for name, value in server.headers.items()},
        # Of a reply, each use keeps the time: here one late reply would end all on the connection.
        timeout=httpx2.Timeout(server.seconds, read=None),
    )
    async with (
        client as http,
        streamable_http_client(server.url or "", http_client=http) as streams,
    ):
        yield streams


LEAVING = 10.0
"""seconds for ending a connection; a program that has not exited by then is ended"""
QUOTED = 300
"""characters of a server's own words"""
MOST_PAGES = 20
MOST_BYTES = 4_000_000
"""of a reply over HTTP, which the SDK parses in this process"""


class _Link:
    """A connection that is open, or opens."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Event()
        self.uses = 0
        self.task: asyncio.Task[None]


class Connection:
    """One server, by its name in the settings."""

    def __init__(self, name: str, server: ToolServer) -> None:
        self._name = name
        self._server = server
        self._lock = asyncio.Lock()
        self._held: _Link | None = None
        self._kept = list[_Link]()
        """it, and those before it on which calls are under way"""

    async def offers(self) -> list[Offer]:
        """The allowed tools of the server. Raises SourceError."""
        found: list[Offer] = []
        async with self._client("list its tools") as client:
            cursor = None
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                for tool in page.tools:
                    if tool.name in self._server.tools:
                        acts = not (tool.annotations and tool.annotations.read_only_hint)
                        told = tool.description or ""
                        found.append(Offer(self._name, tool.name, told, tool.input_schema, acts))
                if not (cursor := page.next_cursor):
                    break
        return found

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """The `CallToolResult` of one call. Raises SourceError, also for an error of the tool."""
        async with self._client(f"answer the call of {tool}") as client:
            result = await client.call_tool(tool, arguments)
        if result.is_error:
            said = " ".join(b.text for b in result.content if b.type == "text")
            words = one_line(self._server.without_key(said), QUOTED).rstrip(".")
            words = words or "it did not say why"
            raise SourceError(f"The tool {self._name}.{tool} failed: {words}.")
        return result

    async def aclose(self) -> None:
        """End the connection, and the program if it is one; also those that a call still uses."""
        self._held = None
        ending, self._kept = self._kept, []
        for held in ending:
            held.closing.set()
        if tasks := [held.task for held in ending]:
            # What goes wrong while a server is left is of no use to anybody.
            await asyncio.wait(tasks, timeout=LEAVING)
        for task in tasks:
            task.cancel()

    @asynccontextmanager
    async def _client(self, doing: str) -> "AsyncIterator[Client]":
        """The client for one use within the server's time limit. Raises SourceError.

        After a failure the next use connects anew, as this connection may be dead, or blocked; it
        is left once nothing else is under way on it.
        """
        async with self._lock:
            if self._held is None or self._held.task.done():
                self._kept = [each for each in self._kept if not each.task.done()]
                self._held = _Link()
                self._held.task = asyncio.create_task(self._hold(self._held))
                self._kept.append(self._held)
            held = self._held
            with self._retiring(held):
                async with self._limit_time("answer when it was connected to"):
                    client = await asyncio.shield(held.opened)
        with self._retiring(held):
            async with self._limit_time(doing):
                yield client

    @contextmanager
    def _retiring(self, held: "_Link") -> Iterator[None]:
        """A use of a connection, which is used no more after one that failed."""
        held.uses += 1
        try:
            yield
        except SourceError:
            self._held = None if self._held is held else self._held
            raise
        finally:
            held.uses -= 1
            if self._held is not held and not held.uses:
                held.closing.set()
                if not held.opened.done():
                    held.task.cancel()

    async def _hold(self, held: "_Link") -> None:
        """The one task that may close the client keeps it open."""
        try:
            async with open_client(self._name, self._server) as client:
                held.opened.set_result(client)
                await held.closing.wait()
        except Exception as error:
            # A broken connection shows in the call that needs it.
            if not held.opened.done():
                held.opened.set_exception(error)

    @asynccontextmanager
    async def _limit_time(self, doing: str) -> AsyncIterator[None]:
        """Run within the server's time limit; any error becomes one sentence."""
        place = f"The MCP server {self._name}"
        try:
            async with asyncio.timeout(self._server.seconds):
                yield
        except RubricemError:
            raise
        except TimeoutError as cause:
            late = f"{place} did not {doing} within {self._server.seconds:g} s."
            raise SourceError(late) from cause
        except Exception as cause:
            first: BaseException = cause
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            words = one_line(self._server.without_key(str(first)), QUOTED).rstrip(".")
            if not words or words.startswith("<"):  # nothing but a value of the library's
                words = type(first).__name__
            raise SourceError(f"{place} could not {doing}: {words}.") from cause


PASSAGE_WORDS = 160
MOST_CHARACTERS = 1_000_000
"""of the result of one call, and of JSON that is parsed in this process"""
MOST_ROWS = 1000
LONGEST_NAME = 200
_TEXTS = ("text", "content", "snippet", "body", "description", "summary")
_ADDRESSES = ("url", "link", "href", "uri")
_LISTS = ("results", "items", "documents", "result")


def passages_of(
    result: Any, name: str, arguments: Mapping[str, Any] | None = None
) -> tuple[list[Passage], str]:
    """Passages of a `CallToolResult` of the tool `name`, and a note on what was left out.

    Their place names the arguments, so that equal results of two calls are two sources.
    """
    asked = ", ".join(f"{key}: {_text(value)}" for key, value in (arguments or {}).items())
    place = one_line(asked, LONGEST_NAME)
    texts, left = [], set()
    for block in result.content:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "resource" and hasattr(block.resource, "text"):
            texts.append(block.resource.text)
        elif block.type == "resource_link":
            texts.append(f"{block.title or block.name}: {block.uri}\n{block.description or ''}")
        else:
            left.add(block.type)
    # Servers mostly repeat the structured form as text.
    structured = result.structured_content
    if not texts and structured is not None:
        texts.append(json.dumps(structured, ensure_ascii=False, indent=1))
    rows = _rows(structured) or [row for text in texts for row in _rows(_json(text))]
    found = list(_row_passages(rows, name))
    if not rows:
        pieces = _pieces("\n\n".join(texts))
        found = [Passage(name, f"mcp:{name}", place, piece) for piece in pieces]
    note = f"What {name} returned as {', '.join(sorted(left))} is left out." if left else ""
    return found, note


def _json(text: str) -> Any:
    listed = len(text) <= MOST_CHARACTERS and text.lstrip()[:1] in ("[", "{")
    try:
        return json.loads(text) if listed else None
    except (ValueError, RecursionError):
        return None


def _rows(value: Any) -> list[Mapping[str, Any]]:
    """The results in it; none unless each has a text."""
    if isinstance(value, Mapping):
        held = next((value[k] for k in _LISTS if isinstance(value.get(k), list | dict)), [value])
        return _rows(held)
    whole = isinstance(value, list) and all(
        isinstance(row, Mapping) and _first(row, _TEXTS) for row in value
    )
    return value if whole else []


def _first(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((row[n] for n in names if isinstance(row.get(n), str) and row[n].strip()), "")


def _row_passages(rows: Sequence[Mapping[str, Any]], name: str) -> Iterator[Passage]:
    left = MOST_CHARACTERS
    for row in rows[:MOST_ROWS]:
        text = _first(row, _TEXTS)[:left]
        left -= len(text)
        address = normal(_first(row, _ADDRESSES))
        title = one_line(_first(row, ("title", "name")) or address or name, LONGEST_NAME)
        for piece in _pieces(text):
            yield Passage(title, address or f"mcp:{name}", "", piece)


def _pieces(text: str) -> list[str]:
    return split_passages(printable(text[:MOST_CHARACTERS]), PASSAGE_WORDS)


LISTED_SECONDS = 60.0
"""for which a server's list of tools, and its word on which of them act, is taken to hold"""
PATIENCE = 2.0
"""seconds for which a question waits for servers that were missing; more may help the next one"""


class Equipped:
    """A `SearchTool` that forwards searches, and calls tools by name; has to be closed."""

    def __init__(
        self,
        search_tool: SearchTool,
        servers: Mapping[str, ToolServer],
        allowed: Path | None = None,
        tell: Tell = hush,
    ) -> None:
        """`allowed`: the file that keeps which tools that act a person has allowed for always."""
        self._kept, self._tell = allowed, tell
        self.name = search_tool.name
        self.offers: dict[str, Offer] = {}
        """the tools that can be called, by the policy's names for them"""
        self.allowed = frozenset(f"{n}.{tool}" for n in servers for tool in servers[n].tools)
        """the names that may be called, whether their servers answer or not"""
        self._search_tool, self.searched = search_tool, (search_tool,)
        self.private: bool = getattr(search_tool, "private", True)
        self._servers = servers
        self._connections = {name: Connection(name, servers[name]) for name in servers}
        self._missing: set[str] = set()
        """servers whose tools are unknown"""
        self._asking: dict[str, asyncio.Task[str]] = {}
        self._asked: dict[str, float] = {}
        """when each server told its tools"""

    @property
    def mixed(self) -> bool:
        public = {server.public for server in self._servers.values()}
        private = self.private or False in public
        return private and (bool(services(self)) or True in public)

    def of_kind(self, kind: str) -> "Equipped":
        """Its tools and sources of one kind, over the same connections."""
        servers = {n: s for n, s in self._servers.items() if s.public is (kind == PUBLIC)}
        made = Equipped(of_kind(self._search_tool, kind), servers, self._kept, self._tell)
        made._connections = {name: self._connections[name] for name in servers}
        made.offers = {name: each for name, each in self.offers.items() if name in made.allowed}
        return made

    async def prepare(self) -> tuple[str, ...]:
        asked = asyncio.gather(*map(self._ask_offers, self._connections))
        problems = await self._search_tool.prepare()
        if not asked.done():
            self._tell(f"waiting for MCP servers to start: {', '.join(self._connections)}")
        return (*problems, *filter(None, await asked))

    async def look_again(self) -> list[str]:
        """Ask servers that were missing, or asked long ago; returns what has changed, in sentences.

        Waits only a moment. A slower server is awaited in the background, for the next question.
        """
        old = {n for n, at in self._asked.items() if time.monotonic() - at > LISTED_SECONDS}
        for name in (self._missing | old) - self._asking.keys():
            self._asking[name] = asyncio.create_task(self._ask_offers(name))
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=PATIENCE)
        ended = [name for name, task in self._asking.items() if task.done()]
        said = {name: self._asking.pop(name).result() for name in ended}
        return [said[name] for name in said if said[name] and name not in self._missing]

    async def _ask_offers(self, name: str) -> str:
        """Ask a server for its tools; returns what is wrong, or has changed, or ""."""
        back = name in self._missing
        try:
            offers = await self._connections[name].offers()
        except SourceError as error:
            self._missing.add(name)
            return f"{error} Its tools are left out."
        self._missing.discard(name)
        before = {n: offer for n, offer in self.offers.items() if n.partition(".")[0] == name}
        others = {n: offer for n, offer in self.offers.items() if n not in before}
        listed = {offer.name: offer for offer in offers}
        self.offers = others | listed
        again = name in self._asked and not back
        self._asked[name] = time.monotonic()
        if again:
            return "" if listed == before else f"The tools of the MCP server {name} have changed."
        missing = sorted(set(self._servers[name].tools) - {offer.tool for offer in offers})
        if missing:
            return f"The MCP server {name} has no tool {', '.join(missing)}."
        return f"The tools of the MCP server {name} can be called now." if back else ""

    async def search(self, query: str, limit: int) -> list[Passage]:
        return await self._search_tool.search(query, limit)

    async def around(
        self, passages: Sequence[Passage], words: int, shown: ShownTexts = NOT_SHOWN
    ) -> list[Passage]:
        return await around(self._search_tool, passages, words, shown)

    async def page(self, location: str) -> list[Passage]:
        return await page(self._search_tool, location)

    async def call(self, name: str, written: str) -> tuple[list[Passage], str]:
        """A tool's result as passages, and a note. Raises SourceError of one sentence."""
        server, _, tool = name.partition(".")
        public, offer = self.is_public(name), await self.offer(name)
        arguments = self._arguments(offer, written)
        if public:
            left = leave(name, *map(_text, arguments.values()))
            pairs = zip(arguments.items(), left, strict=True)
            arguments = {k: text if isinstance(v, str) else v for (k, v), text in pairs}
        result: Any = await self._connections[server].call(tool, arguments)
        found, note = await asyncio.to_thread(passages_of, result, name, arguments)
        return [replace(passage, public=public) for passage in found], note

    async def offer(self, name: str) -> Offer:
        """A tool, whose server is asked for it again if need be. Raises SourceError."""
        problem = "" if name in self.offers else await self._ask_offers(name.partition(".")[0])
        if name not in self.offers:
            raise SourceError(problem)
        return self.offers[name]

    def told(self, name: str, written: str) -> str:
        """The values of the arguments in a call's text, which its server is told."""
        with suppress(SourceError):
            if name in self.offers:
                return " ".join(map(_text, self._arguments(self.offers[name], written).values()))
        return written

    def _arguments(self, offer: Offer, written: str) -> dict[str, Any]:
        """What a call's text has for a tool; a public one is told what it takes, and no more."""
        arguments = offer.arguments(written)
        if not self.is_public(offer.name):
            return arguments
        return {key: value for key, value in arguments.items() if key in offer.properties}

    def is_public(self, name: str) -> bool:
        return self._servers[name.partition(".")[0]].public

    def acts(self, name: str) -> bool:
        """Whether a known tool needs a person's word before it is called.

        Servers come from the user's own settings alone, so their marks are believed.
        """
        server, _, tool = name.partition(".")
        offer = self.offers.get(name)
        return offer is not None and offer.acts and tool not in self._servers[server].unasked

    def is_allowed(self, name: str) -> bool:
        """Whether a person has allowed a tool that acts for always."""
        return self._identity(name) in self._always()

    def allow(self, name: str) -> None:
        """Allow a tool that acts for always. Raises StoreError."""
        if self._kept is not None:
            write_atomically(self._kept, json.dumps([*self._always(), self._identity(name)]))

    def _always(self) -> list[str]:
        try:
            kept = json.loads(self._kept.read_bytes()) if self._kept else []
        except (OSError, ValueError, RecursionError):
            return []  # what cannot be read allows nothing
        return kept if isinstance(kept, list) else []

    def _identity(self, name: str) -> str:
        server, _, tool = name.partition(".")
        return self._servers[server].identity(tool)

    async def aclose(self) -> None:
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        await asyncio.gather(*(each.aclose() for each in self._connections.values()))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Bounded(Pinned):
    """A transport whose replies are unpacked, and break off where they become too large."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        reply = await super().handle_async_request(request)
        if isinstance(reply.stream, httpx2.AsyncByteStream):
            reply.stream = _Limited(reply.stream)
        return reply


class _Limited(httpx2.AsyncByteStream):
    """A body that breaks off where it becomes too large."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for piece in self._body:
            if (left := left - len(piece)) < 0:
                raise httpx2.ReadError("the reply is too large")
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()
