"""Who may ask the server what, decided before any route sees a request.

A page elsewhere whose name is pointed at this host is refused by its Host, other sites by their
Origin, and their forms by a header that none can send without being let to. Where the server can
be reached from elsewhere it wants its token, or the cookie of a login. Bodies have their sizes, and
addresses their rates. Every reply forbids the page all that it does not need.
"""

import errno
import hashlib
import hmac
import ipaddress
import json
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rubricem.agent.serve.refusals import RequestRefused, reply_of, too_many
from rubricem.memory.errors import SettingsError

MOST_ADDRESSES = 1024
"""addresses that are remembered; the one heard of least recently is forgotten"""


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket of requests that fills again."""

    at_once: float
    a_second: float


@dataclass
class Rates:
    """What each address has left."""

    reading: Rate = Rate(2000, 200)
    changing: Rate = Rate(120, 10)
    clock: Callable[[], float] = time.monotonic
    _left: OrderedDict[tuple[str, bool], tuple[float, float]] = field(default_factory=OrderedDict)
    """what is left, and when that was"""

    def allow(self, address: str, changing: bool) -> bool:
        """Whether one more request is carried out; it is counted if so."""
        rate = self.changing if changing else self.reading
        now, key = self.clock(), (address, changing)
        left, at = self._left.pop(key, (rate.at_once, now))
        left = min(left + (now - at) * rate.a_second, rate.at_once)
        allowed = left >= 1
        self._left[key] = (left - allowed, now)
        while len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return allowed


CSRF_HEADER = "X-Rubricem"
COOKIE = "rubricem"
GUARDED = ("/api/", "/v1/", "/mcp")
"""what is not a static file"""
PROGRAMS = ("/v1/", "/mcp")
"""what programs speak that know no header of ours; their bodies are JSON, which no form sends"""
OPEN = ("/api/login",)
"""what can be asked without the token"""
SAFE = ("GET", "HEAD")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

HEADERS: Mapping[bytes, bytes] = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Security:
    """What one server requires of those who ask it."""

    host: str = "127.0.0.1"
    """what it listens on"""
    token: str | None = field(default=None, repr=False)
    """None: only this machine can reach it, and no token is asked for"""
    names: tuple[str, ...] = ()
    """what this machine is called in its networks, where the server listens in all of them"""
    most_body: int = 1 << 20
    """bytes"""
    bodies: Mapping[str, int] = field(default_factory=lambda: {"/api/uploads": 201_000_000})
    """paths whose bodies may have another size"""
    rates: Rates = field(default_factory=Rates)

    def admits(self, token: str) -> bool:
        """Whether this is the token; takes as long for any of the same length."""
        return self.token is None or hmac.compare_digest(token.encode(), self.token.encode())

    def cookie(self) -> str:
        """What a browser is given that has shown the token; it says nothing of the token."""
        return hmac.new((self.token or "").encode(), b"rubricem cookie", hashlib.sha256).hexdigest()

    def most(self, path: str) -> int:
        """Bytes that the body of a request may have."""
        return self.bodies.get(path, self.most_body)

    def check(self, method: str, path: str, headers: Mapping[str, str], client: str) -> None:
        """Raise Refused where the request is not to be carried out."""
        self._check_host(headers.get("host", ""))
        self._check_origin(path, headers)
        if not self.rates.allow(client, changing=method not in SAFE):
            raise too_many("Too many requests came at once.", "Wait a few seconds.")
        if not path.startswith(GUARDED):
            return
        self._check_form(method, path, headers)
        self._check_token(path, headers)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.most(path):
            raise too_large(self.most(path))

    def _check_host(self, host: str) -> None:
        name = host.strip().casefold()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in (*LOOPBACK, *self.names, self.host.casefold()):
            return
        # A name can be pointed at any address by its owner, a number cannot.
        if self.token is not None and address_in(name) is not None:
            return
        raise RequestRefused(
            HTTPStatus.FORBIDDEN,
            f"This server is not called {name[:80]!r}.",
            "Open it by the address that rubricem serve printed, or name this one by --host.",
        )

    def _check_origin(self, path: str, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        foreign = origin is not None
        with suppress(ValueError):
            foreign = foreign and urlsplit(str(origin)).netloc != headers.get("host", "")
        asked_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if foreign or (asked_elsewhere and path.startswith(GUARDED)):
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                "A page of another site asked for this.",
                "Use the page that this server shows.",
            )

    def _check_form(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        if method in SAFE:
            return
        if path.startswith(PROGRAMS):
            kind = headers.get("content-type", "").partition(";")[0].strip().casefold()
            if method == "POST" and kind != "application/json":
                raise RequestRefused(
                    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                    "The body is not said to be JSON.",
                    "Send Content-Type: application/json.",
                )
        elif headers.get(CSRF_HEADER.casefold()) != "1":
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                f"The header {CSRF_HEADER} is missing.",
                f"Send {CSRF_HEADER}: 1 with every request that changes something.",
            )

    def _check_token(self, path: str, headers: Mapping[str, str]) -> None:
        if self.token is None or path in OPEN:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.casefold() == "bearer" and self.admits(given.strip()):
            return
        cookie = None
        with suppress(CookieError):
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        shown = cookie.value if cookie else ""
        if shown.isascii() and hmac.compare_digest(shown, self.cookie()):
            return
        raise RequestRefused(
            HTTPStatus.UNAUTHORIZED,
            "This server asks for its token.",
            "Log in with what rubricem serve printed, or send Authorization: Bearer and it.",
        )


def too_large(most: int) -> RequestRefused:
    return RequestRefused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"The body is too large: at most {most:,} bytes are read here.",
        "Put long material into a folder and name it as a source.",
    )


def address_in(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The number that a host is given by; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


DISCARDED = 16
"""times its limit of a body is read and thrown away before the connection is closed"""


class Guard:
    """Lets through what `Security` lets through."""

    def __init__(self, app: ASGIApp, security: Security) -> None:
        self._app = app
        self._security = security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, scope["path"], self._security.most(scope["path"]))
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        client = (scope.get("client") or ("",))[0]
        try:
            self._security.check(scope["method"], scope["path"], headers, client)
        except RequestRefused as refused:
            if refused.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                await exchange.discard()
            await exchange.refuse(refused)
            return
        await self._app(scope, exchange.receive, exchange.send)


class _Exchange:
    """One request: receives a body up to its limit, and sends the reply with our headers."""

    def __init__(self, receive: Receive, send: Send, path: str, most: int) -> None:
        self._receive = receive
        self._send = send
        self._path = path
        self._most = most
        self._read = 0
        self._begun = False
        self._refused = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read <= self._most:
            return message
        if message.get("more_body"):
            await self.discard()
        await self.refuse(too_large(self._most))
        # The client is as good as gone.
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._refused:
            return
        if message["type"] == "http.response.start":
            self._begun = True
            data = {b"cache-control": b"no-store"} if self._path.startswith(GUARDED) else {}
            added = {**HEADERS, **data}
            kept = [(name, value) for name, value in message["headers"] if name not in added]
            message["headers"] = [*kept, *added.items()]
        await self._send(message)

    async def refuse(self, refused: RequestRefused) -> None:
        """Say why, in the place of whatever the application has to say, if it has not begun."""
        if self._begun or self._refused:
            return
        body = json.dumps(reply_of(refused, self._path)[0]).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if refused.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            # What is left of the body is not read.
            headers.append((b"connection", b"close"))
        start = {"type": "http.response.start", "status": refused.status, "headers": headers}
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})
        self._refused = True

    async def discard(self) -> None:
        """Read on without keeping anything: who is cut off while they send does not hear why."""
        read = 0
        while read < DISCARDED * self._most:
            message = await self._receive()
            read += len(message.get("body", b""))
            if not message.get("more_body"):
                return


def bind(host: str, port: int) -> socket.socket:
    """The socket to listen on; SettingsError where it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingsError(
            f"{host!r} is no address of this machine: {error.strerror or error}.",
            "Name another by --host, or leave it out for this machine alone.",
        ) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        listening.close()
        why = os.strerror(error.errno) if error.errno else str(error)
        said = f"Nothing can listen on {host} port {port}: {why}."
        remedy = "Choose another --host or --port."
        if error.errno == errno.EADDRINUSE:
            said, remedy = (
                f"Port {port} is in use.",
                "Choose another by --port, or 0 for any free one.",
            )
        raise SettingsError(said, remedy) from error
    listening.setblocking(False)
    return listening
