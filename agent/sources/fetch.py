"""Fetching one page over HTTP: bounded in bytes, time and redirects, and only from allowed hosts.

A model chooses among addresses written by strangers, so a page must not lead to what only this
machine can reach. Whether an address may be read is decided by what its name resolves to. Each hop
is checked anew, and the connection goes to the checked number with the host's own name in the
request and the TLS handshake. A host that the user allowed may be private; link-local and metadata
addresses are reached only if named exactly. Bodies stay compressed for a reader with limits.

An opened page is cut into passages that can be cited. Pages read recently are cached on disk: one
JSON file per address, named by the digest of the address and of what was allowed. A search of the
web reads the pages that it found, some at once.
"""

import asyncio
import json
import math
import re
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import httpx2

from rubricem.agent.sources.index import (
    IndexSegment,
    LexicalIndex,
    SegmentInMemory,
    widened,
    without_near_duplicates,
)
from rubricem.agent.sources.sandbox import NoText
from rubricem.agent.sources.sandbox.browser import browser_path, draw
from rubricem.agent.sources.sandbox.pool import Job, readers
from rubricem.agent.transcript.words import read_query
from rubricem.memory.errors import SourceError, StoreError
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import NOT_SHOWN, PageReader, Passage, SearchTool, ShownTexts
from rubricem.memory.text import digest_of

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""host and port -> its addresses as text; raises OSError if there is none"""
Address = IPv4Address | IPv6Address

PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535
LONGEST = 2000
"""characters of an address"""

_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\^{}|\[\]]+", re.I)
_TRAILING = ".,;:!?*"
_NAT64 = ip_network("64:ff9b::/96")
_PUBLIC_V6 = ip_network("2000::/3")
_PROTOCOLS = ip_network("192.0.0.0/24")
"""for protocols; some Pythons consider most of it public"""
_METADATA = frozenset(map(ip_address, ("169.254.169.254", "168.63.129.16", "fd00:ec2::254")))
"""metadata services; one of them has a public number"""


Target = tuple[httpx2.URL, tuple[str, ...]]
"""a page's address, and the checked numbers to connect to, in the order to try them"""


def _parse(address: str) -> httpx2.URL:
    """The address in its normal form, without fragment.

    Raises SourceError unless it is an http or https address of a host, without a password.
    """
    try:
        url = httpx2.URL(address.strip()) if len(address) <= LONGEST else httpx2.URL("")
        host = url.host  # read only now: a name such as `xn--a` is none
    except (httpx2.InvalidURL, ValueError):
        url, host = httpx2.URL(""), ""
    if url.scheme not in PORTS or not host or (url.port or 0) > _LAST_PORT:
        raise SourceError("That is not a web address.", "Give one that begins with https://.")
    if url.userinfo:
        raise SourceError("An address with a password in it is not opened.")
    # The raw path: unquoted and quoted again, %2F and %3F would name another page, or none.
    return url.copy_with(fragment=None, raw_path=url.raw_path)


@lru_cache(maxsize=1024)  # every passage that a search brings is asked for more than once
def normal(address: str) -> str:
    """A form that two spellings of one address share; "" if it is no web address."""
    try:
        return str(_parse(address))
    except SourceError:
        return ""


def addresses_in(text: str) -> list[str]:
    """The web addresses written in a text, each once."""
    found: dict[str, None] = {}
    for match in _ADDRESS.finditer(text):
        # Without what ends the sentence it stands in; a bracket that it opens is its own.
        address = match[0].rstrip(_TRAILING)
        while address.endswith(")") and address.count(")") > address.count("("):
            address = address[:-1].rstrip(_TRAILING)
        found[normal(address)] = None
    return list(filter(None, found))


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """The system's resolver, a `Resolve`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class AddressGuard:
    """Resolves an address, or refuses it."""

    def __init__(self, allowed: Sequence[str] = (), resolve: Resolve = resolve_host) -> None:
        """`allowed`: hosts, or host:port, that may be private."""
        self._allowed = frozenset(entry.lower().rstrip(".") for entry in allowed)
        self._resolve = resolve

    @classmethod
    def of(cls, address: str) -> Self:
        """A guard that allows the host and port of an address to be private."""
        url = _parse(address)
        return cls((f"{url.host}:{url.port or PORTS[url.scheme]}",))

    async def target(self, address: str) -> Target:
        """The address with the numbers to connect to. Raises SourceError if none is allowed."""
        url = _parse(address)
        port = url.port or PORTS[url.scheme]
        try:
            texts = await self._resolve(url.raw_host.decode("ascii"), port)
        except (OSError, UnicodeError) as cause:
            raise SourceError(f"The host {url.host} is not known.") from cause
        numbers = tuple(dict.fromkeys(texts))
        # One private number among public ones is enough: it may be the one that answers.
        if not numbers or not all(self._may_reach(url.host, port, text) for text in numbers):
            raise SourceError(
                f"The host {url.host} is on this machine or in a private network, and is not named "
                "in allow_hosts.",
                "Name it there if it is yours and meant to be read.",
            )
        return url, numbers

    def _may_reach(self, host: str, port: int, text: str) -> bool:
        number = _number(text)
        if number is None:
            return False
        if all(_public(each) for each in _numbers_within(number)):
            return True
        named = {host.lower().rstrip("."), f"{host.lower().rstrip('.')}:{port}"} & self._allowed
        # Not even an allowed name may lead to these.
        own = any(each.is_link_local or each in _METADATA for each in _numbers_within(number))
        return bool(named) and (not own or _number(host) == number)


def _number(text: str) -> Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _numbers_within(number: Address) -> Iterator[Address]:
    """The number, and the IPv4 ones embedded in it."""
    yield number
    if isinstance(number, IPv6Address):
        wrapped = [number.ipv4_mapped, number.sixtofour, *(number.teredo or ())]
        if number in _NAT64:
            wrapped.append(IPv4Address(int(number) & 0xFFFFFFFF))
        yield from (old for old in wrapped if old is not None)


def _public(number: Address) -> bool:
    if isinstance(number, IPv6Address) and (number.ipv4_mapped or number in _NAT64):
        return True  # what it wraps is looked at by itself
    if isinstance(number, IPv6Address) and number not in _PUBLIC_V6:
        return False
    if number in _PROTOCOLS or number in _METADATA:
        return False
    return number.is_global and not number.is_multicast


class Pinned(httpx2.AsyncBaseTransport):
    """Sends each request to a number that the guard allowed, under the host's own name."""

    def __init__(
        self, guard: AddressGuard, network: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        """`network` takes the place of the real one."""
        self._guard = guard
        # Not through a proxy of the environment: it would resolve the name by itself.
        self._network = network or httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        url, numbers = await self._guard.target(str(request.url))
        headers = request.headers.copy()
        headers["host"] = url.netloc.decode("ascii")
        extensions = {**request.extensions, "sni_hostname": url.raw_host.decode("ascii")}
        for number in numbers:
            there = url.copy_with(host=number)
            pinned = httpx2.Request(
                request.method, there, headers=headers, content=content, extensions=extensions
            )
            try:
                return await self._network.handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as cause:
                failed = cause
        raise failed

    async def aclose(self) -> None:
        await self._network.aclose()


_HEADERS = {
    "user-agent": "rubricem (research agent)",
    "accept": "text/html, application/pdf, text/plain, */*;q=0.5",
    "accept-encoding": "gzip",
}


LEAST_PIECE, FEW = 64, 10_000
"""least average size in bytes of a body's pieces, if there are more than a few"""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits on the cost of one page."""

    megabytes: int = 20
    """uncompressed"""
    seconds: float = 20.0
    """for the whole page, all redirects included"""
    redirects: int = 5

    @property
    def bytes(self) -> int:
        return self.megabytes << 20


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page as received: its final address, declared type, bytes, and their compression."""

    address: str
    content_type: str
    content: bytes
    packing: str = ""
    """gzip, deflate, or "" for none"""


class Fetcher:
    """Fetches pages. Every failure is a SourceError of one sentence."""

    def __init__(
        self,
        guard: AddressGuard,
        limits: FetchLimits | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`transport` replaces the network."""
        self._guard = guard
        self.limits = limits or FetchLimits()
        self._transport = transport

    async def fetch(self, address: str) -> Fetched:
        """The page at an address, after redirects."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._follow(address)
        except TimeoutError as cause:
            raise SourceError(
                f"{_host(address)} did not send the page within {self.limits.seconds:g} s."
            ) from cause
        except httpx2.HTTPError as cause:
            raise SourceError(
                f"{_host(address)} could not be read: {type(cause).__name__}."
            ) from cause
        except (httpx2.InvalidURL, UnicodeError) as cause:
            # Also httpx itself reads where a redirect leads.
            raise SourceError(
                f"{_host(address)} redirects to what is not a web address."
            ) from cause

    async def _follow(self, address: str) -> Fetched:
        for _ in range(self.limits.redirects + 1):
            url = _parse(address)
            # A client for each hop: a connection kept open belongs to the host it was made for.
            direct = httpx2.AsyncHTTPTransport(verify=self._trusted, trust_env=False)
            async with (
                httpx2.AsyncClient(
                    transport=Pinned(self._guard, self._transport or direct),
                    headers=_HEADERS,
                    timeout=self.limits.seconds / 2,
                ) as client,
                client.stream("GET", url) as response,
            ):
                if not response.has_redirect_location:
                    return await self._read(url, response)
                address = str(_parse(str(url.join(response.headers["location"]))))
        raise SourceError(f"{_host(address)} redirects without end.")

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        return httpx2.create_ssl_context()

    async def _read(self, url: httpx2.URL, response: httpx2.Response) -> Fetched:
        if response.status_code >= 400:
            raise SourceError(f"{url.host} answered {response.status_code} for that page.")
        declared = response.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self.limits.bytes:
            raise self._too_large(url)
        packing = packing_of(response.headers)
        body, pieces = bytearray(), 0
        async for piece in response.aiter_raw():
            body += piece
            pieces += 1
            if len(body) > self.limits.bytes:
                raise self._too_large(url)
            if pieces > FEW and pieces * LEAST_PIECE > len(body):
                raise SourceError(f"{url.host} sends the page in too many pieces.")
        declared = response.headers.get("content-type", "")
        return Fetched(str(url), declared, bytes(body), packing)

    def _too_large(self, url: httpx2.URL) -> SourceError:
        return SourceError(f"The page at {url.host} is larger than {self.limits.megabytes} MB.")


def packing_of(headers: Mapping[str, str]) -> str:
    """How a body is compressed, "" if it is not; raises SourceError for an unrequested way."""
    packing = headers.get("content-encoding", "").strip().lower()
    if packing not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise SourceError(f"The page is packed as {packing[:20]!r}, which was not requested.")
    return str(packing).removeprefix("identity")


def _host(address: str) -> str:
    return _parse(address).host


KEPT_SECONDS = 24 * 3600.0


class WebPages:
    """The `PageReader` of the web, which keeps in a folder what it read of each address for a day.

    If there is a browser, also what scripts draw is read of the hosts that may be private.
    """

    def __init__(
        self, folder: Path, allowed: Sequence[str] = (), fetcher: Fetcher | None = None
    ) -> None:
        """`allowed`: hosts that may be private, as the guard of the fetcher knows."""
        self._folder, self._allowed = folder, sorted(allowed)
        self._fetcher = fetcher or Fetcher(AddressGuard(allowed))
        self._swept = False

    async def read(self, address: str) -> list[Passage]:
        if (kept := await self.kept(address)) is not None:
            return kept
        passages = await self._read(address)
        await asyncio.to_thread(self._keep, address, passages)
        return passages

    async def kept(self, address: str) -> list[Passage] | None:
        """The page as it was read a while ago, for which nobody is asked; None: it was not."""
        return await asyncio.to_thread(self._find, address)

    def _find(self, address: str) -> list[Passage] | None:
        try:
            path = self._path(address)
            if _is_old(path):
                return None
            return [Passage(**fields) for fields in json.loads(path.read_bytes())]
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def _keep(self, address: str, passages: Sequence[Passage]) -> None:
        """Keep the passages; once per process, remove files that are too old."""
        with suppress(OSError, StoreError):
            kept = () if self._swept else self._folder.glob("*.json")
            self._swept = True
            for path in filter(_is_old, kept):
                path.unlink(missing_ok=True)
            entry = json.dumps([asdict(passage) for passage in passages])
            write_atomically(self._path(address), entry, synced=False)

    def _path(self, address: str) -> Path:
        key = "\n".join([normal(address), *self._allowed])
        return self._folder / f"{digest_of(key, 32)}.json"

    async def _read(self, address: str) -> list[Passage]:
        page = await self._fetcher.fetch(address)
        asked = {"address": page.address, "declared": page.content_type, "packing": page.packing}
        most = {"most": self._fetcher.limits.bytes}
        job = Job("page", "The page", {**asked, **most}, page.content, remedy="Name another one.")
        try:
            read = await readers().read(job)
        except NoText:
            if browser_path() is None:
                raise
            drawn = await draw(page.address, self._for_scripts(page.address))
            fields = {**asked, **most, "packing": "", "declared": "text/html; charset=utf-8"}
            read = await readers().read(Job("page", "The page", fields, drawn))
        return [Passage(read["title"], page.address, *piece) for piece in read["passages"]]

    def _for_scripts(self, address: str) -> Fetcher:
        """What answers a page's scripts: of private hosts they reach the page's own alone."""
        url = _parse(address)
        own = f"{url.host}:{url.port or PORTS[url.scheme]}"
        allowed = (own,) if {own, url.host} & {*self._allowed} else ()
        return Fetcher(AddressGuard(allowed), self._fetcher.limits)


def _is_old(path: Path) -> bool:
    """Also of the future: such a page would be fresh for ever."""
    return not 0 <= time.time() - path.stat().st_mtime < KEPT_SECONDS


READ_AT_ONCE, OF_A_HOST = 10, 2
"""pages fetched at the same time, by one search and of one host"""
HIT_SECONDS = 10.0
"""after which the excerpt of a page has to do"""
REST_SECONDS = 600.0
"""for which a page that could not be read is not tried again by a search"""


class Outward:
    """A source beyond this machine: what it is asked leaves by `leave`, what it tells is public.

    But for pages of private hosts, which were allowed for this machine alone. Of a search of the
    web the hits are read, and their passages are ranked: excerpts alone show a third of the facts
    that their pages show. A page that cannot be read in time is known by its excerpt.
    """

    def __init__(
        self,
        tool: SearchTool,
        private_hosts: Sequence[str] = (),
        pages: PageReader | None = None,
        most: int = 8,
    ) -> None:
        """`pages`: what reads its hits, None if they are no pages; `most`: of one search."""
        self._tool, self._private, self._pages, self._most = tool, private_hosts, pages, most
        self.name, self.services = tool.name, (tool.name,)
        self._hosts = defaultdict[str | None, asyncio.Semaphore](
            lambda: asyncio.Semaphore(OF_A_HOST)
        )
        self._at_once = asyncio.Semaphore(READ_AT_ONCE)
        self._each = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """by the address of a page, which several searches find"""
        self._read: dict[str, SegmentInMemory] = {}
        """by the address of a passage: the passages of its page"""
        self._tried: dict[str, float] = {}
        """when a page was read, or could not be, by its address"""

    async def prepare(self) -> tuple[str, ...]:
        if self._pages is not None:
            readers().warm()  # which takes as long as a model needs to plan
        return await self._tool.prepare()

    async def search(self, query: str, limit: int) -> list[Passage]:
        [query] = leave(self.name, query)
        if self._pages is None:
            return self._told(await self._tool.search(query, limit))
        hits = self._told(await self._tool.search(query, max(limit, self._most)))
        read = await asyncio.gather(*(self._open(hit, self._pages) for hit in hits[: self._most]))
        rest = (self._read.get(h.location) or SegmentInMemory([h]) for h in hits[self._most :])
        text = read_query(query).text
        return await asyncio.to_thread(rank_passages, [*read, *rest], text, limit)

    async def around(
        self, passages: Sequence[Passage], words: int, shown: ShownTexts = NOT_SHOWN
    ) -> list[Passage]:
        return widened(passages, self._stands, words, shown)

    async def page(self, location: str) -> list[Passage]:
        if self._pages is None or not normal(location):
            return []
        reader = OutwardPages(self._pages, self._private, self.name)
        read = self._read.get(location)
        return [*read.passages] if read else await reader.read(location)

    def _told(self, passages: Sequence[Passage], **more: Any) -> list[Passage]:
        private = self._private
        return [replace(p, public=is_public(p.location, private), **more) for p in passages]

    def _stands(self, passage: Passage) -> tuple[Sequence[Passage], int] | None:
        read = self._read.get(passage.location)
        page = read.passages if read else ()
        return (page, page.index(passage)) if passage in page else None

    async def _open(self, hit: Passage, pages: PageReader) -> SegmentInMemory:
        """The passages of a hit's page, with the date that the search told of it."""
        if (known := self._known(hit)) is not None:
            return known
        host = urlsplit(normal(hit.location)).hostname
        async with self._each[hit.location]:
            # Another search may have read it: then it waits for no place behind other pages.
            if (known := self._known(hit)) is not None:
                return known
            try:
                async with self._at_once, self._hosts[host], asyncio.timeout(HIT_SECONDS):
                    self._keep(hit, await pages.read(hit.location))
            except (SourceError, TimeoutError):
                self._tried[hit.location] = time.monotonic()
        return self._read.get(hit.location) or SegmentInMemory([hit])

    def _keep(self, hit: Passage, found: Sequence[Passage]) -> None:
        self._tried[hit.location] = time.monotonic()
        if not found:
            return
        # A title that stands in the address is only a file's name.
        named = found[0].title in unquote(hit.location)
        found = self._told(found, date=hit.date, **({"title": hit.title} if named else {}))
        read = SegmentInMemory(found)
        self._read |= {hit.location: read, found[0].location: read}
        while len(self._read) > MOST_REMEMBERED:
            gone = next(iter(self._read))
            del self._read[gone]
            self._tried.pop(gone, None)  # it did not fail, and is read anew
            self._each.pop(gone, None)

    def _known(self, hit: Passage) -> SegmentInMemory | None:
        """What was read of a hit, or that it could not be read; None: it is to be tried."""
        read = self._read.get(hit.location)
        ago = time.monotonic() - self._tried.get(hit.location, -math.inf)
        if ago < (KEPT_SECONDS if read else REST_SECONDS):
            return read or SegmentInMemory([hit])
        return None


MOST_REMEMBERED = 200
"""pages of which it is known what stands around a passage"""


def rank_passages(pages: Iterable[IndexSegment], query: str, limit: int) -> list[Passage]:
    """The passages of pages that match a query by words, best first, by an index of them alone."""
    index = LexicalIndex(*dict.fromkeys(pages))
    # What shares no word with the query was found by another engine for a reason.
    return index.search(query, limit) or without_near_duplicates(index.passages, limit)


LetOut = Callable[..., tuple[str, str]]
"""service, text, whether it is an address -> what may be sent, and why nothing may or """ ""


@dataclass
class Sending:
    """What one call sends to public services, as `let_out` permits it."""

    let_out: LetOut
    sent: list[tuple[str, str]] = field(default_factory=list)
    """service, and what it was sent"""
    kept: list[str] = field(default_factory=list)
    """why something was not sent, in sentences"""
    missed: list[str] = field(default_factory=list)
    """why one of several sources failed, where the call goes on without it"""


SENDING: ContextVar[Sending | None] = ContextVar("SENDING", default=None)
"""of the running call; None: no run makes it, and whoever does has read nothing private here"""


def leave(service: str, *texts: str, address: bool = False) -> list[str]:
    """The texts of one request as they may be sent.

    Whatever a run asks of a public service passes here, only here. Raises SourceError where the run
    may not send one of them, or all of them together, and then sends none.
    """
    sending = SENDING.get()
    if sending is None:
        return [*texts]
    together = [" ".join(texts)] if len(texts) > 1 else []
    said = [sending.let_out(service, text, address=address) for text in (*texts, *together)]
    if refusal := next((why for _, why in said if why), ""):
        sending.kept.append(refusal)
        raise SourceError(refusal)
    left = [text for text, _ in said[: len(texts)]]
    sending.sent += [(service, text) for text in left]
    return left


class OutwardPages:
    """A reader of pages of the web, whose addresses leave by `leave` for the service."""

    def __init__(
        self, pages: PageReader, private_hosts: Sequence[str] = (), service: str = "the web"
    ) -> None:
        self._pages, self._private, self._service = pages, private_hosts, service

    async def read(self, address: str) -> list[Passage]:
        public = is_public(address, self._private)
        found = await self._pages.kept(address) if isinstance(self._pages, WebPages) else None
        if found is None:
            if public:
                leave(self._service, address, address=True)
            found = await self._pages.read(address)
        return [replace(p, public=public) for p in found]


def is_public(address: str, private_hosts: Sequence[str] = ()) -> bool:
    """Whether a page was read on no host that was allowed for this machine alone."""
    with suppress(ValueError):
        parts = urlsplit(address)
        return not {parts.netloc.rpartition("@")[2], parts.hostname or ""} & {*private_hosts}
    return False
