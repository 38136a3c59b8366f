"""Fetching one page over HTTP: bounded in bytes, in time and in redirects.

Each hop is resolved and checked anew, and the connection goes to the number that was checked,
with the host's own name in the request and in the TLS handshake. Bodies are unpacked here, since
a few kilobytes of gzip can hold gigabytes.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from agent.pages.addresses import AddressGuard, Target, parsed
from memory.errors import SourceError

_HEADERS = {
    "user-agent": "rubricem (research agent)",
    "accept": "text/html, application/pdf, text/plain, */*;q=0.5",
    "accept-encoding": "gzip",
}
_PIECE = 1 << 16
_GZIP_OR_ZLIB = 47
"""what zlib calls reading either"""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one page may cost."""

    megabytes: int = 20
    """unpacked"""
    seconds: float = 20.0
    """for the whole page, all redirects included"""
    redirects: int = 5

    @property
    def bytes(self) -> int:
        return self.megabytes << 20


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page as it came: the address that answered, its declared type, its bytes unpacked."""

    address: str
    content_type: str
    content: bytes


class Fetcher:
    """Fetches pages. Every failure is a SourceError with one sentence."""

    def __init__(
        self,
        guard: AddressGuard,
        limits: FetchLimits | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        verify: str | None = None,
    ) -> None:
        """`transport` stands in for the network; `verify`: a file of further authorities."""
        self._guard = guard
        self._limits = limits or FetchLimits()
        self._transport = transport
        self._verify = verify
        self._context: ssl.SSLContext | None = None

    async def fetch(self, address: str) -> Fetched:
        """The page at an address, through its redirects."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._follow(address)
        except TimeoutError as cause:
            raise SourceError(
                f"{_host(address)} did not send the page within {self._limits.seconds:g} s."
            ) from cause
        except httpx.HTTPError as cause:
            raise SourceError(
                f"{_host(address)} could not be read: {type(cause).__name__}."
            ) from cause

    async def _follow(self, address: str) -> Fetched:
        for _ in range(self._limits.redirects + 1):
            target = await self._guard.target(address)
            async with self._response(target) as response:
                if not response.has_redirect_location:
                    return await self._read(target, response)
                address = _next(target, response)
        raise SourceError(f"{_host(address)} redirects without end.")

    @asynccontextmanager
    async def _response(self, target: Target) -> AsyncIterator[httpx.Response]:
        """The answer of the first number that can be connected to."""
        # A client for each hop: a connection kept open belongs to the host that it was made for.
        async with self._client() as client:
            for number in target.numbers:
                last = number == target.numbers[-1]
                try:
                    response = await client.send(_request(client, target, number), stream=True)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if last:
                        raise
                    continue
                try:
                    yield response
                finally:
                    await response.aclose()
                return

    def _client(self) -> httpx.AsyncClient:
        # Not through a proxy of the environment: it would resolve the name by itself.
        return httpx.AsyncClient(
            transport=self._transport,
            verify=self._trusted(),
            trust_env=False,
            headers=_HEADERS,
            timeout=self._limits.seconds / 2,
        )

    def _trusted(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = httpx.create_ssl_context()
            if self._verify:
                self._context.load_verify_locations(self._verify)
        return self._context

    async def _read(self, target: Target, response: httpx.Response) -> Fetched:
        if response.status_code >= 400:
            raise SourceError(f"{target.url.host} answered {response.status_code} for that page.")
        declared = response.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._limits.bytes:
            raise self._too_large(target)
        body = bytearray()
        async for piece in _unpacked(response):
            body += piece
            if len(body) > self._limits.bytes:
                raise self._too_large(target)
        return Fetched(str(target.url), response.headers.get("content-type", ""), bytes(body))

    def _too_large(self, target: Target) -> SourceError:
        return SourceError(
            f"The page at {target.url.host} is larger than {self._limits.megabytes} MB."
        )


def _request(client: httpx.AsyncClient, target: Target, number: str) -> httpx.Request:
    url = target.url.copy_with(host=number)
    return client.build_request(
        "GET",
        url,
        headers={"host": target.url.netloc.decode("ascii")},
        extensions={"sni_hostname": target.url.raw_host.decode("ascii")},
    )


def _next(target: Target, response: httpx.Response) -> str:
    """Where a redirect leads. Raises SourceError where that is no web address."""
    try:
        joined = target.url.join(response.headers["location"])
    except httpx.InvalidURL as cause:
        raise SourceError(f"{target.url.host} redirects to no web address.") from cause
    return str(parsed(str(joined)))


async def _unpacked(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body in pieces of at most 64 KiB."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise SourceError(f"The page is packed as {encoding[:20]!r}, which was not asked for.")
    unpack = zlib.decompressobj(_GZIP_OR_ZLIB) if encoding not in ("identity", "") else None
    async for packed in response.aiter_raw():
        while packed:
            if unpack is None:
                yield packed
                break
            try:
                yield unpack.decompress(packed, _PIECE)
            except zlib.error as cause:
                raise SourceError("The page is packed, and its packing is damaged.") from cause
            packed = unpack.unconsumed_tail


def _host(address: str) -> str:
    return parsed(address).host
