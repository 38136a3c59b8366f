"""Asking a search service for JSON: one request, every failure a sentence.

A reply is read up to a size limit and a hard time limit, whatever the service does meanwhile;
redirects are not followed, since the address was named by the user or by this program.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx

from memory.errors import SourceError

MOST_BYTES = 10_000_000
QUOTED = 200


class Refused(SourceError):
    """The service answered with an HTTP status that is no success."""

    def __init__(self, message: str, remedy: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Service:
    """A search service: `name` and `url` as they are told, headers as they are sent."""

    name: str
    url: str
    seconds: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON object at a path. Raises SourceError, as `Refused` for an HTTP status."""
        reply = self._parsed(await self.fetch(path, params))
        if not isinstance(reply, dict):
            raise self._garbled()
        return reply

    async def fetch(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        try:
            async with asyncio.timeout(self.seconds):
                return await self._read(path, params)
        except (TimeoutError, httpx.TimeoutException) as cause:
            raise SourceError(
                f"{self.name} did not answer within {self.seconds:g} s.",
                "Search again later, or name another source.",
            ) from cause
        except httpx.HTTPError as cause:
            raise SourceError(
                f"{self.name} cannot be reached at {self.url}.",
                "Look whether it runs and whether this machine is connected, or name another "
                "source.",
            ) from cause

    async def _read(self, path: str, params: Mapping[str, str] | None) -> bytes:
        headers = {"user-agent": "rubricem", "accept": "application/json", **self.headers}
        client = httpx.AsyncClient(headers=headers, timeout=self.seconds, verify=_trusted())
        async with (
            client as http,
            http.stream("GET", self.url + path, params=params) as reply,
        ):
            content = bytearray()
            async for piece in reply.aiter_bytes():
                content += piece
                if len(content) > MOST_BYTES:
                    raise self._garbled()
        if not reply.is_success:
            raise self._refused(reply, bytes(content))
        return bytes(content)

    def _parsed(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except ValueError as cause:
            raise self._garbled() from cause

    def _garbled(self) -> SourceError:
        return SourceError(
            f"What {self.url} sent is no search result of {self.name}.",
            "Correct its address, or name another source.",
        )

    def _refused(self, reply: httpx.Response, content: bytes) -> Refused:
        words = " ".join(_complaint(content).split())[:QUOTED]
        said = f": {words}" if words else ""
        return Refused(
            f"{self.name} refused the search (HTTP {reply.status_code}){said}.",
            "Search again later, or name another source.",
            reply.status_code,
            reply.headers,
        )


@cache
def _trusted() -> ssl.SSLContext:
    """Whom a connection trusts; reading it takes 30 ms of CPU, which each search would take."""
    return httpx.create_ssl_context()


def _complaint(content: bytes) -> str:
    """The service's own words: the field of a JSON reply that holds them, else none."""
    try:
        reply = json.loads(content)
    except ValueError:
        return ""
    said = (reply.get("error") or reply.get("message")) if isinstance(reply, dict) else ""
    return said.rstrip(".") if isinstance(said, str) else ""
